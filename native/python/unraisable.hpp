// Exceptions of Python code that is called where none can be raised.
#pragma once
#include <Python.h>

namespace aiocuda {

// Tells of the exception that is set, which has no one to go to. Ctrl-C goes to whoever runs next: it comes again.
inline void tell_unraisable(PyObject* of) noexcept {
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return PyErr_WriteUnraisable(of);
  PyErr_Clear();
  PyErr_SetInterrupt();
}

}  // namespace aiocuda
