// Items that one thread decides and another performs, in their order. Knows neither CUDA nor Python.
//
// Whoever holds the *baton* performs: a thread of its own, or a thread that cannot wait for that one. So items are
// performed one after another, in the order in which they were given, whoever performs them.
//
// Always true: an item's place is used again only when the item was performed. While items are left, the thread of its
// own is awake, or is being woken. One thread at a time gives: a lock of the givers' sees to that.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace aiocuda {

template <class Item>
class Handover {
 public:
  using Clock = std::chrono::steady_clock;

  // `awake`: how long the thread looks on when it has nothing to do, before it sleeps.
  Handover(std::size_t size, Clock::duration awake) : items_(size), awake_(awake) {}
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // --- for the giver

  bool has_room() const { return given_.load(std::memory_order_relaxed) - performed() < items_.size(); }
  // The place of the next item. There is room.
  Item& next() { return items_[given_.load(std::memory_order_relaxed) % items_.size()]; }
  // The next item is in its place.
  void give() {
    // Either the thread sees the item before it falls asleep, or this sees it asleep: both write first, then read.
    given_.store(given_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    call();
  }
  // Has the thread come if it sleeps: items will be given soon. Does not wait for it.
  void call() {
    if (is_asleep_.load(std::memory_order_seq_cst)) wake();
  }

  // --- for any thread

  std::uint64_t given() const { return given_.load(std::memory_order_acquire); }
  std::uint64_t performed() const { return performed_.load(std::memory_order_acquire); }
  bool is_empty() const { return performed() == given(); }
  bool is_awake() const { return !is_asleep_.load(std::memory_order_relaxed); }

  // Performs the items up to a number, unless another thread has the baton. `perform(item)` does not throw.
  template <class F>
  bool perform(std::uint64_t up_to, F&& perform_one) {
    if (has_baton_.exchange(true, std::memory_order_acquire)) return false;
    std::uint64_t at = performed_.load(std::memory_order_relaxed);
    for (const std::uint64_t end = std::min(up_to, given()); at < end;) {
      perform_one(items_[at % items_.size()]);
      performed_.store(++at, std::memory_order_release);
    }
    has_baton_.store(false, std::memory_order_release);
    return true;
  }

  // --- for the thread

  // Performs what is given, until it is told to stop and nothing is left.
  template <class F>
  void run(F&& perform_one) {
    for (auto quiet_since = Clock::now();;) {
      if (!is_empty()) {
        if (!perform(given(), perform_one)) rest();
        quiet_since = Clock::now();
      } else if (is_stopped_.load(std::memory_order_acquire)) {
        return;
      } else if (Clock::now() - quiet_since < awake_) {
        rest();
      } else {
        sleep();
        quiet_since = Clock::now();
      }
    }
  }
  void stop() {
    is_stopped_.store(true, std::memory_order_seq_cst);
    call();
  }

  // Lets others have the processor, where there are few.
  static void rest() {
#if defined(__x86_64__) && defined(__GNUC__)
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
#endif
    std::this_thread::yield();
  }

 private:
  void wake() {
    if (is_called_.exchange(true, std::memory_order_seq_cst)) return;  // it is on its way
    {
      std::lock_guard lock(mutex_);
    }
    woken_.notify_one();
  }
  void sleep() {
    std::unique_lock lock(mutex_);
    is_called_.store(false, std::memory_order_seq_cst);
    is_asleep_.store(true, std::memory_order_seq_cst);
    if (given_.load(std::memory_order_seq_cst) == performed() && !is_stopped_.load(std::memory_order_seq_cst) &&
        !is_called_.load(std::memory_order_seq_cst))
      woken_.wait(lock);
    is_asleep_.store(false, std::memory_order_relaxed);
  }

  std::vector<Item> items_;
  const Clock::duration awake_;
  std::atomic<std::uint64_t> given_{0}, performed_{0};
  std::atomic<bool> has_baton_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  std::atomic<bool> is_asleep_{false}, is_called_{false}, is_stopped_{false};
};

}  // namespace aiocuda
