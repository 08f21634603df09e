// Memory that is used again in blocks: asking the driver for it takes milliseconds, or waits for the device.
//
// Always true: nobody else, host or device, uses a block that is handed out. It is like a fresh one, except for its
// contents.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "table.hpp"

namespace aiocuda::driver {

// Powers of two from `least` up to 1 MiB, whole MiB above: few sizes, little waste.
inline std::uint64_t rounded_to_block(std::uint64_t size_bytes, std::uint64_t least) {
  constexpr std::uint64_t mib = 1 << 20;
  if (size_bytes > mib) return (size_bytes + mib - 1) / mib * mib;
  std::uint64_t block = least;
  while (block < size_bytes) block *= 2;
  return block;
}

// A kind of blocks has
//   size_of(bytes)             of the block for so many bytes
//   most_kept_bytes            that are kept for later; what is beyond that is excess, and may go back to the driver
//   allocate(table, bytes, address), free(table, address)
//   renew(table, address, bytes)   makes a block that comes back like a fresh one; false: it cannot be used again

class PageLocked {
 public:
  const std::uint64_t most_kept_bytes = sixteenth_of_memory();

  static std::uint64_t size_of(std::uint64_t size_bytes) { return rounded_to_block(size_bytes, 4096); }
  static CUresult allocate(const Table& table, std::uint64_t size_bytes, std::uint64_t& address) {
    void* fresh = nullptr;
    const CUresult result =
        table.cuMemHostAlloc(&fresh, size_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    address = reinterpret_cast<std::uint64_t>(fresh);
    return result;
  }
  static CUresult free(const Table& table, std::uint64_t address) {
    return table.cuMemFreeHost(reinterpret_cast<void*>(address));
  }
  static bool renew(const Table&, std::uint64_t, std::uint64_t) { return true; }

 private:
  // Enough for the buffers of a pipeline, little enough to lock for good: a 16th of the machine's memory, from 256 MiB
  // to 4 GiB. Locking 256 MiB takes 160 ms on an H200's host, and copying them 5.
  static std::uint64_t sixteenth_of_memory() {
    const auto bytes =
        static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return std::clamp<std::uint64_t>(bytes / 16, 256ull << 20, 4ull << 30);
  }
};

// How the driver is called where that may take long: others may use the pool meanwhile.
struct Directly {
  template <class F>
  CUresult operator()(F&& f) const {
    return f();
  }
};

// Advice about parts of a block is undone before others use the block.
class Managed {
 public:
  // To give it back waits until the device has done all its work: that is for those who say that they want to.
  static constexpr std::uint64_t most_kept_bytes = std::numeric_limits<std::uint64_t>::max();

  // Whole pages, also those of 64 KiB that some hosts have: advice is about pages.
  static std::uint64_t size_of(std::uint64_t size_bytes) { return rounded_to_block(size_bytes, 64 << 10); }
  static CUresult allocate(const Table& table, std::uint64_t size_bytes, std::uint64_t& address) {
    CUdeviceptr fresh = 0;
    const CUresult result = table.cuMemAllocManaged(&fresh, size_bytes, CU_MEM_ATTACH_GLOBAL);
    address = fresh;
    return result;
  }
  static CUresult free(const Table& table, std::uint64_t address) { return table.cuMemFree(address); }

  // About bytes of the block that begins at `block`.
  CUresult advise(const Table& table, std::uint64_t block, std::uint64_t address, std::uint64_t size_bytes,
                  CUmem_advise advice, CUmemLocation location) {
    const CUresult result = table.cuMemAdvise(address, size_bytes, advice, location);
    if (result != CUDA_SUCCESS || is_undoing(advice)) return result;
    std::vector<Advice>& known = advised_[block];
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const Advice& each) {
      return each.advice == advice && each.location.type == location.type && each.location.id == location.id;
    });
    if (!is_known) known.push_back({advice, location});
    return result;
  }

  bool renew(const Table& table, std::uint64_t address, std::uint64_t size_bytes) {
    const auto advised = advised_.find(address);
    if (advised == advised_.end()) return true;
    bool is_undone = true;
    for (const Advice& each : advised->second)
      is_undone =
          table.cuMemAdvise(address, size_bytes, undoing(each.advice), each.location) == CUDA_SUCCESS && is_undone;
    advised_.erase(advised);
    return is_undone;
  }

 private:
  struct Advice {
    CUmem_advise advice;
    CUmemLocation location;
  };
  // Each piece of advice is followed by its contrary.
  static CUmem_advise undoing(CUmem_advise advice) { return static_cast<CUmem_advise>(advice + 1); }
  static bool is_undoing(CUmem_advise advice) {
    return advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION ||
           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  }

  std::unordered_map<std::uint64_t, std::vector<Advice>> advised_;  // by block
};

// Memory of a device that other processes may open. The driver opens to them all of the 2 MiB that an allocation lies
// in (CUDA driver API, cuIpcGetMemHandle), so a block has them for itself.
class Interprocess {
 public:
  static constexpr std::uint64_t most_kept_bytes = std::numeric_limits<std::uint64_t>::max();  // as for managed memory

  static std::uint64_t size_of(std::uint64_t size_bytes) {
    constexpr std::uint64_t shared_bytes = 2 << 20;
    return (size_bytes + shared_bytes - 1) / shared_bytes * shared_bytes;
  }
  static CUresult allocate(const Table& table, std::uint64_t size_bytes, std::uint64_t& address) {
    CUdeviceptr fresh = 0;
    const CUresult result = table.cuMemAlloc(&fresh, size_bytes);
    address = fresh;
    return result;
  }
  static CUresult free(const Table& table, std::uint64_t address) { return table.cuMemFree(address); }

  // The event that tells other processes when a block may be used; made when it is first asked for.
  template <class Call = Directly>
  CUresult event_of(const Table& table, std::uint64_t block, CUevent& event, Call&& call = {}) {
    if (const auto known = events_.find(block); known != events_.end()) {
      event = known->second;
      return CUDA_SUCCESS;
    }
    const CUresult result =
        call([&] { return table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS); });
    if (result == CUDA_SUCCESS) events_.emplace(block, event);
    return result;
  }

  // The next array's handles are to tell of that one alone.
  bool renew(const Table& table, std::uint64_t address, std::uint64_t) {
    if (const auto known = events_.find(address); known != events_.end()) {
      table.cuEventDestroy(known->second);
      events_.erase(known);
    }
    return true;
  }

 private:
  std::unordered_map<std::uint64_t, CUevent> events_;  // by block
};

// A device, or the host.
inline CUmemLocation location_of(std::int32_t place) {
  CUmemLocation location{};
  location.type = place < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = std::max(place, 0);
  return location;
}

template <class Kind>
class BlockPool {
 public:
  explicit BlockPool(const Table& table) : table_(table) {}

  template <class Call = Directly>
  CUresult allocate(std::uint64_t size_bytes, std::uint64_t& address, Call&& call = {}) {
    const std::uint64_t block = Kind::size_of(size_bytes);
    auto free = free_.find(block);
    if (free != free_.end()) {
      address = free->second.back();
      free->second.pop_back();
      if (free->second.empty()) free_.erase(free);
      cached_bytes_ -= block;
      return CUDA_SUCCESS;
    }
    const CUresult result = call([&] { return Kind::allocate(table_, block, address); });
    if (result == CUDA_SUCCESS) held_bytes_ += block;
    return result;
  }

  // Is a block for so many bytes there, so that the driver need not be asked?
  bool has(std::uint64_t size_bytes) const { return free_.contains(Kind::size_of(size_bytes)); }

  // Only what no device work touches any more.
  void give_back(std::uint64_t address, std::uint64_t size_bytes) {
    const std::uint64_t block = Kind::size_of(size_bytes);
    if (kind_.renew(table_, address, block)) {
      free_[block].push_back(address);
      cached_bytes_ += block;
    } else {
      used_up_.emplace_back(address, block);
    }
  }

  // Is more there than is to be kept, or a block that nobody can use again?
  bool has_excess() const { return cached_bytes_ > kind_.most_kept_bytes || !used_up_.empty(); }
  // Takes one such block out of the pool, for the caller to free: of those that are too many, the largest.
  std::uint64_t take_excess() {
    std::uint64_t address = 0, block = 0;
    if (!used_up_.empty()) {
      std::tie(address, block) = used_up_.back();
      used_up_.pop_back();
    } else {
      const auto largest = std::prev(free_.end());
      block = largest->first;
      address = largest->second.back();
      largest->second.pop_back();
      if (largest->second.empty()) free_.erase(largest);
      cached_bytes_ -= block;
    }
    held_bytes_ -= block;
    return address;
  }

  // Gives what nobody uses back to the system. Blocks that could be used again and that the driver does not take stay
  // cached; the first refusal is the answer.
  template <class Call = Directly>
  CUresult trim(Call&& call = {}) {
    auto idle = std::exchange(free_, {});
    const auto used_up = std::exchange(used_up_, {});
    for (const auto& each : used_up) held_bytes_ -= each.second;
    held_bytes_ -= cached_bytes_;
    cached_bytes_ = 0;
    if (idle.empty() && used_up.empty()) return CUDA_SUCCESS;
    const CUresult first_refused = call([&] {
      CUresult first = CUDA_SUCCESS;
      for (const auto& each : used_up) Kind::free(table_, each.first);  // a refusal: the context is broken
      for (auto& [block, addresses] : idle)
        std::erase_if(addresses, [&](std::uint64_t address) {
          const CUresult result = Kind::free(table_, address);
          if (first == CUDA_SUCCESS) first = result;
          return result == CUDA_SUCCESS;
        });
      return first;
    });
    for (const auto& [block, addresses] : idle) {
      if (addresses.empty()) continue;
      free_[block].insert(free_[block].end(), addresses.begin(), addresses.end());
      held_bytes_ += block * addresses.size();
      cached_bytes_ += block * addresses.size();
    }
    return first_refused;
  }

  Kind& kind() { return kind_; }
  std::uint64_t held_bytes() const { return held_bytes_; }
  std::uint64_t cached_bytes() const { return cached_bytes_; }

 private:
  const Table& table_;
  Kind kind_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_;      // addresses, by the block's size
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used_up_;  // that cannot be used again: address and size
  std::uint64_t held_bytes_ = 0, cached_bytes_ = 0;
};

}  // namespace aiocuda::driver
