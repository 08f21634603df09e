// What the checks of a launch know of shared memory. A block has two windows of it, a dynamic and a static one. In a
// launch in clusters, the blocks of a cluster look at each other's, each from a thread of its own.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "checking/shadow.hpp"
#include "cluster.hpp"

namespace aiocuda::emulator::checking {

// One window, byte by byte.
struct SharedMemory {
  std::uintptr_t begin = 0;
  std::uint32_t block = 0;  // whose it is
  std::vector<Granule> granules;
  std::vector<bool> written;

  void open(std::uintptr_t at, std::size_t bytes) {
    begin = at;
    granules.assign((bytes + granule_bytes - 1) / granule_bytes, {});
    written.assign(bytes, false);
  }
  void forget_writes() { std::fill(written.begin(), written.end(), false); }
};

struct SharedWindows {
  std::shared_ptr<SharedMemory> of_launch = std::make_shared<SharedMemory>();  // dynamic
  std::shared_ptr<SharedMemory> of_module = std::make_shared<SharedMemory>();  // static
};

// The windows of a cluster's blocks. `mutex` guards what they contain, too.
struct ClusterMemory {
  std::mutex mutex;
  std::array<SharedWindows, most_blocks_of_cluster> blocks;
};

}  // namespace aiocuda::emulator::checking
