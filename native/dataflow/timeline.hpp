// Streams as counters, memory as "who touched it last", and the waits between them. Knows neither
// Python nor CUDA.
//
// Always true: work on a stream that touches a hazard is ordered after every earlier conflicting
// access to it, and no wait is asked for that an earlier wait, or a completion, already implies.
// A wait is for a mark: a place in the other stream, as near behind the access as one was made.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../few.hpp"
#include "hazard.hpp"
#include "tick.hpp"

namespace aiocuda::dataflow {

class Timeline {
 public:
  StreamIndex add_stream() {
    clocks_.push_back(StreamClock{});
    return static_cast<StreamIndex>(clocks_.size() - 1);
  }

  std::size_t size() const { return clocks_.size(); }
  std::uint64_t submitted(StreamIndex stream) const { return clocks_[stream].submitted; }

  // A stream as it is now.
  Snapshot snapshot(StreamIndex stream) const { return {{stream, clocks_[stream].submitted}, clocks_[stream].seen}; }

  // The other streams that it is ordered after, as far as they are not known to have passed that.
  std::vector<StreamIndex> unsettled(const Snapshot& complete) const {
    std::vector<StreamIndex> found;
    if (is_settled(complete)) return found;
    for (std::size_t i = 0; i < complete.seen.size(); ++i) {
      const auto stream = static_cast<StreamIndex>(i);
      if (stream != complete.last.stream && !is_known_complete({stream, complete.seen[i]})) found.push_back(stream);
    }
    return found;
  }

  void learn(const Snapshot& complete) {
    learn_complete(complete.last);
    if (is_settled(complete)) return;
    for (std::size_t i = 0; i < complete.seen.size(); ++i)
      if (complete.seen[i]) learn_complete({static_cast<StreamIndex>(i), complete.seen[i]});
    clocks_[complete.last.stream].settled = complete.seen;
  }

  // The same, for a thread that has no access to the timeline.
  Few<Progress> progress_of(const Snapshot& complete) const {
    Few<Progress> progress;
    progress.push_back({clocks_[complete.last.stream].completed, complete.last.count});
    if (is_settled(complete)) return progress;
    for (std::size_t i = 0; i < complete.seen.size(); ++i)
      if (complete.seen[i]) progress.push_back({clocks_[i].completed, complete.seen[i]});
    return progress;
  }

  // How far a stream is to come until all that it holds now has passed.
  Progress progress(StreamIndex stream) const { return {clocks_[stream].completed, clocks_[stream].submitted}; }

  bool is_known_complete(Tick tick) const {
    return tick.count == 0 || clocks_[tick.stream].completed->load(std::memory_order_acquire) >= tick.count;
  }
  bool are_known_complete(std::span<const Tick> ticks) const {
    return std::all_of(ticks.begin(), ticks.end(), [this](Tick tick) { return is_known_complete(tick); });
  }
  Few<Tick> not_known_complete(std::span<const Tick> ticks) const {
    Few<Tick> left;
    for (const Tick tick : ticks)
      if (!is_known_complete(tick)) left.push_back(tick);
    return left;
  }
  // Submitted, and as far as is known not passed.
  std::uint64_t backlog(StreamIndex stream) const {
    const StreamClock& clock = clocks_[stream];
    return clock.submitted - std::min(clock.submitted, clock.completed->load(std::memory_order_acquire));
  }

  void learn_complete(Tick tick) { raise_to(*clocks_[tick.stream].completed, tick.count); }

  // Nothing was submitted to its stream since.
  bool is_tail(Tick tick) const { return tick.count && clocks_[tick.stream].submitted == tick.count; }

  // Makes every wait that an access needs on `stream`. `waits` has
  //   mark(stream, slot)         put the stream's mark of that number behind all it holds now
  //   wait(stream, other, slot)  order all later work of `stream` after the other one's mark
  template <class Waits>
  void order(StreamIndex stream, const Hazard& hazard, bool writes, Waits& waits) {
    hazard.each_before(writes, [&](Tick tick) { after(stream, tick, waits); });
  }

  // Orders all later work of `stream` after `tick`.
  template <class Waits>
  void after(StreamIndex stream, Tick tick, Waits& waits) {
    if (tick.count == 0 || tick.stream == stream) [[likely]]
      return;
    after_another(stream, tick, waits);
  }
  template <class Waits>
  [[gnu::noinline]] void after_another(StreamIndex stream, Tick tick, Waits& waits) {
    if (clocks_[stream].seen[tick.stream] >= tick.count || is_known_complete(tick)) return;
    const Mark& mark = mark_behind(tick, waits);
    waits.wait(stream, tick.stream, static_cast<std::uint32_t>(&mark - clocks_[tick.stream].marks.data()));
    clocks_[stream].seen.join(mark.seen, tick.stream, mark.count, clocks_.size());  // all that was before the mark
  }

  // The same for a stream that is not of this timeline.
  template <class Waits>
  void after_elsewhere(Tick tick, Waits& waits) {
    if (tick.count == 0 || is_known_complete(tick)) return;
    const Mark& mark = mark_behind(tick, waits);
    waits.wait(tick.stream, static_cast<std::uint32_t>(&mark - clocks_[tick.stream].marks.data()));
  }

  // Makes a mark at the stream's end, so that who waits for what is there need not wait for what comes.
  template <class Waits>
  void mark_end(StreamIndex stream, Waits& waits) {
    StreamClock& clock = clocks_[stream];
    if (clock.submitted) mark_behind({stream, clock.submitted}, waits);
  }

  // Of a stream that ends, and its events with it; or where some could not be made.
  void forget_marks(StreamIndex stream) {
    for (Mark& mark : clocks_[stream].marks) mark.count = 0;
  }

  // Counts one submission on `stream`: called once the driver has accepted it. `outputs`: how many byte ranges it
  // wrote; `is_shared`: more than one consumer may come.
  Tick advance(StreamIndex stream, std::uint32_t outputs = 0, bool is_shared = false) {
    StreamClock& clock = clocks_[stream];
    clock.tail_outputs = outputs;
    clock.tail_is_shared = is_shared;
    return {stream, ++clock.submitted};
  }
  // More consumers may come than were known.
  void share(Tick tick) {
    if (is_tail(tick)) clocks_[tick.stream].tail_is_shared = true;
  }
  // Would somebody who comes later still wait for the stream's last work, if the next one overwrites so many of
  // the ranges that it wrote?
  bool is_tail_wanted(StreamIndex stream, std::uint32_t overwritten) const {
    const StreamClock& clock = clocks_[stream];
    return clock.tail_is_shared && overwritten < clock.tail_outputs;
  }

 private:
  struct Mark {
    std::uint64_t count = 0;  // what it stands behind; 0: it is none
    Clock seen;               // what the stream was ordered after, there
  };

  struct StreamClock {
    std::uint64_t submitted = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> completed = std::make_shared<std::atomic<std::uint64_t>>(0);
    Clock seen;     // how much of the others this one is ordered after
    Clock settled;  // `seen`, of the last learning: all of it has passed
    std::array<Mark, most_marks> marks;
    std::uint32_t tail_outputs = 0;
    bool tail_is_shared = false;
  };

  // True: the snapshot's stream waits for nothing new since the last learning, so there is nothing to learn of other
  // streams. They may be many.
  bool is_settled(const Snapshot& complete) const {
    return complete.seen.is_same(clocks_[complete.last.stream].settled);
  }

  // The mark nearest behind a tick; made at the stream's end where there is none.
  template <class Waits>
  [[gnu::noinline]] const Mark& mark_behind(Tick tick, Waits& waits) {
    StreamClock& clock = clocks_[tick.stream];
    Mark* nearest = nullptr;
    Mark* oldest = &clock.marks.front();
    for (Mark& mark : clock.marks) {
      if (mark.count >= tick.count && (!nearest || mark.count < nearest->count)) nearest = &mark;
      if (mark.count < oldest->count) oldest = &mark;
    }
    if (nearest) return *nearest;
    waits.mark(tick.stream, static_cast<std::uint32_t>(oldest - clock.marks.data()));
    oldest->count = clock.submitted;
    oldest->seen = clock.seen;
    return *oldest;
  }

  std::vector<StreamClock> clocks_;
};

}  // namespace aiocuda::dataflow
