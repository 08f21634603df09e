// Raising the package's own exceptions from native code. The types come from aiocuda.errors, so that
// there is one place where errors are defined.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace aiocuda::dataflow {
namespace nb = nanobind;

struct ErrorTypes {
  nb::handle argument_type, argument_value, argument_range, device_mismatch, launch, closed, ownership, capture,
      interrupted, argument_index, exchange;
};
inline ErrorTypes error_types;  // set once, when the package is imported; never released

// Is it no error, but something that ends what is being done: KeyboardInterrupt, SystemExit, asyncio's CancelledError?
inline bool is_interruption(nb::handle error) { return !PyErr_GivenExceptionMatches(error.ptr(), PyExc_Exception); }

// Cold: the compiler lays out what leads here apart from what is executed each time.
[[noreturn, gnu::cold, gnu::noinline]] inline void raise(nb::handle type, const std::string& message) {
  PyErr_SetString(type.ptr() ? type.ptr() : PyExc_RuntimeError, message.c_str());
  throw nb::python_error();
}

}  // namespace aiocuda::dataflow
