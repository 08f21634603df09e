// When a thread that waits for a device looks again. Pure: times in, times out.
//
// Always true, however wrong it guessed: it is late by a 32nd of the time that nothing happened, or by a quarter of it
// when a rhythm breaks that was steady, and never by more than 500 us.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace aiocuda {

class Rhythm {
 public:
  using Duration = std::chrono::nanoseconds;
  // After something happened the next is likely to be near: it looks without a pause for so long.
  static constexpr std::chrono::microseconds spin_time{50};

  // Something happened, after nothing had for so long: until the last look that found nothing. The look that found it
  // may have been late, and a guess that learned from late looks would get later and later.
  void note(Duration quiet) {
    next().learn(quiet);
    before_ = quiet;
  }

  // How long to sleep when nothing has happened for so long; 0: to look again at once, as it does when the next is due.
  Duration pause(Duration quiet) const {
    const Guess& guess = next();
    const Duration early = guess.early(), due = guess.mean - early;
    const int share = due > 2 * spin_time ? guess.share() : cautious_share;
    if (quiet < spin_time && share == cautious_share) return Duration::zero();
    if (quiet < due) return std::min(sleep(quiet, share), due - quiet);
    return quiet < guess.mean + early ? Duration::zero() : sleep(quiet);
  }
  // The same, without a guess.
  static Duration sleep(Duration quiet, int share = cautious_share) {
    return std::clamp<Duration>(quiet / share, shortest_sleep, longest_sleep);
  }

 private:
  static constexpr int cautious_share = 32;
  static constexpr std::chrono::microseconds shortest_sleep{5}, longest_sleep{500};
  // A sleep ends some 50 us late where processors idle deeply, as virtual ones do.
  static constexpr std::chrono::microseconds shortest_early{50}, longest_early{200};

  // How long nothing will happen, and how far off that was, both as moving averages.
  struct Guess {
    Duration mean{}, error{};

    void learn(Duration quiet) {
      if (mean == Duration::zero()) {
        mean = quiet;
        error = quiet / 8;
        return;
      }
      error += (std::chrono::abs(quiet - mean) - error) / 4;
      mean += (quiet - mean) / 2;
    }
    // While the next is not due, looks may be the rarer the better the guess has been.
    int share() const {
      if (16 * error <= mean) return 4;
      return 8 * error <= mean ? 8 : cautious_share;
    }
    Duration early() const {
      return std::min<Duration>({std::max<Duration>(2 * error, shortest_early), mean / 8, longest_early});
    }
  };

  // A device mostly does the same things again, in the same order, and they take as long. So the next is guessed by
  // how long the one before took, to a power of two.
  std::size_t kind() const {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(before_).count();
    return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(us)), kinds - 1);
  }
  Guess& next() { return guesses_[kind()]; }
  const Guess& next() const { return guesses_[kind()]; }

  static constexpr std::size_t kinds = 24;
  std::array<Guess, kinds> guesses_{};
  Duration before_{};
};

}  // namespace aiocuda
