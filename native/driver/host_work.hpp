// Work of a thread of the host that executions wait for, such as compiling a kernel; and what they claim meanwhile.
//
// Always true: who waits for the work is told when it has ended, and who waits behind those is told after them. So what
// touches the same memory is submitted in the order in which it came, whether a kernel was compiled before or not.
// Guarded by the GIL.
#pragma once
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
// wait behind them. A claim ends with the work: who made it may be gone, or may never come back.
class Claims {
 public:
  using Owner = const void*;
  using Place = std::uint64_t;  // who came first has the lower one

  bool is_empty() const { return claims_.empty(); }
  Place next_place() { return ++last_; }

  // In place of what the owner has claimed so far.
  void put(Owner owner, Place place, CompletionRef behind, const std::vector<dataflow::Use>& uses) {
    drop(owner);
    Claim claim{owner, place, std::move(behind), {}};
    for (const dataflow::Use& use : uses) {
      auto& known = claim.uses[use.buffer];
      if (known.empty() || known.back().span.begin != use.span.begin || known.back().span.end != use.span.end ||
          known.back().writes != use.writes)
        known.push_back(use);
    }
    claims_.push_back(std::move(claim));
  }
  void drop(Owner owner) {
    std::erase_if(claims_, [&](const Claim& each) { return each.owner == owner; });
  }

  // The completion to wait for before an execution may touch memory that others have claimed; null: none. `place`: the
  // execution's own, if it has claimed something; 0: it comes later than all others.
  CompletionRef find(const std::vector<dataflow::Use>& uses, Place place) {
    std::erase_if(claims_, [](const Claim& each) { return each.behind->has_ended(); });
    for (const Claim& claim : claims_) {
      if (place && claim.place >= place) continue;
      for (const dataflow::Use& use : uses)
        if (claim.touches(use)) return claim.behind;
    }
    return nullptr;
  }

 private:
  struct Claim {
    Owner owner;
    Place place;
    CompletionRef behind;
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
