// Work that goes by the submission thread: launches, and blocks of copies and fills, with the bytes that they touch.
//
// Always true: work that is made at once comes behind all that was given, and depends on nothing that was lost: else
// the loss is raised. The operation of given work is kept until the work was made.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "../dataflow/copy_block.hpp"
#include "../dataflow/fills.hpp"
#include "../dataflow/launch.hpp"
#include "../dataflow/placing.hpp"
#include "engine.hpp"
#include "refused.hpp"

namespace aiocuda::driver {

class Giving {
 public:
  using Touched = std::span<const MemoryRange>;

  // `uses`: of the operation that is placed now.
  Giving(Engine& engine, const std::vector<dataflow::Use>& uses) : engine_(engine), uses_(uses) {}
  Giving(const Giving&) = delete;
  Giving& operator=(const Giving&) = delete;

  // Of the operation that is placed now.
  const std::vector<dataflow::Use>& uses() const { return uses_; }
  // Is work given at all?
  bool is_used() const { return engine_.submission.is_used(); }
  // May work still be lost on which a result depends now? `holds_back`: some of it has not been given.
  bool may_lose(bool holds_back) const {
    return is_used() && (holds_back || !engine_.submission.has_made_all() || engine_.submission.losses.is_any());
  }
  // The bytes that the operation touches that is placed now, until the next one is. Nothing if no work is given.
  Touched touched() { return is_used() ? find_touched() : Touched(); }

  std::vector<MemoryRange> copied() { return std::vector(touched().begin(), touched().end()); }

  // False: the caller makes the call now. Throws Refusal.
  [[gnu::noinline]] bool launch(dataflow::LaunchOp& op, const WorkOf& of, Touched touched) {
    const dataflow::Signature& signature = op.signature;
    const dataflow::LaunchShape& shape = op.shape;
    const std::size_t count = signature.params.size(), words = count + signature.words;
    const bool is_plain = !shape.cooperative && !shape.cluster.x;
    const bool fits = is_plain && count <= Launch::most_arguments && words <= Launch::most_words;
    return give(Command::Kind::launch, of, touched, fits, "cuLaunchKernel", [&](Command& command) {
      Launch& into = command.launch;
      into.function = static_cast<CUfunction>(signature.loaded[static_cast<std::size_t>(of.device)].function);
      into.grid = {shape.grid.x, shape.grid.y, shape.grid.z};
      into.block = {shape.block.x, shape.block.y, shape.block.z};
      into.shared_bytes = shape.shared_bytes;
      into.count = static_cast<std::uint32_t>(count);
      std::size_t at = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t size = std::max<std::size_t>(signature.params[i].words(), 1);
        into.starts[i] = static_cast<std::uint8_t>(at);
        std::memcpy(&into.words[at], op.word_of(i), size * sizeof(std::uint64_t));
        at += size;
      }
    });
  }
  bool fill(const WorkOf& of, Touched touched, const dataflow::FillBlock& block) {
    return give(Command::Kind::fill, of, touched, true, "cuMemsetD8Async",
                [&](Command& command) { std::construct_at(&command.fill, block); });
  }
  bool copy(const WorkOf& of, Touched touched, const dataflow::CopyBlock& block) {
    return give(Command::Kind::copy, of, touched, true, "cuMemcpyAsync",
                [&](Command& command) { std::construct_at(&command.copy, block); });
  }
  // A wait that the work needs. It may be on its way when this returns. Throws Refusal.
  void wait(StreamIndex other, std::uint32_t slot, const WorkOf& of, Touched touched) {
    if (is_used()) [[unlikely]] {
      note(of);
      if (engine_.stream(other).device != of.device) require_well(other, of.device);
    }
    engine_.streams.wait_for_mark(of.tick.stream, other, slot, of, touched);
  }
  // Other work is to be made now, which touches these bytes.
  void make_way(Tick tick, Touched touched) {
    engine_.now.drain();
    require_kept(tick, touched);
  }

 private:
  [[gnu::noinline]] Touched find_touched() {
    room_.clear();
    for (const dataflow::Use& use : uses_)
      if (use.span.begin < use.span.end)
        room_.push_back({use.buffer->address + use.span.begin, use.buffer->address + use.span.end, use.writes});
    return room_;
  }
  void note(const WorkOf& of) { engine_.given.note(*static_cast<dataflow::Op*>(const_cast<void*>(of.op))); }

  // Work on another device, which is lost: the driver would refuse the wait, later.
  void require_well(StreamIndex other, std::int32_t device) const {
    const StreamState& state = engine_.stream(other);
    if (!state.mark) return;  // destroyed: all of it has passed
    const CUresult answer = engine_.streams.query(state);
    if (breaks_context(answer)) throw Refusal(answer, "cuStreamWaitEvent", device);
  }

  template <class FillIn>
  bool give(Command::Kind kind, const WorkOf& of, Touched touched, bool fits, const char* function, FillIn&& fill_in) {
    const On on = engine_.stream(of.tick.stream).on();
    if (const CUresult broken = engine_.submission.losses.broken(on.context))
      throw Refusal(broken, function, of.device);
    if (!fits || touched.size() > Command::most_ranges) {
      make_way(of.tick, touched);
      return false;
    }
    if (!engine_.submission.takes(on)) {
      require_kept(of.tick, touched);
      return false;
    }
    Command& command = engine_.submission.next(kind, on);
    command.note(of, touched);
    fill_in(command);
    engine_.submission.give();
    note(of);
    return true;
  }
  void require_kept(Tick tick, Touched touched) const {
    if (const auto cause = engine_.submission.losses.find(tick, touched)) [[unlikely]]
      raise_exception(Given::error_of(*cause, engine_.hooks));
  }

  Engine& engine_;
  const std::vector<dataflow::Use>& uses_;
  std::vector<MemoryRange> room_;
};

}  // namespace aiocuda::driver
