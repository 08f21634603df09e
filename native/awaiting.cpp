// `await` of an operation, without a coroutine: see awaiting.hpp.
//
// Always true: an await that has ended holds nothing and waits for nothing; a token of it that comes later does
// nothing. It is used once. Guarded by the GIL.
#include "awaiting.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "driver/execution.hpp"
#include "future.hpp"
#include "loop_port.hpp"
#include "places.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::Op;
using dataflow::Placement;
using driver::Execution;
using Clock = std::chrono::steady_clock;

// Python's names, made once; and what the loops' files say of themselves.
struct Names {
  PyObject *create_future, *set_result, *done, *call_soon, *call_later, *cancel, *sleep, *wait, *time, *throw_, *close,
      *native, *wake;
};
const Names& names() {
  static const Names made = [] {
    auto intern = [](const char* name) { return PyUnicode_InternFromString(name); };
    return Names{intern("create_future"), intern("set_result"), intern("done"),  intern("call_soon"),
                 intern("call_later"),    intern("cancel"),     intern("sleep"), intern("wait"),
                 intern("time"),          intern("throw"),      intern("close"), intern("native"),
                 intern("wake")};
  }();
  return made;
}
struct Runtimes {
  nb::object current_port{};                       // Python's way, for the first await of a loop, and for errors
  nb::object overdue{};                            // (op, waited_s) -> the error of a time-out
  nb::object future_class{};                       // DeviceFuture
  nb::object as_its_operation{};                   // the end of a future that ended as its operation did
  PyObject *settle = nullptr, *outcome = nullptr;  // names of its methods
  nb::object asyncio_loop{};                       // -> the loop of asyncio's that runs in this thread, or None
  nb::object in_trio_task{}, trio_port{}, trio_deadline{}, trio_checkpoint{}, trio_reschedule{},
      trio_value{};  // once trio's file is there
};
Runtimes& runtimes() {
  static auto* known = new Runtimes;
  return *known;
}

nb::object checked(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}
template <class... Arguments>
nb::object call_method(PyObject* name, nb::handle self, Arguments... arguments) {
  PyObject* all[] = {self.ptr(), arguments...};
  return checked(PyObject_VectorcallMethod(name, all, 1 + sizeof...(arguments), nullptr));
}

// The object that a weak reference is to; null where it is gone.
nb::object target_of(const nb::object& reference) {
  if (!reference.is_valid()) return {};
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(reference.ptr(), &found) < 0) throw nb::python_error();
  return nb::steal(found);
#else
  PyObject* const found = PyWeakref_GetObject(reference.ptr());
  return found == Py_None ? nb::object() : nb::borrow(found);
#endif
}

// Where an await runs.
struct Place {
  nb::object port{};  // the native one
  nb::object loop{};  // asyncio's; else it is trio's
  nb::object face{};  // trio's port in Python
};

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
  const bool is_imported = PyDict_GetItemWithError(modules, name) != nullptr;
  PyErr_Clear();
  return is_imported;
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

bool has_ended(nb::handle object) {
  const Op& op = *dataflow::as_op(object);
  try {
    return driver::has_passed(object);
  } catch (nb::python_error&) {  // of a lost device: who awaits the operation is told
    return op.state == dataflow::State::failed;
  }
}

constexpr std::int32_t time_is_up = -100;  // in place of what a token came out with

struct Await {
  enum class Stage : std::uint8_t {
    fresh,
    looks,     // at whether it was cancelled; trio
    lines_up,  // for a turn of its loop
    drives,
    over
  };

  explicit Await(nb::handle awaited, Future* of_future, double seconds)
      : subject(nb::borrow(awaited)), future_end(of_future), timeout_s(seconds) {}

  nb::object subject;  // an operation, or a future
  Future* future_end;  // the future; null: it is an operation
  const double timeout_s;
  Stage stage = Stage::fresh;
  bool is_running = false;
  bool completes = false;  // it waits for nothing but the result
  bool is_standing = false;
  std::int32_t result = 0;  // what the token came out with
  completion::LoopTime::Place line = 0;
  double begin_s = 0;
  nb::object delegate;       // whoever is asked in its place, while it waits
  nb::object future, timer;  // asyncio's
  nb::object task;           // trio's, that sleeps
  Place place;
  std::optional<Execution> own;  // of an operation

  nb::handle op() const { return future_end ? future_end->op() : subject; }
  Execution& execution() { return future_end ? future_end->execution() : *own; }
  bool is_settled() const { return future_end && future_end->end().is_valid(); }
  LoopPort& port() { return *nb::inst_ptr<LoopPort>(place.port); }
  bool has_limit() const { return timeout_s >= 0; }
  double now_s() {
    if (place.face.is_valid()) return nb::cast<double>(call_method(names().time, place.face));
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  }
  double end_s() const { return begin_s + timeout_s; }
};

struct AwaitObject {
  PyObject_HEAD Await* await;
};
PyTypeObject* await_type = nullptr;

Await& of(PyObject* self) { return *reinterpret_cast<AwaitObject*>(self)->await; }

// Ends the wait, wherever it is, and lets go of everything. Does nothing the second time, as for the garbage collector.
void finish(PyObject* self) {
  Await& await = of(self);
  const auto stage = std::exchange(await.stage, Await::Stage::over);
  if (stage == Await::Stage::over) return;
  const bool is_over = driver::Engine::get().is_over();
  if (stage == Await::Stage::lines_up && await.line && !is_over) {
    const nb::object token = nb::steal(static_cast<PyObject*>(await.port().time->leave(await.line)));
  }
  Future* const future_end = std::exchange(await.future_end, nullptr);
  if (future_end) future_end->remove(self);
  if (await.is_standing) {
    const nb::handle op = future_end ? nb::handle(future_end->op()) : nb::handle(await.subject);
    if (Execution::leave(*dataflow::as_op(op), self)) Py_DECREF(self);
  }
  if (await.timer.is_valid()) {
    PyObject* const done = PyObject_CallMethodNoArgs(await.timer.ptr(), names().cancel);
    if (!done) PyErr_WriteUnraisable(self);
    Py_XDECREF(done);
  }
  // To drop these may run Python code, which must find this await ended.
  const nb::object delegate = std::move(await.delegate), future = std::move(await.future),
                   timer = std::move(await.timer), task = std::move(await.task), subject = std::move(await.subject);
  const Place place = std::exchange(await.place, {});
  await.own.reset();
}

// Has the loop come back when the token has come out.
void sleep(PyObject* self) {
  Await& await = of(self);
  if (await.place.face.is_valid()) {
    if (!await.has_limit()) {
      await.delegate = call_method(names().sleep, await.place.face, self);
      return;
    }
    const nb::object until = nb::float_(await.end_s());
    await.delegate = call_method(names().wait, await.place.face, self, until.ptr());
    return;
  }
  await.future = call_method(names().create_future, await.place.loop);
  if (await.has_limit()) {
    const nb::object left = nb::float_(std::max(0.0, await.end_s() - await.now_s()));
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
    runtimes().trio_reschedule(task, runtimes().trio_value(result));
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
  if (call_method(names().done, future).is(Py_True)) return;
  await.result = result;
  call_method(names().set_result, future, Py_None);
}

bool is_admitted(Await& await) {
  const bool admits = await.port().time->admits();
  if (!await.place.face.is_valid()) return admits;
  // On trio, an await of an operation that has ended is a checkpoint. An await whose spin succeeds is none, until the
  // time of the loop's turn is spent.
  return admits && !has_ended(await.op()) &&
         nb::cast<double>(runtimes().trio_deadline()) > -std::numeric_limits<double>::infinity();
}

void begin(PyObject* self) {
  Await& await = of(self);
  await.place = current_place();
  if (!await.future_end) await.own.emplace(await.subject, dataflow::placement_in_force());
  if (await.has_limit()) await.begin_s = await.now_s();
  await.stage = Await::Stage::drives;
  if (is_admitted(await)) return;
  if (!await.place.face.is_valid() || !await.port().time->admits()) {  // at once: who came first goes first
    await.stage = Await::Stage::lines_up;
    await.line = await.port().time->line_up();
    return;
  }
  await.stage = Await::Stage::looks;
  await.delegate = runtimes().trio_checkpoint();
}

// True: the result is there. False: `delegate` is to be asked.
bool drive(PyObject* self) {
  Await& await = of(self);
  Execution& execution = await.execution();
  Execution::Driven driven;
  {
    const Charged charged(await.port());
    to_execute(execution.op(), execution.placement());
    Py_INCREF(self);  // the token
    try {
      driven = execution.drive({await.port().port, self});
    } catch (...) {
      Py_DECREF(self);
      throw;
    }
    if (driven == Execution::Driven::complete) Py_DECREF(self);
  }
  if (driven == Execution::Driven::complete) return true;
  await.is_standing = true;
  await.completes = driven == Execution::Driven::completes;
  sleep(self);
  return false;
}

// The future's operation has ended: so has the future, unless it was cancelled before.
void settle(Await& await) {
  Future& future = *await.future_end;
  if (future.end().is_valid()) return;
  if (!future.audience.is_valid() && !future.is_waited_for()) {
    future.end_with(runtimes().as_its_operation);
  } else {
    call_method(runtimes().settle, await.subject, runtimes().as_its_operation.ptr());
  }
}

// Its operation's failure is the future's to tell. An interruption is for who runs the function that it came out of, in
// this call.
void settle_failed(Await& await, nb::python_error& error) {
  if (dataflow::as_op(await.op())->state != dataflow::State::failed) throw nb::python_error(error);
  settle(await);
  if (dataflow::is_interruption(error.value())) throw nb::python_error(error);
}

bool step_of_future(PyObject* self) {
  Await& await = of(self);
  if (await.is_settled()) return true;
  Future& future = *await.future_end;
  future.is_started = true;
  future.add(self, await.port().port);  // first: a cancellation from now on tells this await
  try {
    if (!drive(self)) return false;
    future.remove(self);
    settle(await);
  } catch (nb::python_error& error) {
    future.remove(self);
    settle_failed(await, error);
  }
  return true;
}

nb::object outcome_of(Await& await) {
  const Op& op = *dataflow::as_op(await.op());
  const bool is_own = !await.future_end || await.future_end->end().is(runtimes().as_its_operation);
  if (is_own && op.is_done()) return op.outcome;
  return call_method(runtimes().outcome, await.subject);  // which raises
}

bool step(PyObject* self) {
  Await& await = of(self);
  if (await.stage == Await::Stage::lines_up) {
    if (!await.port().time->enter(await.line, self)) {
      Py_INCREF(self);  // the token
      await.port().look_for_turn();
      sleep(self);
      return false;
    }
    await.port().time->leave(await.line);
    await.stage = Await::Stage::drives;
  }
  return await.future_end ? step_of_future(self) : drive(self);
}

// The wait has ended. True: so has the await.
bool came_back(PyObject* self, const nb::object& returned) {
  Await& await = of(self);
  await.delegate.reset();
  if (await.place.face.is_valid() && await.stage != Await::Stage::looks)
    await.result = returned.is_none() ? time_is_up : nb::cast<std::int32_t>(returned);
  await.future.reset();
  if (await.timer.is_valid()) call_method(names().cancel, std::exchange(await.timer, {}));
  const std::int32_t result = std::exchange(await.result, 0);
  if (await.stage == Await::Stage::looks) {
    await.stage = Await::Stage::drives;
    return false;
  }
  if (result == time_is_up) {
    if (await.stage == Await::Stage::lines_up && (await.is_settled() || has_ended(await.op()))) {
      const nb::object token = nb::steal(static_cast<PyObject*>(await.port().time->leave(await.line)));
      await.stage = Await::Stage::drives;
      return false;
    }
    const nb::object error = runtimes().overdue(await.op(), await.now_s() - await.begin_s);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
  }
  if (await.stage != Await::Stage::drives) return false;
  await.is_standing = false;
  if (!await.future_end) return await.completes && await.own->ended(result);
  await.future_end->remove(self);
  if (await.is_settled()) return true;
  try {
    if (!await.completes || !await.execution().ended(result)) return false;
    settle(await);
  } catch (nb::python_error& error) {
    settle_failed(await, error);
  }
  return true;
}

PySendResult end_with_error(PyObject* self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  finish(self);
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
        *answered = outcome_of(await).release().ptr();
        finish(self);
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

class Running {
 public:
  explicit Running(Await& await) : await_(await) { await_.is_running = true; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { await_.is_running = false; }

 private:
  Await& await_;
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
  const Running running(await);
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

// As a generator's methods do.
PyObject* returned(PySendResult answer, PyObject* value) {
  if (answer != PYGEN_RETURN) return value;
  if (PyObject* const stop = PyObject_CallOneArg(PyExc_StopIteration, value)) {
    PyErr_SetObject(PyExc_StopIteration, stop);
    Py_DECREF(stop);
  }
  Py_DECREF(value);
  return nullptr;
}

PyObject* await_next(PyObject* self) {
  PyObject* value = nullptr;
  const PySendResult answer = await_send(self, Py_None, &value);
  return returned(answer, value);
}
PyObject* await_send_method(PyObject* self, PyObject* sent) {
  PyObject* value = nullptr;
  const PySendResult answer = await_send(self, sent, &value);
  return returned(answer, value);
}

PyObject* await_throw(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Await& await = of(self);
  if (count < 1 || count > 3)
    return PyErr_Format(PyExc_TypeError, "throw() takes an exception; %zd arguments were given", count);
  if (!may_run(await)) return nullptr;
  const nb::object kept = nb::borrow(self);
  const Running running(await);
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
    return returned(go_on(self, PYGEN_RETURN, &value), value);
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
  return await.subject.is_valid() ? PyUnicode_FromFormat("<await of %R>", await.subject.ptr())
                                  : PyUnicode_FromString("<await that has ended>");
}

int await_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Await* await = reinterpret_cast<AwaitObject*>(self)->await;
  if (!await) return 0;
  for (const nb::object* each : {&await->subject, &await->delegate, &await->future, &await->timer, &await->task,
                                 &await->place.port, &await->place.loop, &await->place.face})
    Py_VISIT(each->ptr());
  return await->own ? await->own->traverse(visit, arg) : 0;
}
int await_clear(PyObject* self) {
  Await* await = reinterpret_cast<AwaitObject*>(self)->await;
  if (await && !await->is_running) finish(self);
  return 0;
}
void await_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* const type = Py_TYPE(self);
  {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    auto*& await = reinterpret_cast<AwaitObject*>(self)->await;
    if (await->stage != Await::Stage::over) {
      Py_SET_REFCNT(self, 1);  // whole, until it has ended
      finish(self);
      Py_SET_REFCNT(self, 0);
    }
    delete std::exchange(await, nullptr);
    PyErr_Restore(kind, value, traceback);
  }
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

PyObject* make_await(nb::handle awaited, Future* future, double timeout_s) {
  auto await = std::make_unique<Await>(awaited, future, timeout_s);
  auto* const self = PyObject_GC_New(AwaitObject, await_type);
  if (!self) return nullptr;
  self->await = await.release();
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

// --- futures

PyObject* await_future(PyObject* future) { return make_await(future, nb::inst_ptr<Future>(nb::handle(future)), -1.0); }

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

// True: the result is there. False: the token will come out of the port.
bool drive_future(Future& future, LoopPort& port, nb::object token, bool spins) {
  const Charged charged(port);
  require_open(future);
  const nb::object kept = nb::borrow(token);
  if (future.execution().drive({port.port, token.ptr(), port.blocks, spins}) == Execution::Driven::complete)
    return true;
  token.release();
  return false;
}

nb::object or_none(const nb::object& object) { return object.is_valid() ? object : nb::none(); }

void bind_future(nb::module_& module) {
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
      // True: complete. False: `token` will come out of the port when it is worth asking again.
      .def("_go_on", [](Future& self, LoopPort& port,
                        nb::object token) { return drive_future(self, port, std::move(token), true); })
      // The same without spinning: the operation is one of many.
      .def("_go_on_at_ease", [](Future& self, LoopPort& port,
                                nb::object token) { return drive_future(self, port, std::move(token), false); })
      // False: the time passed first.
      .def("_go_on_and_wait",
           [](Future& self, double timeout_s) {
             require_open(self);
             return self.execution().wait(timeout_s);
           })
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
  // Hands an operation to the device, as far as nothing waits for the host; what fails at once is raised. Gives back
  // its future.
  module.def("submit_future", [](nb::handle_t<Op> op) {
    nb::object placement = dataflow::placement_in_force();
    {
      Execution execution(nb::borrow(op), placement);
      to_execute(execution.op(), execution.placement());
      execution.submit();
    }
    nb::object future = nb::inst_alloc(runtimes().future_class);
    new (nb::inst_ptr<Future>(future)) Future(nb::borrow(op), std::move(placement), true);
    nb::inst_mark_ready(future);
    return future;
  });
  // The class of futures, and the end of one that ended as its operation did.
  module.def("set_future", [](nb::object future_class, nb::object as_its_operation) {
    Runtimes& known = runtimes();
    known.future_class = std::move(future_class);
    known.as_its_operation = std::move(as_its_operation);
    known.settle = PyUnicode_InternFromString("_settle");
    known.outcome = PyUnicode_InternFromString("_outcome");
  });
}

}  // namespace

PyObject* await_op(PyObject* op) { return make_await(op, nullptr, -1.0); }

bool wake_await(PyObject* token, std::int32_t result) {
  if (Py_TYPE(token) != await_type) return false;
  wake(token, result);
  return true;
}

void bind_awaiting(nb::module_& module) {
  await_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&await_spec)).release().ptr());
  // `timeout_s`: on the loop's clock, from the first step; negative: none.
  module.def(
      "await_op", [](nb::handle_t<Op> op, double timeout_s) { return checked(make_await(op, nullptr, timeout_s)); },
      "op"_a, "timeout_s"_a);
  module.def(
      "await_future",
      [](nb::handle_t<Future> future, double timeout_s) {
        return checked(make_await(future, nb::inst_ptr<Future>(future), timeout_s));
      },
      "future"_a, "timeout_s"_a);
  module.def(
      "set_loops",
      [](nb::object current_port, nb::object overdue) {
        runtimes().current_port = std::move(current_port);
        runtimes().overdue = std::move(overdue);
      },
      "current_port"_a, "overdue"_a);
  bind_future(module);
  module.def("set_asyncio", [](nb::object running_loop) { runtimes().asyncio_loop = std::move(running_loop); });
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
