// The times in which aiocuda held the thread of an event loop: no other task of the loop ran.
//
// Always true: the counts only grow. Guarded by the GIL.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace aiocuda::driver {

struct LoopStalls {
  using Time = std::chrono::nanoseconds;
  static constexpr Time long_time{50'000'000};

  Time longest{0};
  std::uint64_t long_ones = 0;
  Time least{0};  // that changes something
};
inline LoopStalls loop_stalls;

// Does an event loop run in this thread? The bindings say how to ask. It is asked only about times that change
// something.
inline bool (*is_in_loop)() noexcept = nullptr;

[[gnu::noinline]] inline void count_stall(LoopStalls::Time taken) {
  loop_stalls.longest = std::max(loop_stalls.longest, taken);
  loop_stalls.long_ones += taken > LoopStalls::long_time;
  loop_stalls.least = std::min(loop_stalls.longest, LoopStalls::long_time);
}
// The thread is known to be a loop's.
inline void note_stall_of_loop(LoopStalls::Time taken) {
  if (taken > loop_stalls.least) [[unlikely]]
    count_stall(taken);
}
// It may be another.
inline void note_stall(LoopStalls::Time taken) {
  if (taken > loop_stalls.least && is_in_loop && is_in_loop()) count_stall(taken);
}

}  // namespace aiocuda::driver
