// How much of each stream something is ordered after: a vector clock, which its copies share until one of them changes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace aiocuda::dataflow {

class Clock {
 public:
  std::size_t size() const { return counts_ ? counts_->size() : 0; }
  // Is it the other one's copy, as it is? Two that are not may be after the same.
  bool is_same(const Clock& other) const { return counts_ == other.counts_; }
  std::uint64_t operator[](std::size_t stream) const { return stream < size() ? (*counts_)[stream] : 0; }

  // Comes after all that another clock is after, and after so much of one stream; there are so many streams.
  void join(const Clock& other, std::size_t stream, std::uint64_t count, std::size_t streams) {
    if (!counts_ || counts_.use_count() > 1)
      counts_ = counts_ ? std::make_shared<Counts>(*counts_) : std::make_shared<Counts>();
    Counts& mine = *counts_;
    if (mine.size() < streams) mine.resize(streams, 0);
    for (std::size_t i = 0; i < other.size(); ++i) mine[i] = std::max(mine[i], other[i]);
    mine[stream] = std::max(mine[stream], count);
  }

 private:
  using Counts = std::vector<std::uint64_t>;
  std::shared_ptr<Counts> counts_;  // none: after nothing
};

}  // namespace aiocuda::dataflow
