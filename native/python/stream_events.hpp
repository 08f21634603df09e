// Events that order streams outside of the engine's books, for Python: collectives use them.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {

void bind_stream_events(nanobind::module_& module);

}  // namespace aiocuda
