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

struct Reached {
  bool complete = false;
  std::vector<Tick> waits;
};

// Walks until the root is complete, or something must be waited for.
Reached advance(Engine& engine, nb::handle object, const dataflow::Placement& placement) {
  Op& op = *dataflow::as_op(object);
  try {
    if (op.is_done()) {
      auto left = engine.incomplete(op.ready);
      const bool complete = left.empty();
      return {complete, std::move(left)};
    }
    Engine::Submission submission(engine);
    if (engine.depth == 1) engine.collect();
    Submit sink(engine);
    for (;;) {
      dataflow::Walk<Submit> walk(sink, placement);
      const bool submitted = walk.run(object);
      auto left = engine.incomplete(submitted ? op.ready : walk.waits());
      if (!left.empty()) return {false, std::move(left)};
      if (submitted) return {true, {}};
    }
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

std::shared_ptr<completion::Completion> completion_of(Engine& engine, nb::handle object, const std::vector<Tick>& waits) {
  Op& op = *dataflow::as_op(object);
  auto armed = std::static_pointer_cast<completion::Completion>(op.completion);
  if (armed && op.is_done() && (!armed->has_ended() || armed->error())) return armed;
  try {
    armed = engine.arm(waits);
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
  // Kept for the next who asks; a wait in the middle of a walk is this caller's alone.
  if (op.is_done()) op.completion = armed;
  return armed;
}

bool spin(Engine& engine, const std::vector<Tick>& ticks) {
  struct Mark {
    CUevent event;
    Tick covers;
  };
  std::vector<Mark> marks;
  {
    ContextScope scope(engine);
    for (const Tick tick : ticks) {
      const StreamState& state = engine.stream(tick.stream);
      scope.bind(state.device);
      if (engine.table.cuEventRecord(state.mark, state.handle) != CUDA_SUCCESS) return false;  // the wait proper will say why
      marks.push_back({state.mark, {tick.stream, engine.timeline.submitted(tick.stream)}});
    }
  }
  bool passed = false;
  {
    nb::gil_scoped_release release;
    const auto until = Clock::now() + spin_time;
    std::size_t next = 0;
    do {
      const CUresult result = engine.table.cuEventQuery(marks[next].event);
      if (result == CUDA_SUCCESS) {
        if (++next == marks.size()) passed = true;
      } else if (result != CUDA_ERROR_NOT_READY) {
        break;
      }
    } while (!passed && Clock::now() < until);
  }
  // Another thread may have recorded the event again meanwhile, later: what it covers has passed too.
  if (passed)
    for (const Mark& mark : marks) engine.timeline.learn_complete(mark.covers);
  return passed;
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
    const auto completion = completion_of(engine, object, reached.waits);
    if (!port || completion->tell(port, token)) return false;
    if (const std::int32_t error = completion->error()) raise_lost(engine, error, object);
  }
}

bool drive_and_wait(nb::handle object, const dataflow::Placement& placement, double timeout_s) {
  Engine& engine = Engine::get();
  std::optional<Clock::time_point> until;
  if (timeout_s >= 0) until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(timeout_s, 1e9)));
  for (;;) {
    const Reached reached = advance(engine, object, placement);
    if (reached.complete) return true;
    if (spin(engine, reached.waits)) continue;
    const auto completion = completion_of(engine, object, reached.waits);
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
    return engine.incomplete(op.ready).empty();
  } catch (const Refusal& refusal) {
    raise_lost(engine, refusal.result, object);
  }
}

std::shared_ptr<completion::Completion> arm_streams(const std::vector<StreamIndex>& streams) {
  Engine& engine = Engine::get();
  std::vector<Tick> ticks;
  for (const StreamIndex stream : streams) ticks.push_back({stream, engine.timeline.submitted(stream)});
  try {
    return engine.arm(ticks);
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
  for (std::size_t i = 0; i < engine.stream_count(); ++i) house.stream_devices.push_back(engine.stream(static_cast<StreamIndex>(i)).device);
  for (const auto& device : engine.devices()) house.default_streams.push_back(device ? device->default_stream : 0);
  dataflow::Record sink(engine.timeline, std::move(house));
  dataflow::Walk<dataflow::Record> walk(sink, placement);
  walk.run(object);
  return sink.steps;
}

}  // namespace aiocuda::driver
