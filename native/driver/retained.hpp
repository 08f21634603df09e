// Objects that are kept until a stream has passed what uses them.
//
// Always true: an object is let go of when nothing of this is half done, since letting go may come back here. A stream
// that has not come as far is asked about once, however many objects wait for it: the driver's answer takes time. Who
// only passes by looks at a few streams, so what it costs him does not grow with their number.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "../dataflow/tick.hpp"

namespace aiocuda::driver {

// In place of how many streams are looked at.
inline constexpr std::size_t all_streams = std::numeric_limits<std::size_t>::max();

template <class Object>
class Retained {
 public:
  void keep(dataflow::Tick until, Object object) {
    if (queues_.size() <= until.stream) queues_.resize(until.stream + std::size_t{1});
    Queue& queue = queues_[until.stream];
    if (queue.is_empty()) busy_.push_back(until.stream);
    queue.put(until.count, std::move(object));
    ++size_;
  }
  std::size_t size() const { return size_; }

  // `has_ended(tick)`. Looks at so many of the streams that something waits for, in turn.
  template <class HasEnded>
  void drop_ended(HasEnded&& has_ended, std::size_t most_streams = all_streams) {
    if (busy_.empty()) return;
    std::vector<Object> gone = std::exchange(spare_, {});
    take_ended(gone, has_ended, most_streams);
    gone.clear();  // others may be kept, and dropped, meanwhile
    spare_ = std::move(gone);
  }
  // The same, for who does something with them.
  template <class HasEnded>
  void take_ended(std::vector<Object>& taken, HasEnded&& has_ended, std::size_t most_streams) {
    const std::size_t before = taken.size();
    for (std::size_t left = std::min(most_streams, busy_.size()); left > 0; --left) {
      if (next_ >= busy_.size()) next_ = 0;
      const dataflow::StreamIndex stream = busy_[next_];
      Queue& queue = queues_[stream];
      while (!queue.is_empty() && has_ended(dataflow::Tick{stream, queue.first()})) taken.push_back(queue.take());
      queue.close_up();
      if (queue.is_empty())
        busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(next_));
      else
        ++next_;
    }
    size_ -= taken.size() - before;
  }

 private:
  // What waits for one stream: what ends first comes first.
  class Queue {
   public:
    bool is_empty() const { return begin_ == items_.size(); }
    std::uint64_t first() const { return items_[begin_].count; }
    void put(std::uint64_t count, Object object) {
      auto place = items_.end();
      while (place != front() && std::prev(place)->count > count) --place;
      items_.insert(place, Item{count, std::move(object)});
    }
    Object take() { return std::move(items_[begin_++].object); }
    // Now and then, so that each item is moved a few times at most.
    void close_up() {
      if (begin_ * 2 < items_.size()) return;
      items_.erase(items_.begin(), front());
      begin_ = 0;
    }

   private:
    struct Item {
      std::uint64_t count;
      Object object;
    };
    auto front() { return items_.begin() + static_cast<std::ptrdiff_t>(begin_); }

    std::vector<Item> items_;
    std::size_t begin_ = 0;
  };

  std::vector<Queue> queues_;                // by stream
  std::vector<dataflow::StreamIndex> busy_;  // whose queues are not empty
  std::size_t next_ = 0;                     // of them, to be looked at
  std::size_t size_ = 0;
  std::vector<Object> spare_;  // empty; its memory is used again
};

}  // namespace aiocuda::driver
