// Counts of the engine's work.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_statistics(nb::module_& module);

}  // namespace aiocuda
