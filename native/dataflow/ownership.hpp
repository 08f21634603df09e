// The rights to use the bytes of a buffer: shared, partitioned or moved parts, and the handles that they belong to.
// Knows neither Python nor CUDA.
//
// Always true: a claim holds while a handle of its group lives. A moved part's claim and a lender's hold longer: until
// the memory goes, or until the loan ends that they came about from. Nobody writes bytes under a shared claim. Bytes
// under a partition's or a move's claim are used through its own handles alone. Guarded by the GIL.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "region.hpp"

namespace aiocuda::dataflow {

// Handles that came about by one transition; the groups they were of before are behind it. Made by std::make_shared,
// so that a claim's weak reference keeps its address from being used again.
struct Group {
  std::shared_ptr<Group> parent;
};
using GroupRef = std::shared_ptr<Group>;

inline bool is_of(const Group* group, const Group* asked) {
  while (group && group != asked) group = group->parent.get();
  return group != nullptr;
}

enum class ClaimKind : std::uint8_t { shared, partitioned, moved, read_only };

class Claim {
 public:
  Claim(ClaimKind kind_of, Region bytes, const GroupRef& group, std::string made_at)
      : kind(kind_of), region(std::move(bytes)), place(std::move(made_at)), owner_(group.get()), handles_(group) {
    if (kind == ClaimKind::moved || kind == ClaimKind::read_only) kept_ = group;
  }

  ClaimKind kind;
  Region region;
  std::string place;  // where it was made, as "file:line"

  // An address that no other group has while the claim is there, though the group may be gone.
  const Group* owner() const { return owner_; }
  bool has_ended() const { return handles_.expired(); }

 private:
  const Group* owner_;
  std::weak_ptr<Group> handles_;  // keeps the group's memory from being used again
  GroupRef kept_;                 // the same, where the claim outlives its handles
};

class Claims {
 public:
  bool empty() const { return claims_.empty(); }

  void add(ClaimKind kind, Region region, const GroupRef& group, std::string place) {
    claims_.emplace_back(kind, std::move(region), group, std::move(place));
    count_exclusive();
  }
  void remove(const Group* group) {
    remove_if([group](const Claim& claim) { return claim.owner() == group; });
  }
  // For a group of which no handle is left, nor of those that came about from it.
  void remove_all_of(const Group& group) {
    remove_if([&group](const Claim& claim) { return claim.has_ended() || is_of(claim.owner(), &group); });
  }
  // All that was moved to the group is moved on: the later claim forbids what the earlier does, so a chain of moves
  // keeps one. False: it is not all, or was not moved.
  bool move_on(const Group* from, const Region& region, const GroupRef& to, const std::string& place) {
    Claim* claim = find(from);
    if (!claim || claim->kind != ClaimKind::moved || claim->region != region) return false;
    to->parent = from->parent;
    *claim = Claim(ClaimKind::moved, region, to, place);
    return true;
  }

  // The claim that forbids an access, or null.
  const Claim* against_access(const Region& region, bool writes, const Group* group) {
    if (!writes && !exclusive_) return nullptr;  // as where much is lent for reading
    return first(region, group, [&](const Claim& claim, const Group* owner) {
      if (claim.kind == ClaimKind::shared || claim.kind == ClaimKind::read_only) return writes;
      return !is_of(group, owner);
    });
  }
  // The claim that forbids that the bytes change hands, or null. The new holder may write them, or not.
  const Claim* against_transition(const Region& region, bool writes, const Group* group) {
    return first(region, group, [&](const Claim& claim, const Group* owner) {
      if (claim.kind == ClaimKind::read_only) return writes;
      return claim.kind != ClaimKind::moved || !is_of(group, owner);
    });
  }
  // The claim that forbids that they are shared, or null.
  const Claim* against_share(const Region& region, const Group* group) {
    return first(region, group, [&](const Claim& claim, const Group* owner) {
      if (claim.kind == ClaimKind::shared || claim.kind == ClaimKind::read_only) return false;
      return claim.kind == ClaimKind::partitioned || !is_of(group, owner);
    });
  }
  const Claim* of(const Group* group) { return find(group); }

 private:
  template <class Predicate>
  void remove_if(Predicate&& is_gone) {
    if (std::erase_if(claims_, is_gone)) count_exclusive();
  }
  void count_exclusive() {
    exclusive_ = std::count_if(claims_.begin(), claims_.end(), [](const Claim& claim) {
      return claim.kind == ClaimKind::partitioned || claim.kind == ClaimKind::moved;
    });
  }
  Claim* find(const Group* group) {
    const auto found =
        std::find_if(claims_.begin(), claims_.end(), [group](const Claim& claim) { return claim.owner() == group; });
    return found == claims_.end() ? nullptr : &*found;
  }

  // A handle's own claim is its own even where it has no items. Asked for every array of every operation: claims are
  // cast out only when one has ended.
  template <class Forbids>
  const Claim* first(const Region& region, const Group* group, Forbids&& forbids) {
    auto has_ended = [](const Claim& claim) { return claim.has_ended(); };
    if (std::any_of(claims_.begin(), claims_.end(), has_ended)) remove_if(has_ended);
    for (const Claim& claim : claims_)
      if (forbids(claim, claim.owner()) && (claim.owner() == group || overlap(claim.region, region))) return &claim;
    return nullptr;
  }

  std::vector<Claim> claims_;
  std::ptrdiff_t exclusive_ = 0;  // how many of them forbid reading
};

}  // namespace aiocuda::dataflow
