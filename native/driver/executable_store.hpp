// How much of what NVIDIA's driver keeps for a device's executables is in use. Knows no driver.
//
// The driver keeps a store on each device, in which every branch of an executable has a place. When the store is full
// the driver enlarges it, and first waits until the device has done all that it holds; launches on that device wait
// meanwhile, in whatever thread. So the store is enlarged while the device is idle, before it is full (graph_room.hpp).
//
// Seen on an H200 and an H100 (driver 580.159.04; docs/measurements/2026-11-22-h200-graphs-while-busy.md): the store
// has 35 places at first, each step adds 43 in 2 MiB, and what an executable gives back is used again. A stream that is
// used has a place there as well.
#pragma once
#include <algorithm>
#include <cstdint>

namespace aiocuda::driver {

class ExecutableStore {
 public:
  static constexpr std::uint64_t spare = 64;  // places that are kept free for graphs made while the device works

  void take(std::uint64_t places) {
    used_ += places;
    size_ = std::max(size_, used_);
  }
  void give_back(std::uint64_t places) {
    used_ -= places;
    fewest_ = std::min(fewest_, used_);
  }
  // So many streams are used. Nobody knows what streams give back, so the highest number counts.
  void note_streams(std::uint64_t streams) {
    used_ += streams - std::min(streams, streams_);
    streams_ = std::max(streams, streams_);
  }
  bool has(std::uint64_t places) const { return used_ + places <= size_; }

  // How many places to ask for at once, so that `places` and the spare ones are free; 0: they are.
  std::uint64_t missing(std::uint64_t places) const { return has(places + spare) ? 0 : places + 2 * spare; }
  // The driver is asked for some; executables may come and go until it answers.
  void note_asked() { fewest_ = used_; }
  // So many were free at once, sometime since.
  void note_free(std::uint64_t places) { size_ = std::max(size_, fewest_ + places); }

 private:
  std::uint64_t used_ = 0, size_ = 32;  // of which no more were seen to be in use, or free
  std::uint64_t fewest_ = 0;            // in use at once since `note_asked`
  std::uint64_t streams_ = 0;           // of those in use
};

}  // namespace aiocuda::driver
