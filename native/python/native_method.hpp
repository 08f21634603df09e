// Methods of Python's where native code is asked first.
//
// Always true: Python's function is the whole of the method, for every argument. Native code takes what it can do in
// the same way, and leaves all else to that function, which also says what is wrong.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;

struct NativeMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // Python's
  PyObject* known;     // what native code needs of Python's; null: nothing
  PyObject* dict;
};

// A method that has a function's name, documentation and signature. `ask` gets the method as its first argument.
nb::object make_native_method(vectorcallfunc ask, const nb::object& function, const nb::object& known = {});

void bind_native_methods();

// Frees an object of a class that is written in C and that the garbage collector knows.
template <int (*clear)(PyObject*)>
void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

}  // namespace aiocuda
