// The floors of benchmarks/bench_copies.py: copies between host and device by the driver's own calls in C++, for Python
// to compare with in the same run.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_copy_bench(nb::module_& module);

}  // namespace aiocuda
