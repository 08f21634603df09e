// `await` of an operation: what a loop drives, in place of a coroutine.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace aiocuda {
namespace nb = nanobind;

// `op.__await__()`.
PyObject* await_op(PyObject* op);

// A token that has come out of a port, and is an await: tells it. False: it is something else.
bool wake_await(PyObject* token, std::int32_t result);

void bind_awaiting(nb::module_& module);

}  // namespace aiocuda
