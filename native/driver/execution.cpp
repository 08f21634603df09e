#include "execution.hpp"

#include <chrono>

#include "host_needs.hpp"
#include "recording.hpp"
#include "walking.hpp"
#include "watched.hpp"

namespace aiocuda::driver {
namespace {

[[noreturn, gnu::cold]] void raise_lost(Engine& engine, std::int32_t error, nb::handle object, std::int32_t device) {
  dataflow::story.note(dataflow::Decided::failed, *dataflow::as_op(object), {});
  nb::object exception = engine.hooks.lost(error, object, device);
  if (!is_capture_error(error)) dataflow::as_op(object)->fail(exception);
  raise_exception(exception);
}

// Raises what the driver refused of what was asked for an operation's sake. An operation that was not submitted ends
// with it. One that was submitted goes on, unless its device is lost: it can be waited for again.
[[noreturn, gnu::cold]] void raise_refusal(Engine& engine, const Refusal& refusal, nb::handle object,
                                           std::int32_t device = dataflow::unknown_ordinal) {
  if (refusal.device >= 0) device = refusal.device;
  if (breaks_context(refusal.result) || is_capture_error(refusal.result))
    raise_lost(engine, refusal.result, object, device);
  try {
    raise_refused(engine, refusal, nb::borrow(object), device);
  } catch (nb::python_error& error) {
    Op& op = *dataflow::as_op(object);
    if (!op.is_done()) op.fail(error.value());
    throw;
  }
}

// Learns how far an operation is that was submitted without waiting.
void learn_from_marks(Engine& engine, Op& op) {
  if (!op.outstanding || find_outstanding(op)->marks.empty()) return;
  ContextScope scope(engine);
  for (const Engine::Mark& mark : find_outstanding(op)->marks) {
    if (!engine.now.has_made(mark.given())) continue;
    const StreamState& stream = engine.stream(mark.stream());
    scope.bind(stream.device);
    const CUresult result = engine.now.query(mark.event(), stream.context);
    if (result == CUDA_SUCCESS)
      engine.learn(mark.complete());
    else if (result != CUDA_ERROR_NOT_READY)
      throw Refusal(result, "cuEventQuery", stream.device);
  }
}

// The part of a submitted operation's ticks that has not passed.
Few<Tick> incomplete(Engine& engine, Op& op) {
  if (!op.outstanding) return engine.incomplete(op.ready);
  learn_from_marks(engine, op);
  auto left = engine.timeline.not_known_complete(op.ready);
  if (left.empty()) op.outstanding.reset();
  return left;
}

// For an operation in line whose stream has failed.
void raise_failed_turn(Engine& engine, nb::handle object) {
  Op& op = *dataflow::as_op(object);
  if (!op.outstanding) return;
  const auto turn = find_outstanding(op)->turn;
  if (!turn) return;
  const std::int32_t error = turn->called()->error();
  if (!error) return;
  drop_turn(op);
  raise_lost(engine, error, object, engine.stream(completion::stream_of(turn->line())).device);
}

// The driver refused, when the operation's result was on its way.
void raise_loss(Engine& engine, Op& op) {
  const nb::object loss = engine.loss_of(op);
  if (!loss.is_valid()) return;
  if (op.state == dataflow::State::failed) dataflow::ExplainSink::raise_stored(op);
  raise_exception(loss);
}

// Somebody has his result: what was only kept for the copies behind it may go.
bool end(Engine& engine, const Op& op) {
  dataflow::story.note(dataflow::Decided::completed, op, op.ready.empty() ? Tick{} : *op.ready.begin());
  if (engine.depth != 0 || engine.is_over()) return true;
  engine.given.drop_made();
  engine.staging.drop_ended();
  return true;
}

[[gnu::noinline]] void mark_now(Engine& engine, Op& op, std::span<const Tick> ticks) {
  for (const Tick tick : ticks) {
    if (engine.timeline.is_known_complete(tick)) continue;
    Few<Engine::Mark>& marks = outstanding(engine, op).marks;
    if (std::none_of(marks.begin(), marks.end(), [&](const Engine::Mark& each) { return each.covers(tick); }))
      marks.push_back(engine.mark(tick.stream));
  }
}
}  // namespace

// Work at a stream's end needs no mark before more comes there.
void mark(Engine& engine, Op& op, std::span<const Tick> ticks) {
  if (ticks.size() == 1 && engine.streams.stand_at_end(op, ticks.front())) [[likely]]
    return;
  mark_now(engine, op, ticks);
}

// A callback that is called while a graph is made: what it executes would run now, and not in the graph.
void refuse_while_recording(nb::handle object) {
  const dataflow::Enclosure* enclosure = dataflow::Enclosure::recording();
  if (!enclosure) [[likely]]
    return;
  dataflow::raise(
      dataflow::error_types.capture,
      nb::cast<std::string>(object.attr("_title")) +
          " was to be executed by a function that is called while the graph made at " + enclosure->place +
          " is recorded; return the operation from the function, so that it becomes a part of the graph, or "
          "execute it before");
}

// Submits all that can be. Done: true.
bool Execution::walk(Halted& halted) {
  refuse_while_recording(root_);
  Engine::Submission submission(engine_);
  const dataflow::Enclosure::Entered nowhere(nullptr);
  const bool outermost = engine_.depth == 1;
  if (outermost) engine_.settle_losses();
  if (on_host_ && on_host_->ahead && on_host_->ahead->is_for_pool) [[unlikely]]
    on_host_->ahead->buffer = {};
  if (!engine_.streams.has_order()) [[unlikely]]
    engine_.streams.restore_order();
  if (outermost) engine_.collect_in_passing();
  Acting acting(engine_, op(), outermost);
  if (on_host_ && on_host_->claim) [[unlikely]]
    engine_.claims.drop(this);                       // it has come
  std::optional<dataflow::Scratch<nb::handle>> own;  // of a callback's walk, inside another
  if (!outermost) [[unlikely]]
    own.emplace();
  dataflow::Scratch<nb::handle>& scratch = own ? *own : engine_.scratch;
  if (recording) [[unlikely]]
    return walk_traced(acting, outermost, scratch, halted);
  return walk_with<SubmitSink>(acting, outermost, scratch, halted);
}

struct Execution::Ran {
  bool is_programs = false;  // one of them was the program's own, and may have changed its mind
  CompletionRef elsewhere;   // where another thread is at all that is left: what tells when it is done
};

// Runs the functions that are due; each once, whoever asks.
Execution::Ran Execution::run_due(const std::vector<Due>& due) {
  Ran ran;
  tensors_.leave_for_function();
  for (const auto& [object, placement] : due) {
    auto& op = static_cast<dataflow::CallOp&>(*dataflow::as_op(object));
    if (op.state != dataflow::State::pending) continue;
    if (op.runner) {
      ran.elsewhere = outstanding(engine_, op).completion;
      continue;
    }
    ran.is_programs |= op.title.empty();
    const auto told = outstanding(engine_, op).completion = std::make_shared<completion::Completion>(1);
    op.runner = PyThread_get_thread_ident();
    std::optional<nb::python_error> interruption;
    try {
      const Op* producer = dataflow::as_op(op.input);
      if (const nb::object loss = engine_.loss_of(op); loss.is_valid()) raise_exception(loss);
      if (producer && producer->state == dataflow::State::failed) raise_exception(producer->outcome);
      const nb::object value = producer ? producer->outcome : op.input;
      const nb::object function = op.function;
      const dataflow::InForce in_force(placement);
      const RecordedFunction recorded(op);
      op.finish(function(value));
    } catch (nb::python_error& error) {
      op.fail(error.value());  // the next walk raises it, and fails what depends on it
      if (dataflow::is_interruption(error.value())) interruption.emplace(error);
    }
    op.runner = 0;
    op.outstanding.reset();
    told->part_done(0);
    if (interruption) throw nb::python_error(*interruption);  // to the caller that ran the function
    ran.elsewhere.reset();
  }
  return ran;
}

template <class F>
auto Execution::before_others(F&& f) {
  try {
    return f();
  } catch (...) {
    tensors_.leave_after_error(root_);
    throw;
  }
}

// Submits until the root is submitted, or something must be waited for.
Execution::Reached Execution::submit_root(bool blocks) {
  Op& op = this->op();
  interpreter::guard_thread();
  const Claims::Blocking blocking(blocks);
  if (!op.is_done()) engine_.require_usable();
  raise_failed_turn(engine_, root_);
  Reached reached;
  reached.is_submitted = op.is_done() || walk(reached.halt);
  if (!reached.is_submitted) submit_after_halt(blocks, reached);
  return reached;
}

[[gnu::noinline]] void Execution::submit_after_halt(bool blocks, Reached& reached) {
  do {
    Halt& halt = *reached.halt;
    if (halt.due.empty()) {
      if (!halt.host.is_any()) return keep_files(halt);
      if (CompletionRef until = wait_on_host(halt, blocks)) {
        reached = {.needs_host = true, .elsewhere = std::move(until)};
        return;
      }
      continue;
    }
    Ran ran = run_due(halt.due);
    if (ran.elsewhere) {
      reached = {.elsewhere = std::move(ran.elsewhere)};
      return;
    }
    if (ran.is_programs && op().state == dataflow::State::pending) {
      reached = {.is_paused = true};
      return;
    }
  } while (!op().is_done() && !walk(reached.halt));
  reached = {.is_submitted = true};
}

// The same, and looks whether it is complete.
Execution::Reached Execution::advance(bool blocks) {
  Op& op = this->op();
  interpreter::guard_thread();
  try {
    raise_loss(engine_, op);
    const bool is_new = !op.is_done();
    if (!is_new && engine_.is_over() && engine_.timeline.are_known_complete(op.ready))
      return {.is_submitted = true, .is_complete = true};
    engine_.require_usable();
    if (is_new) learn_from_marks(engine_, op);
    Reached reached = before_others([&] { return submit_root(blocks); });
    tensors_.leave();
    if (!reached.is_submitted) return reached;
    // Work that was submitted just now has hardly passed, and waiting for it tells as much as asking.
    reached.incomplete = is_new ? engine_.timeline.not_known_complete(op.ready) : incomplete(engine_, op);
    reached.is_complete = reached.incomplete.empty();
    if (reached.is_complete) raise_loss(engine_, op);  // it may have been lost since
    return reached;
  } catch (const Refusal& refusal) {
    raise_refusal(engine_, refusal, root_);
  }
}

// A completion of what was reached; none where it came while this spun for it.
CompletionRef Execution::completion_of(const Reached& reached, std::chrono::microseconds budget) {
  if (reached.elsewhere) return reached.elsewhere;
  if (reached.halt && reached.halt->room) return reached.halt->room;
  Op& op = this->op();
  try {
    static const Few<Engine::Mark> no_marks;
    const bool is_done = op.is_done();
    if (const Outstanding* const kept = is_done ? find_outstanding(op) : nullptr)
      if (kept->completion && (!kept->completion->has_ended() || kept->completion->error())) return kept->completion;
    const Engine::Armed armed = engine_.arm(reached.waits(), op.outstanding ? find_outstanding(op)->marks : no_marks);
    if (spin(engine_, armed, budget)) return nullptr;
    CompletionRef completion = engine_.watch(armed);
    // In the middle of a walk it is this caller's alone. Another thread may have found the operation complete.
    if (is_done && !engine_.timeline.are_known_complete(op.ready)) outstanding(engine_, op).completion = completion;
    return completion;
  } catch (const Refusal& refusal) {
    raise_refusal(engine_, refusal, root_, device_of(engine_, reached.waits()));
  }
}

completion::Waiter Execution::waiter(bool blocks, completion::Token token) const {
  return {PyThread_get_thread_ident(), blocks, token, placement().priority.value_or(0)};
}

// Takes a place in line. Returns a completion that ends when it is called; null if others have submitted the operation
// by now.
CompletionRef Execution::stand(const Halt::Full& full, completion::Waiter waiter) {
  Op& op = this->op();
  if (op.state != dataflow::State::pending) return nullptr;
  auto& turn = outstanding(engine_, op).turn;
  if (!turn) turn = std::make_shared<completion::Turn>();
  const auto standing = turn;  // whatever becomes of the operation
  engine_.lines.stand(standing, full.line, engine_.level(full.line), full.most, waiter, full.weight);
  try {
    engine_.keep_moving(full.line);
  } catch (const Refusal& refusal) {
    drop_turn(op);
    raise_refusal(engine_, refusal, root_, engine_.stream(completion::stream_of(full.line)).device);
  }
  return standing->called();
}

// Waits until there is room, or it is the operation's turn. False: the time is up, and the place given up.
bool Execution::wait_for_room(const Halt& halt, const Patience& patience) {
  if (!halt.stands_in_line && halt.waits.empty()) return true;
  CompletionRef called;
  try {
    called = halt.stands_in_line ? stand(*halt.full, waiter(true))
             : halt.room         ? halt.room
                                 : engine_.watch(engine_.arm(halt.waits, {}));
  } catch (const Refusal& refusal) {
    raise_refusal(engine_, refusal, root_, device_of(engine_, halt.waits));
  }
  if (!called) return true;
  bool is_called = false;
  try {
    is_called = wait_until(*called, patience);
  } catch (const nb::python_error&) {
    leave(op(), nullptr);
    throw;
  }
  if (!is_called) leave(op(), nullptr);
  if (const std::int32_t error = called->error())
    raise_lost(engine_, error, root_, engine_.stream(completion::stream_of(halt.full->line)).device);
  return is_called;
}

// Submits what can be, waiting for nothing; but what is to be kept together waits for room.
Execution::Reached Execution::step() {
  if (CompletionRef until = load_ahead()) return {.needs_host = true, .elsewhere = std::move(until)};
  Reached reached = advance(false);
  if (!keep_together(reached)) return reached;
  submit();
  return advance(false);
}

Execution::Driven Execution::drive(const Listener& listener) {
  const Watched watched(engine_, root_, this, trace::AskKind::await);
  most_in_turn_ = listener.most;
  for (;;) {
    const Reached reached = step();
    if (reached.is_complete) {
      end(engine_, op());
      return Driven::complete;
    }
    if (reached.is_paused) {
      listener.port->put(listener.token,
                         completion::pause);  // the loop comes round: it may have been told to cancel, or be late
      return Driven::goes_on;
    }
    if (reached.is_turn_over()) return Driven::turn_is_over;
    if (reached.halt && reached.halt->stands_in_line) {
      const auto called = stand(*reached.halt->full, waiter(false, listener.token));
      if (called && called->tell(listener.port, listener.token)) return Driven::goes_on;
      continue;
    }
    const auto completion = completion_of(reached, await_budget(engine_, listener.spins ? placement().spin_us : 0));
    if (!completion) {
      if (reached.is_submitted && ended(0)) return Driven::complete;
      continue;
    }
    if (completion->tell(listener.port, listener.token))
      return reached.is_submitted ? Driven::completes : Driven::goes_on;
    if (const std::int32_t error = completion->error())
      raise_lost(engine_, error, root_, device_of(engine_, reached.waits()));
  }
}

bool Execution::ended(std::int32_t result) {
  interpreter::guard_thread();
  engine_.submission.note_wait();
  raise_loss(engine_, op());
  if (result > 0) raise_lost(engine_, result, root_, device_of(engine_, op().ready));
  if (result != 0 || !op().is_done() || !engine_.timeline.are_known_complete(op().ready)) return false;
  op().outstanding.reset();
  return end(engine_, op());
}

bool Execution::leave(const Op& op, completion::Token token) {
  const Outstanding* const kept = find_outstanding(op);
  if (!kept || kept->engine.is_over()) return false;
  const auto turn = kept->turn;
  return turn && kept->engine.lines.leave(*turn, PyThread_get_thread_ident(), token);
}

void Execution::submit() {
  if (op().is_done()) return raise_loss(engine_, op());
  const Watched watched(engine_, root_, this, trace::AskKind::submit);
  const SubmissionThread::AtOnce at_once(engine_.submission);
  try {
    before_others([&] { submit_whole(); });
  } catch (const Refusal& refusal) {
    raise_refusal(engine_, refusal, root_);
  }
}

void Execution::submit_whole() {
  for (;;) {
    const Reached reached = submit_root(true);
    const bool is_stopped = !reached.is_submitted && !reached.is_paused && !reached.needs_host && !reached.is_full() &&
                            !reached.is_turn_over();
    if (reached.is_submitted || is_stopped) tensors_.leave();
    if (is_stopped && has_tensors_left()) raise_tensors_left();
    engine_.now.drain_slowly();
    if (engine_.submission.losses.is_any()) [[unlikely]] {
      raise_loss(engine_, op());
      if (!engine_.submission.losses.is_any()) continue;  // what it needs may have failed
    }
    engine_.given.drop_made();
    if (reached.is_submitted) [[likely]]
      return mark(engine_, op(), op().ready);
    if (submit_part(reached)) return;
  }
}

// Waits for what must come before the rest. True: only the device can go on.
[[gnu::noinline]] bool Execution::submit_part(const Reached& reached) {
  if (reached.is_paused) return false;
  if (reached.is_turn_over()) {
    engine_.let_others_submit();
    return false;
  }
  if (reached.needs_host) {
    wait_until(*reached.elsewhere, Patience());
    return false;
  }
  if (reached.is_full()) {
    wait_for_room(*reached.halt, Patience());
    return false;
  }
  mark(engine_, op(), reached.waits());
  return true;
}

bool Execution::submit_more() {
  if (op().is_done()) return false;
  const Watched watched(engine_, root_, this, trace::AskKind::submit);
  try {
    if (load_ahead()) return false;
    const Reached reached = before_others([&] { return submit_root(false); });
    tensors_.leave();
    if (keep_together(reached)) {
      submit();
      return false;
    }
    const bool goes_on = reached.is_paused || reached.is_turn_over();
    if (!goes_on && !reached.is_full()) mark(engine_, op(), reached.is_submitted ? op().ready : reached.waits());
    return goes_on;
  } catch (const Refusal& refusal) {
    raise_refusal(engine_, refusal, root_);
  }
}

bool Execution::wait(const Patience& patience) {
  Watched watched(engine_, root_, this, trace::AskKind::sync);
  const bool is_in_time = wait_watched(patience);
  if (!is_in_time) watched.note_late();
  return is_in_time;
}

bool Execution::wait_watched(const Patience& patience) {
  tensors_.open();  // the thread does nothing else meanwhile
  for (;;) {
    const Reached reached = advance(true);
    if (reached.is_complete) return end(engine_, op());
    if (reached.is_paused) {
      if (patience.is_over()) return false;
      continue;
    }
    if (reached.is_turn_over()) {
      if (patience.is_over()) return false;
      engine_.let_others_submit();
      continue;
    }
    if (reached.is_full()) {
      if (!wait_for_room(*reached.halt, patience)) return false;
      continue;
    }
    const auto completion = completion_of(reached, spin_time);
    if (!completion) {
      if (reached.is_submitted && ended(0)) return true;
      continue;
    }
    if (!wait_until(*completion, patience)) return false;
    if (const std::int32_t error = completion->error())
      raise_lost(engine_, error, root_, device_of(engine_, reached.waits()));
    if (reached.is_submitted && ended(0)) return true;
  }
}

bool has_passed(Engine& engine, nb::handle object) {
  Op& op = *dataflow::as_op(object);
  if (op.state == dataflow::State::failed) return true;
  if (!op.is_done()) return false;
  if (engine.loss_of(op).is_valid()) return true;
  try {
    const bool is_complete = incomplete(engine, op).empty();
    return is_complete || engine.loss_of(op).is_valid();  // it may have been lost since
  } catch (const Refusal& refusal) {
    raise_refusal(engine, refusal, object);
  }
}

}  // namespace aiocuda::driver
