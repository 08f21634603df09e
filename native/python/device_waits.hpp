// Streams and events as Python waits for them.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_device_waits(nanobind::module_& module);

}  // namespace aiocuda
