// Streams and places in them, as numbers. Knows neither Python nor CUDA.
#pragma once
#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <set>

#include "clock.hpp"

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
  friend auto operator<=>(const Tick&, const Tick&) = default;
};
using TickSet = std::set<Tick>;

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

class Timeline;  // which counts them: timeline.hpp

// A stream at a place: when all that it holds there is complete, so is all that it is ordered after.
struct Snapshot {
  Tick last;
  Clock seen;
};

// A stream's marks; when all are used, the oldest is made anew.
inline constexpr std::uint32_t most_marks = 8;

}  // namespace aiocuda::dataflow
