// Futures as Python sees them, and awaits of them: see future.hpp.
#include "futures.hpp"

#include <utility>

#include "../spares.hpp"
#include "direct.hpp"
#include "execution_awaits.hpp"
#include "future.hpp"
#include "native_method.hpp"
#include "places.hpp"
#include "spare_objects.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::Op;
using dataflow::Placement;
using driver::Execution;

struct Known {
  nb::object future_class{};      // DeviceFuture
  nb::object as_its_operation{};  // the end of a future that ended as its operation did
  PyObject *settle = nullptr, *fail = nullptr, *outcome = nullptr;  // names of its methods
};
Known& known() {
  static auto* made = new Known;
  return *made;
}

// The future's operation has ended: so has the future, unless it was cancelled before.
void settle(nb::handle object) {
  Future& future = *nb::inst_ptr<Future>(object);
  if (future.end().is_valid()) return;
  if (future.audience.is_valid()) {
    call_method(known().settle, object, known().as_its_operation.ptr());
  } else {
    future.end_with(known().as_its_operation);
    future.wake();
  }
}
// Its operation's failure is the future's to tell. An interruption goes to the caller that runs the function it came
// out of, in this call.
void settle_failed(nb::handle object, nb::python_error& error) {
  const Op& op = *dataflow::as_op(nb::inst_ptr<Future>(object)->op());
  if (op.state != dataflow::State::failed) throw nb::python_error(error);
  settle(object);
  if (dataflow::is_interruption(error.value())) throw nb::python_error(error);
}

class AwaitedFuture final : public AwaitedExecution, public SpareMemory<AwaitedFuture> {
 public:
  using AwaitedExecution::AwaitedExecution;

  void begin(const Place& place, double&) override {
    Future& future = this->future();
    if (future.end().is_valid() || future.is_started) return;
    try {
      begin_tensors(place);
    } catch (nb::python_error& error) {
      settle_failed(subject(), error);
    }
  }
  bool has_ended() override { return future().end().is_valid() || AwaitedExecution::has_ended(); }
  Went go_on(LoopPort& port, PyObject* await) override {
    Future& future = this->future();
    if (future.end().is_valid()) return Went::arrived;
    future.is_started = true;
    future.add(await, port.port);  // first: a cancellation from now on tells this await
    try {
      const Went went = drive(port, await);
      if (went == Went::waits) return went;
      future.remove(await);
      if (went == Went::turn_is_over) return went;
      settle(subject());
    } catch (nb::python_error& error) {
      future.remove(await);
      settle_failed(subject(), error);
    }
    return Went::arrived;
  }
  bool came_out(PyObject* await, std::int32_t result) override {
    future().remove(await);
    if (future().end().is_valid()) return true;
    try {
      if (!is_complete_with(result)) return false;
      settle(subject());
    } catch (nb::python_error& error) {
      settle_failed(subject(), error);
    }
    return true;
  }
  void leave(PyObject* await) override {
    future().remove(await);
    AwaitedExecution::leave(await);
  }
  nb::object outcome() override {
    const Op& of = *dataflow::as_op(op());
    if (future().end().is(known().as_its_operation) && of.is_done()) return of.outcome;
    return call_method(known().outcome, subject());  // which raises
  }

 protected:
  nb::handle op() const override { return future().op(); }
  Execution& execution() override { return future().execution(); }

 private:
  Future& future() const { return *nb::inst_ptr<Future>(subject()); }
};

PyObject* await_future(PyObject* future) { return make_await(std::make_unique<AwaitedFuture>(future)); }

int future_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Future>(nb::handle(self))->traverse(visit, arg) : 0;
}
int future_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Future>(nb::handle(self))->clear();
  return 0;
}
PyType_Slot future_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(future_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(future_clear)},
                              {Py_am_await, reinterpret_cast<void*>(await_future)},
                              {0, nullptr}};

void require_open(Future& future) { to_execute(future.execution().op(), future.execution().placement()); }

// Waits, giving up the GIL, until the future is settled. False: `timeout_s` (negative: none) passed first.
bool wait_for_future(nb::handle object, double timeout_s) {
  Future& future = *nb::inst_ptr<Future>(object);
  if (future.end().is_valid()) return true;
  future.is_started = true;
  try {
    require_open(future);
    if (!future.execution().wait(driver::Patience(timeout_s, future.given_up()))) return future.end().is_valid();
    settle(object);
  } catch (nb::python_error& error) {
    settle_failed(object, error);
  }
  return true;
}

// The token is taken unless it is complete, or the turn is over.
Execution::Driven drive_future(Future& future, LoopPort& port, nb::object token, bool spins,
                               std::uint32_t most = Execution::operations_in_turn) {
  const Charged charged(port);
  require_open(future);
  const nb::object kept = nb::borrow(token);
  const auto driven = future.execution().drive({port.port, token.ptr(), spins, most});
  if (driven != Execution::Driven::complete && driven != Execution::Driven::turn_is_over) token.release();
  return driven;
}

// For a waiter for many futures, who is told of each by its end: an error that is not its operation's is the future's
// own.
void end_with_error(nb::handle object, nb::python_error& error) {
  const bool is_its_operations = dataflow::as_op(nb::inst_ptr<Future>(object)->op())->state == dataflow::State::failed;
  if (is_its_operations || dataflow::is_interruption(error.value()))
    settle_failed(object, error);
  else
    call_method(known().fail, object, error.value().ptr());
}

nb::object or_none(const nb::object& object) { return object.is_valid() ? object : nb::none(); }

// Hands an operation to the device, as far as nothing waits for the host; what fails at once is raised. Gives back its
// future.
nb::object submit_future(nb::handle op) {
  nb::object placement = dataflow::placement_in_force();
  {
    Execution execution(process_engine(), nb::borrow(op), placement);
    to_execute(execution.op(), execution.placement());
    execution.submit();
  }
  Future* made;
  return SpareObjects<Future>::make(known().future_class, made, nb::borrow(op), std::move(placement), true);
}
nb::object submit_future(PyObject* const* arguments) {
  op_of(arguments[0]);
  return submit_future(nb::handle(arguments[0]));
}
PyObject* submit_called(PyObject* self, PyObject* const* args, std::size_t flagged, PyObject* names) noexcept {
  if (PyVectorcall_NARGS(flagged) == 1 && !names && dataflow::is_op(args[0]))
    return raising([&] { return submit_future(nb::handle(args[0])); });
  return PyObject_Vectorcall(reinterpret_cast<NativeMethod*>(self)->function, args, flagged, names);
}

}  // namespace

nb::handle operation_of(nb::handle future) { return nb::inst_ptr<Future>(future)->op(); }

bool has_end_of_its_own(nb::handle future) {
  const nb::object& end = nb::inst_ptr<Future>(future)->end();
  return end.is_valid() && !end.is(known().as_its_operation);
}

nb::list futures_of(nb::handle ops, nb::handle placement) {
  nb::list futures;
  for (const nb::handle each : ops) {
    if (PyObject_TypeCheck(each.ptr(), reinterpret_cast<PyTypeObject*>(known().future_class.ptr()))) {
      futures.append(each);
    } else if (dataflow::is_op(each.ptr())) {
      Future* made;
      futures.append(
          SpareObjects<Future>::make(known().future_class, made, nb::borrow(each), nb::borrow(placement), false));
    } else {
      dataflow::raise(dataflow::error_types.argument_type,
                      std::string("operations and futures are waited for; ") + nb::repr(each).c_str() + " is neither");
    }
  }
  return futures;
}

Went go_on(nb::handle object, LoopPort& port, nb::handle token, std::uint32_t most, bool& completes) {
  Future& future = *nb::inst_ptr<Future>(object);
  completes = false;
  if (future.end().is_valid()) return Went::arrived;
  future.is_started = true;
  future.remove(token.ptr());
  future.add(token.ptr(), port.port);  // first: a cancellation from now on tells this token
  try {
    const auto driven = drive_future(future, port, nb::borrow(token), false, most);
    completes = driven == Execution::Driven::completes;
    if (completes || driven == Execution::Driven::goes_on) return Went::waits;
    future.remove(token.ptr());
    if (driven == Execution::Driven::turn_is_over) return Went::turn_is_over;
    settle(object);
  } catch (nb::python_error& error) {
    future.remove(token.ptr());
    end_with_error(object, error);
  }
  return Went::arrived;
}

bool is_settled_by(nb::handle object, nb::handle token, std::int32_t result) {
  Future& future = *nb::inst_ptr<Future>(object);
  if (!future.end().is_valid()) {
    try {
      if (!future.execution().ended(result)) return false;
      future.remove(token.ptr());
      settle(object);
    } catch (nb::python_error& error) {
      future.remove(token.ptr());
      end_with_error(object, error);
    }
  }
  return true;
}

void withdraw(nb::handle object, nb::handle token) {
  Future& future = *nb::inst_ptr<Future>(object);
  future.remove(token.ptr());
  if (Execution::leave(*dataflow::as_op(future.op()), token.ptr())) Py_DECREF(token.ptr());
}

void bind_futures(nb::module_& module) {
  nb::class_<Future>(module, "Future", nb::is_weak_referenceable(), nb::type_slots(future_slots))
      .def(
          "__init__",
          [](Future* self, nb::handle_t<Op> op, nb::handle_t<Placement> placement, bool is_started) {
            new (self) Future(nb::borrow(op), nb::borrow(placement), is_started);
          },
          "op"_a, "where"_a, "is_started"_a = false)
      .def_prop_ro("_op", [](const Future& self) { return self.op(); })
      .def_prop_ro("_where", [](const Future& self) { return self.placement(); })
      .def_rw("_is_started", &Future::is_started)
      .def_prop_ro("_end", [](const Future& self) { return or_none(self.end()); })
      // False: it has ended already.
      .def("_end_with", &Future::end_with)
      .def_prop_rw(
          "_audience", [](const Future& self) { return or_none(self.audience); },
          [](Future& self, nb::object audience) {
            nb::object given = audience.is_none() ? nb::object() : std::move(audience);
            std::swap(self.audience, given);
          },
          nb::arg("audience").none())
      // Tells all that await it.
      .def("_wake_awaits", &Future::wake)
      // True: it is settled. False: `token` will come out of the port when it is worth asking again.
      .def("_go_on",
           [](nb::handle_t<Future> self, LoopPort& port, nb::object token) {
             Future& future = *nb::inst_ptr<Future>(self);
             if (future.end().is_valid()) return true;
             future.is_started = true;
             try {
               const auto driven = drive_future(future, port, token, true);
               if (driven == Execution::Driven::turn_is_over) port.port->put(token.release().ptr(), completion::pause);
               if (driven != Execution::Driven::complete) return false;
               settle(self);
             } catch (nb::python_error& error) {
               settle_failed(self, error);
             }
             return true;
           })
      // False: the time (negative: none) passed before it was settled.
      .def("_wait_until_settled",
           [](nb::handle_t<Future> self, double timeout_s) { return wait_for_future(self, timeout_s); })
      // True: a function was called, and it is worth calling again.
      .def("_submit_more",
           [](Future& self) {
             require_open(self);
             return self.execution().submit_more();
           })
      // Nobody waits for the token any more, whose wait was for room, or for anything else.
      .def("_leave", [](const Future& self, nb::handle token) {
        if (Execution::leave(*dataflow::as_op(self.op()), token.ptr())) Py_DECREF(token.ptr());
      });
  static PyMethodDef functions[] = {direct<submit_future, 1>("submit_future"), {}};
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw nb::python_error();
  module.def("futures_of", futures_of, "ops"_a, "where"_a);
  // Decorates the method of operations that does the same.
  module.def("submitted_natively",
             [](const nb::object& function) { return make_native_method(submit_called, function); });
  // The class of futures, and the end of one that ended as its operation did.
  module.def("set_future", [](nb::object future_class, nb::object as_its_operation) {
    known().future_class = std::move(future_class);
    known().as_its_operation = std::move(as_its_operation);
    known().settle = PyUnicode_InternFromString("_settle");
    known().fail = PyUnicode_InternFromString("_fail");
    known().outcome = PyUnicode_InternFromString("_outcome");
  });
  module.def(
      "await_future",
      [](nb::handle_t<Future> future, double timeout_s) {
        return checked(make_await(std::make_unique<AwaitedFuture>(future), timeout_s));
      },
      "future"_a, "timeout_s"_a);
}

}  // namespace aiocuda
