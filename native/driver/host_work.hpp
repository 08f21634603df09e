// Work of a thread of the host that executions wait for, such as compiling a kernel; and what they claim meanwhile.
//
// Always true: who waits for the work is told when it has ended, and who waits behind those is told after them. So what
// touches the same memory is submitted in the order in which it came, whether a kernel was compiled before or not.
// Guarded by the GIL.
#pragma once
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../completion/completion.hpp"
#include "../dataflow/placing.hpp"

namespace aiocuda::driver {

using CompletionRef = std::shared_ptr<completion::Completion>;

// One piece of it.
struct HostWork {
  const CompletionRef ended = std::make_shared<completion::Completion>(1);
  const CompletionRef behind = std::make_shared<completion::Completion>(1);  // ends after it

  // To be called once, with the GIL held: nobody goes on before everybody has been told.
  void end() {
    ended->part_done(0);
    behind->part_done(0);
  }
};

// The bytes that executions which wait for such work will read and write. Later executions that would touch the same
// wait behind them. A claim ends with the work: who made it may be gone, or may never come back. Only a claim between a
// file's opening and its last copy ends when its execution goes on, or is gone: nobody may come between two of them. A
// thread that blocks, and so keeps its own loop from going on, waits for the work alone there, too.
class Claims {
 public:
  using Owner = const void*;
  using Place = std::uint64_t;  // who came first has the lower one

  // Does whoever walks now keep the thread until it is done? A function may block in the middle of a walk that does
  // not.
  class Blocking {
   public:
    explicit Blocking(bool blocks) : before_(std::exchange(walk_blocks, blocks)) {}
    Blocking(const Blocking&) = delete;
    Blocking& operator=(const Blocking&) = delete;
    ~Blocking() { walk_blocks = before_; }

   private:
    const bool before_;
  };

  bool is_empty() const { return claims_.empty(); }
  Place next_place() { return ++last_; }

  // In place of what the owner has claimed so far. With `work`, the claim outlives that, until its owner walks again.
  void put(Owner owner, Place place, CompletionRef behind, const std::vector<dataflow::Use>& uses,
           CompletionRef work = {}) {
    drop(owner);
    Claim claim{owner, place, std::move(behind), std::move(work), PyThread_get_thread_ident(), {}};
    for (const dataflow::Use& use : uses) {
      auto& known = claim.uses[use.buffer];
      if (known.empty() || known.back().span.begin != use.span.begin || known.back().span.end != use.span.end ||
          known.back().writes != use.writes)
        known.push_back(use);
    }
    claims_.push_back(std::move(claim));
  }
  void drop(Owner owner) {
    const auto found =
        std::find_if(claims_.begin(), claims_.end(), [&](const Claim& each) { return each.owner == owner; });
    if (found == claims_.end()) return;
    const CompletionRef behind = found->work ? found->behind : nullptr;
    claims_.erase(found);
    if (behind) behind->part_done(0);
  }

  // The completion to wait for before an execution may touch memory that others have claimed; null: none. `place`: the
  // execution's own, if it has claimed something; 0: it comes later than all others.
  CompletionRef find(const std::vector<dataflow::Use>& uses, Place place) {
    std::erase_if(claims_, [](const Claim& each) { return each.behind->has_ended(); });
    for (const Claim& claim : claims_) {
      if (place && claim.place >= place) continue;
      const bool is_own_thread = claim.work && walk_blocks && claim.thread == PyThread_get_thread_ident();
      if (is_own_thread && claim.work->has_ended()) continue;
      for (const dataflow::Use& use : uses)
        if (claim.touches(use)) return is_own_thread ? claim.work : claim.behind;
    }
    return nullptr;
  }

 private:
  static inline thread_local bool walk_blocks = false;

  struct Claim {
    Owner owner;
    Place place;
    CompletionRef behind, work;
    unsigned long thread;
    std::unordered_map<const dataflow::Buffer*, std::vector<dataflow::Use>> uses;

    bool touches(const dataflow::Use& use) const {
      const auto found = uses.find(use.buffer);
      if (found == uses.end()) return false;
      for (const dataflow::Use& each : found->second)
        if ((each.writes || use.writes) && each.span.begin < use.span.end && use.span.begin < each.span.end)
          return true;
      return false;
    }
  };

  std::vector<Claim> claims_;
  Place last_ = 0;
};

}  // namespace aiocuda::driver
