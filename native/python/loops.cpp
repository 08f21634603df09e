// The event loop that runs in this thread: see loops.hpp.
#include "loops.hpp"

#include <chrono>
#include <limits>
#include <utility>

#include "weak.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;

// The functions that the loops' Python files give.
struct Runtimes {
  nb::object current_port{};    // Python's way, for the first await of a loop, and for errors
  nb::object asyncio_loop{};    // -> the loop of asyncio's that runs in this thread, or None
  nb::object future_is_done{};  // asyncio's error
  nb::object in_trio_task{}, trio_port{}, trio_deadline{}, trio_checkpoint{}, trio_reschedule{},
      trio_value{};  // once trio's file is there
};
Runtimes& runtimes() {
  static auto* known = new Runtimes;
  return *known;
}

// The loop of asyncio's that last asked in this thread, and its port; they end when they end.
struct Latest {
  nb::object loop, port;
};
Latest& latest() {
  static thread_local auto* of_thread = new Latest;  // no destructor: the interpreter may have gone first
  return *of_thread;
}

bool may_be_trio() {
  if (runtimes().in_trio_task.is_valid()) return true;
  static PyObject* const name = PyUnicode_InternFromString("trio");
  PyObject* const modules = PyImport_GetModuleDict();
  const int found = PyDict_Contains(modules, name);
  if (found < 0) PyErr_Clear();
  return found > 0;
}

Place slow_place() {
  Place found;
  found.face = runtimes().current_port();
  found.port = found.face.attr(names().native);
  if (runtimes().in_trio_task.is_valid() && nb::cast<bool>(runtimes().in_trio_task())) return found;
  found.loop = runtimes().asyncio_loop();
  found.face.reset();
  Latest& kept = latest();
  kept.loop = checked(PyWeakref_NewRef(found.loop.ptr(), nullptr));
  kept.port = checked(PyWeakref_NewRef(found.port.ptr(), nullptr));
  return found;
}

}  // namespace

Place current_place() {
  const Runtimes& known = runtimes();
  if (may_be_trio()) {
    if (!known.in_trio_task.is_valid()) return slow_place();
    if (checked(PyObject_CallNoArgs(known.in_trio_task.ptr())).is(Py_True)) {
      PyObject* const face = PyObject_CallNoArgs(known.trio_port.ptr());
      if (!face) {  // the first await of this run
        PyErr_Clear();
        return slow_place();
      }
      Place found{.face = nb::steal(face)};
      found.port = found.face.attr(names().native);
      return found;
    }
  }
  if (known.asyncio_loop.is_valid()) {
    nb::object loop = checked(PyObject_CallNoArgs(known.asyncio_loop.ptr()));
    if (!loop.is_none() && target_of(latest().loop).is(loop))
      if (nb::object port = target_of(latest().port); port.is_valid())
        return {.port = std::move(port), .loop = std::move(loop)};
  }
  return slow_place();
}

bool wake_future(const nb::object& future) {
  PyObject* const set[] = {future.ptr(), Py_None};
  if (PyObject* const none = PyObject_VectorcallMethod(names().set_result, set, 2, nullptr)) [[likely]] {
    Py_DECREF(none);
    return true;
  }
  if (!PyErr_ExceptionMatches(runtimes().future_is_done.ptr())) throw nb::python_error();
  PyErr_Clear();
  return false;
}

double Place::now_s() const {
  if (is_trio()) return nb::cast<double>(call_method(names().time, face));
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool trio_goes_on() { return nb::cast<double>(runtimes().trio_deadline()) > -std::numeric_limits<double>::infinity(); }
nb::object trio_checkpoint() { return runtimes().trio_checkpoint(); }
void trio_reschedule(const nb::object& task, std::int32_t result) {
  runtimes().trio_reschedule(task, runtimes().trio_value(result));
}

const Names& names() {
  static const Names made = [] {
    auto intern = [](const char* name) { return PyUnicode_InternFromString(name); };
    return Names{intern("create_future"), intern("set_result"), intern("call_soon"), intern("call_later"),
                 intern("cancel"),        intern("sleep"),      intern("wait"),      intern("time"),
                 intern("throw"),         intern("close"),      intern("native"),    intern("wake")};
  }();
  return made;
}

void bind_loops(nb::module_& module) {
  module.def(
      "set_loops", [](nb::object current_port) { runtimes().current_port = std::move(current_port); },
      "current_port"_a);
  module.def("set_asyncio", [](nb::object running_loop, nb::object invalid_state) {
    runtimes().asyncio_loop = std::move(running_loop);
    runtimes().future_is_done = std::move(invalid_state);
  });
  // trio's functions, and who has the port of a run, or raises a LookupError.
  module.def("set_trio", [](nb::object in_task, nb::object port, nb::object deadline, nb::object checkpoint,
                            nb::object reschedule, nb::object value) {
    Runtimes& known = runtimes();
    known.trio_reschedule = std::move(reschedule);
    known.trio_value = std::move(value);
    known.in_trio_task = std::move(in_task);
    known.trio_port = std::move(port);
    known.trio_deadline = std::move(deadline);
    known.trio_checkpoint = std::move(checkpoint);
  });
}

}  // namespace aiocuda
