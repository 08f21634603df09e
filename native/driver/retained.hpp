// Objects that are kept until a stream has passed what uses them.
//
// Always true: an object is let go of when nothing of this is half done, since letting go may come back here.
#pragma once
#include <deque>
#include <iterator>
#include <utility>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {

template <class Object>
class Retained {
 public:
  void keep(dataflow::Tick until, Object object) { kept_.push_back({until, std::move(object)}); }
  std::size_t size() const { return kept_.size(); }

  // `has_ended(tick)`
  template <class HasEnded>
  void drop_ended(HasEnded&& has_ended) {
    if (kept_.empty()) return;
    std::deque<Each> left, all = std::exchange(kept_, {});
    for (Each& each : all)
      if (!has_ended(each.until)) left.push_back(std::move(each));
    kept_.insert(kept_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  }

 private:
  struct Each {
    dataflow::Tick until;
    Object object;
  };
  std::deque<Each> kept_;
};

}  // namespace aiocuda::driver
