// The memory of a device that its executables lie in. NVIDIA's driver enlarges it in steps. Before each step it waits
// until the device has done all its work. This driver does the same, so a program that cannot afford the wait fails
// here too.
//
// Seen on an H200 and an H100 (driver 580.159.04): an executable takes a place for each of its branches, and a stream
// takes one when it is first used. The first step has 35 places, and each later one has 43. A place that is given back
// is used again and never returned.
#pragma once
#include <cstddef>
#include <mutex>

namespace aiocuda::emulator::graph {

class ExecutableStore {
 public:
  // False: there are not so many places.
  bool take(std::size_t places) {
    const std::lock_guard lock(mutex_);
    if (used_ + places > size_) return false;
    used_ += places;
    return true;
  }
  // A stream never waits for its place.
  void take_for_stream() {
    const std::lock_guard lock(mutex_);
    if (++used_ > size_) size_ += step;
  }
  void give_back(std::size_t places) {
    const std::lock_guard lock(mutex_);
    used_ -= places;
  }
  // To be called when the device has done its work.
  void enlarge() {
    const std::lock_guard lock(mutex_);
    size_ += step;
  }

 private:
  static constexpr std::size_t first = 35, step = 43;
  std::mutex mutex_;
  std::size_t used_ = 0, size_ = first;
};

}  // namespace aiocuda::emulator::graph
