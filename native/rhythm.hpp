// When a thread that waits for a device looks again. Pure: times in, times out.
//
// Always true: it is late by a 32nd of the time that nothing happened, 500 us at most, however wrong it guessed.
#pragma once
#include <algorithm>
#include <chrono>

namespace aiocuda {

class Rhythm {
 public:
  using Duration = std::chrono::nanoseconds;
  // After something happened the next is likely to be near: it looks without a pause for so long.
  static constexpr std::chrono::microseconds spin_time{50};

  // Something happened, after nothing had for so long. A device mostly does the same things again, and they take as
  // long.
  void note(Duration quiet) { last_ = quiet; }

  // How long to sleep when nothing has happened for so long; 0: to look again at once, as it does when the next is due.
  Duration pause(Duration quiet) const {
    if (quiet < spin_time) return Duration::zero();
    const Duration early = std::min<Duration>(last_ / 8, longest_guess), due = last_ - early;
    if (quiet < due) return std::min(sleep(quiet), due - quiet);
    return quiet < last_ + early ? Duration::zero() : sleep(quiet);
  }
  // The same, without a guess.
  static Duration sleep(Duration quiet) { return std::clamp<Duration>(quiet / 32, shortest_sleep, longest_sleep); }

 private:
  static constexpr std::chrono::microseconds shortest_sleep{5}, longest_sleep{500};
  // A sleep ends some 50 us late where processors idle deeply, as virtual ones do.
  static constexpr std::chrono::microseconds longest_guess{200};

  Duration last_{};
};

}  // namespace aiocuda
