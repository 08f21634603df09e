// Refusals of the driver, as Python's errors.
//
// Always true: the error names the operation that the call was made for, or, where there is none, what was being done.
#pragma once
#include <concepts>
#include <string>
#include <type_traits>

#include "engine.hpp"

namespace aiocuda::driver {
using dataflow::Op;

// The Python object of a native instance.
inline nb::object object_of(Op& op) { return nb::find(op); }

[[noreturn, gnu::cold]] inline void raise_exception(nb::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

// Raises what Python makes of a refused call. `asked`: the operation that it was for, or, in words, what was being
// done.
[[noreturn, gnu::cold]] inline void raise_refused(const Engine& engine, CUresult result, const char* function,
                                                  const nb::object& asked, std::uint64_t asked_bytes = 0,
                                                  std::int32_t device = dataflow::unknown_ordinal) {
  raise_exception(engine.hooks.refused(static_cast<int>(result), function, asked, asked_bytes, device));
}
[[noreturn, gnu::cold]] inline void raise_refused(const Engine& engine, CUresult result, const char* function,
                                                  const std::string& asked, std::uint64_t asked_bytes = 0,
                                                  std::int32_t device = dataflow::unknown_ordinal) {
  raise_refused(engine, result, function, nb::str(asked.c_str()), asked_bytes, device);
}
// The same, for work that was given to a device. If the host has no page-locked memory left, the host refused.
[[noreturn, gnu::cold]] inline void raise_refused(const Engine& engine, const Refusal& refusal, const nb::object& asked,
                                                  std::int32_t device, std::uint64_t asked_bytes = 0) {
  const bool is_host_full = refusal.asked_host_bytes && refusal.result == CUDA_ERROR_OUT_OF_MEMORY;
  const std::int32_t refused = refusal.device >= 0 ? refusal.device : device;
  raise_refused(engine, refusal.result, refusal.function, asked,
                refusal.asked_host_bytes ? refusal.asked_host_bytes : asked_bytes,
                is_host_full ? dataflow::host_ordinal : refused);
}

// The subject of the error: an operation, an object, words, or a function that gives one of them when it is needed.
inline nb::object described(Op& op) { return object_of(op); }
inline nb::object described(const nb::object& asked) { return asked; }
inline nb::object described(const std::string& asked) { return nb::str(asked.c_str()); }
template <std::invocable F>
  requires(!std::derived_from<std::remove_cvref_t<F>, nb::handle>)  // an object of Python's could be called as well
nb::object described(F&& asked) {
  return described(asked());
}

// Has the error of a framework's function say which operation it was for, and which line of the program built that.
inline void note_place(const nb::python_error& error, Op& op) {
  const std::string place = op.origin.text();
  std::string text = nb::cast<std::string>(object_of(op).attr("_title"));
  if (!place.empty()) text += ", built at " + place;
  error.value().attr("add_note")(text);
}

// Does something on a device. A refusal of the driver is raised as the error of `asked`. `asked_bytes`: how much memory
// it is about, if it is.
template <class Asked, class F>
std::invoke_result_t<F> doing(const Engine& engine, Asked&& asked, std::int32_t device, F&& f,
                              std::uint64_t asked_bytes = 0) {
  try {
    return f();
  } catch (const Refusal& refusal) {
    raise_refused(engine, refusal, described(asked), device, asked_bytes);
  }
}

}  // namespace aiocuda::driver
