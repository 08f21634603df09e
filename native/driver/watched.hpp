// Who wants to know of what takes a thread: whoever debugs, and a trace that is recorded.
//
// Always true: where nobody wants to know, no time is taken.
#pragma once
#include <chrono>
#include <exception>
#include <optional>

#include "engine.hpp"
#include "recording.hpp"

namespace aiocuda::driver {

// A step that is watched: it tells who debugs of one that took its thread for long, and whoever records a trace of
// each.
class WatchedStep {
 public:
  WatchedStep(Engine& engine, const nb::object& root, const void* key, trace::AskKind kind)
      : engine_(engine),
        root_(root),
        key_(key),
        // The step of an await is the await's.
        recorded_(kind != trace::AskKind::await || (recording && recording->recorder.current() == trace::none)
                      ? recording
                      : nullptr) {
    if (!recorded_) return;
    trace::Number ask = recording->recorder.find_ask(key);
    if (ask == trace::none)
      ask = recording->begin_ask(key, kind == trace::AskKind::await ? trace::AskKind::future : kind,
                                 *dataflow::as_op(root));
    around_ = recording->recorder.enter(ask);
  }
  WatchedStep(const WatchedStep&) = delete;
  WatchedStep& operator=(const WatchedStep&) = delete;
  ~WatchedStep() {
    if (recorded_ && recording == recorded_) {
      const Op& op = *dataflow::as_op(root_);
      recording->recorder.leave(around_, std::chrono::nanoseconds(begin_.time_since_epoch()).count());
      const bool is_refused = std::uncaught_exceptions() > errors_before_;
      recording->end_ask(key_, is_refused ? trace::Outcome::failed : outcome_, op);
    }
    tell();
  }
  void note_late() { outcome_ = trace::Outcome::timed_out; }

 private:
  void tell() noexcept {
    const nb::object hook = engine_.hooks.held_up;
    const double taken_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (!hook.is_valid() || engine_.is_over() || taken_s <= engine_.hooks.held_up_s) return;
    try {
      hook(root_, taken_s);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(root_);
    }
  }

  Engine& engine_;
  const nb::object root_;
  const void* const key_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const int errors_before_ = std::uncaught_exceptions();
  const Recording* const recorded_;
  trace::Number around_ = trace::none;
  trace::Outcome outcome_ = trace::Outcome::done;
};

// A step of an execution, which is the `key`.
class Watched {
 public:
  Watched(Engine& engine, const nb::object& root, const void* key, trace::AskKind kind) {
    if (engine.hooks.held_up.is_valid() || recording) [[unlikely]]
      begin(engine, root, key, kind);
  }
  // The result came too late.
  void note_late() {
    if (step_) step_->note_late();
  }

 private:
  [[gnu::noinline]] void begin(Engine& engine, const nb::object& root, const void* key, trace::AskKind kind) {
    step_.emplace(engine, root, key, kind);
  }

  std::optional<WatchedStep> step_;
};

// A function of `map` that runs while a trace is recorded.
class RecordedFunction {
 public:
  explicit RecordedFunction(const dataflow::CallOp& op) {
    if (recording) [[unlikely]]
      begin(op);
  }
  RecordedFunction(const RecordedFunction&) = delete;
  RecordedFunction& operator=(const RecordedFunction&) = delete;
  ~RecordedFunction() {
    if (recorded_) [[unlikely]]
      end();
  }

 private:
  [[gnu::noinline]] void begin(const dataflow::CallOp& op) {
    recorded_ = recording;
    errors_before_ = std::uncaught_exceptions();
    work_ = recording->recorder.begin_work({.kind = trace::WorkKind::function,
                                            .name = recording->recorder.name(op.title.empty() ? "map()" : op.title),
                                            .place = recording->place(op.origin)},
                                           {op.ready.begin(), op.ready.end()}, &op.origin);
  }
  [[gnu::noinline]] void end() {
    if (recording != recorded_) return;
    trace::Work& work = recording->recorder.work(work_);
    work.returned = trace::now_ns();
    if (std::uncaught_exceptions() > errors_before_) work.state = trace::WorkState::refused;
  }

  const Recording* recorded_ = nullptr;
  trace::Number work_ = trace::none;
  int errors_before_ = 0;
};

}  // namespace aiocuda::driver
