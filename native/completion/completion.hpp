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
#include <optional>
#include <utility>
#include <vector>

#include "../few.hpp"
#include "port.hpp"

namespace aiocuda::completion {

class Completion {
 public:
  explicit Completion(std::uint32_t parts) : parts_(parts), ended_(parts == 0) {}

  // One part has passed; or, with an error, everything has ended.
  void part_done(std::int32_t error) {
    Few<Told> told;
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
    for (const auto& [port, token] : told) port->put(token, error);
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
    waiting_.push_back({port, token});
    return true;
  }

  // True: the token was not told, and will not be.
  bool withdraw(Token token) {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Told& each) { return each.token == token; });
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
  struct Told {
    std::shared_ptr<Port> port;
    Token token;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t parts_;
  bool ended_;
  std::int32_t error_ = 0;
  Few<Told> waiting_;
  std::vector<std::shared_ptr<Completion>> followers_;
};

// All waits that are armed, by number. The device hands back the number.
//
// They lie side by side, and a place for each says where: a wait needs no memory of its own, and is found without a
// search. A place that is used again has other numbers.
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
    const std::uint32_t at = free_place();
    places_[at].position = static_cast<std::uint32_t>(parts_.size());
    parts_.push_back({std::move(part), at});
    count_.store(parts_.size(), std::memory_order_release);
    if (parts_.size() == 1) became_busy_.notify_all();
    return number_of(at);
  }

  void done(std::uint64_t number) { end(take(number, true), 0); }
  void withdraw(std::uint64_t number) { take(number, false); }

  // Ends everything that waits for a stream, with its error.
  void fail_stream(std::uint32_t stream, std::int32_t error) {
    std::vector<Part> failed;
    {
      std::lock_guard lock(mutex_);
      for (std::size_t i = parts_.size(); i-- > 0;)
        if (parts_[i].part.stream == stream) failed.push_back(take_out(i));
      count_.store(parts_.size(), std::memory_order_release);
    }
    for (const Part& part : failed) end(part, error);
  }

  std::vector<std::uint32_t> streams() const {
    std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> found;
    for (const Kept& kept : parts_)
      if (std::find(found.begin(), found.end(), kept.part.stream) == found.end()) found.push_back(kept.part.stream);
    return found;
  }

  // Since when the longest of those waits lasts that are for a device, and for such a stream; none: there is none. A
  // place in a line is no wait for a device: what it waits for may take as long as it likes.
  template <class F>
  std::optional<Clock::time_point> longest_since(F&& is_such) const {
    std::lock_guard lock(mutex_);
    std::optional<Clock::time_point> found;
    for (const Kept& kept : parts_)
      if (kept.part.passed && is_such(kept.part.stream) && (!found || kept.part.since < *found))
        found = kept.part.since;
    return found;
  }

  std::size_t size() const { return count_.load(std::memory_order_acquire); }
  bool is_busy() const { return size() != 0 && !is_stopped(); }
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  bool contains(std::uint64_t number) const {
    std::lock_guard lock(mutex_);
    return find(number) != parts_.size();
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
  struct Kept {
    Part part;
    std::uint32_t place;
  };
  struct Place {
    std::uint32_t position = 0;  // in `parts_`, while it is taken
    std::uint32_t uses = 0;      // how often it was given back
  };

  // Never 0.
  std::uint64_t number_of(std::uint32_t place) const { return (std::uint64_t{places_[place].uses} << 32 | place) + 1; }
  std::uint32_t free_place() {
    if (free_.empty()) {
      places_.emplace_back();
      return static_cast<std::uint32_t>(places_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  // The position; the size where nothing has that number.
  std::size_t find(std::uint64_t number) const {
    const auto place = static_cast<std::uint32_t>(number - 1);
    if (place >= places_.size() || number_of(place) != number) return parts_.size();
    return places_[place].position;
  }
  Part take_out(std::size_t position) {
    Part part = std::move(parts_[position].part);
    const std::uint32_t place = parts_[position].place;
    if (position + 1 != parts_.size()) {
      parts_[position] = std::move(parts_.back());
      places_[parts_[position].place].position = static_cast<std::uint32_t>(position);
    }
    parts_.pop_back();
    ++places_[place].uses;  // before anybody can ask for its number again
    free_.push_back(place);
    return part;
  }

  Part take(std::uint64_t number, bool is_done) {
    const auto now = Clock::now();
    std::lock_guard lock(mutex_);
    const std::size_t found = find(number);
    if (found == parts_.size()) return {};
    Part part = take_out(found);
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
  std::atomic<bool> stopped_{false};
  std::atomic<std::size_t> count_{0};
  Histogram histogram_{};
  std::vector<Kept> parts_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
};

}  // namespace aiocuda::completion
