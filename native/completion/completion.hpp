// One pending wait for the device, and the table of all of them. Knows neither CUDA nor Python.
//
// Always true: a completion ends exactly once, with 0 or an error, and then tells all waiters. Later ones are told at
// once.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "port.hpp"

namespace aiocuda::completion {

class Completion {
 public:
  explicit Completion(std::uint32_t parts) : parts_(parts), ended_(parts == 0) {}

  // One part has passed; or, with an error, everything has ended.
  void part_done(std::int32_t error) {
    std::vector<std::pair<std::shared_ptr<Port>, Token>> told;
    std::vector<std::shared_ptr<Completion>> ended_too;
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      if (error == 0 && --parts_ > 0) return;
      ended_ = true;
      error_ = error;
      told = std::exchange(waiting_, {});
      ended_too = std::exchange(followers_, {});
    }
    changed_.notify_all();
    for (auto& [port, token] : told) port->put(token, error);
    for (const auto& follower : ended_too) follower->part_done(error);
  }

  // Another one ends with this one, unless it has ended by then. A waiter for several things, whichever comes first,
  // uses it.
  void end_too(const std::shared_ptr<Completion>& follower) {
    std::int32_t error;
    {
      std::lock_guard lock(mutex_);
      if (!ended_) {
        followers_.push_back(follower);
        return;
      }
      error = error_;
    }
    follower->part_done(error);
  }
  // Nobody waits for the other one any more.
  void forget(const Completion& follower) {
    std::lock_guard lock(mutex_);
    std::erase_if(followers_, [&](const auto& each) { return each.get() == &follower; });
  }

  // False: it has ended already, and the token was not taken.
  bool tell(const std::shared_ptr<Port>& port, Token token) {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    waiting_.emplace_back(port, token);
    return true;
  }

  // True: the token was not told, and will not be.
  bool withdraw(Token token) {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& each) { return each.second == token; });
    if (found == waiting_.end()) return false;
    waiting_.erase(found);
    return true;
  }

  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return ended_; });
  }

  bool has_ended() const {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  std::int32_t error() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t parts_;
  bool ended_;
  std::int32_t error_ = 0;
  std::vector<std::pair<std::shared_ptr<Port>, Token>> waiting_;
  std::vector<std::shared_ptr<Completion>> followers_;
};

// All waits that are armed, by number. The device hands back the number.
class Pending {
 public:
  using Clock = std::chrono::steady_clock;
  struct Part {
    std::shared_ptr<Completion> completion;
    std::uint32_t stream = 0;
    std::function<std::int32_t()>
        passed;                 // what else to do when it has, on the thread that tells; an error is the part's
    Clock::time_point since{};  // when it was added
  };
  // How long completed waits were pending: less than 1 us, than 2, than 4, and so on; the last has all longer ones.
  using Histogram = std::array<std::uint64_t, 24>;

  std::uint64_t add(Part part) {
    part.since = Clock::now();
    std::lock_guard lock(mutex_);
    const std::uint64_t number = ++last_;
    parts_.emplace(number, std::move(part));
    count_.store(parts_.size(), std::memory_order_release);
    if (parts_.size() == 1) became_busy_.notify_all();
    return number;
  }

  void done(std::uint64_t number) { end(take(number, true), 0); }
  void withdraw(std::uint64_t number) { take(number, false); }

  // Ends everything that waits for a stream, with its error.
  void fail_stream(std::uint32_t stream, std::int32_t error) {
    std::vector<Part> failed;
    {
      std::lock_guard lock(mutex_);
      for (auto each = parts_.begin(); each != parts_.end();) {
        if (each->second.stream == stream) {
          failed.push_back(std::move(each->second));
          each = parts_.erase(each);
        } else {
          ++each;
        }
      }
      count_.store(parts_.size(), std::memory_order_release);
    }
    for (const Part& part : failed) end(part, error);
  }

  std::vector<std::uint32_t> streams() const {
    std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> found;
    for (const auto& [number, part] : parts_)
      if (std::find(found.begin(), found.end(), part.stream) == found.end()) found.push_back(part.stream);
    return found;
  }

  std::size_t size() const { return count_.load(std::memory_order_acquire); }
  bool is_busy() const { return size() != 0 && !is_stopped(); }
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  bool contains(std::uint64_t number) const {
    std::lock_guard lock(mutex_);
    return parts_.contains(number);
  }
  Histogram histogram() const {
    std::lock_guard lock(mutex_);
    return histogram_;
  }

  // For the reactor: returns when something is armed, or it was told to stop (then false).
  bool wait_until_busy() {
    std::unique_lock lock(mutex_);
    became_busy_.wait(lock, [&] { return stopped_ || !parts_.empty(); });
    return !stopped_;
  }
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    became_busy_.notify_all();
  }

 private:
  Part take(std::uint64_t number, bool is_done) {
    const auto now = Clock::now();
    std::lock_guard lock(mutex_);
    auto found = parts_.find(number);
    if (found == parts_.end()) return {};
    Part part = std::move(found->second);
    parts_.erase(found);
    count_.store(parts_.size(), std::memory_order_release);
    if (is_done) {
      const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now - part.since).count();
      ++histogram_[std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(us)), histogram_.size() - 1)];
    }
    return part;
  }
  static void end(const Part& part, std::int32_t error) {
    if (!part.completion) return;
    if (error == 0 && part.passed) error = part.passed();
    part.completion->part_done(error);
  }

  mutable std::mutex mutex_;
  std::condition_variable became_busy_;
  std::uint64_t last_ = 0;
  std::atomic<bool> stopped_{false};
  std::atomic<std::size_t> count_{0};
  Histogram histogram_{};
  std::unordered_map<std::uint64_t, Part> parts_;
};

}  // namespace aiocuda::completion
