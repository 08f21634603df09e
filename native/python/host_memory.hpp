#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
void bind_host_memory(nanobind::module_& module);
}
