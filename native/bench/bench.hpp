// The floors of `aiocuda bench`: the driver's own calls in C++, for Python to compare with in the same run.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_bench(nb::module_& module);

}  // namespace aiocuda
