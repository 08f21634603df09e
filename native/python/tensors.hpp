// Arrays of other libraries, given as they are where arrays are taken.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
void bind_tensors(nanobind::module_& module);
}  // namespace aiocuda
