// The work at the end of a stream: until more comes there, whoever waits for the stream's end waits for it.
//
// Always true: there is one at most at a place, and each is at one place at most. Guarded by the GIL.
#pragma once
#include <utility>

namespace aiocuda::dataflow {

class AtEnd {
 public:
  AtEnd() = default;
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  ~AtEnd() { leave(); }

  // The place must be free, or its own.
  void stand(AtEnd*& place) {
    leave();
    place = this;
    place_ = &place;
  }
  void leave() {
    if (place_) *std::exchange(place_, nullptr) = nullptr;
  }

 private:
  AtEnd** place_ = nullptr;
};

}  // namespace aiocuda::dataflow
