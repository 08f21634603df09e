// The functions by which other libraries' allocators take memory from the devices' memory pools.
//
// Always true: those that are exported need neither Python nor the GIL. At the end of the process, and in a fork, they
// call no driver.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_guests(nanobind::module_& module);

}  // namespace aiocuda
