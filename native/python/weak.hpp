// Weak references, by what each version of Python has.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

// The object that a weak reference is to; null where it is gone, or there is no reference.
inline nb::object target_of(nb::handle reference) {
  if (!reference.is_valid()) return {};
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(reference.ptr(), &found) < 0) throw nb::python_error();
  return nb::steal(found);
#else
  PyObject* const found = PyWeakref_GetObject(reference.ptr());
  return found == Py_None ? nb::object() : nb::borrow(found);
#endif
}

}  // namespace aiocuda
