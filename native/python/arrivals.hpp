// Futures on their way, for `as_completed` and `wait`.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_arrivals(nanobind::module_& module);

}  // namespace aiocuda
