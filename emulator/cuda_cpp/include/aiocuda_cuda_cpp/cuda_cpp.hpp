// Everything CUDA C++ has without an #include: what NVRTC declares for every program.
#pragma once

#include "atomics.hpp"
#include "block.hpp"
#include "float_intrinsics.hpp"
#include "graph_control.hpp"
#include "integer_intrinsics.hpp"
#include "kernel.hpp"
#include "language.hpp"
#include "math.hpp"
#include "runtime_types.hpp"
#include "vector_types.hpp"
