// The standard library's threads, locks, atomics and clock for code in namespace aiocuda, as the scheduler runs them:
// that code says `std::mutex` and finds these. So the protocols are checked as they are, without a change.
//
// To be included before them, in each file of the program. This file first includes the parts of the standard library
// that they include.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler.hpp"

namespace aiocuda::model {

template <class T>
std::uint64_t bits_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// Memory that is read and written as a whole.
template <class T>
T load(const T* memory) {
  T value = *memory;
  if (std::uint64_t bits; is_held_back(memory, bits)) std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
void store(T* memory, T value, std::memory_order order) {
  if (order == std::memory_order_seq_cst) {
    flush();
    *memory = value;
  } else {
    store(memory, bits_of(value), [memory, value] { *memory = value; });
  }
}

// The builtins for words that a device shares.
template <class T>
T load_word(const T* word, int) {
  step("a word is read");
  return load(word);
}
template <class T>
void store_word(T* word, T value, int order) {
  step("a word is written");
  store(word, value, order == __ATOMIC_SEQ_CST ? std::memory_order_seq_cst : std::memory_order_release);
}

}  // namespace aiocuda::model

// NOLINTNEXTLINE: another namespace's `std`, on purpose
namespace aiocuda::std {
using namespace ::std;

// A relaxed read-modify-write orders nothing: it is a counter, and no step.
template <class T>
class atomic {
 public:
  atomic(T value = T{}) : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  ~atomic() { model::forget(&value_); }

  T load(memory_order = memory_order_seq_cst) const {
    model::step("an atomic is read");
    return model::load(&value_);
  }
  void store(T value, memory_order order = memory_order_seq_cst) {
    model::step("an atomic is written");
    model::store(&value_, value, order);
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) {
    return change([value](T) { return value; }, order);
  }
  T fetch_add(T by, memory_order order = memory_order_seq_cst) {
    return change([by](T before) { return static_cast<T>(before + by); }, order);
  }
  T fetch_sub(T by, memory_order order = memory_order_seq_cst) {
    return change([by](T before) { return static_cast<T>(before - by); }, order);
  }
  operator T() const { return load(); }
  T operator=(T value) {
    store(value);
    return value;
  }
  T operator++() { return fetch_add(1) + 1; }
  T operator--() { return fetch_sub(1) - 1; }
  T operator+=(T by) { return fetch_add(by) + by; }
  T operator-=(T by) { return fetch_sub(by) - by; }

 private:
  template <class F>
  T change(F&& f, memory_order order) {
    if (order != memory_order_relaxed) model::step("an atomic is changed");
    model::flush();
    return exchange_value(f(value_));
  }
  T exchange_value(T value) { return ::std::exchange(value_, value); }

  T value_;
};

class mutex {
 public:
  mutex() = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  ~mutex() { model::forget(&is_locked_); }

  void lock() {
    if (model::is_looking()) return;
    model::wait_until("lock", [this] { return !is_locked_; });
    model::flush();
    is_locked_ = true;
  }
  bool try_lock() {
    model::step("try_lock");
    if (is_locked_) return false;
    model::flush();
    return is_locked_ = true;
  }
  // Releases: later reads of the thread need not wait until others see it.
  void unlock() {
    if (model::is_looking()) return;
    model::step("unlock");
    model::store(&is_locked_, 0, [this] { is_locked_ = false; });
  }

 private:
  friend class condition_variable;
  void unlock_at_once() {
    model::flush();
    is_locked_ = false;
  }
  bool is_locked_ = false;
};

class condition_variable {
 public:
  void notify_one() { notify(1, "notify_one"); }
  void notify_all() { notify(waiting_.size(), "notify_all"); }

  void wait(unique_lock<mutex>& lock) { wait_until_notified(lock, model::Duration::max()); }
  template <class F>
  void wait(unique_lock<mutex>& lock, F&& is_true) {
    while (!is_true()) wait(lock);
  }
  template <class D>
  cv_status wait_for(unique_lock<mutex>& lock, D time) {
    return wait_until_notified(lock, time) ? cv_status::no_timeout : cv_status::timeout;
  }
  template <class D, class F>
  bool wait_for(unique_lock<mutex>& lock, D time, F&& is_true) {
    const auto end = model::now() + time;
    while (!is_true())
      if (!wait_until_notified(lock, end - model::now())) return is_true();
    return true;
  }

 private:
  void notify(size_t count, const char* name) {
    model::step(name);
    for (; count && !waiting_.empty(); --count) {
      *waiting_.front() = true;
      waiting_.pop_front();
    }
  }
  bool wait_until_notified(unique_lock<mutex>& lock, model::Duration time) {
    bool is_notified = false;
    model::step("it begins to wait");  // who notifies before that, without the lock, is not heard
    waiting_.push_back(&is_notified);
    lock.mutex()->unlock_at_once();
    const auto ready = [&] { return is_notified; };
    const bool in_time = time == model::Duration::max() ? (model::wait_until("wait", ready), true)
                                                        : model::wait_until("wait for a time", ready, time);
    if (!is_notified) erase(waiting_, &is_notified);
    lock.mutex()->lock();
    return in_time;
  }
  deque<bool*> waiting_;
};

class thread {
 public:
  thread() = default;
  template <class F>
  explicit thread(F function) : number_(model::spawn(std::move(function))), is_joinable_(true) {}
  thread(thread&& other) noexcept : number_(other.number_), is_joinable_(::std::exchange(other.is_joinable_, false)) {}
  thread& operator=(thread&&) = delete;
  ~thread() { model::require(!is_joinable_, "a thread was not joined"); }
  void join() {
    is_joinable_ = false;
    model::join(number_);
  }

 private:
  size_t number_ = 0;
  bool is_joinable_ = false;
};

namespace this_thread {
inline void yield() { model::yield(); }
}  // namespace this_thread

namespace chrono {
using namespace ::std::chrono;
struct steady_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = ::std::chrono::time_point<steady_clock, duration>;
  static constexpr bool is_steady = true;
  static time_point now() { return time_point(model::now()); }
};
}  // namespace chrono
}  // namespace aiocuda::std

// NOLINTBEGIN: in place of the compiler's
#define __atomic_load_n(word, order) ::aiocuda::model::load_word(word, order)
#define __atomic_store_n(word, value, order) ::aiocuda::model::store_word(word, value, order)
// NOLINTEND
