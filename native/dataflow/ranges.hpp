// The hazards of a buffer's bytes: one for all of it, and as many as there are slices in use when
// slices are. Knows neither Python nor CUDA.
//
// Always true: the segments lie one after another from 0 to the buffer's size without a gap. An access
// costs the logarithm of their number, and what it covers; an access of ours that covers everything leaves
// at most `most_segments`, and what has passed is forgotten whenever their number has doubled.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "hazard.hpp"

namespace aiocuda::dataflow {

// Bytes of a buffer: [begin, end).
struct Span {
  std::uint64_t begin = 0, end = 0;
};

class RangeHazards {
  using Segments = std::map<std::uint64_t, Hazard>;  // by where they begin

  template <class Map>
  static auto segment_at(Map& segments, std::uint64_t byte) {
    return std::prev(segments.upper_bound(byte));
  }

 public:
  // Past this, an access to everything makes one segment of all: later accesses wait for it, which is
  // ordered after all that the segments remembered. More waiting than is needed, and no more remembering.
  static constexpr std::size_t most_segments = 1024;

  explicit RangeHazards(std::uint64_t size_bytes = 0) : size_bytes_(size_bytes) {}
  RangeHazards(const RangeHazards& other)
      : size_bytes_(other.size_bytes_),
        whole_(other.whole_),
        split_(other.split_ ? std::make_unique<Segments>(*other.split_) : nullptr) {}
  RangeHazards& operator=(const RangeHazards&) = delete;

  std::size_t segment_count() const { return split_ ? split_->size() : 1; }

  // What all bytes remember, where it is the same for all; else null.
  const Hazard* whole() const { return split_ ? nullptr : &whole_; }

  // Calls `f(hazard, span of the segment)` for all that remember something of the span.
  template <class F>
  void each(Span span, F&& f) const {
    if (!split_) [[likely]]
      return f(whole_, Span{0, size_bytes_});
    each_segment(span, f);
  }
  template <class F>
  void each(F&& f) const {
    each(Span{0, size_bytes_}, std::forward<F>(f));
  }

  // Forgets what has passed, and makes one segment of neighbours that remember nothing. To be called after
  // a commit; it costs something only when the segments have doubled since the last time. `timeline`: what says whether
  // a tick has passed.
  template <class Known>
  void forget_passed(const Known& timeline) {
    if (split_ && split_->size() >= 2 * kept_) [[unlikely]]
      forget_passed_segments(timeline);
  }

  // What somebody else does with the bytes, or reads of them; see Hazard. He is not ordered after all that the
  // segments remember. So they stay as many as they are.
  void commit_of_others(Span span, Tick now) {
    note_of_others(span, [now](Hazard& hazard) { hazard.commit_of_others(now); });
  }
  void commit_reads_of_others(Span span, Tick now) {
    note_of_others(span, [now](Hazard& hazard) { hazard.commit(false, now); });
  }

  void commit(Span span, bool writes, Tick now) {
    if (!split_ && span.begin == 0 && span.end >= size_bytes_) [[likely]]
      return whole_.commit(writes, now);
    commit_segments(span, writes, now);
  }

 private:
  // Slices are rarer than whole buffers. What they need is not inlined, so that the rest takes few lines of the cache.
  template <class F>
  [[gnu::noinline]] void each_segment(Span span, F& f) const {
    for (auto at = segment_at(*split_, span.begin); at != split_->end() && at->first < span.end; ++at) {
      const auto next = std::next(at);
      f(at->second, Span{at->first, next == split_->end() ? size_bytes_ : next->first});
    }
  }
  template <class Known>
  [[gnu::noinline]] void forget_passed_segments(const Known& timeline) {
    auto passed = [&](const Hazard& hazard) {
      bool all = true;
      hazard.each_before(true, [&](Tick tick) { all = all && timeline.is_known_complete(tick); });
      return all;
    };
    bool is_previous_empty = false;
    for (auto at = split_->begin(); at != split_->end();) {
      const bool is_empty = passed(at->second);
      if (is_empty) at->second = {};
      at = is_empty && is_previous_empty ? split_->erase(at) : std::next(at);
      is_previous_empty = is_empty;
    }
    kept_ = std::max(split_->size(), most_segments);
  }
  [[gnu::noinline]] void commit_segments(Span span, bool writes, Tick now) {
    const bool is_all = span.begin == 0 && span.end >= size_bytes_;
    if (is_all && (writes || segment_count() > most_segments)) {
      split_.reset();
      whole_.commit(true, now);
      return;
    }
    if (span.begin >= span.end) return;
    split(span);
    const auto first = split_->find(span.begin);
    if (writes) {
      split_->erase(std::next(first), split_->lower_bound(span.end));
      first->second.commit(true, now);
      return;
    }
    for (auto at = first; at != split_->end() && at->first < span.end; ++at) at->second.commit(false, now);
  }
  template <class F>
  void note_of_others(Span span, F&& note) {
    if (span.begin >= span.end) return;
    if (!split_ && span.begin == 0 && span.end >= size_bytes_) return note(whole_);
    split(span);
    for (auto at = split_->find(span.begin); at != split_->end() && at->first < span.end; ++at) note(at->second);
  }
  // So that segments begin and end where a span does.
  void split(Span span) {
    if (!split_) {
      split_ = std::make_unique<Segments>();
      split_->emplace(0, std::exchange(whole_, {}));
    }
    cut(span.begin);
    if (span.end < size_bytes_) cut(span.end);
  }
  void cut(std::uint64_t byte) {
    const auto at = segment_at(*split_, byte);
    if (at->first != byte) split_->emplace_hint(std::next(at), byte, at->second);
  }

  std::uint64_t size_bytes_;
  Hazard whole_;                      // while there is one segment
  std::unique_ptr<Segments> split_;   // else
  std::size_t kept_ = most_segments;  // when it was last looked through
};

}  // namespace aiocuda::dataflow
