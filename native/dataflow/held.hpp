// Calls that a walk holds back, so that its streams get theirs in turn: the walk decides branch after branch, and
// the last branch would else begin when all others had been submitted. Knows neither Python nor CUDA.
//
// Always true: each stream gets its calls in the order in which they were decided; a wait comes behind the event
// record that it is for, and before the event is recorded again.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tick.hpp"

namespace aiocuda::dataflow {

// Points are taken beside work, in its place on the stream: one before it, and one behind it.
enum class HeldKind : std::uint8_t { work, mark, wait, point_before, point_behind };

template <class Work>
struct HeldCall {
  HeldKind kind;
  StreamIndex stream;
  std::uint64_t count = 0;  // the submission that it is, is part of, or comes before
  Work work{};
  StreamIndex other = 0;   // of a wait: whose mark
  std::uint32_t slot = 0;  // of a mark or a wait
};

template <class Work>
class HeldCalls {
 public:
  bool empty() const { return calls_.empty(); }
  void add(HeldCall<Work> call) { calls_.push_back(std::move(call)); }

  // Calls `make(call)` for all of them, a piece of work for each stream in turn. False: it was refused; then the work
  // that comes after it on its stream, or waits for that, is left out; marks and waits are made all the same, except
  // waits for a mark that was refused. Gives back from which submission on each stream has lost work.
  template <class Make>
  std::map<StreamIndex, std::uint64_t> make_all(Make&& make) {
    const std::vector<HeldCall<Work>> calls = std::exchange(calls_, {});
    std::vector<std::vector<std::size_t>> queues;  // by stream, the calls' places
    std::map<StreamIndex, std::size_t> queue_of;
    // Before a wait its mark; before a mark, all waits for what it was before.
    std::vector<std::vector<std::size_t>> blockers(calls.size());
    struct Slot {
      std::size_t mark = none;
      std::vector<std::size_t> waits;
    };
    std::map<std::pair<StreamIndex, std::uint32_t>, Slot> slots;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const HeldCall<Work>& call = calls[i];
      const auto [queue, is_new] = queue_of.try_emplace(call.stream, queues.size());
      if (is_new) queues.emplace_back();
      queues[queue->second].push_back(i);
      if (call.kind == HeldKind::mark) {
        Slot& slot = slots[{call.stream, call.slot}];
        blockers[i] = std::exchange(slot.waits, {});
        slot.mark = i;
      } else if (call.kind == HeldKind::wait) {
        Slot& slot = slots[{call.other, call.slot}];
        slot.waits.push_back(i);
        if (slot.mark != none) blockers[i].push_back(slot.mark);
      }
    }
    std::vector<bool> is_made(calls.size(), false), is_spoilt(calls.size(), false), is_refused(calls.size(), false);
    std::vector<std::size_t> next(queues.size(), 0);
    std::map<StreamIndex, std::uint64_t> lost;
    auto make_one = [&](std::size_t i) {
      const HeldCall<Work>& call = calls[i];
      const bool waits_for_lost = call.kind == HeldKind::wait && !blockers[i].empty() && is_spoilt[blockers[i].front()];
      const bool is_left_out = call.kind == HeldKind::wait ? waits_for_lost && is_refused[blockers[i].front()]
                                                           : call.kind == HeldKind::work && lost.contains(call.stream);
      is_refused[i] = !is_left_out && !make(call);
      if (is_refused[i] || waits_for_lost) lost.try_emplace(call.stream, call.count);
      is_spoilt[i] = lost.contains(call.stream);
      is_made[i] = true;
    };
    for (std::size_t left = calls.size(); left;) {
      for (std::size_t queue = 0; queue < queues.size(); ++queue) {
        for (bool is_turn_over = false; !is_turn_over && next[queue] < queues[queue].size();) {
          const std::size_t i = queues[queue][next[queue]];
          bool is_blocked = false;
          for (const std::size_t blocker : blockers[i]) is_blocked = is_blocked || !is_made[blocker];
          if (is_blocked) break;
          make_one(i);
          ++next[queue];
          --left;
          const bool is_followed =
              next[queue] < queues[queue].size() && calls[queues[queue][next[queue]]].kind == HeldKind::point_behind;
          is_turn_over = (calls[i].kind == HeldKind::work && !is_followed) || calls[i].kind == HeldKind::point_behind;
        }
      }
    }
    return lost;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::vector<HeldCall<Work>> calls_;
};

}  // namespace aiocuda::dataflow
