// Whether an object of Python's is of a type that has a native part, and where that is: answered without asking
// nanobind again for the types that were seen last.
#pragma once
#include <nanobind/nanobind.h>

#include <cassert>
#include <cstddef>
#include <utility>

namespace aiocuda::dataflow {

namespace nb = nanobind;

// Is an object an instance of a native class, or of the Python class on top of it? The last type that
// was, and the last that was not, are remembered: the walk of the bases is then rarely needed.
class TypeTest {
 public:
  void set(PyTypeObject* base) { base_ = base; }
  bool operator()(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == hit_) return true;
    if (type == miss_ || !base_) return false;
    return look_up(object);
  }
  // The native part of one. nanobind makes ours in one piece with Python's, so all have it at the same place, and it
  // need not be asked for each.
  template <class T>
  T* part_of(PyObject* object) const {
    auto* const part = reinterpret_cast<T*>(reinterpret_cast<char*>(object) + offset_);
    assert(part == nb::inst_ptr<T>(object));
    return part;
  }

 private:
  [[gnu::noinline]] bool look_up(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    const bool is_one = PyType_IsSubtype(type, base_);
    if (is_one) offset_ = static_cast<char*>(nb::inst_ptr<void>(object)) - reinterpret_cast<char*>(object);
    Py_INCREF(type);  // so that no other type comes to its address
    Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(is_one ? hit_ : miss_, type)));
    return is_one;
  }
  PyTypeObject* base_ = nullptr;
  PyTypeObject* hit_ = nullptr;
  PyTypeObject* miss_ = nullptr;
  std::ptrdiff_t offset_ = 0;  // of the native part
};

}  // namespace aiocuda::dataflow
