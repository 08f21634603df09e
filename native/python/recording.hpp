// The recording of a trace, as Python sees it.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

void bind_recording(nb::module_& module);

}  // namespace aiocuda
