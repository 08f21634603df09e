// The account of a device's memory, and the table of all of them. Always: used bytes <= total bytes.
#include "memory/physical_memory.hpp"

#include <unistd.h>

#include <algorithm>

#include "device.hpp"
#include "memory/pool.hpp"

namespace aiocuda::emulator::memory {
namespace {

// Addresses are cheap, and four times the memory keeps fragmentation and the pages lost to guards
// and to small blocks from ever being the reason that an allocation fails.
constexpr std::size_t extra_range_bytes = std::size_t{16} << 30;

std::size_t range_for(std::size_t total_bytes) { return total_bytes * 4 + extra_range_bytes; }

std::size_t host_memory_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<std::unique_ptr<PhysicalMemory>>& device_memories() {
  // Leaked on purpose: streams may still run when the process's static objects are destroyed.
  static auto& memories = *[] {
    auto* const made = new std::vector<std::unique_ptr<PhysicalMemory>>;
    for (int device = 0; device < device_count(); ++device) {
      const std::size_t total = device_memory_bytes();
      made->push_back(std::make_unique<PhysicalMemory>(total, range_for(total)));
    }
    return made;
  }();
  return memories;
}

}  // namespace

bool PhysicalMemory::contains(std::uintptr_t address) const noexcept {
  const Arena* const arena = published_.load(std::memory_order_acquire);
  return arena != nullptr && arena->contains(address);
}

Arena& PhysicalMemory::reserved_arena() {
  if (!arena_) {
    arena_ = std::make_unique<Arena>(range_bytes_);
    published_.store(arena_.get(), std::memory_order_release);
  }
  return *arena_;
}

bool PhysicalMemory::make_room(std::size_t rounded) noexcept {
  if (rounded > total_bytes_) return false;
  const auto room = [&] { return total_bytes_ - used_bytes() >= rounded; };
  // Blocks whose free has passed give their pages back at once, so they go first.
  for (const bool pending_too : {false, true}) {
    for (auto pool = pools_.begin(); !room() && pool != pools_.end(); ++pool) {
      while (!room() && (*pool)->evict_one(pending_too)) {
      }
    }
  }
  return room();
}

template <typename Cut>
std::optional<Block> PhysicalMemory::cut_or_evict(Cut&& cut) {
  auto block = cut();
  if (!block) {  // out of mappings or of addresses: unused blocks take both
    for (const auto& pool : pools_) {
      while (pool->evict_one(false)) {
      }
    }
    block = cut();
  }
  return block;
}

std::optional<Block> PhysicalMemory::allocate(std::size_t bytes, SharedFile* file) {
  const std::size_t rounded = round_up(std::max<std::size_t>(bytes, 1), alignment_bytes);
  if (rounded == 0) return std::nullopt;
  Arena& arena = reserved_arena();
  if (!make_room(rounded)) return std::nullopt;
  const auto block =
      cut_or_evict([&] { return file != nullptr ? arena.allocate(rounded, *file) : arena.allocate(rounded); });
  if (block) used_bytes_.fetch_add(rounded, std::memory_order_relaxed);
  return block;
}

std::optional<Block> PhysicalMemory::reserve(std::size_t bytes) {
  Arena& arena = reserved_arena();
  return cut_or_evict([&] { return arena.reserve(bytes); });
}

SharedFile* PhysicalMemory::file() {
  if (!file_) file_ = SharedFile::make(0);
  return file_.get();
}

bool PhysicalMemory::count(const Block& block) noexcept {
  if (!make_room(block.bytes)) return false;
  used_bytes_.fetch_add(block.bytes, std::memory_order_relaxed);
  return true;
}

void PhysicalMemory::release(const Block& block) noexcept {
  uncount(block);
  unmap(block);
}

void PhysicalMemory::uncount(const Block& block) noexcept {
  used_bytes_.fetch_sub(block.bytes, std::memory_order_relaxed);
}

void PhysicalMemory::unmap(const Block& block) noexcept { arena_->release(block); }

void PhysicalMemory::add_pool(std::shared_ptr<MemoryPool> pool) { pools_.push_back(std::move(pool)); }

void PhysicalMemory::remove_pool(const MemoryPool& pool) {
  std::erase_if(pools_, [&](const auto& each) { return each.get() == &pool; });
}

void PhysicalMemory::remove_ended_pools() {
  std::erase_if(pools_, [](const auto& each) { return each->has_ended(); });
}

PhysicalMemory& device_memory(CUdevice device) { return *device_memories()[static_cast<std::size_t>(device)]; }

PhysicalMemory& host_memory() {
  static auto& memory = *new PhysicalMemory(host_memory_bytes(), range_for(host_memory_bytes()));
  return memory;
}

bool is_in_an_arena(std::uintptr_t address) {
  const auto& memories = device_memories();
  return host_memory().contains(address) ||
         std::any_of(memories.begin(), memories.end(), [&](const auto& memory) { return memory->contains(address); });
}

}  // namespace aiocuda::emulator::memory
