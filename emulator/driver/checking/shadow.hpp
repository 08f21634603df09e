// Who touched the bytes of a launch last, so that two threads which do so without an order are found. For each four
// bytes it remembers the last plain write, the last atomic access and the last two plain reads.
//
// The order between threads of a block: the barrier; between lanes of a warp, __syncwarp; between any two threads, a
// fence followed by an atomic or volatile write, which another thread reads: it then knows what the writer's block did
// before. That is more than CUDA promises, never less. Blocks have no other order, except in a grid or in a cluster
// that meets.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "checking/access.hpp"

namespace aiocuda::emulator::checking {

inline constexpr std::size_t granule_bytes = 4;

// One access, as it is remembered: which thread of which block, when, by which instruction.
struct Cell {
  std::uint32_t block = 0;
  std::uint32_t code = 0;  // its offset in the image
  std::uint64_t thread : 10 = 0;
  std::uint64_t bytes : 4 = 0;  // a bit for each of the granule; 0: an empty cell
  std::uint64_t kind : 2 = 0;
  std::uint64_t barriers : 20 = 0;  // that its block had passed
  std::uint64_t meetings : 16 = 0;  // of its lane, since that barrier
  std::uint64_t releases : 12 = 0;  // of its block

  AccessKind access_kind() const noexcept { return static_cast<AccessKind>(kind); }
};
static_assert(sizeof(Cell) == 16);

inline constexpr std::uint32_t most_barriers = (1u << 20) - 1;
inline constexpr std::uint32_t most_meetings = (1u << 16) - 1;
inline constexpr std::uint32_t most_releases = (1u << 12) - 1;

struct Granule {
  std::array<Cell, 4> cells{};  // a plain write, an atomic access, two plain reads
};

// The releases of a launch: fences followed by writes that tell others. Numbered over the whole launch.
class Releases {
 public:
  // A block tells by this address, the count-th time; whoever reads there knows of it. Answers the number.
  std::uint64_t release(std::uint32_t block, std::uint32_t count, std::uintptr_t address);
  // The number of the last release at the address; 0 where there was none.
  std::uint64_t acquire(std::uintptr_t address);
  // The number of the block's release number `count`; the greatest number where it has not come.
  std::uint64_t number_of(std::uint32_t block, std::uint32_t count);

 private:
  std::atomic<std::uint64_t> last_{0};
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::uint64_t> by_address_;
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> by_block_;
};

// What the threads of one block know of each other. One thread of the host runs them all.
class BlockOrder {
 public:
  void begin(std::uint32_t block, std::uint32_t threads);
  std::uint32_t block() const noexcept { return block_; }

  void meet_block(Releases& releases);
  // The block arrives at the barrier of its cluster, which has this number; all blocks of the cluster have.
  void arrive_in_cluster(std::uint64_t cluster, Releases& releases);
  void meet_cluster(std::uint64_t cluster, Releases& releases);
  void meet_lanes(std::uint32_t warp, std::uint32_t lanes, Releases& releases);
  void fence(std::uint32_t thread) { fenced_[thread] = true; }
  // An access is about to be made: takes and gives what it says about the order.
  void note(std::uint32_t thread, AccessKind kind, std::uintptr_t address, Releases& releases);

  Cell cell(std::uint32_t thread, AccessKind kind, std::uint32_t bytes, std::uint32_t code) const noexcept;
  // The earlier access comes before whatever the thread does now.
  bool is_ordered(const Cell& earlier, std::uint32_t thread, Releases& releases) const;

 private:
  // By now the thread has read where it said that it would.
  void learn(std::uint32_t thread, Releases& releases);

  static constexpr std::size_t most_threads = 1024;
  static constexpr std::size_t lanes_of_warp = 32;

  std::uint32_t block_ = 0;
  std::uint32_t threads_ = 0;
  std::uint32_t barriers_ = 0;
  std::uint32_t releases_ = 0;
  std::uint64_t cluster_rounds_ = 0;  // that the block has passed
  // Of each thread: how many meetings of each lane of its warp it knows of, its own last one included.
  std::array<std::array<std::uint16_t, lanes_of_warp>, most_threads> meetings_{};
  std::array<std::uint64_t, most_threads> known_{};  // the last release that it knows of
  // The address of its last atomic read, until `learn` takes what was released there. A thread announces a read before
  // it makes it, and another thread may release between the two.
  std::array<std::uintptr_t, most_threads> read_{};
  std::array<bool, most_threads> fenced_{};  // it has passed a fence, and made no plain write since
};

// Looks for an access in the granule that is not ordered before the new one, and remembers the new one.
// True, with the other access, where there is one.
bool touch(Granule& granule, const Cell& cell, const BlockOrder& order, Releases& releases, Cell& other);

// The granules of a launch's global memory, page by page. Up to a limit: a launch that touches more is looked at in
// part.
class GlobalShadow {
 public:
  static constexpr std::uintptr_t page_bytes = 4096;
  struct Page {
    std::mutex mutex;
    std::array<Granule, page_bytes / granule_bytes> granules{};
  };
  // Null where the limit is reached. `page` is an address divided by page_bytes.
  Page* page(std::uintptr_t page);
  // All blocks have met: what they did before is behind them. Nobody else may be here.
  void clear();

 private:
  static constexpr std::size_t most_pages = 16384;  // of 64 KiB: a gibibyte for 64 MiB of memory
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  bool has_said_so_ = false;
};

}  // namespace aiocuda::emulator::checking
