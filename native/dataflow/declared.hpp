// Whether arrays lie within the bytes that an operation is known to use: in time that hardly grows with their number.
//
// Always true: it knows the uses that it was made of, and none that came later.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "placing.hpp"

namespace aiocuda::dataflow {

class DeclaredBytes {
 public:
  explicit DeclaredBytes(const std::vector<Use>& uses) {
    parts_.reserve(uses.size());
    for (const Use& use : uses) parts_.push_back({use.buffer, use.span});
    std::sort(parts_.begin(), parts_.end(), comes_before);
    // Of those of a buffer that begin before an array, the one that reaches farthest says whether one has all of it.
    for (std::size_t at = 1; at < parts_.size(); ++at)
      if (parts_[at - 1].buffer == parts_[at].buffer)
        parts_[at].span.end = std::max(parts_[at].span.end, parts_[at - 1].span.end);
  }
  bool contain(const Array& array) const {
    bool is_all = array.buffer.get() != nullptr;
    array.each_piece([&](Span piece) { is_all = is_all && contain({array.buffer.get(), piece}); });
    return is_all;
  }

 private:
  struct Part {
    const Buffer* buffer;
    Span span;
  };
  static bool comes_before(const Part& one, const Part& other) {
    if (one.buffer != other.buffer) return std::less<>()(one.buffer, other.buffer);
    return one.span.begin < other.span.begin;
  }
  bool contain(const Part& piece) const {
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), piece, comes_before);
    if (after == parts_.begin()) return false;
    const Part& last = *std::prev(after);
    return last.buffer == piece.buffer && piece.span.end <= last.span.end;
  }

  std::vector<Part> parts_;
};

}  // namespace aiocuda::dataflow
