// The floors of `aiocuda bench graphs`: graphs that the driver's own calls in C++ make and launch, for Python to
// compare with in the same run.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_graph_bench(nb::module_& module);

}  // namespace aiocuda
