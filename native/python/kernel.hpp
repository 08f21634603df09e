// The callable kernel: a plain CPython type, because only a plain type can offer vectorcall (no tuple of arguments, no
// dictionary of keywords). Launches are built by it.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

// Adds the type `Kernel` and the function `make_kernel` to the module.
void bind_kernel(nb::module_& module);

}  // namespace aiocuda
