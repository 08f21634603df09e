// Executions and ports as Python sees them.
#include "execution.hpp"

#include <nanobind/stl/optional.h>

#include "../driver/execution.hpp"
#include "../driver/refused.hpp"
#include "arrivals.hpp"
#include "device_waits.hpp"
#include "direct.hpp"
#include "execution_awaits.hpp"
#include "futures.hpp"
#include "loop_port.hpp"
#include "native_method.hpp"
#include "places.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using driver::Execution;

// The tokens that came out of a port. Those that nobody takes from here are dropped.
class Taken {
 public:
  // The port outlives this.
  Taken(LoopPort& port, bool begins_turn) : port_(port) {
    interpreter::guard_thread();
    if (port.is_inherited()) process_engine().require_not_forked();
    due_ = port.port->take(std::exchange(port.spare, {}));
    if (!due_.empty()) loop_wakes.store(loop_wakes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (port.time && begins_turn) {
      for (const completion::Token token : port.time->begin_turn()) due_.push_back({token, completion::own_turn});
      port.look_for_turn();
    } else if (port.time && port.time->has_asked()) {
      port.port->ring();  // what was rung for has been taken back
    }
    drop_orphans();
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    while (next().first.is_valid()) {
    }
    due_.clear();
    port_.spare = std::move(due_);
  }

  // The next token, with its result; null: there is none.
  std::pair<nb::object, std::int32_t> next() {
    if (next_ == due_.size()) return {};
    const completion::Port::Due& due = due_[next_++];
    return {nb::steal(static_cast<PyObject*>(due.token)), due.result};
  }

 private:
  LoopPort& port_;
  std::vector<completion::Port::Due> due_;
  std::size_t next_ = 0;
};

void require_open(const Execution& execution) { to_execute(execution.op(), execution.placement()); }

// (op, placement): submits it.
nb::object submit(PyObject* const* arguments) {
  op_of(arguments[0]);
  Execution execution(process_engine(), nb::borrow(arguments[0]), as_placement(arguments[1]));
  require_open(execution);
  execution.submit();
  return nb::none();
}

constexpr double no_timeout = -1;

// Executes an operation and returns its result.
nb::object run_and_wait(nb::handle op, nb::object placement, double timeout_s) {
  Execution execution(process_engine(), nb::borrow(op), std::move(placement));
  require_open(execution);
  if (!execution.wait(driver::Patience(timeout_s))) driver::raise_exception(overdue().of_op(op, timeout_s));
  return execution.op().outcome;
}
// (op, placement, timeout_s): the same, under the placement in force where none is given. Negative: there is no
// time-out.
nb::object run_and_wait(PyObject* const* arguments) {
  op_of(arguments[0]);
  const double timeout_s = PyFloat_AsDouble(arguments[2]);
  if (timeout_s == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return run_and_wait(arguments[0],
                      arguments[1] == Py_None ? dataflow::placement_in_force() : as_placement(arguments[1]), timeout_s);
}
PyObject* sync_called(PyObject* self, PyObject* const* args, std::size_t flagged, PyObject* names) noexcept {
  if (PyVectorcall_NARGS(flagged) == 1 && !names && dataflow::is_op(args[0]))
    return raising([&] { return run_and_wait(args[0], dataflow::placement_in_force(), no_timeout); });
  return PyObject_Vectorcall(reinterpret_cast<NativeMethod*>(self)->function, args, flagged, names);
}

// An await of work of another thread.
class AwaitedWork final : public Awaited {
 public:
  using Awaited::Awaited;

  bool has_ended() override { return work().ended->has_ended(); }
  Went go_on(LoopPort& port, PyObject* await) override {
    nb::object token = nb::borrow(await);
    if (!work().ended->tell(port.port, await)) return Went::arrived;
    token.release();
    return Went::waits;
  }
  bool came_out(PyObject*, std::int32_t) override { return true; }
  bool is_late(double) override { return true; }
  void leave(PyObject* await) override {
    if (!process_engine().is_over() && work().ended->withdraw(await)) Py_DECREF(await);
  }
  nb::object outcome() override { return nb::none(); }

 private:
  const driver::HostWork& work() const { return *nb::inst_ptr<driver::HostWork>(subject()); }
};
PyObject* await_work(PyObject* work) { return make_await(std::make_unique<AwaitedWork>(work)); }
PyType_Slot work_slots[] = {{Py_am_await, reinterpret_cast<void*>(await_work)}, {0, nullptr}};

// (begins_turn=False)
PyObject* wake_due_called(PyObject* self, PyObject* const* args, Py_ssize_t count) noexcept {
  if (count > 1) return PyErr_Format(PyExc_TypeError, "wake_due() takes one argument, not %zd", count);
  return raising([&] {
    const nb::object kept = nb::borrow(self);
    wake_due(*nb::inst_ptr<LoopPort>(kept), count && args[0] == Py_True);
    return nb::none();
  });
}

}  // namespace

void wake_due(LoopPort& port, bool begins_turn) {
  static PyObject* const name = PyUnicode_InternFromString("wake");
  Taken taken(port, begins_turn);
  for (auto due = taken.next(); due.first.is_valid(); due = taken.next()) {
    if (wake_await(due.first.ptr(), due.second) || wake_arrival(due.first.ptr(), due.second)) continue;
    due.first.attr(name)(due.second);
  }
}

void bind_execution(nb::module_& module) {
  bind_loops(module);
  bind_awaiting(module);
  bind_execution_awaits(module);
  bind_futures(module);
  bind_arrivals(module);
  bind_device_waits(module);
  auto port = nb::class_<LoopPort>(module, "Port", nb::is_weak_referenceable());
  port
      // `turn_us`: how long awaits may hold the loop in one turn of it; None: it is no loop's.
      .def(nb::init<std::optional<std::int64_t>>(), "turn_us"_a = nb::none())
      .def("fileno", [](const LoopPort& self) { return self.port->fd(); })
      // Makes a token due now, and not when something has passed; with 0, or PAUSE.
      .def(
          "put",
          [](LoopPort& self, nb::object token, std::int32_t result) {
            process_engine().require_not_forked();
            self.port->put(token.release().ptr(), result);
          },
          "token"_a, "result"_a = 0)
      // The tokens that are due, each with 0 or the driver's error. `begins_turn`: the loop asks, once in each turn.
      .def(
          "take",
          [](LoopPort& self, bool begins_turn) {
            nb::list all;
            Taken taken(self, begins_turn);
            for (auto due = taken.next(); due.first.is_valid(); due = taken.next())
              all.append(nb::make_tuple(due.first, due.second));
            return all;
          },
          "begins_turn"_a = false)
      .def_prop_ro("turn_calls", [](const LoopPort& self) { return self.time->calls(); });
  // Tells all whose tokens are due, in the order in which they became so. A loop calls it each time that it wakes.
  static PyMethodDef waking = {"wake_due", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wake_due_called)),
                               METH_FASTCALL, nullptr};
  port.attr("wake_due") = checked(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(port.ptr()), &waking));

  // Work of another thread, for its waiters: tokens, or a thread that blocks. `end` is called once, when it has ended.
  nb::class_<driver::HostWork>(module, "HostWork", nb::is_weak_referenceable(), nb::type_slots(work_slots))
      .def(nb::init<>())
      .def("end", &driver::HostWork::end)
      .def_prop_ro("has_ended", [](const driver::HostWork& self) { return self.ended->has_ended(); })
      // Gives up the GIL, and looks for signals.
      .def("wait", [](const driver::HostWork& self) {
        interpreter::guard_thread();
        driver::wait_until(*self.ended, driver::Patience());
      });

  // `get` asks the driver for it without the GIL.
  nb::class_<driver::AheadMemory>(module, "AheadMemory").def("get", [](driver::AheadMemory& self) {
    self.get(process_engine());
  });

  module.attr("PAUSE") = completion::pause;

  // Decorates the method of operations that executes them and waits.
  module.def("synced_natively", [](const nb::object& function) { return make_native_method(sync_called, function); });
  static PyMethodDef functions[] = {direct<submit, 2>("submit"), direct<run_and_wait, 3>("run_and_wait"), {}};
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw nb::python_error();
  // How often walks have looked at an operation.
  module.def("walk_visits", [] { return dataflow::Path::visits(); });
  module.def("has_passed", [](nb::handle_t<dataflow::Op> op) { return driver::has_passed(process_engine(), op); });
}

}  // namespace aiocuda
