// Awaits without coroutines: see awaiting.hpp.
#include "awaiting.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include "../dataflow/placement.hpp"
#include "../driver/recording.hpp"
#include "../spares.hpp"
#include "process.hpp"
#include "returning.hpp"
#include "unraisable.hpp"

namespace aiocuda {
namespace {

constexpr std::int32_t time_is_up = -100;  // in place of what a token came out with
constexpr double never = std::numeric_limits<double>::infinity();

struct Await {
  enum class Stage : std::uint8_t {
    fresh,
    looks,     // at whether it was cancelled; trio
    lines_up,  // for a turn of its loop
    drives,
    over
  };

  std::unique_ptr<Awaited> awaited;
  const double limit_s;
  double begin_s = 0, end_s = never;
  Stage stage = Stage::fresh;
  bool is_running = false;
  std::int32_t result = 0;  // what the token came out with
  completion::LoopTime::Place line{};
  nb::object delegate{};         // whoever is asked in its place, while it waits
  nb::object future{}, timer{};  // asyncio's
  nb::object task{};             // trio's, that sleeps
  Place place{};
  Returned returned{};

  LoopPort& port() { return *nb::inst_ptr<LoopPort>(place.port); }
  bool has_limit() const { return end_s < never; }
};

struct AwaitObject {
  PyObject_HEAD Await await;
};
PyTypeObject* await_type = nullptr;

Await& of(PyObject* self) { return reinterpret_cast<AwaitObject*>(self)->await; }

[[gnu::noinline]] void record_end(PyObject* self, trace::Outcome outcome) {
  const dataflow::Op* const op = of(self).awaited->operation();
  if (op) driver::recording->end_ask(self, outcome, *op);
}

// Ends the wait, wherever it is, and lets go of everything. Does nothing the second time, as for the garbage collector.
void finish(PyObject* self, trace::Outcome outcome = trace::Outcome::cancelled) {
  Await& await = of(self);
  const auto stage = std::exchange(await.stage, Await::Stage::over);
  if (stage == Await::Stage::over) return;
  if (driver::recording) [[unlikely]]
    record_end(self, outcome);
  if (stage == Await::Stage::lines_up && !process_engine().is_over()) {
    const nb::object token = nb::steal(static_cast<PyObject*>(await.port().time->leave(await.line)));
  }
  await.awaited->leave(self);
  if (await.timer.is_valid()) {
    PyObject* const done = PyObject_CallMethodNoArgs(await.timer.ptr(), names().cancel);
    if (!done) tell_unraisable(self);
    Py_XDECREF(done);
  }
  // To drop these may run Python code, which must find this await ended.
  const nb::object delegate = std::move(await.delegate), future = std::move(await.future),
                   timer = std::move(await.timer), task = std::move(await.task);
  const Place place = std::exchange(await.place, {});
  const auto awaited = std::move(await.awaited);
}

// Has the loop come back when the token has come out.
void sleep(PyObject* self) {
  Await& await = of(self);
  if (await.place.is_trio()) {
    if (!await.has_limit()) {
      await.delegate = call_method(names().sleep, await.place.face, self);
      return;
    }
    const nb::object until = nb::float_(await.end_s);
    await.delegate = call_method(names().wait, await.place.face, self, until.ptr());
    return;
  }
  await.future = call_method(names().create_future, await.place.loop);
  if (await.has_limit()) {
    const nb::object left = nb::float_(std::max(0.0, await.end_s - await.place.now_s()));
    const nb::object wake = checked(PyObject_GetAttr(self, names().wake)), code = nb::int_(time_is_up);
    await.timer = call_method(names().call_later, await.place.loop, left.ptr(), wake.ptr(), code.ptr());
  }
  PyTypeObject* const type = Py_TYPE(await.future.ptr());
  await.delegate = type->tp_as_async && type->tp_as_async->am_await
                       ? checked(type->tp_as_async->am_await(await.future.ptr()))
                       : nb::object(await.future.attr("__await__")());
}

// The token has come out: Python's loop calls it, or it is `wake_due` of the port.
void wake(PyObject* self, std::int32_t result) {
  Await& await = of(self);
  if (await.task.is_valid()) {
    const nb::object task = std::move(await.task);
    trio_reschedule(task, result);
    return;
  }
  if (!await.future.is_valid()) return;  // it was cancelled
  // The task goes on after all calls that are due now. uvloop comes here before it makes them. If the future were set
  // at once, a cancellation among them (anyio's) could no longer reach the task.
  if (result == completion::pause || result == completion::own_turn) {
    const nb::object again = checked(PyObject_GetAttr(self, names().wake)), code = nb::int_(0);
    call_method(names().call_soon, await.place.loop, again.ptr(), code.ptr());
    return;
  }
  const nb::object future = await.future;
  if (wake_future(future)) await.result = result;
}

// It is to wait for a turn of its loop, with the priority of the task that awaits.
void line_up(Await& await) {
  const nb::object in_force = dataflow::placement_in_force();
  await.stage = Await::Stage::lines_up;
  await.line = await.port().time->line_up(nb::inst_ptr<dataflow::Placement>(in_force)->priority.value_or(0));
}

// True: it is its turn.
bool enters(PyObject* self) {
  Await& await = of(self);
  if (await.port().time->enter(await.line, self)) {
    await.port().time->leave(await.line);
    await.stage = Await::Stage::drives;
    return true;
  }
  Py_INCREF(self);  // the token
  await.port().look_for_turn();
  sleep(self);
  return false;
}

bool is_admitted(Await& await) {
  const bool admits = await.port().time->admits();
  if (!await.place.is_trio()) return admits;
  // On trio, an await of what has ended is a checkpoint. An await whose spin succeeds is none, until the time of the
  // loop's turn is spent.
  return admits && !await.awaited->has_ended() && trio_goes_on();
}

void begin(PyObject* self) {
  Await& await = of(self);
  await.place = current_place();
  if (await.limit_s >= 0) {
    await.begin_s = await.place.now_s();
    await.end_s = await.begin_s + await.limit_s;
  }
  await.awaited->begin(await.place, await.end_s);
  await.stage = Await::Stage::drives;
  if (is_admitted(await)) return;
  if (!await.place.is_trio() || !await.port().time->admits()) {  // at once: who came first goes first
    line_up(await);
    return;
  }
  await.stage = Await::Stage::looks;
  await.delegate = trio_checkpoint();
}

// True: the result is there. False: `delegate` is to be asked.
bool step(PyObject* self) {
  Await& await = of(self);
  if (await.stage == Await::Stage::lines_up && !enters(self)) return false;
  switch (await.awaited->go_on(await.port(), self)) {
    case Went::arrived:
      return true;
    case Went::waits:
      sleep(self);
      return false;
    case Went::turn_is_over:
      line_up(await);
      return enters(self);  // not yet: those go first who have waited
  }
  return false;
}

// The wait has ended. True: so has the await.
bool came_back(PyObject* self, const nb::object& returned) {
  Await& await = of(self);
  await.delegate.reset();
  if (await.place.is_trio() && await.stage != Await::Stage::looks)
    await.result = returned.is_none() ? time_is_up : nb::cast<std::int32_t>(returned);
  await.future.reset();
  if (await.timer.is_valid()) call_method(names().cancel, std::exchange(await.timer, {}));
  const std::int32_t result = std::exchange(await.result, 0);
  if (await.stage == Await::Stage::looks) {
    await.stage = Await::Stage::drives;
    return false;
  }
  if (result == time_is_up) {
    if (await.stage == Await::Stage::lines_up && await.awaited->has_ended()) {
      const nb::object token = nb::steal(static_cast<PyObject*>(await.port().time->leave(await.line)));
      await.stage = Await::Stage::drives;
      return false;
    }
    return await.awaited->is_late(await.place.now_s() - await.begin_s);
  }
  return await.stage == Await::Stage::drives && await.awaited->came_out(self, result);
}

PySendResult end_with_error(PyObject* self) {
  // As from a coroutine (PEP 479): who drives the await would take a StopIteration for its result.
  if (PyErr_ExceptionMatches(PyExc_StopIteration))
    nb::chain_error(PyExc_RuntimeError, "the operation raised StopIteration");
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  finish(self, driver::recording ? driver::outcome_of_error(type) : trace::Outcome::failed);
  PyErr_Restore(type, value, traceback);
  return PYGEN_ERROR;
}

// The delegate has answered. Goes on until a delegate must be asked again, or the await has ended.
PySendResult go_on(PyObject* self, PySendResult answer, PyObject** answered) {
  Await& await = of(self);
  try {
    for (;;) {
      if (answer == PYGEN_NEXT) return answer;
      if (answer == PYGEN_ERROR) return end_with_error(self);
      const nb::object returned = nb::steal(std::exchange(*answered, nullptr));
      const bool is_done = returned.is_valid() && came_back(self, returned);
      if (is_done || (!await.delegate.is_valid() && step(self))) {
        *answered = await.awaited->outcome().release().ptr();
        finish(self, trace::Outcome::done);
        return PYGEN_RETURN;
      }
      answer = PyIter_Send(await.delegate.ptr(), Py_None, answered);
    }
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return end_with_error(self);
}

// A step of an await, while a trace is recorded. An await that had begun before the trace did is not in it.
class RecordedStep {
 public:
  RecordedStep(PyObject* self, const dataflow::Op& op) {
    trace::Recorder& recorder = recorded_->recorder;
    trace::Number ask = recorder.find_ask(self);
    if (ask == trace::none && of(self).stage == Await::Stage::fresh)
      ask = driver::recording->begin_ask(self, trace::AskKind::await, op);
    around_ = recorder.enter(ask);
  }
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;
  ~RecordedStep() {
    if (driver::recording == recorded_) recorded_->recorder.leave(around_, begun_);
  }

 private:
  driver::Recording* const recorded_ = driver::recording;
  const trace::Nanoseconds begun_ = trace::now_ns();
  trace::Number around_ = trace::none;
};

class Running {
 public:
  explicit Running(PyObject* self) : await_(of(self)) {
    await_.is_running = true;
    if (driver::recording) [[unlikely]]
      record(self);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { await_.is_running = false; }

 private:
  [[gnu::noinline]] void record(PyObject* self) {
    if (const dataflow::Op* const op = await_.awaited->operation()) step_.emplace(self, *op);
  }

  Await& await_;
  std::optional<RecordedStep> step_;
};

bool may_run(Await& await) {
  if (await.stage == Await::Stage::over) {
    PyErr_SetString(PyExc_RuntimeError, "cannot reuse an await that has ended: await the operation again");
    return false;
  }
  if (await.is_running) {
    PyErr_SetString(PyExc_ValueError, "this await is being driven already");
    return false;
  }
  return true;
}

PySendResult await_send(PyObject* self, PyObject* value, PyObject** result) {
  Await& await = of(self);
  *result = nullptr;
  if (!may_run(await)) return PYGEN_ERROR;
  const nb::object kept = nb::borrow(self);
  const Running running(self);
  if (await.stage == Await::Stage::fresh) {
    try {
      begin(self);
    } catch (nb::python_error& error) {
      error.restore();
      return end_with_error(self);
    }
    value = Py_None;
  }
  if (!await.delegate.is_valid()) return go_on(self, PYGEN_RETURN, result);
  const PySendResult answer = PyIter_Send(await.delegate.ptr(), value, result);
  return answer == PYGEN_NEXT ? answer : go_on(self, answer, result);
}

PyObject* await_next(PyObject* self) {
  PyObject* value = nullptr;
  const PySendResult answer = await_send(self, Py_None, &value);
  return of(self).returned.answer(answer, value);
}
PyObject* await_send_method(PyObject* self, PyObject* sent) {
  PyObject* value = nullptr;
  const PySendResult answer = await_send(self, sent, &value);
  return answer_of_method(answer, value);
}

PyObject* await_throw(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Await& await = of(self);
  if (count < 1 || count > 3)
    return PyErr_Format(PyExc_TypeError, "throw() takes an exception; %zd arguments were given", count);
  if (!may_run(await)) return nullptr;
  const nb::object kept = nb::borrow(self);
  const Running running(self);
  PyObject* value = nullptr;
  if (await.delegate.is_valid()) {
    PyObject* all[4] = {await.delegate.ptr()};
    std::copy(arguments, arguments + count, all + 1);
    const nb::object asked = await.delegate;
    value = PyObject_VectorcallMethod(names().throw_, all, static_cast<std::size_t>(count) + 1, nullptr);
    if (value) return value;
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
      end_with_error(self);
      return nullptr;
    }
    const nb::python_error stop;
    value = nb::object(stop.value().attr("value")).release().ptr();
    const PySendResult answer = go_on(self, PYGEN_RETURN, &value);
    return answer_of_method(answer, value);
  }
  PyObject* error = arguments[0];
  if (PyExceptionInstance_Check(error)) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  } else if (PyExceptionClass_Check(error)) {
    PyErr_SetObject(error, count > 1 && arguments[1] != Py_None ? arguments[1] : nullptr);
  } else {
    PyErr_SetString(PyExc_TypeError, "throw() takes an exception");
  }
  end_with_error(self);
  return nullptr;
}

PyObject* await_close(PyObject* self, PyObject*) {
  Await& await = of(self);
  if (await.stage == Await::Stage::over) Py_RETURN_NONE;
  if (!may_run(await)) return nullptr;
  const nb::object kept = nb::borrow(self), delegate = await.delegate;
  if (delegate.is_valid() && PyObject_HasAttr(delegate.ptr(), names().close)) {
    PyObject* const done = PyObject_CallMethodNoArgs(delegate.ptr(), names().close);
    if (!done) {
      end_with_error(self);
      return nullptr;
    }
    Py_DECREF(done);
  }
  finish(self);
  Py_RETURN_NONE;
}

PyObject* await_wake(PyObject* self, PyObject* result) {
  try {
    wake(self, static_cast<std::int32_t>(PyLong_AsLong(result)));
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* self_of(PyObject* self) { return Py_NewRef(self); }

// For tools that look at stacks, as of a generator without a frame.
PyObject* no_frame(PyObject*, void*) { Py_RETURN_NONE; }
PyObject* get_delegate(PyObject* self, void*) {
  const nb::object& delegate = of(self).delegate;
  return Py_NewRef(delegate.is_valid() ? delegate.ptr() : Py_None);
}
PyObject* get_running(PyObject* self, void*) { return PyBool_FromLong(of(self).is_running); }
PyObject* get_task(PyObject* self, void*) {
  return Py_NewRef(of(self).task.is_valid() ? of(self).task.ptr() : Py_None);
}
int set_task(PyObject* self, PyObject* task, void*) {
  const nb::object before = std::exchange(of(self).task, task && task != Py_None ? nb::borrow(task) : nb::object());
  return 0;
}
PyObject* await_repr(PyObject* self) {
  const Await& await = of(self);
  return await.awaited ? PyUnicode_FromFormat("<await of %R>", await.awaited->subject().ptr())
                       : PyUnicode_FromString("<await that has ended>");
}

int await_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Await& await = of(self);
  for (const nb::object* each : {&await.delegate, &await.future, &await.timer, &await.task, &await.place.port,
                                 &await.place.loop, &await.place.face})
    Py_VISIT(each->ptr());
  if (const int stopped = await.returned.traverse(visit, arg)) return stopped;
  return await.awaited ? await.awaited->traverse(visit, arg) : 0;
}
int await_clear(PyObject* self) {
  if (!of(self).is_running) finish(self);
  of(self).returned.clear();
  return 0;
}
// Awaits that have been freed. Each keeps its class.
Spares<PyObject, 64> spares;

[[gnu::noinline]] void end_unfinished(PyObject* self) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  Py_SET_REFCNT(self, 1);  // whole, until it has ended
  finish(self);
  Py_SET_REFCNT(self, 0);
  PyErr_Restore(kind, value, traceback);
}
void await_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Await& await = of(self);
  if (await.stage != Await::Stage::over) end_unfinished(self);
  await.~Await();  // it holds nothing any more, but what it has returned
  if (spares.put(self)) [[likely]]
    return;
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMethodDef await_methods[] = {
    {"send", await_send_method, METH_O, nullptr},
    {"throw", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(await_throw)), METH_FASTCALL, nullptr},
    {"close", await_close, METH_NOARGS, nullptr},
    {"wake", await_wake, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef await_members[] = {{"gi_frame", no_frame, nullptr, nullptr, nullptr},
                               {"gi_yieldfrom", get_delegate, nullptr, nullptr, nullptr},
                               {"gi_running", get_running, nullptr, nullptr, nullptr},
                               {"task", get_task, set_task, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot await_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(await_dealloc)},
                             {Py_tp_traverse, reinterpret_cast<void*>(await_traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(await_clear)},
                             {Py_tp_iter, reinterpret_cast<void*>(self_of)},
                             {Py_tp_iternext, reinterpret_cast<void*>(await_next)},
                             {Py_tp_repr, reinterpret_cast<void*>(await_repr)},
                             {Py_am_await, reinterpret_cast<void*>(self_of)},
                             {Py_am_send, reinterpret_cast<void*>(await_send)},
                             {Py_tp_methods, await_methods},
                             {Py_tp_getset, await_members},
                             {0, nullptr}};
PyType_Spec await_spec = {"aiocuda._native.Await", sizeof(AwaitObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, await_slots};

}  // namespace

PyObject* make_await(std::unique_ptr<Awaited> awaited, double limit_s) {
  auto* self = reinterpret_cast<AwaitObject*>(spares.take());
  if (self) [[likely]] {
    Py_SET_REFCNT(&self->ob_base, 1);
  } else {
    self = PyObject_GC_New(AwaitObject, await_type);
    if (!self) return nullptr;
  }
  new (&self->await) Await{.awaited = std::move(awaited), .limit_s = limit_s};
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

Overdue& overdue() {
  static auto* made = new Overdue;
  return *made;
}

bool wake_await(PyObject* token, std::int32_t result) {
  if (Py_TYPE(token) != await_type) return false;
  wake(token, result);
  return true;
}

void bind_awaiting(nb::module_& module) {
  await_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&await_spec)).release().ptr());
  module.def("set_overdue", [](nb::object of_op, nb::object of_streams) {
    overdue() = {.of_op = std::move(of_op), .of_streams = std::move(of_streams)};
  });
}

}  // namespace aiocuda
