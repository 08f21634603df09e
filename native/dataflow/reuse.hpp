// The layout of a graph's temporaries in the memory that they share. Knows neither Python nor CUDA.
//
// Always true: temporaries share memory only if their uses cannot overlap in time: all uses of one come before all uses
// of the other in the graph as it is. So sharing needs no further edges, and takes no parallelism away.
//
// The memory is cut into shelves. The largest arrays are placed first. Each goes on the next shelf on which it
// conflicts with no other array (next fit, decreasing, with shelves in place of bins). The first array on a shelf says
// how large the shelf is. An array looks at `most_tries` shelves at most, so the time grows with the arrays, not with
// their square.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "partial_order.hpp"

namespace aiocuda::dataflow {

// The nodes that use an array: on each chain, the first and the last.
class Lifetime {
 public:
  void add(Tick tick) {
    for (std::size_t i = 0; i < first_.size(); ++i) {
      if (first_[i].stream != tick.stream) continue;
      first_[i].count = std::min(first_[i].count, tick.count);
      last_[i].count = std::max(last_[i].count, tick.count);
      return;
    }
    first_.push_back(tick);
    last_.push_back(tick);
  }
  bool is_used() const { return !first_.empty(); }

  // Does a node use it that comes after nothing? Then no other array's life can end before it.
  bool begins_at_root(const PartialOrder& order) const {
    return std::any_of(first_.begin(), first_.end(), [&](Tick tick) { return order.is_root(tick); });
  }
  bool precedes(const Lifetime& other, const PartialOrder& order) const {
    return std::all_of(last_.begin(), last_.end(), [&](Tick mine) {
      return std::all_of(other.first_.begin(), other.first_.end(),
                         [&](Tick theirs) { return order.precedes(mine, theirs); });
    });
  }

 private:
  std::vector<Tick> first_, last_;
};

struct Temporary {
  std::uint64_t size_bytes;
  Lifetime lifetime;
};

struct SharedLayout {
  std::vector<std::uint64_t> offsets;  // of the temporaries, in their order; 0 for those that nobody uses
  std::uint64_t size_bytes = 0;
};

inline constexpr std::size_t most_tries = 100;  // shelves that an array looks at

// `alignment`: of every array, a power of two.
inline SharedLayout place_temporaries(const std::vector<Temporary>& temporaries, const PartialOrder& order,
                                      std::uint64_t alignment) {
  struct Shelf {
    std::uint64_t offset;
    std::vector<std::size_t> temporaries;  // each precedes the next
  };
  std::vector<std::size_t> by_size(temporaries.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return temporaries[a].size_bytes > temporaries[b].size_bytes; });

  // The place among a shelf's temporaries where one fits: behind all that precede it, if it precedes all others.
  auto place_on = [&](const Shelf& shelf, const Lifetime& lifetime) -> std::optional<std::size_t> {
    const auto at = std::partition_point(shelf.temporaries.begin(), shelf.temporaries.end(), [&](std::size_t other) {
      return temporaries[other].lifetime.precedes(lifetime, order);
    });
    if (at != shelf.temporaries.end() && !lifetime.precedes(temporaries[*at].lifetime, order)) return std::nullopt;
    return static_cast<std::size_t>(at - shelf.temporaries.begin());
  };

  SharedLayout layout;
  layout.offsets.assign(temporaries.size(), 0);
  std::vector<Shelf> shelves;
  std::size_t next = 0;  // where the next one looks first
  // If the first temporary begins at a root, nothing precedes it. Others that begin at a root look elsewhere.
  std::vector<std::size_t> open;
  auto place = [&](std::size_t i, Shelf& shelf) {
    const auto at = place_on(shelf, temporaries[i].lifetime);
    if (!at) return false;
    shelf.temporaries.insert(shelf.temporaries.begin() + static_cast<std::ptrdiff_t>(*at), i);
    layout.offsets[i] = shelf.offset;
    return true;
  };
  auto find_shelf = [&](std::size_t i) {
    for (std::size_t tries = std::min(most_tries, shelves.size()); tries > 0; --tries) {
      if (next >= shelves.size()) next = 0;
      if (place(i, shelves[next++])) return true;
    }
    return false;
  };
  auto find_open_shelf = [&](std::size_t i) {
    const std::size_t tries = std::min(most_tries, open.size());
    for (auto at = open.end(); at != open.end() - static_cast<std::ptrdiff_t>(tries);)
      if (place(i, shelves[*--at])) {
        open.erase(at);
        return true;
      }
    return false;
  };
  for (const std::size_t i : by_size) {
    const Temporary& temporary = temporaries[i];
    if (temporary.size_bytes == 0 || !temporary.lifetime.is_used()) continue;
    const bool begins_at_root = temporary.lifetime.begins_at_root(order);
    if (begins_at_root ? find_open_shelf(i) : find_shelf(i)) continue;
    if (!begins_at_root) open.push_back(shelves.size());
    shelves.push_back({layout.size_bytes, {i}});
    layout.offsets[i] = layout.size_bytes;
    layout.size_bytes += (temporary.size_bytes + alignment - 1) / alignment * alignment;
  }
  return layout;
}

}  // namespace aiocuda::dataflow
