// Memory as "who touched it last". Knows neither Python nor CUDA.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "tick.hpp"

namespace aiocuda::dataflow {

// The memory of a byte range: its last write, and the reads since, one for each stream.
struct Hazard {
  Tick written;
  std::vector<Tick> reads;
  std::vector<Tick> others;  // what somebody else did with the bytes since; one for each stream

  // Calls `f(tick)` for all that an access comes after.
  template <class F>
  void each_before(bool writes, F&& f) const {
    if (written.count) f(written);
    if (writes)
      for (const Tick tick : reads) f(tick);
    for (const Tick tick : others) f(tick);
  }

  // An access of ours, which is ordered after what it comes after.
  void commit(bool writes_it, Tick now) {
    if (!writes_it) return note(reads, now);
    written = now;
    reads.clear();
    others.clear();
  }
  // What somebody else does with the bytes, and is not ordered after our accesses: all that come later wait for it.
  void commit_of_others(Tick now) { note(others, now); }

 private:
  static void note(std::vector<Tick>& ticks, Tick now) {
    if (!ticks.empty() && ticks.back().stream == now.stream) {
      ticks.back() = now;
      return;
    }
    note_another(ticks, now);
  }
  [[gnu::noinline]] static void note_another(std::vector<Tick>& ticks, Tick now) {
    const auto same = std::find_if(ticks.begin(), ticks.end(), [&](Tick tick) { return tick.stream == now.stream; });
    if (same == ticks.end()) {
      ticks.push_back(now);
    } else {  // to the end, where it is found first the next time
      *same = std::exchange(ticks.back(), now);
    }
  }
};

}  // namespace aiocuda::dataflow
