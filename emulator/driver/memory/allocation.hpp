// Every range of memory the driver knows by address: what it is, whose it is, and how far it reaches.
// Always: ranges do not overlap, and one that is listed is accessible to device code.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/managed_ranges.hpp"
#include "memory/physical_memory.hpp"
#include "memory/pool.hpp"

namespace aiocuda::emulator::memory {

class MappableMemory;

struct Allocation {
  enum class Kind {
    device,           // cuMemAlloc
    opened,           // cuIpcOpenMemHandle: the memory is another process's
    stream_ordered,   // out of a memory pool
    managed,          // cuMemAllocManaged
    page_locked,      // cuMemHostAlloc
    registered,       // cuMemHostRegister: the memory is the user's
    module_variable,  // the memory is the module's
    array,            // of a CUDA array, whose address no program has
    mapped,           // cuMemMap: the memory is an allocation handle's (virtual_memory.hpp)
    graph,            // of an allocation node, which says when it can be touched; its pool only describes it
  };

  Kind kind{};
  std::uintptr_t address = 0;
  std::size_t bytes = 0;  // as asked for
  CUcontext context = nullptr;
  CUdevice device = 0;  // of that context; where the memory is, for device memory
  unsigned flags = 0;   // of cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
  std::uint64_t id = 0;
  Block block;                       // empty where the memory is somebody else's
  PhysicalMemory* memory = nullptr;  // where the block is from
  std::shared_ptr<MemoryPool> pool;  // of stream_ordered
  std::atomic<bool> sync_memops{false};
  std::shared_ptr<MappableMemory> mappable;           // of mapped
  std::atomic<std::uint64_t> devices_with_access{0};  // of mapped, a bit for each: to read and write
  std::atomic<std::uint64_t> devices_that_read{0};    // of mapped: at least
  ManagedRanges managed_ranges;                       // advice and prefetches, of managed memory

  bool is_managed() const noexcept { return kind == Kind::managed || (pool && pool->is_managed()); }
  // Page-locked host memory, however it came about.
  bool is_page_locked() const noexcept {
    return kind == Kind::page_locked || kind == Kind::registered ||
           (pool && !pool->is_managed() && !pool->is_on_device());
  }
  bool reaches(std::uintptr_t from, std::size_t size) const noexcept {
    return from >= address && from - address <= bytes && size <= bytes - (from - address);
  }
};

// Lists it, with a fresh id. False where it would overlap one that is listed.
bool list(std::shared_ptr<Allocation> allocation);
// The one that the address is in; null where there is none.
std::shared_ptr<Allocation> find(std::uintptr_t address);
// The addresses of all that have bytes in [begin, end), ascending; each with its end.
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> listed_within(std::uintptr_t begin, std::uintptr_t end);
// Takes exactly this one off the list; false where somebody else already did.
bool unlist(const Allocation& allocation);
// Takes off the list all that the predicate picks.
std::vector<std::shared_ptr<Allocation>> unlist_if(const std::function<bool(const Allocation&)>& picks);

// Gives back the memory of an allocation that is off the list and used by nobody.
void release(const Allocation& allocation);

}  // namespace aiocuda::emulator::memory
