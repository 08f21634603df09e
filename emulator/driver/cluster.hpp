// Launches in clusters. The blocks of a cluster run at once, each on a thread of its own. They use each other's shared
// memory and wait for one another.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "abi/module_abi.hpp"
#include "block_pool.hpp"
#include "fault.hpp"

namespace aiocuda::emulator {

inline constexpr std::uint32_t most_blocks_of_cluster = 16;

// How the blocks of a grid are shared out among clusters. The grid is a multiple of the cluster in each dimension.
class ClusterShape {
 public:
  ClusterShape(const abi::Dim3& grid, const abi::Dim3& cluster) : grid_(grid), cluster_(cluster) {}

  std::uint32_t blocks_of_cluster() const noexcept { return cluster_.x * cluster_.y * cluster_.z; }
  std::uint64_t clusters() const noexcept { return std::uint64_t{grid_.x} * grid_.y * grid_.z / blocks_of_cluster(); }
  struct Place {
    std::uint64_t cluster;
    std::uint32_t rank;
  };
  // Blocks, clusters and the blocks of a cluster are numbered x fastest.
  std::uint64_t block(const Place& place) const noexcept;
  Place place(std::uint64_t block) const noexcept;

 private:
  const abi::Dim3 grid_;
  const abi::Dim3 cluster_;
};

// What the blocks of a cluster share. When all have ended, the next cluster may use it.
class Cluster {
 public:
  explicit Cluster(std::uint32_t size) : all_((std::uint32_t{1} << size) - 1) {}

  // Runs a block on the calling thread, which ends it then.
  Fault run(Pieces& blocks, std::uint32_t rank, std::uint64_t block, const std::atomic<bool>& others_failed);
  // Returns when all blocks of the cluster have ended: the shared memory of each is the others', too.
  void end(std::uint32_t rank);
  // A block will never run, or one has failed: nobody waits any more.
  void give_up();

  // Of the block that the calling thread runs, which has the others' company.
  void show(std::uint32_t rank, const abi::SharedWindows& own);
  const abi::SharedWindows* windows(std::uint32_t rank);  // null: there is no such block
  void arrive(std::uint32_t rank);
  bool has_met(std::uint64_t round) const noexcept { return round_.load(std::memory_order_acquire) >= round; }
  // Why the block cannot go on; null where all have met.
  const char* meet(std::uint64_t round);

 private:
  void meet_if_all_are_there();

  const std::uint32_t all_;  // a bit for each block, as in what follows
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t shown_ = 0;
  std::uint32_t arrived_ = 0;  // in this round
  std::uint32_t ended_ = 0;
  std::uint64_t generation_ = 0;  // how many clusters have ended
  bool has_given_up_ = false;
  std::atomic<std::uint64_t> round_{0};
  std::array<abi::SharedWindows, most_blocks_of_cluster> windows_{};
};

// Runs all blocks, as many clusters at a time as there are threads for. Returns when none is running any more, with the
// first fault; clusters not begun are skipped.
Fault run_in_clusters(Pieces& blocks, const ClusterShape& shape);

// The functions behind the services of these names. Where the launch has no clusters, a block is alone.
void show_shared(const abi::SharedWindows* own);
const abi::SharedWindows* shared_of(std::uint32_t rank);
void arrive_in_cluster();
bool has_met_cluster(std::uint64_t round);
void meet_cluster(std::uint64_t round);

}  // namespace aiocuda::emulator
