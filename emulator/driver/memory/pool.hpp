// A memory pool: blocks of physical memory that are handed out and taken back in stream order.
// A block freed in a stream is at once good for that stream again; for others once the free has
// passed. Always: used bytes <= reserved bytes, and reserved - used is what the pool holds unused.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "handle_table.hpp"
#include "memory/physical_memory.hpp"

namespace aiocuda::emulator {
class Stream;
}

namespace aiocuda::emulator::memory {

// A block between its free and its next use (or its end). The piece of work that stands for the free
// in the stream tells it when the free has passed.
class FreedBlock {
 public:
  FreedBlock(PhysicalMemory& memory, const Block& block, std::uint64_t stream_id, bool passed, bool is_counted = true)
      : memory_(memory),
        block_(block),
        stream_id_(stream_id),
        is_counted_(is_counted),
        state_(passed ? State::passed : State::pending) {}

  const Block& block() const noexcept { return block_; }
  std::uint64_t stream_id() const noexcept { return stream_id_; }  // 0: no stream has a say any more
  void forget_stream() noexcept { stream_id_ = 0; }
  bool passed() const noexcept { return state_.load(std::memory_order_acquire) == State::passed; }

  // The stream has got past the free, or has dropped it. May be called again.
  void pass() noexcept;
  // The pool lets go of the block, which is off the account now (if it was on it: memory of another process never is);
  // its pages live until the free has passed. Needs the memory's mutex.
  void abandon() noexcept;

 private:
  enum class State { pending, passed, abandoned, released };
  PhysicalMemory& memory_;
  const Block block_;
  std::uint64_t stream_id_;
  const bool is_counted_;
  std::atomic<State> state_;
};

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // Other processes can map its memory where it has a file.
  MemoryPool(PhysicalMemory& memory, const CUmemPoolProps& properties, std::shared_ptr<SharedFile> file = nullptr)
      : memory_(memory),
        properties_(properties),
        file_(std::move(file)),
        devices_with_access_(is_on_device() ? std::uint64_t{1} << properties.location.id : 0) {}
  // A pool of another process: memory of it is opened, and never allocated, here. Freed memory stays mapped until the
  // next synchronisation, as in a pool of this process, and also when the pool's handle has gone before.
  MemoryPool(PhysicalMemory& memory, const CUmemPoolProps& properties, Descriptor imported_file)
      : memory_(memory),
        properties_(properties),
        imported_file_(std::move(imported_file)),
        devices_with_access_(is_on_device() ? std::uint64_t{1} << properties.location.id : 0) {}

  PhysicalMemory& memory() const noexcept { return memory_; }
  const CUmemPoolProps& properties() const noexcept { return properties_; }
  // Null where no other process can map its memory, or where it is another process's own.
  const SharedFile* file() const noexcept { return file_.get(); }
  bool is_imported() const noexcept { return static_cast<bool>(imported_file_); }
  int imported_file() const noexcept { return imported_file_.number(); }
  bool is_managed() const noexcept { return properties_.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED; }
  bool is_on_device() const noexcept {
    return !is_managed() && properties_.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  }

  struct Given {
    Block block;
    bool was_freed_in_stream;  // in the same one, whose work before the free may still use it
  };
  // For work in this stream. Nothing: out of memory (of the location, or of the pool's maximum).
  std::optional<Given> allocate(std::size_t bytes, const Stream& stream);
  // `bytes` as asked for.
  void free(const Block& block, std::size_t bytes, Stream& stream);
  // For a caller who has waited for all work that may use the block.
  void free_at_once(const Block& block);

  CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  CUresult get_attribute(CUmemPool_attribute attribute, void* value);
  CUresult set_access(const CUmemAccessDesc* descriptions, std::size_t count);
  CUmemAccess_flags access(const CUmemLocation& location) const;
  std::uint64_t devices_with_access() const noexcept { return devices_with_access_.load(std::memory_order_acquire); }

  void trim_to(std::size_t bytes_to_keep);
  // Its handle has gone: unused blocks are released, the others as they are freed.
  void close();

  // These need the memory's mutex.
  bool evict_one(bool pending_too) noexcept;
  // After a synchronisation: releases what is beyond the threshold.
  void settle() noexcept;
  // Its handle has gone, and it holds nothing unused: the memory need not know it.
  bool has_ended() const noexcept { return closed_ && unused_.empty(); }

 private:
  using FreedBlocks = std::vector<std::shared_ptr<FreedBlock>>;

  std::optional<Given> take_unused(std::size_t bytes, std::uint64_t stream_id);
  void put(std::shared_ptr<FreedBlock> freed);
  void trim_locked(std::size_t bytes_to_keep) noexcept;

  PhysicalMemory& memory_;
  const CUmemPoolProps properties_;
  const std::shared_ptr<SharedFile> file_;
  const Descriptor imported_file_;

  // Under the memory's mutex. Unused blocks by size: only a block of the very size is used again, so
  // its end stays at its guard page.
  std::map<std::size_t, FreedBlocks> unused_;
  bool closed_ = false;
  std::size_t used_bytes_ = 0, used_high_ = 0;
  std::size_t reserved_bytes_ = 0, reserved_high_ = 0;
  std::uint64_t release_threshold_ = 0;
  // Kept and answered. Memory is never reused on the strength of an event or of a new dependency:
  // there is always fresh memory as soon as the free has been submitted (see PhysicalMemory).
  int follow_event_dependencies_ = 1;
  int allow_opportunistic_ = 1;
  int allow_internal_dependencies_ = 1;
  // A bit for each device that may use the memory; there are no more than 64.
  std::atomic<std::uint64_t> devices_with_access_;
};

// The same for a block that is in no pool: it is off the account at once, its pages live until the
// stream has got past this point.
void free_in_stream(PhysicalMemory& memory, const Block& block, std::size_t bytes, Stream& stream);

using PoolTable = HandleTable<MemoryPool, CUmemoryPool>;
PoolTable& pools();

}  // namespace aiocuda::emulator::memory
