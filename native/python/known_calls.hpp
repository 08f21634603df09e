// Calls of compiled functions that are like an earlier one.
#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>

namespace aiocuda {

// The operation for a call, if a KnownCall knows such calls; else none, and the call is for Python. `given`, `names`:
// as a vector call has them.
nanobind::object launch_known(nanobind::handle known, PyObject* const* given, std::size_t count, PyObject* names);

void bind_known_calls(nanobind::module_& module);

}  // namespace aiocuda
