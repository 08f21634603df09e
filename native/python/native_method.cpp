// Methods of Python's where native code is asked first: see native_method.hpp.
#include "native_method.hpp"

#include "member_types.hpp"

namespace aiocuda {
namespace {

PyTypeObject* method_type;

int method_traverse(PyObject* self, visitproc visit, void* arg) {
  const auto* method = reinterpret_cast<NativeMethod*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(method->function);
  Py_VISIT(method->known);
  Py_VISIT(method->dict);
  return 0;
}
int method_clear(PyObject* self) {
  auto* method = reinterpret_cast<NativeMethod*>(self);
  Py_CLEAR(method->function);
  Py_CLEAR(method->known);
  Py_CLEAR(method->dict);
  return 0;
}
// Of an object, the bound method; of the class, itself.
PyObject* method_get(PyObject* self, PyObject* object, PyObject*) {
  if (object && object != Py_None) return PyMethod_New(self, object);
  return Py_NewRef(self);
}

}  // namespace

nb::object make_native_method(vectorcallfunc ask, const nb::object& function, const nb::object& known) {
  nb::object object = nb::steal(PyType_GenericAlloc(method_type, 0));
  if (!object.is_valid()) throw nb::python_error();
  auto& method = *reinterpret_cast<NativeMethod*>(object.ptr());
  method.vectorcall = ask;
  method.function = nb::borrow(function).release().ptr();
  method.known = nb::borrow(known).release().ptr();
  nb::module_::import_("functools").attr("update_wrapper")(object, function);
  return object;
}

void bind_native_methods() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(NativeMethod, vectorcall), Py_READONLY, nullptr},
      {"__dictoffset__", Py_T_PYSSIZET, offsetof(NativeMethod, dict), Py_READONLY, nullptr},
      {}};
  static PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                     {}};
  static PyType_Slot slots[] = {{Py_tp_getset, properties},
                                {Py_tp_dealloc, reinterpret_cast<void*>(deallocate<method_clear>)},
                                {Py_tp_traverse, reinterpret_cast<void*>(method_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(method_clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(method_get)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"aiocuda._native.NativeMethod", sizeof(NativeMethod), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  method_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!method_type) throw nb::python_error();
}

}  // namespace aiocuda
