// Futures on their way, for `as_completed` and `wait`.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace aiocuda {

// A token that came out of a port: if it is that of a future on its way, tells it. False: it is something else.
bool wake_arrival(PyObject* token, std::int32_t result);

void bind_arrivals(nanobind::module_& module);

}  // namespace aiocuda
