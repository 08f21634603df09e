// What the driver refuses, as Python's error.
//
// Always true: the error names the operation that the call was made for, or, where there is none, what was being done.
#pragma once
#include <string>

#include "engine.hpp"

namespace aiocuda::driver {
using dataflow::Op;

[[noreturn]] inline void raise_exception(nb::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

// Raises what Python makes of a refused call. `asked`: the operation that it was for, or, in words, what was being done.
[[noreturn]] inline void raise_refused(const Engine& engine, CUresult result, const char* function, const nb::object& asked,
                                       std::uint64_t asked_bytes = 0, std::int32_t device = dataflow::unknown_ordinal) {
  raise_exception(engine.hooks.refused(static_cast<int>(result), function, asked, asked_bytes, device));
}
[[noreturn]] inline void raise_refused(const Engine& engine, CUresult result, const char* function, const std::string& asked,
                                       std::uint64_t asked_bytes = 0, std::int32_t device = dataflow::unknown_ordinal) {
  raise_refused(engine, result, function, nb::str(asked.c_str()), asked_bytes, device);
}

// The Python object of a native instance.
inline nb::object object_of(Op& op) { return nb::find(op); }

}  // namespace aiocuda::driver
