// Calls of compiled functions that are like an earlier one.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
void bind_known_calls(nanobind::module_& module);
}
