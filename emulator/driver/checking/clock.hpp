// A vector clock: how many operations of each lane somebody is ordered after. A lane is the line of one
// stream's operations, counted from 1; what a clock does not mention is 0.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aiocuda::emulator::checking {

class Clock {
 public:
  std::uint64_t operator[](std::size_t lane) const noexcept { return lane < counts_.size() ? counts_[lane] : 0; }

  void set(std::size_t lane, std::uint64_t count) {
    if (lane >= counts_.size()) counts_.resize(lane + 1);
    counts_[lane] = count;
  }

  // Ordered after both.
  void join(const Clock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t lane = 0; lane < other.counts_.size(); ++lane) {
      counts_[lane] = std::max(counts_[lane], other.counts_[lane]);
    }
  }

  // The points that both are ordered after.
  void meet(const Clock& other) {
    for (std::size_t lane = 0; lane < counts_.size(); ++lane) counts_[lane] = std::min(counts_[lane], other[lane]);
  }

  // Everything this is ordered after, the other is ordered after, too.
  bool is_within(const Clock& other) const noexcept {
    for (std::size_t lane = 0; lane < counts_.size(); ++lane) {
      if (counts_[lane] > other[lane]) return false;
    }
    return true;
  }

 private:
  std::vector<std::uint64_t> counts_;
};

}  // namespace aiocuda::emulator::checking
