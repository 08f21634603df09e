// Objects of a class of Python's on top of a native one, used again: to make one, and to free it, takes longer than to
// build the operation in it.
//
// Always true: a spare object has no native part and no weak reference, and the garbage collector does not know it. It
// keeps its class. Guarded by the GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <utility>

#include "../spares.hpp"

namespace aiocuda {
namespace nb = nanobind;

// Of the first class on top of `T` that is asked for; objects of others are made and freed as usual.
template <class T>
class SpareObjects {
 public:
  // A new object, and in it `native`: a `T(arguments...)`.
  template <class... Arguments>
  static nb::object make(nb::handle type, T*& native, Arguments&&... arguments) {
    nb::object object = nb::steal(take(reinterpret_cast<PyTypeObject*>(type.ptr()), nullptr, nullptr));
    if (!object.is_valid()) throw nb::python_error();
    native = new (nb::inst_ptr<T>(object)) T(std::forward<Arguments>(arguments)...);
    nb::inst_mark_ready(object);
    return object;
  }

 private:
  struct Kept {
    PyTypeObject* type = nullptr;  // none: no class has been asked for
    newfunc make = nullptr;        // of the native class, as the next
    destructor free = nullptr;
    Spares<PyObject, 128> objects;
  };
  static inline Kept kept;

  // Python calls this as well, where the class is called.
  static PyObject* take(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    if (type == kept.type) [[likely]] {
      if (PyObject* const object = kept.objects.take()) [[likely]] {
        Py_SET_REFCNT(object, 1);
        PyObject_GC_Track(object);
        return object;
      }
    } else if (!kept.type) {
      serve(type);
    }
    return kept.make(type, arguments, keywords);
  }

  // A class that adds something to its objects has to free that itself.
  static void serve(PyTypeObject* type) {
    const PyTypeObject* const base = type->tp_base;
    kept.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
    kept.make = base->tp_new;
    kept.free = base->tp_dealloc;
    if (type->tp_basicsize != base->tp_basicsize || type->tp_dictoffset || type->tp_weaklistoffset <= 0) return;
    type->tp_new = take;
    type->tp_dealloc = put_back;
  }

  static void put_back(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    if (type != kept.type) return kept.free(object);  // a class below: it has done what is its own
    if (type->tp_finalize) [[unlikely]] {  // such as the report of unused operations; it runs once for each object
      if (PyObject_CallFinalizerFromDealloc(object) == 0) kept.free(object);
      return;
    }
    if (kept.objects.is_full()) return kept.free(object);
    PyObject_GC_UnTrack(object);
    if (*reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + type->tp_weaklistoffset)) [[unlikely]]
      PyObject_ClearWeakRefs(object);
    nb::inst_destruct(object);
    if (!kept.objects.put(object)) kept.free(object);  // what the destructor let go of came here, too
  }
};

}  // namespace aiocuda
