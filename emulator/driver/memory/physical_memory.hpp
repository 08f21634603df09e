// The memory of one device, or of the host: an arena, an exact account of what is taken from it, and
// the memory pools that live in it.
// The limit is kept in the order of submission: memory freed in stream order is off the account from
// the moment the driver needs it again, although its pages may live until the free has passed. So
// running out of memory depends on what a program asked for and never on how fast a stream was, and
// no allocation ever waits for a stream.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api.hpp"
#include "memory/arena.hpp"

namespace aiocuda::emulator::memory {

class MemoryPool;

class PhysicalMemory {
 public:
  PhysicalMemory(std::size_t total_bytes, std::size_t range_bytes)
      : total_bytes_(total_bytes), range_bytes_(range_bytes) {}

  std::size_t total_bytes() const noexcept { return total_bytes_; }
  std::size_t used_bytes() const noexcept { return used_bytes_.load(std::memory_order_relaxed); }
  bool contains(std::uintptr_t address) const noexcept;

  // Protects this object, its arena and its pools. Never held while a stream is called.
  std::mutex& mutex() noexcept { return mutex_; }

  // The rest needs the mutex.

  // Takes from the account, and from what pools hold unused where that is not enough.
  // Other processes can map it where a file is given.
  std::optional<Block> allocate(std::size_t bytes, SharedFile* file = nullptr);
  void release(const Block& block) noexcept;
  // The two halves of release, for a block whose pages are needed for a while longer.
  void uncount(const Block& block) noexcept;
  void unmap(const Block& block) noexcept;

  // For memory that keeps its addresses while it comes and goes: the addresses, given back with unmap; and from the
  // account and back to it, as allocate and uncount do.
  std::optional<Block> reserve(std::size_t bytes);
  bool count(const Block& block) noexcept;
  // The file of what cuMemAlloc gives; null where the system has no such files.
  SharedFile* file();
  // Needs no mutex.
  const Arena& arena() const noexcept { return *published_.load(std::memory_order_acquire); }

  void add_pool(std::shared_ptr<MemoryPool> pool);
  void remove_pool(const MemoryPool& pool);
  void remove_ended_pools();
  const std::vector<std::shared_ptr<MemoryPool>>& pools() const noexcept { return pools_; }

  // How many blocks pools hold unused; readable without the mutex.
  std::atomic<std::size_t> unused_blocks{0};

 private:
  Arena& reserved_arena();
  bool make_room(std::size_t rounded_bytes) noexcept;
  template <typename Cut>
  std::optional<Block> cut_or_evict(Cut&& cut);

  const std::size_t total_bytes_;
  const std::size_t range_bytes_;
  std::mutex mutex_;
  std::shared_ptr<SharedFile> file_;  // made at the first use
  std::unique_ptr<Arena> arena_;      // reserved at the first use, then never changed
  std::atomic<const Arena*> published_{nullptr};
  std::atomic<std::size_t> used_bytes_{0};
  std::vector<std::shared_ptr<MemoryPool>> pools_;
};

// Of a valid device; they live until the process ends.
PhysicalMemory& device_memory(CUdevice device);
// Page-locked and managed memory.
PhysicalMemory& host_memory();
// Does the address belong to any arena, allocated or not?
bool is_in_an_arena(std::uintptr_t address);

}  // namespace aiocuda::emulator::memory
