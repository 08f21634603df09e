// The state of an operation whose result is not there yet.
#pragma once
#include "engine.hpp"

namespace aiocuda::driver {
using dataflow::Op;

// A kernel that another thread loads on a device, a graph that it makes, or a device that it opens; or that it has.
struct Loading {
  nb::object work{};     // a HostWork; none: nothing has been waited for
  nb::object subject{};  // the kernel or the graph; none: it is the device
  std::int32_t device = dataflow::unknown_ordinal;

  bool is_of(nb::handle object, std::int32_t ordinal) const {
    return work.is_valid() && subject.is(object) && device == ordinal;
  }
  // It ended, and the thing is not there.
  bool has_failed(nb::handle object, std::int32_t ordinal) const {
    return is_of(object, ordinal) && nb::cast<const HostWork&>(work).ended->has_ended();
  }
};
// Memory that is not there yet, or that another thread has got for an execution: its next walk takes it.
struct AheadMemory {
  dataflow::MemoryKind kind = dataflow::MemoryKind::ordinary;
  std::int32_t device = dataflow::unknown_ordinal;  // `host_ordinal`: page-locked
  std::uint64_t size_bytes = 0;                     // 0: none
  std::int32_t asking = dataflow::unknown_ordinal;  // the device whose context asks for it
  dataflow::BufferRef buffer{};                     // none: it is not there, or was refused

  bool is_for_pool = false;  // nobody takes it: it is to be there when it is asked for

  // By a thread that holds up nobody. If the driver refuses here, the walk that needs the memory asks again, and says
  // why it failed.
  void get(Engine& engine);
  AheadMemory unfilled() const { return {kind, device, size_bytes, asking, {}, is_for_pool}; }
  bool is_for(dataflow::MemoryKind of, std::int32_t where, std::uint64_t bytes) const {
    return size_bytes && kind == of && device == where && size_bytes == bytes;
  }
};
// What an execution waits for on the host, or has waited for last.
struct OnHost {
  Loading loading{};
  std::shared_ptr<AheadMemory> ahead{};
  Claims::Place claim = 0;  // among those that wait for work on the host; 0: it does not
};
// The thing on the host for which a walk must wait.
struct HostNeed {
  enum class Kind : std::uint8_t { kernel, device, graph, file };
  nb::object op{};  // whose kernel is not loaded, whose device or file is not open, or whose graph is not made
  std::int32_t device = dataflow::unknown_ordinal;
  Kind kind = Kind::kernel;
  AheadMemory memory{};    // or what the driver takes long to give
  CompletionRef behind{};  // or others that wait, and go first

  bool is_any() const { return op.is_valid() || memory.size_bytes || behind; }
};

struct Outstanding {
  explicit Outstanding(Engine& of) : engine(of) {}
  Outstanding(const Outstanding&) = delete;
  Outstanding& operator=(const Outstanding&) = delete;
  ~Outstanding() { drop_turn(); }
  void drop_turn() {
    const auto dropped = std::exchange(turn, nullptr);
    if (dropped && !engine.is_over()) engine.lines.give_up(*dropped);
  }

  Engine& engine;
  Few<Engine::Mark> marks;                             // made when it was submitted without waiting
  std::shared_ptr<completion::Completion> completion;  // once somebody waits
  std::shared_ptr<completion::Turn> turn;              // while it waits for room
};

inline Outstanding* find_outstanding(const Op& op) { return static_cast<Outstanding*>(op.outstanding.get()); }
inline Outstanding& outstanding(Engine& engine, Op& op) {
  if (!op.outstanding) op.outstanding = std::make_shared<Outstanding>(engine);
  return *find_outstanding(op);
}

// Others may be in line for an operation that has been submitted, or has failed, as a part of something else.
inline void drop_turn(Op& op) {
  if (Outstanding* const kept = find_outstanding(op)) kept->drop_turn();
}

// An operation's turn, for as long as a walk takes: it is over then, unless the walk stopped for room again.
class Acting {
 public:
  // Without `stands_in_line` there is none: a callback's walk must not wait for those who wait for its submission to
  // end.
  Acting(Engine& engine, Op& op, bool stands_in_line) : engine_(engine), op_(op) {
    if (Outstanding* const kept = find_outstanding(op); kept && stands_in_line)
      turn_ = std::exchange(kept->turn, nullptr);
  }
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;
  ~Acting() {
    if (turn_) [[unlikely]]
      end();
  }
  const completion::Turn* turn() const { return turn_.get(); }
  void keep() {
    if (turn_) outstanding(engine_, op_).turn = std::exchange(turn_, nullptr);
  }

 private:
  [[gnu::noinline]] void end() {
    if (engine_.is_over()) return;
    const completion::LineId line = turn_->line();
    engine_.lines.end(*turn_, engine_.level(line));
    try {
      engine_.keep_moving(line);
    } catch (const Refusal&) {
      engine_.lines.has_room(line);  // the next one is refused too, and says so
    }
  }

  Engine& engine_;
  Op& op_;
  std::shared_ptr<completion::Turn> turn_;
};

}  // namespace aiocuda::driver
