// One submission to a stream, or a node of a graph that was launched, as the checker of races knows it. Its place in
// the order is known when it has begun, all that it is ordered after when it has ended; from then on it never changes.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checking/clock.hpp"

namespace aiocuda::emulator::checking {

// "1 byte", "3 bytes".
inline std::string count_of(std::size_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

struct StreamName {
  unsigned number = 0;        // in the order in which streams were made, from 1; 0 is the host
  std::uintptr_t handle = 0;  // 0 for default streams
  std::string text;           // in words
  std::string short_text;     // the same without how it was made
};

// The order of submission, over all streams; what the launch of a graph runs comes in the order in which it runs.
struct Sequence {
  std::uint64_t submission = 0;
  std::uint64_t step = 0;
  friend auto operator<=>(const Sequence&, const Sequence&) = default;
};

struct Operation {
  Sequence sequence;
  std::string text;  // what it does, in words; empty where it does nothing but order others
  std::shared_ptr<const StreamName> stream;
  std::shared_ptr<const Clock> host;                    // what the host had observed when it was submitted
  std::vector<std::shared_ptr<const Operation>> after;  // the points of other streams that it waits for
  std::size_t lane = 0;
  std::uint64_t count = 0;  // its place in its lane; 0 until it begins
  Clock clock;              // all that it is ordered after, itself included
  bool ended = false;
};

// A point in a stream: just after an operation. Null where nothing is checked.
using Point = std::shared_ptr<Operation>;

inline bool is_ordered(const Operation& before, const Operation& after) noexcept {
  return before.count <= after.clock[before.lane];
}

}  // namespace aiocuda::emulator::checking
