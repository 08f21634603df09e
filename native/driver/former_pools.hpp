// The memory pools that devices had before they got others.
//
// Always true: a pool stays until it holds nothing more. NVIDIA's driver (580.159.04) crashes in later allocations,
// from whatever pool, once a pool was destroyed of which memory was in use. Any thread may call; the lock is held while
// the driver is called.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "table.hpp"

namespace aiocuda::driver {

class FormerPools {
 public:
  explicit FormerPools(const Table& table) : table_(table) {}
  FormerPools(const FormerPools&) = delete;
  FormerPools& operator=(const FormerPools&) = delete;

  void add(std::int32_t device, CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    pools_.emplace_back(device, pool);
  }
  // Its owner is about to destroy it, or gives memory from it again.
  void forget(std::int32_t device, CUmemoryPool pool) {
    const std::lock_guard lock(mutex_);
    std::erase(pools_, std::pair(device, pool));
  }
  bool has(std::int32_t device) {
    const std::lock_guard lock(mutex_);
    return std::any_of(pools_.begin(), pools_.end(), [&](const auto& each) { return each.first == device; });
  }
  // Gives back what the driver knows to be free. NVIDIA's learns of that in calls that wait: see Streams::settle.
  void trim(std::int32_t device) {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, pool] : pools_)
      if (of == device)
        table_.cuMemPoolTrimTo(pool, 0);  // whatever it answers: what comes next asks for memory, and is told
  }

 private:
  const Table& table_;
  std::mutex mutex_;
  std::vector<std::pair<std::int32_t, CUmemoryPool>> pools_;  // with the lock
};

}  // namespace aiocuda::driver
