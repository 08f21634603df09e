// Streams as counters, memory as "who touched it last", and the waits between them. Knows neither
// Python nor CUDA.
//
// Always true: work on a stream that touches a hazard is ordered after every earlier conflicting
// access to it, and no wait is asked for that an earlier wait, or a completion, already implies.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace aiocuda::dataflow {

using StreamIndex = std::uint32_t;

// A stream as its users know it: the index of its slot, and which of the streams that had the slot it is.
using StreamId = std::int64_t;
inline constexpr StreamId no_stream = -1;
inline constexpr StreamIndex slot_of(StreamId stream) { return static_cast<StreamIndex>(stream & 0xffffffff); }

// The count-th submission on a stream; count 0 is before everything.
struct Tick {
  StreamIndex stream = 0;
  std::uint64_t count = 0;
};

// What a byte range remembers: its last write, and the reads since, one for each stream.
struct Hazard {
  Tick written;
  std::vector<Tick> reads;
};

inline void raise_to(std::atomic<std::uint64_t>& counter, std::uint64_t count) {
  std::uint64_t seen = counter.load(std::memory_order_relaxed);
  while (seen < count && !counter.compare_exchange_weak(seen, count, std::memory_order_release)) {
  }
}

// How far a stream must be at least. Shared with the threads that learn of completions, so that they need
// neither the GIL nor the timeline.
struct Progress {
  std::shared_ptr<std::atomic<std::uint64_t>> counter;
  std::uint64_t count = 0;

  void learn() const { raise_to(*counter, count); }
};

class Timeline {
 public:
  StreamIndex add_stream() {
    lanes_.push_back(Lane{});
    return static_cast<StreamIndex>(lanes_.size() - 1);
  }

  std::size_t size() const { return lanes_.size(); }
  std::uint64_t submitted(StreamIndex stream) const { return lanes_[stream].submitted; }

  // A stream as it is now: when all that it holds is complete, so is all that it is ordered after.
  struct Snapshot {
    Tick last;
    std::vector<std::uint64_t> seen;
  };
  Snapshot snapshot(StreamIndex stream) const { return {{stream, lanes_[stream].submitted}, lanes_[stream].seen}; }

  void learn(const Snapshot& complete) {
    learn_complete(complete.last);
    for (std::size_t i = 0; i < complete.seen.size(); ++i)
      learn_complete({static_cast<StreamIndex>(i), complete.seen[i]});
  }

  // The same, for a thread that has no access to the timeline.
  std::vector<Progress> progress_of(const Snapshot& complete) const {
    std::vector<Progress> progress{{lanes_[complete.last.stream].completed, complete.last.count}};
    for (std::size_t i = 0; i < complete.seen.size(); ++i)
      if (complete.seen[i]) progress.push_back({lanes_[i].completed, complete.seen[i]});
    return progress;
  }

  bool is_known_complete(Tick tick) const {
    return tick.count == 0 || lanes_[tick.stream].completed->load(std::memory_order_acquire) >= tick.count;
  }

  void learn_complete(Tick tick) { raise_to(*lanes_[tick.stream].completed, tick.count); }

  // Asks `wait(other stream)` for every wait that an access needs on `stream`. `wait` must order all
  // later work of `stream` after all that was submitted to the other one so far.
  template <class Wait>
  void order(StreamIndex stream, const Hazard& hazard, bool writes, Wait&& wait) {
    after(stream, hazard.written, wait);
    if (!writes) return;
    for (const Tick read : hazard.reads) after(stream, read, wait);
  }

  // Counts one submission on `stream`: called once the driver has accepted it.
  Tick advance(StreamIndex stream) { return {stream, ++lanes_[stream].submitted}; }

  static void commit(Hazard& hazard, bool writes, Tick now) {
    if (writes) {
      hazard.written = now;
      hazard.reads.clear();
      return;
    }
    auto same = std::find_if(hazard.reads.begin(), hazard.reads.end(),
                             [&](const Tick& tick) { return tick.stream == now.stream; });
    if (same == hazard.reads.end()) {
      hazard.reads.push_back(now);
    } else {
      *same = now;
    }
  }

 private:
  struct Lane {
    std::uint64_t submitted = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> completed = std::make_shared<std::atomic<std::uint64_t>>(0);
    std::vector<std::uint64_t> seen;  // seen[i]: how much of stream i this one is ordered after

    std::uint64_t seen_of(StreamIndex other) const { return other < seen.size() ? seen[other] : 0; }
  };

  template <class Wait>
  void after(StreamIndex stream, Tick tick, Wait& wait) {
    if (tick.count == 0 || tick.stream == stream) return;
    if (lanes_[stream].seen_of(tick.stream) >= tick.count || is_known_complete(tick)) return;
    wait(tick.stream);
    Lane& mine = lanes_[stream];
    const Lane& other = lanes_[tick.stream];
    mine.seen.resize(lanes_.size(), 0);
    for (std::size_t i = 0; i < other.seen.size(); ++i) mine.seen[i] = std::max(mine.seen[i], other.seen[i]);
    mine.seen[tick.stream] = other.submitted;  // the wait covers all that was submitted there
  }

  std::vector<Lane> lanes_;
};

}  // namespace aiocuda::dataflow
