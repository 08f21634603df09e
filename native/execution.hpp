// Executions and ports, for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;
void bind_execution(nb::module_& module);
}  // namespace aiocuda
