// When a thread that waits for a device looks again. Pure: times in, times out.
//
// Always true, however wrong it guessed: it is late by a 32nd of the time that nothing happened, or by a quarter of it
// where nothing has come so soon of late, and never by more than 500 us.
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
    const bool is_early = quiet < guess.begin();
    if (quiet < spin_time && !is_early) return Duration::zero();
    if (is_early) return std::min(sleep(quiet, rare_share), guess.begin() - quiet);
    return guess.is_steady() && quiet < guess.end() ? Duration::zero() : sleep(quiet);
  }
  // The same, without a guess.
  static Duration sleep(Duration quiet) { return sleep(quiet, 32); }

 private:
  static constexpr int rare_share = 4;
  static constexpr std::chrono::microseconds shortest_sleep{5}, longest_sleep{500};
  // A sleep ends some 50 us late where processors idle deeply, as virtual ones do.
  static constexpr std::chrono::microseconds shortest_early{50}, longest_early{100};

  static Duration sleep(Duration quiet, int share) {
    return std::clamp<Duration>(quiet / share, shortest_sleep, longest_sleep);
  }

  // How long nothing will happen, and how far off that was, both as moving averages; and the least of late.
  class Guess {
   public:
    void learn(Duration quiet) {
      if (!count_) {
        mean_ = quiet;
        error_ = quiet / 8;
      }
      error_ += (std::chrono::abs(quiet - mean_) - error_) / 4;
      mean_ += (quiet - mean_) / 2;
      recent_[count_++ % recent_.size()] = quiet;
      soonest_ = count_ < recent_.size() ? Duration::zero() : *std::min_element(recent_.begin(), recent_.end());
    }
    bool is_steady() const { return 16 * error_ <= mean_ && 2 * error_ <= longest_early; }
    // Looks may be rare before this. Shortly after something happened they may not.
    Duration begin() const {
      const Duration begin = is_steady() ? mean_ - early() : soonest_ - soonest_ / 8;
      return begin > 2 * spin_time ? begin : Duration::zero();
    }
    // Where the guess is a good one, it is worth to look without a pause until this.
    Duration end() const { return mean_ + early(); }

   private:
    Duration early() const {
      return std::min<Duration>({std::max<Duration>(2 * error_, shortest_early), mean_ / 8, longest_early});
    }

    Duration mean_{}, error_{}, soonest_{};
    std::array<Duration, 16> recent_{};
    std::size_t count_ = 0;
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
