// The bytes that something touches. Knows neither Python nor CUDA.
//
// Always true: the spans are sorted, and do not touch one another; where they would be many, the gaps between them
// count as touched.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ranges.hpp"
#include "several.hpp"

namespace aiocuda::dataflow {

class Footprint {
 public:
  static constexpr std::size_t most_spans = 64;

  void add(Span span) {
    if (span.begin >= span.end) return;
    Span* const first = std::lower_bound(spans_.begin(), spans_.end(), span.begin,
                                         [](const Span& each, std::uint64_t begin) { return each.end < begin; });
    Span* last = first;
    for (; last != spans_.end() && last->begin <= span.end; ++last)
      span = {std::min(span.begin, last->begin), std::max(span.end, last->end)};
    if (first == last) {
      spans_.insert(static_cast<std::size_t>(first - spans_.begin()), span);
    } else {
      *first = span;
      spans_.erase(first + 1, last);
    }
    if (spans_.size() <= most_spans) return;
    const Span whole{spans_[0].begin, spans_[spans_.size() - 1].end};
    spans_.clear();
    spans_.push_back(whole);
  }

  const Several<Span, 1>& spans() const { return spans_; }
  bool empty() const { return spans_.empty(); }

 private:
  Several<Span, 1> spans_;  // mostly one
};

}  // namespace aiocuda::dataflow
