// The parts of the engine, what they are connected with, and the right to submit.
//
// Always true: a part knows the parts that it was given, and nothing of this. Executions, waits and sinks are handed
// the engine; nobody here looks for one. A finalizer never calls the driver in the middle of a submission. Guarded by
// the GIL, except `pending` and `lines`, which have locks of their own.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "../completion/completion.hpp"
#include "../completion/line.hpp"
#include "../dataflow/asked.hpp"
#include "../dataflow/operation.hpp"
#include "../dataflow/placing.hpp"
#include "../dataflow/scratch.hpp"
#include "../dataflow/timeline.hpp"
#include "../interpreter.hpp"
#include "devices.hpp"
#include "given.hpp"
#include "graph_room.hpp"
#include "hooks.hpp"
#include "host_work.hpp"
#include "images.hpp"
#include "lending.hpp"
#include "memory.hpp"
#include "outcomes.hpp"
#include "relays.hpp"
#include "retained.hpp"
#include "room.hpp"
#include "staging.hpp"
#include "streams.hpp"
#include "table.hpp"
#include "waits.hpp"

namespace aiocuda::driver {
namespace nb = nanobind;

class Engine final : public Surroundings {
 public:
  Engine();
  ~Engine();

  void load(const Table& loaded) { table = loaded; }  // once; the reactor starts with the first device
  // `highest_priority`: of its streams, as CUDA counts.
  void open_device(std::int32_t ordinal, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
                   int highest_priority);
  // This process is a fork of the one that loaded the driver.
  void note_forked() { is_forked_.store(true, std::memory_order_relaxed); }
  // Ends the threads; the interpreter's end has come so far that no other thread is in Python.
  void shut_down();

  // A policy's streams of a priority on a device, made where an operation is the first to go there.
  dataflow::PolicyStreams& policy_streams(const dataflow::Policy& policy, std::int32_t ordinal, int priority,
                                          dataflow::Op& op) {
    const auto slot = static_cast<std::size_t>(ordinal);
    if (priority == policy.priority && policy.placed.size() > slot && !policy.placed[slot].streams.empty()) [[likely]]
      return policy.placed[slot];
    return find_or_make_streams(policy, ordinal, priority, op);
  }
  // Keeps an object until the device has passed a tick.
  void retain(Tick until, nb::object object) { retained_.keep(until, std::move(object)); }
  // Frees what is due.
  void collect() override { collect(all_streams); }
  // The same, for who submits something: of what waits for many streams, it looks at a few of them, in turn.
  void collect_in_passing() { collect(2); }

  // The error of work that was lost on its way to the driver, or of a collective that failed, if the operation depends
  // on it; none if not. Afterwards it has failed with it, unless a walk goes on.
  nb::object loss_of(dataflow::Op& op) {
    return (submission.losses.is_any() || outcomes.has_failed()) && !is_over() ? find_loss(op) : nb::object();
  }
  // Tells the operations that depend on lost work. At the beginning of an outermost submission.
  void settle_losses() {
    if (submission.losses.is_any()) [[unlikely]]
      given.settle(hooks);
  }

  [[noreturn, gnu::cold]] void raise_over_limit(const dataflow::MemoryLimit& limit, std::uint64_t asked_bytes);

  bool is_ending() const override { return interpreter::is_ending(); }
  [[noreturn, gnu::cold]] void raise_over() const override;
  void open(std::int32_t ordinal) override { hooks.open(ordinal); }
  void note_return() noexcept override {
    if (depth == 0) collect();
  }
  void note_freed(std::int32_t ordinal) override { room.note_freed(ordinal); }
  void mark_last(dataflow::AtEnd& last, StreamIndex stream) override;
  CUresult call_slowly(const std::function<CUresult()>& call) override;

  // Held during a walk; a walk may start another from a callback. A thread that waits for it has the door: so one that
  // comes back for more lets that thread in first.
  class Submission;
  std::recursive_mutex submitting;
  std::mutex door;
  // Gives up the GIL, until each thread that waits for the right to submit now has had it.
  void let_others_submit() {
    const nb::gil_scoped_release release;
    const std::lock_guard in_turn(door);
  }
  int depth = 0;
  std::uint64_t performed = 0;            // operations, by all walks
  dataflow::Scratch<nb::handle> scratch;  // of the outermost walk

  Table table;
  Hooks hooks;
  dataflow::Timeline timeline;
  completion::Orphans orphans;
  completion::Pending pending;
  completion::Lines lines{pending};
  Claims claims;  // of executions that wait for work on the host
  SubmissionThread submission{table, *this};
  DriverNow now{table, submission};
  Given given{submission};
  Outcomes outcomes;  // of collectives
  Devices devices{table, now, *this};
  Streams streams{devices, timeline, *this};
  Relays relays{devices, streams, timeline};
  Lending lending{devices, streams, timeline, relays};
  Memory memory{devices, streams, timeline, *this};
  Images images{devices, streams, timeline, *this};
  Waits waits{devices, streams, timeline, pending, *this, [this](StreamIndex stream) {
                lines.look(stream);
                lines.look(stream | completion::memory_bit);
              }};
  Room room{devices, streams, timeline, waits, memory, lines};
  Staging staging{devices, streams, memory, timeline, pending};
  GraphRoom graph_room{devices, streams, *this};

  // Shortcuts to the parts, for the walk and for the driving of executions.
  using Mark = Streams::Mark;
  using Armed = Waits::Armed;
  operator Devices&() { return devices; }  // for a ContextScope
  StreamState& stream(StreamIndex index) { return streams.at(index); }
  dataflow::StreamId id_of(StreamIndex index) const { return streams.id_of(index); }
  std::size_t stream_count() const { return streams.size(); }
  bool is_peer(std::int32_t device, std::int32_t other) { return devices.is_peer(device, other); }
  void learn(const dataflow::Snapshot& complete) { streams.learn(complete); }
  bool is_complete(Tick tick) { return streams.is_complete(tick); }
  Few<Tick> incomplete(std::span<const Tick> ticks) { return streams.incomplete(ticks); }
  Mark mark(StreamIndex stream) { return streams.mark(stream); }
  Armed arm(std::span<const Tick> ticks, std::span<const Mark> marks, bool whoever = false) {
    return waits.arm(ticks, marks, whoever);
  }
  bool has_passed(const Armed& armed) const { return waits.has_passed(armed); }
  void learn(const Armed& armed) { waits.learn(armed); }
  std::shared_ptr<completion::Completion> watch(const Armed& armed) { return waits.watch(armed); }
  void note_wait(completion::Pending::Clock::duration time) { waits.note_wait(time); }
  completion::Level level(completion::LineId line) { return room.level(line); }
  void keep_moving(completion::LineId line) { room.keep_moving(line); }
  completion::LineId memory_line(std::int32_t device) { return room.memory_line(device); }
  std::atomic<float>& recent_wait_us{waits.recent_wait_us};
  std::atomic<std::uint64_t>&spins{waits.spins}, &spins_that_paid{waits.spins_that_paid};

 private:
  dataflow::PolicyStreams& find_or_make_streams(const dataflow::Policy& policy, std::int32_t ordinal, int priority,
                                                dataflow::Op& op);
  // Those of a priority on an open device; none were made: empty.
  dataflow::PolicyStreams& known_streams(const dataflow::Policy& policy, std::int32_t ordinal, int priority);

  nb::object find_loss(dataflow::Op& op);
  void collect(std::size_t most_streams);

  Retained<nb::object> retained_;
};

// Calls what may wait for work that only goes on when another thread has the GIL.
inline constexpr auto without_gil = [](auto&& call) {
  const nb::gil_scoped_release release;
  return call();
};

// The right to submit. Waiting for it gives up the GIL: who has it may need the GIL to go on.
class Engine::Submission {
 public:
  explicit Submission(Engine& engine) : engine_(engine) {
    interpreter::guard_thread();
    engine_.require_usable();
    if (!engine_.submitting.try_lock()) [[unlikely]]
      wait();
    if (++engine_.depth == 1 && (engine_.graph_room.is_missing() || engine_.memory.is_freeing())) [[unlikely]]
      prepare();
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
  ~Submission() {
    if (--engine_.depth == 0) engine_.streams.rest();
    // Somebody may wait for memory that was let go of meanwhile.
    if (engine_.depth == 0 && engine_.memory.has_returned() && !engine_.lines.is_empty()) [[unlikely]]
      engine_.collect();
    engine_.submitting.unlock();
  }

 private:
  [[gnu::noinline]] void wait() {
    nb::gil_scoped_release release;
    const std::lock_guard first(engine_.door);
    engine_.submitting.lock();
  }
  // A device that is at rest now may be at work soon.
  [[gnu::noinline]] void prepare() {
    without_gil([&] { engine_.memory.await_freeing(); });
    engine_.graph_room.make_where_idle();
  }

  Engine& engine_;
};

}  // namespace aiocuda::driver
