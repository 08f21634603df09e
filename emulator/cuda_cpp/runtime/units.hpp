// The units that a module was linked from.
#pragma once

#include "abi/module_abi.hpp"
#include "cuda_cpp/include/aiocuda_cuda_cpp/unit.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {
// The linker sets these to the ends of a section; where there is no such section, they are null.
[[gnu::weak, gnu::visibility("hidden")]] extern const aiocuda::emulator::abi::Unit* const __start_aiocuda_units[];
[[gnu::weak, gnu::visibility("hidden")]] extern const aiocuda::emulator::abi::Unit* const __stop_aiocuda_units[];
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
