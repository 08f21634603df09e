// Results of iterators: see returning.hpp.
#include "returning.hpp"

namespace aiocuda {
namespace {

// Since CPython 3.12 each await needs a StopIteration: `SEND` asks `tp_iternext` of all but generators and coroutines,
// and never `am_send`. To make and free one, and PyErr_SetObject, take half as many instructions as all else that an
// await of a future takes that is done (docs/measurements/2026-11-28-awaits.md). So one is used again; it is empty.
PyStopIterationObject* spare_stop = nullptr;

PyStopIterationObject* as_stop(PyObject* stop) { return reinterpret_cast<PyStopIterationObject*>(stop); }

PyObject* make_stop() {
  auto* const type = reinterpret_cast<PyTypeObject*>(PyExc_StopIteration);
  PyObject* const nothing = PyTuple_New(0);
  PyObject* const made = nothing ? type->tp_new(type, nothing, nullptr) : nullptr;
  Py_XDECREF(nothing);
  return made;
}

// Puts a result into it, and drops the one that was there. Both are taken.
void fill_stop(PyStopIterationObject& stop, PyObject* arguments, PyObject* value) {
  PyObject* const old_arguments = std::exchange(stop.args, arguments);
  PyObject* const old_value = std::exchange(stop.value, value);
  Py_XDECREF(old_arguments);
  Py_XDECREF(old_value);
}

bool is_as_made(const PyStopIterationObject& stop) {
  return Py_REFCNT(&stop) == 1 && !stop.dict && !stop.notes && !stop.traceback && !stop.context && !stop.cause &&
         !stop.suppress_context;
}

// Raises it with the result. Both are taken. Returns nothing.
PyObject* raise_stop(PyObject* stop, PyObject* value) {
  PyObject* const arguments = stop ? PyTuple_Pack(1, value) : nullptr;
  if (!arguments) {
    Py_XDECREF(stop);
    Py_DECREF(value);
    return nullptr;
  }
  fill_stop(*as_stop(stop), arguments, value);
  PyErr_Restore(Py_NewRef(PyExc_StopIteration), stop, nullptr);
  return nullptr;
}

}  // namespace

PyObject* answer_of_method(PySendResult answer, PyObject* value) {
  return answer == PYGEN_RETURN ? raise_stop(make_stop(), value) : value;
}

PyObject* Returned::answer(PySendResult answer, PyObject* value) {
  if (answer != PYGEN_RETURN) return value;
  if (value == Py_None) {
    Py_DECREF(value);
    return nullptr;
  }
  clear();
  stop_ = spare_stop ? reinterpret_cast<PyObject*>(std::exchange(spare_stop, nullptr)) : make_stop();
  return raise_stop(Py_XNewRef(stop_), value);
}

void Returned::put_back(PyObject* stop) {
  if (spare_stop || !is_as_made(*as_stop(stop))) [[unlikely]] {
    Py_DECREF(stop);
    return;
  }
  // To drop the result may run Python code, which may take the spare one: there is none until this one is empty.
  fill_stop(*as_stop(stop), PyTuple_New(0), Py_NewRef(Py_None));
  if (spare_stop) [[unlikely]]
    Py_DECREF(stop);
  else
    spare_stop = as_stop(stop);
}

}  // namespace aiocuda
