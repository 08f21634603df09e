// The memory of a device that its executables lie in. NVIDIA's driver enlarges it in steps. Before each step it waits
// until the device has done all its work. This driver does the same, so a program that cannot afford the wait fails
// here too.
//
// Seen on an H200 (driver 580.159.04): an executable takes a place for each of its branches. The first step has 33
// places, and each later one has 43. A place that an executable gives back is used again and never returned.
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
  static constexpr std::size_t first = 33, step = 43;
  std::mutex mutex_;
  std::size_t used_ = 0, size_ = first;
};

}  // namespace aiocuda::emulator::graph
