// The history of accesses: for each range of bytes, the accesses that a later one may race with. An access is forgotten
// when a later one that is ordered behind it and at least as strong stands for it. So a range keeps at most a few for
// each lane. Always: segments are disjoint, not empty, and neighbours with equal accesses are one.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "checking/access.hpp"
#include "checking/operation.hpp"

namespace aiocuda::emulator::checking {

class History {
 public:
  using ConstPoint = std::shared_ptr<const Operation>;

  struct Conflict {
    const ConstPoint& earlier;
    AccessKind earlier_kind;
    std::uintptr_t begin, end;
  };
  using OnConflict = std::function<void(const Conflict&)>;

  // Remembers the access of an operation whose clock is known, and tells of each that it races with.
  void add(const ConstPoint& operation, const Access& access, const OnConflict& on_conflict);
  // Tells of what an access would race with, and remembers nothing.
  void look(const Operation& operation, const Access& access, const OnConflict& on_conflict) const;
  void forget(std::uintptr_t begin, std::uintptr_t end);
  // Forgets what every operation still to end is ordered after.
  void prune(const Clock& floor);

  bool is_empty(std::uintptr_t begin, std::uintptr_t end) const;
  std::size_t size() const noexcept { return segments_.size(); }

 private:
  struct Seen {
    ConstPoint operation;
    AccessKind kind;
    bool operator==(const Seen&) const = default;
  };
  struct Segment {
    std::uintptr_t end;
    std::vector<Seen> seen;
  };
  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void join_with_previous(Segments::iterator at);
  static void check(std::uintptr_t begin, std::uintptr_t end, const std::vector<Seen>& seen, const Operation& operation,
                    AccessKind kind, const OnConflict& on_conflict);
  static void remember(std::vector<Seen>& seen, const ConstPoint& operation, AccessKind kind);

  Segments segments_;
};

}  // namespace aiocuda::emulator::checking
