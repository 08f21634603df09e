// Objects that are kept until a stream has passed what uses them.
//
// Always true: an object is let go of when nothing of this is half done, since letting go may come back here. A stream
// that has not come as far is asked about once, however many objects wait for it: the driver's answer takes time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "../dataflow/tick.hpp"

namespace aiocuda::driver {

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

  // `has_ended(tick)`
  template <class HasEnded>
  void drop_ended(HasEnded&& has_ended) {
    if (busy_.empty()) return;
    std::vector<Object> gone = std::exchange(spare_, {});
    std::erase_if(busy_, [&](dataflow::StreamIndex stream) {
      Queue& queue = queues_[stream];
      while (!queue.is_empty() && has_ended(dataflow::Tick{stream, queue.first()})) gone.push_back(queue.take());
      queue.close_up();
      return queue.is_empty();
    });
    size_ -= gone.size();
    gone.clear();  // others may be kept, and dropped, meanwhile
    spare_ = std::move(gone);
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
  std::size_t size_ = 0;
  std::vector<Object> spare_;  // empty; its memory is used again
};

}  // namespace aiocuda::driver
