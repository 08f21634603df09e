// How a thread waits for the device: for a while by looking at what it writes, then asleep, without the GIL.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "engine.hpp"

namespace aiocuda::driver {

// A short wait is cheaper spun than slept: launch to a spinning waiter takes 8 us on an H200, a wake of a thread
// 20 and more (docs/measurements/floors.md). Some three times the latter, then the thread sleeps.
inline constexpr std::chrono::microseconds spin_time{60};

// An await holds up its event loop for as long as it spins: only while waits have been short of late.
std::chrono::microseconds await_budget(const Engine& engine, std::int32_t limit_us);

// Asks again and again, for a while, with the GIL given up. True: it has passed.
template <class F>
bool spin(Engine& engine, std::chrono::microseconds budget, F&& has_passed) {
  using Clock = std::chrono::steady_clock;
  if (budget.count() <= 0) return false;
  bool passed = false;
  const auto begin = Clock::now();
  {
    nb::gil_scoped_release release;
    const auto until = begin + budget;
    do {
      passed = has_passed();
    } while (!passed && Clock::now() < until);
  }
  engine.spins.fetch_add(1, std::memory_order_relaxed);
  if (!passed) return false;
  engine.spins_that_paid.fetch_add(1, std::memory_order_relaxed);
  engine.note_wait(Clock::now() - begin);
  return true;
}
// The same for what the device writes; what has passed is learnt.
bool spin(Engine& engine, const Engine::Armed& armed, std::chrono::microseconds budget);

// How long a thread is willing to wait.
struct Patience {
  using Clock = std::chrono::steady_clock;
  // Until a time-out, in seconds, is over (a negative one never is), or something else has ended.
  explicit Patience(double timeout_s = -1, CompletionRef ends_with = nullptr);

  bool is_over() const { return (until && Clock::now() >= *until) || (given_up && given_up->has_ended()); }

  std::optional<Clock::time_point> until;
  CompletionRef given_up;
};

// Gives up the GIL, and looks for signals. False: one's patience is over.
bool wait_until(completion::Completion& completion, const Patience& patience);

// The device of what is waited for, where it is one.
std::int32_t device_of(Engine& engine, std::span<const Tick> waits);

}  // namespace aiocuda::driver
