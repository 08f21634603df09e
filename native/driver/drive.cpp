#include "drive.hpp"

#include <chrono>

#include "submit.hpp"

namespace aiocuda::driver {
namespace {
using Clock = std::chrono::steady_clock;

// A short wait is cheaper spun than slept: launch to a spinning waiter takes 8 us on an H200, a host
// function and a wake 26-30 (docs/measurements/floors.md). Twice the latter, then the thread sleeps.
constexpr std::chrono::microseconds spin_time{60};
// How long Ctrl-C may go unnoticed.
constexpr std::chrono::milliseconds signal_interval{50};

[[noreturn]] void raise_lost(Engine& engine, std::int32_t error, nb::handle object) {
  nb::object exception = engine.hooks.lost(error, object);
  dataflow::as_op(object)->fail(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

// What is kept of an operation that was submitted and whose result is not there yet.
struct Outstanding {
  std::vector<Engine::Mark> marks;  // made when it was submitted without waiting
  std::shared_ptr<completion::Completion> completion;  // once somebody waits
};

Outstanding& outstanding(Op& op) {
  if (!op.outstanding) op.outstanding = std::make_shared<Outstanding>();
  return *static_cast<Outstanding*>(op.outstanding.get());
}

// The part of a submitted operation's ticks that has not passed.
std::vector<Tick> incomplete(Engine& engine, Op& op) {
  if (!op.outstanding) return engine.incomplete(op.ready);
  ContextScope scope(engine);
  for (const Engine::Mark& mark : outstanding(op).marks) {
    scope.bind(engine.stream(mark.stream()).device);
    const CUresult result = engine.table.cuEventQuery(mark.event());
    if (result == CUDA_SUCCESS) engine.timeline.learn(mark.complete());
    else if (result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuEventQuery");
  }
  std::vector<Tick> left;
  for (const Tick tick : op.ready)
    if (!engine.timeline.is_known_complete(tick)) left.push_back(tick);
  if (left.empty()) op.outstanding.reset();
  return left;
}

// Where a walk came to, when it did not come to the end.
struct Halt {
  std::vector<Tick> waits;       // what the host must wait for
  std::vector<nb::object> due;   // functions of values that are there: to be run now
};

// Submits all that can be. Done: true.
bool walk(Engine& engine, nb::handle object, const dataflow::Placement& placement, Halt& halt) {
  Engine::Submission submission(engine);
  const bool outermost = engine.depth == 1;
  if (outermost) engine.collect();
  Submit sink(engine);
  dataflow::Scratch<nb::handle> own;  // a callback's walk, inside another
  for (;;) {
    dataflow::Walk<Submit> walk(sink, placement, outermost ? engine.scratch : own);
    if (walk.run(object)) return true;
    halt = {engine.incomplete(walk.waits()), std::move(sink.due)};
    sink.due.clear();
    if (!halt.waits.empty() || !halt.due.empty()) return false;
  }
}

using CompletionRef = std::shared_ptr<completion::Completion>;

// Runs the functions that are due; each once, whoever asks. Null, or where another thread is at all that
// is left, what tells when it is done.
CompletionRef run_due(const std::vector<nb::object>& due) {
  CompletionRef elsewhere;
  for (const nb::object& object : due) {
    auto& op = static_cast<dataflow::CallOp&>(*dataflow::as_op(object));
    if (op.state != dataflow::State::pending) continue;
    if (op.runner) {
      elsewhere = outstanding(op).completion;
      continue;
    }
    const auto told = outstanding(op).completion = std::make_shared<completion::Completion>(1);
    op.runner = PyThread_get_thread_ident();
    try {
      const Op* producer = dataflow::as_op(op.input);
      const nb::object value = producer ? producer->outcome : op.input;
      const nb::object function = op.function;
      op.finish(function(value));
    } catch (nb::python_error& error) {
      op.fail(error.value());  // the next walk raises it, and fails what depends on it
    }
    op.runner = 0;
    op.outstanding.reset();
    told->part_done(0);
    elsewhere.reset();
  }
  return elsewhere;
}

struct Reached {
  bool complete = false;
  std::vector<Tick> waits;
  CompletionRef elsewhere;  // a function that another thread runs
};

// Walks until the root is complete, or something must be waited for.
Reached advance(Engine& engine, nb::handle object, const dataflow::Placement& placement) {
  Op& op = *dataflow::as_op(object);
  try {
    Halt halt;
    while (!op.is_done() && !walk(engine, object, placement, halt)) {
      if (halt.due.empty()) return {false, std::move(halt.waits), nullptr};
      if (auto elsewhere = run_due(halt.due)) return {false, {}, std::move(elsewhere)};
    }
    auto waits = incomplete(engine, op);
    const bool complete = waits.empty();
    return {complete, std::move(waits), nullptr};
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

CompletionRef completion_of(Engine& engine, nb::handle object, const Reached& reached) {
  if (reached.elsewhere) return reached.elsewhere;
  const std::vector<Tick>& waits = reached.waits;
  Op& op = *dataflow::as_op(object);
  try {
    if (!op.is_done()) return engine.arm(waits, {});  // in the middle of a walk: this caller's alone
    Outstanding& kept = outstanding(op);
    if (!kept.completion || (kept.completion->has_ended() && !kept.completion->error()))
      kept.completion = engine.arm(waits, kept.marks);
    return kept.completion;
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

bool spin(Engine& engine, Op& op, const std::vector<Tick>& ticks) {
  std::vector<Engine::Mark> own;
  std::shared_ptr<void> kept;  // while the GIL is given up, another thread may find the operation complete
  const std::vector<Engine::Mark>* known = &own;
  if (op.is_done() && op.outstanding && !outstanding(op).marks.empty()) {
    known = &outstanding(op).marks;
    kept = op.outstanding;
  }
  try {
    if (known == &own)
      for (const Tick tick : ticks) own.push_back(engine.mark(tick.stream));
  } catch (const Refusal&) {
    return false;  // the wait proper says why
  }
  const std::vector<Engine::Mark>& marks = *known;
  std::size_t passed = 0;
  ContextScope scope(engine);
  scope.bind(engine.stream(marks.front().stream()).device);
  {
    nb::gil_scoped_release release;
    const auto until = Clock::now() + spin_time;
    do {
      const CUresult result = engine.table.cuEventQuery(marks[passed].event());
      if (result == CUDA_SUCCESS) ++passed;
      else if (result != CUDA_ERROR_NOT_READY) break;
    } while (passed < marks.size() && Clock::now() < until);
  }
  for (std::size_t i = 0; i < passed; ++i) engine.timeline.learn(marks[i].complete());
  return passed == marks.size();
}

// False: the time is up.
bool wait_until(completion::Completion& completion, std::optional<Clock::time_point> until) {
  for (;;) {
    bool ended;
    auto time = signal_interval;
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
      if (left.count() <= 0) return completion.has_ended();
      time = std::min(time, left);
    }
    {
      nb::gil_scoped_release release;
      ended = completion.wait_for(time);
    }
    if (ended) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

bool drive(nb::handle object, const dataflow::Placement& placement, const std::shared_ptr<completion::Port>& port, completion::Token token) {
  Engine& engine = Engine::get();
  for (;;) {
    const Reached reached = advance(engine, object, placement);
    if (reached.complete) return true;
    const auto completion = completion_of(engine, object, reached);
    if (completion->tell(port, token)) return false;
    if (const std::int32_t error = completion->error()) raise_lost(engine, error, object);
  }
}

void submit(nb::handle object, const dataflow::Placement& placement) {
  Engine& engine = Engine::get();
  Op& op = *dataflow::as_op(object);
  if (op.is_done()) return;
  try {
    Halt halt;
    while (!walk(engine, object, placement, halt))
      if (halt.due.empty() || run_due(halt.due)) return;
    for (const Tick tick : op.ready)
      if (!engine.timeline.is_known_complete(tick)) outstanding(op).marks.push_back(engine.mark(tick.stream));
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

bool drive_and_wait(nb::handle object, const dataflow::Placement& placement, double timeout_s) {
  Engine& engine = Engine::get();
  std::optional<Clock::time_point> until;
  if (timeout_s >= 0) until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(timeout_s, 1e9)));
  for (;;) {
    const Reached reached = advance(engine, object, placement);
    if (reached.complete) return true;
    if (!reached.elsewhere && spin(engine, *dataflow::as_op(object), reached.waits)) continue;
    const auto completion = completion_of(engine, object, reached);
    if (!wait_until(*completion, until)) return false;
    if (const std::int32_t error = completion->error()) raise_lost(engine, error, object);
  }
}

bool has_passed(nb::handle object) {
  Engine& engine = Engine::get();
  Op& op = *dataflow::as_op(object);
  if (op.state == dataflow::State::failed) return true;
  if (!op.is_done()) return false;
  try {
    return incomplete(engine, op).empty();
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

CompletionRef arm_streams(const std::vector<StreamIndex>& streams) {
  Engine& engine = Engine::get();
  std::vector<Tick> ticks;
  for (const StreamIndex stream : streams) ticks.push_back({stream, engine.timeline.submitted(stream)});
  try {
    return engine.arm(ticks, {});
  } catch (const Refusal& refusal) {
    raise_refused(engine, refusal.result, refusal.function, nb::handle());
  }
}

void wait_with_signals(Engine& engine, completion::Completion& completion) {
  wait_until(completion, std::nullopt);
  if (const std::int32_t error = completion.error())
    raise_refused(engine, static_cast<CUresult>(error), "cuStreamQuery", nb::handle());
}

nb::list record(nb::handle object, const dataflow::Placement& placement) {
  Engine& engine = Engine::get();
  Engine::Submission submission(engine);
  dataflow::Record::House house;
  house.add_streams = [&engine](dataflow::Record::House& of) {
    for (std::size_t i = of.stream_ids.size(); i < engine.stream_count(); ++i) {
      const StreamState& stream = engine.stream(static_cast<StreamIndex>(i));
      of.stream_devices.push_back(stream.device);
      of.stream_ids.push_back(stream.closing ? dataflow::no_stream : engine.id_of(static_cast<StreamIndex>(i)));
    }
  };
  house.lanes = [&engine](const dataflow::Policy& policy, std::int32_t device) -> const dataflow::Lanes& { return engine.lanes(policy, device); };
  house.is_peer = [&engine](std::int32_t device, std::int32_t other) { return engine.is_peer(device, other); };
  dataflow::Record sink(engine.timeline, std::move(house));
  dataflow::Scratch<dataflow::Record::Value> scratch;
  dataflow::Walk<dataflow::Record> walk(sink, placement, scratch);
  walk.run(object);
  return sink.steps;
}

}  // namespace aiocuda::driver
