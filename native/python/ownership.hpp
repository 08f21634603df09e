// Transitions of arrays: share, unwrap, move, partition, close; and memory that is somebody else's.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;
void bind_ownership(nb::module_& module);
}  // namespace aiocuda
