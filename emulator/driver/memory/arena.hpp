// A reserved range of host addresses from which blocks of emulated memory are cut.
// Always: the page after a block is inaccessible, a block's end (rounded up to `alignment_bytes`)
// touches it, and the page before the block is inaccessible too; a released block is inaccessible
// from that moment. So a kernel that strays outside its memory, or uses it after it was released,
// faults at once. Not internally synchronised: its owner holds a lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "memory/shared_file.hpp"

namespace aiocuda::emulator::memory {

// CUDA promises 256-byte alignment of every allocation. The larger 512 of NVIDIA's driver is not
// promised, and would leave twice as many bytes behind a block unguarded.
inline constexpr std::size_t alignment_bytes = 256;

// Rounds up; 0 where the result does not fit.
constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
  const std::size_t rounded = (value + multiple - 1) / multiple * multiple;
  return rounded < value ? 0 : rounded;
}

struct Block {
  std::uintptr_t address = 0;                      // what the user sees
  std::size_t bytes = 0;                           // rounded up to alignment_bytes
  std::uintptr_t pages = 0;                        // first page of the block
  std::size_t page_bytes = 0;                      // accessible
  std::size_t reserved_bytes = 0;                  // with its guard page, where it has one
  std::shared_ptr<const SharedFile::Range> range;  // that other processes can map; null where none can
};

class Arena {
 public:
  // Reserves the range at once and commits nothing of it.
  explicit Arena(std::size_t range_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zero-filled memory; nothing where the range or the process's mappings are exhausted, or the
  // range could not be reserved.
  std::optional<Block> allocate(std::size_t bytes);
  // The same, of memory that other processes can map. Where the process's mappings are nearly exhausted, it is like any
  // other.
  std::optional<Block> allocate(std::size_t bytes, SharedFile& file);
  void release(const Block& block) noexcept;

  // The same addresses with nothing accessible there yet.
  std::optional<Block> reserve(std::size_t bytes);
  // Makes a block accessible; false if the process's mappings are exhausted. These two change nothing in the arena, so
  // they do not need its owner's lock.
  bool open(const Block& block) const noexcept;
  // Makes it accessible, as a part of a file.
  bool map(const Block& block, int descriptor, std::size_t offset) const noexcept;
  // Makes it inaccessible again. It keeps its contents if `keep` says so.
  void shut(const Block& block, bool keep) const noexcept;

  bool contains(std::uintptr_t address) const noexcept { return address - start_ < range_bytes_; }

 private:
  using Extents = std::map<std::uintptr_t, std::size_t>;

  std::optional<Block> cut(std::size_t page_bytes);
  Block take(Extents::iterator extent, std::size_t skipped, Block block);
  void give_back(std::uintptr_t address, std::size_t bytes);

  std::uintptr_t start_ = 0;
  std::size_t range_bytes_ = 0;
  std::uintptr_t next_ = 0;  // where the search for free addresses goes on: late reuse of an
                             // address makes use after free a fault for longer
  Extents free_;             // neighbours are always joined
};

}  // namespace aiocuda::emulator::memory
