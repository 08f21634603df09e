// Objects that are kept until a stream has passed what uses them.
//
// Always true: an object is let go of when nothing of this is half done, since letting go may come back here.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "../dataflow/tick.hpp"

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
    std::vector<Each> gone = std::exchange(spare_, {});
    std::size_t left = 0;
    for (Each& each : kept_) {
      if (has_ended(each.until))
        gone.push_back(std::move(each));
      else if (Each& place = kept_[left++]; &place != &each)
        place = std::move(each);
    }
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(left), kept_.end());
    gone.clear();  // others may be kept, and dropped, meanwhile
    spare_ = std::move(gone);
  }

 private:
  struct Each {
    dataflow::Tick until;
    Object object;
  };
  std::vector<Each> kept_;
  std::vector<Each> spare_;  // empty; its memory is used again
};

}  // namespace aiocuda::driver
