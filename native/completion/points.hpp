// Points of streams that no flag tells of: the reactor has to ask about them. Knows neither CUDA nor Python: only the
// function that answers knows what a point is.
//
// Always true: the points of a series, such as a stream's, pass in order, so the reactor asks only about the first. A
// point is dropped when it has passed or is forgotten.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aiocuda::completion {

class Points {
 public:
  using Point = std::shared_ptr<const void>;

  // Has the scanner ask about a point. When the point has passed, the scanner gives out `key`. Within its series it
  // passes behind those of lower `order`, and behind earlier ones of the same order.
  void watch(std::uint64_t series, Point point, std::uint64_t key, std::uint64_t order = 0) {
    std::lock_guard lock(mutex_);
    incoming_.push_back({series, {std::move(point), key, order}});
    has_incoming_.store(true, std::memory_order_seq_cst);  // before who watched asks whether the scanner sleeps
  }

  // For the scanner: calls `passed(key)` for all of which `has_passed(point)`.
  template <class F, class G>
  std::size_t scan(F&& has_passed, G&& passed) {
    take_incoming();
    std::size_t count = 0;
    for (auto each = series_.begin(); each != series_.end();) {
      auto& waiting = each->second;
      while (!waiting.empty() && has_passed(waiting.front().point.get())) {
        const std::uint64_t key = waiting.front().key;
        waiting.pop_front();
        passed(key);
        ++count;
      }
      each = waiting.empty() ? series_.erase(each) : std::next(each);
    }
    return count;
  }
  // For the scanner: forgets what will never pass.
  template <class F>
  void forget(F&& is_lost) {
    take_incoming();
    for (auto each = series_.begin(); each != series_.end();) {
      std::erase_if(each->second, [&](const Watched& watched) { return is_lost(watched.key); });
      each = each->second.empty() ? series_.erase(each) : std::next(each);
    }
  }
  bool is_idle() const { return series_.empty() && !has_incoming(); }

  bool has_incoming() const { return has_incoming_.load(std::memory_order_seq_cst); }

 private:
  struct Watched {
    Point point;
    std::uint64_t key, order;
  };

  void take_incoming() {
    if (!has_incoming_.load(std::memory_order_acquire)) return;
    std::vector<std::pair<std::uint64_t, Watched>> taken;
    {
      std::lock_guard lock(mutex_);
      taken = std::exchange(incoming_, {});
      has_incoming_.store(false, std::memory_order_release);
    }
    for (auto& [series, watched] : taken) {
      auto& waiting = series_[series];
      const auto next = std::upper_bound(waiting.begin(), waiting.end(), watched.order,
                                         [](std::uint64_t order, const Watched& each) { return order < each.order; });
      waiting.insert(next, std::move(watched));
    }
  }

  // Between the callers and the scanner:
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, Watched>> incoming_;
  std::atomic<bool> has_incoming_{false};
  // The scanner's:
  std::unordered_map<std::uint64_t, std::deque<Watched>> series_;
};

}  // namespace aiocuda::completion
