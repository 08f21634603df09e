// The Python face of arrays and operations.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_operations(nb::module_& module);

}  // namespace aiocuda
