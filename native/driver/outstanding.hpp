// What is kept of an operation whose result is not there yet.
#pragma once
#include "engine.hpp"

namespace aiocuda::driver {
using dataflow::Op;

// A kernel that another thread loads on a device, or has loaded there.
struct Loading {
  nb::object work{}, kernel{};  // a HostWork; none: nothing has been waited for
  std::int32_t device = dataflow::unknown_ordinal;
};
// What a walk came to that must be waited for.
struct HostNeed {
  nb::object launch{};  // whose kernel is not loaded
  std::int32_t device = dataflow::unknown_ordinal;
  CompletionRef behind{};  // or others that wait, and go first

  bool is_any() const { return launch.is_valid() || behind; }
};

struct Outstanding {
  Outstanding() = default;
  Outstanding(const Outstanding&) = delete;
  Outstanding& operator=(const Outstanding&) = delete;
  ~Outstanding() { drop_turn(); }
  void drop_turn() {
    const auto dropped = std::exchange(turn, nullptr);
    if (dropped && !Engine::get().is_over()) Engine::get().lines.give_up(*dropped);
  }

  dataflow::Few<Engine::Mark> marks;                   // made when it was submitted without waiting
  std::shared_ptr<completion::Completion> completion;  // once somebody waits
  std::shared_ptr<completion::Turn> turn;              // while it waits for room
};

inline Outstanding& outstanding(Op& op) {
  if (!op.outstanding) op.outstanding = std::make_shared<Outstanding>();
  return *static_cast<Outstanding*>(op.outstanding.get());
}

// Others may be in line for an operation that has been submitted, or has failed, as a part of something else.
inline void drop_turn(Op& op) {
  if (op.outstanding) outstanding(op).drop_turn();
}

// An operation's turn, for as long as a walk takes: it is over then, unless the walk stopped for room again.
class Acting {
 public:
  // Without `stands_in_line` there is none: a callback's walk must not wait for those who wait for its submission to
  // end.
  Acting(Engine& engine, Op& op, bool stands_in_line) : engine_(engine), op_(op) {
    if (stands_in_line && op.outstanding) turn_ = std::exchange(outstanding(op).turn, nullptr);
  }
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;
  ~Acting() {
    if (!turn_ || engine_.is_over()) return;
    const completion::Lane lane = turn_->lane();
    engine_.lines.end(*turn_, engine_.level(lane));
    try {
      engine_.keep_moving(lane);
    } catch (const Refusal&) {
      engine_.lines.has_room(lane);  // the next one is refused too, and says so
    }
  }
  const completion::Turn* turn() const { return turn_.get(); }
  void keep() {
    if (turn_) outstanding(op_).turn = std::exchange(turn_, nullptr);
  }

 private:
  Engine& engine_;
  Op& op_;
  std::shared_ptr<completion::Turn> turn_;
};

}  // namespace aiocuda::driver
