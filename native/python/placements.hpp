// Python's face of placements.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_placements(nb::module_& module);

}  // namespace aiocuda
