// Futures as Python sees them, and awaits of them.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_futures(nanobind::module_& module);

}  // namespace aiocuda
