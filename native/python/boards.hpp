// The boards of groups, for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_boards(nanobind::module_& module);

}  // namespace aiocuda
