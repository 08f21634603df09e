// Results of iterators: see returning.hpp.
#include "returning.hpp"

#include <utility>

namespace aiocuda {
namespace {

// Since CPython 3.12 each await needs a StopIteration: `SEND` asks `tp_iternext` of all but generators and coroutines,
// and never `am_send`. To make and free one, and PyErr_SetObject, take half as many instructions as all else that an
// await of a future takes that is done (docs/measurements/2026-11-28-awaits.md). So one is used again.
PyStopIterationObject* reused_stop = nullptr;

PyStopIterationObject* make() {
  auto* const type = reinterpret_cast<PyTypeObject*>(PyExc_StopIteration);
  PyObject* const nothing = PyTuple_New(0);
  PyObject* const made = nothing ? type->tp_new(type, nothing, nullptr) : nullptr;
  Py_XDECREF(nothing);
  return reinterpret_cast<PyStopIterationObject*>(made);
}

// Puts a result into it, and drops the one that was there. Both are taken.
void fill(PyStopIterationObject& stop, PyObject* arguments, PyObject* value) {
  PyObject* const old_arguments = std::exchange(stop.args, arguments);
  PyObject* const old_value = std::exchange(stop.value, value);
  Py_XDECREF(old_arguments);
  Py_XDECREF(old_value);
}

bool is_as_made(const PyStopIterationObject& stop) {
  return Py_REFCNT(&stop) == 1 && !stop.dict && !stop.notes && !stop.traceback && !stop.context && !stop.cause &&
         !stop.suppress_context;
}

// `value`: taken.
void stop_with(PyObject* value) {
  let_go_of_result();
  PyObject* const arguments = PyTuple_Pack(1, value);
  if (arguments && !reused_stop) reused_stop = make();
  if (!arguments || !reused_stop) {
    Py_XDECREF(arguments);
    Py_DECREF(value);
    return;
  }
  detail::holds_result = true;
  fill(*reused_stop, arguments, value);
  PyErr_Restore(Py_NewRef(PyExc_StopIteration), Py_NewRef(reused_stop), nullptr);
}

}  // namespace

void detail::let_go_of_result() {
  holds_result = false;
  if (!is_as_made(*reused_stop)) [[unlikely]] {  // somebody holds it, or has changed it
    Py_DECREF(std::exchange(reused_stop, nullptr));
    return;
  }
  fill(*reused_stop, PyTuple_New(0), Py_NewRef(Py_None));
}

PyObject* answer_of_method(PySendResult answer, PyObject* value) {
  if (answer != PYGEN_RETURN) return value;
  stop_with(value);
  return nullptr;
}

PyObject* answer_of_next(PySendResult answer, PyObject* value) {
  if (answer != PYGEN_RETURN || value != Py_None) return answer_of_method(answer, value);
  Py_DECREF(value);
  return nullptr;
}

}  // namespace aiocuda
