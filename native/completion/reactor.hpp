// The thread that learns of completions and hands them on. It scans the flags that the device writes, and asks about
// points that have none. It also asks about streams, because a broken context writes no flag. It knows neither CUDA nor
// Python: it gets the flags as a slot table, and functions that ask about a point or a stream.
//
// Always true: while something is pending, the reactor asks about its streams at least every `ask_interval`. While
// nothing is, it sleeps without a time-out.
#pragma once
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "../rhythm.hpp"
#include "../thread_name.hpp"
#include "completion.hpp"
#include "flag_table.hpp"
#include "points.hpp"

namespace aiocuda::completion {

// Counts of the reactor's work. Any thread may read them at any time.
struct ReactorCounts {
  std::atomic<std::uint64_t> completed{0};  // waits whose flag was seen, or about which it had asked
  std::atomic<std::uint64_t> batches{0};    // scans that saw some
  std::atomic<std::uint64_t> sleeps{0};     // times it backed off
  std::atomic<std::uint64_t> parks{0};      // times it had nothing to do
  std::atomic<std::uint64_t> questions{0};  // streams that were asked
};

class Reactor {
 public:
  using Clock = std::chrono::steady_clock;
  // Answers 0 for a stream that is well, else the error that broke it.
  using Ask = std::function<std::int32_t(std::uint32_t stream)>;
  // Has it passed? No, if its stream is broken: asking about the stream finds that.
  using HasPassed = std::function<bool(const void* point)>;

  Reactor(Pending& pending, FlagTable& slots, Points& points, HasPassed has_passed, Ask ask,
          std::chrono::milliseconds ask_interval)
      : pending_(pending),
        slots_(slots),
        points_(points),
        has_passed_(std::move(has_passed)),
        ask_(std::move(ask)),
        ask_interval_(ask_interval),
        thread_([this] {
          run();
          std::lock_guard lock(mutex_);
          has_ended_ = true;
          ended_.notify_all();
        }) {}
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  ~Reactor() {
    pending_.stop();
    wake();
    thread_.join();
  }

  // Tells the thread to end. False: it has not ended in this time, because a question of it has no answer yet.
  bool stops_within(std::chrono::milliseconds time) {
    pending_.stop();
    wake();
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return has_ended_; });
  }

  // To be called when the slots or the points have something new.
  void wake() {
    // Either the thread sees the news before it falls asleep, or this caller sees it asleep: both sides write first,
    // then read.
    if (!is_asleep_.load(std::memory_order_seq_cst)) return;
    {
      std::lock_guard lock(mutex_);
    }
    woken_.notify_all();
  }

  const ReactorCounts& counts() const { return counts_; }

 private:
  // Each question takes the driver's locks for about 0.5 us. This keeps that a small part of the time.
  static constexpr int asking_share = 8;

  void run() {
    name_this_thread("aiocuda reactor");
    prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds; sleeps of a few microseconds are meant
    while (wait_until_busy()) {
      Clock::time_point busy_since = Clock::now(), asked = busy_since, looked = busy_since;
      points_due_ = busy_since;
      while (pending_.is_busy()) {
        bool is_batch = false;
        auto tell = [&](std::uint64_t key) {
          if (!std::exchange(is_batch, true)) counts_.batches.fetch_add(1, std::memory_order_relaxed);
          counts_.completed.fetch_add(1, std::memory_order_relaxed);
          pending_.done(key);
        };
        std::size_t passed = slots_.scan(tell);
        if (!points_.is_idle()) passed += ask_points(tell, busy_since);
        const auto now = Clock::now();
        if (passed) rhythm_.note(looked - busy_since);
        looked = now;
        if (passed || was_woken_.exchange(false)) busy_since = now;
        if (passed) continue;
        if (now - asked >= ask_interval_) {
          ask_all();
          asked = now;
        }
        pause(now - busy_since);
      }
      if (pending_.is_stopped()) return;
    }
  }

  bool wait_until_busy() {
    counts_.parks.fetch_add(1, std::memory_order_relaxed);
    return pending_.wait_until_busy();
  }

  template <class F>
  std::size_t ask_points(F&& tell, Clock::time_point busy_since) {
    const auto begin = Clock::now();
    if (begin < points_due_ && !points_.has_incoming()) return 0;
    const std::size_t passed = points_.scan(has_passed_, tell);
    const auto end = Clock::now();
    points_due_ = end + std::max<Clock::duration>(asking_share * (end - begin), Rhythm::sleep(end - busy_since));
    return passed;
  }

  void pause(Clock::duration quiet) {
    // Without flags to look at, it only asks questions.
    Clock::duration time = ask_interval_;
    if (!slots_.is_idle())
      time = rhythm_.pause(quiet);
    else if (!points_.is_idle())
      time = std::max<Clock::duration>(points_due_ - Clock::now(), Rhythm::sleep({}));
    if (time == Clock::duration::zero()) {
      std::this_thread::yield();  // on few cores, the emulated device may need this one
      return;
    }
    counts_.sleeps.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    is_asleep_.store(true, std::memory_order_seq_cst);
    if (!slots_.has_incoming() && !points_.has_incoming() && !pending_.is_stopped())
      was_woken_ = woken_.wait_for(lock, time) == std::cv_status::no_timeout;
    is_asleep_.store(false, std::memory_order_seq_cst);
  }

  void ask_all() {
    for (const std::uint32_t stream : pending_.streams()) {
      counts_.questions.fetch_add(1, std::memory_order_relaxed);
      const std::int32_t error = ask_(stream);
      if (!error) continue;
      pending_.fail_stream(stream, error);
      auto is_lost = [this](std::uint64_t key) { return !pending_.contains(key); };
      slots_.forget(is_lost);
      points_.forget(is_lost);
    }
  }

  Pending& pending_;
  FlagTable& slots_;
  Points& points_;
  Clock::time_point points_due_{};
  const HasPassed has_passed_;
  const Ask ask_;
  const std::chrono::milliseconds ask_interval_;
  ReactorCounts counts_;
  Rhythm rhythm_;
  std::mutex mutex_;
  std::condition_variable woken_, ended_;
  bool has_ended_ = false;
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> was_woken_{false};
  std::thread thread_;
};

}  // namespace aiocuda::completion
