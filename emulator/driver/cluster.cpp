// See cluster.hpp.
#include "cluster.hpp"

#include <algorithm>
#include <memory>
#include <system_error>
#include <vector>

#include "settings.hpp"
#include "thread.hpp"

namespace aiocuda::emulator {
namespace {

// The block that the calling thread runs.
struct Member {
  Cluster* cluster = nullptr;
  std::uint32_t rank = 0;
};
thread_local Member current;

// The clusters of a launch: team after team of threads runs one cluster after another.
class Teams {
 public:
  Teams(Pieces& blocks, const ClusterShape& shape) : blocks_(blocks), shape_(shape) {
    const std::uint64_t wanted = static_cast<std::uint64_t>(settings().threads) / shape.blocks_of_cluster();
    const std::uint64_t count = std::clamp<std::uint64_t>(wanted, 1, shape.clusters());
    for (std::uint64_t team = 0; team < count; ++team)
      teams_.push_back(std::make_unique<Cluster>(shape.blocks_of_cluster()));
    running_ = count * shape.blocks_of_cluster();
  }

  Fault run() {
    for (std::uint64_t team = 0; team < teams_.size(); ++team) {
      for (std::uint32_t rank = 0; rank < shape_.blocks_of_cluster(); ++rank) {
        if (team == 0 && rank == 0) continue;
        try {
          start_thread("cuda-cluster", [this, team, rank] { work(team, rank); });
        } catch (const std::system_error&) {
          note({CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "no thread for a block of a cluster"});
          teams_[team]->give_up();
          leave();
        }
      }
    }
    work(0, 0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
    return std::move(fault_);
  }

 private:
  void work(std::uint64_t team, std::uint32_t rank) {
    Cluster& cluster = *teams_[team];
    for (std::uint64_t index = team; index < shape_.clusters(); index += teams_.size()) {
      if (has_fault()) {
        cluster.give_up();  // others of the team may have begun this one
        break;
      }
      if (Fault found = cluster.run(blocks_, rank, shape_.block({index, rank}), failed_)) {
        note(std::move(found));  // before others fail because of it
        cluster.give_up();
      }
      cluster.end(rank);
    }
    leave();
  }

  bool has_fault() {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(fault_);
  }

  void note(Fault found) {
    const std::lock_guard lock(mutex_);
    if (!fault_) fault_ = std::move(found);
    failed_.store(true, std::memory_order_release);
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();  // under the mutex: who waits for the last thread then lets go of all this
  }

  Pieces& blocks_;
  const ClusterShape shape_;
  std::vector<std::unique_ptr<Cluster>> teams_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t running_;  // threads
  Fault fault_;
  std::atomic<bool> failed_{false};  // for those who poll
};

}  // namespace

std::uint64_t ClusterShape::block(const Place& place) const noexcept {
  const std::uint32_t clusters_x = grid_.x / cluster_.x;
  const std::uint32_t clusters_y = grid_.y / cluster_.y;
  const std::uint64_t x = place.cluster % clusters_x * cluster_.x + place.rank % cluster_.x;
  const std::uint64_t y = place.cluster / clusters_x % clusters_y * cluster_.y + place.rank / cluster_.x % cluster_.y;
  const std::uint64_t z = place.cluster / clusters_x / clusters_y * cluster_.z + place.rank / cluster_.x / cluster_.y;
  return x + grid_.x * (y + grid_.y * z);
}

ClusterShape::Place ClusterShape::place(std::uint64_t block) const noexcept {
  const std::uint64_t x = block % grid_.x, y = block / grid_.x % grid_.y, z = block / grid_.x / grid_.y;
  const std::uint64_t clusters_x = grid_.x / cluster_.x, clusters_y = grid_.y / cluster_.y;
  return {x / cluster_.x + clusters_x * (y / cluster_.y + clusters_y * (z / cluster_.z)),
          static_cast<std::uint32_t>(x % cluster_.x + cluster_.x * (y % cluster_.y + cluster_.y * (z % cluster_.z)))};
}

Fault Cluster::run(Pieces& blocks, std::uint32_t rank, std::uint64_t block, const std::atomic<bool>& others_failed) {
  current = {this, rank};
  auto one = [&blocks, block] { blocks.run(block, block + 1); };
  Fault found = run_guarded(one, &others_failed);
  current = {};
  return found;
}

void Cluster::end(std::uint32_t rank) {
  std::unique_lock lock(mutex_);
  const std::uint64_t generation = generation_;
  ended_ |= std::uint32_t{1} << rank;
  meet_if_all_are_there();
  if (ended_ == all_) {
    shown_ = arrived_ = ended_ = 0;
    round_.store(0, std::memory_order_relaxed);
    ++generation_;
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return generation_ != generation || has_given_up_; });
}

void Cluster::give_up() {
  const std::lock_guard lock(mutex_);
  has_given_up_ = true;
  changed_.notify_all();
}

void Cluster::show(std::uint32_t rank, const abi::SharedWindows& own) {
  const std::lock_guard lock(mutex_);
  windows_[rank] = own;
  shown_ |= std::uint32_t{1} << rank;
  changed_.notify_all();
}

const abi::SharedWindows* Cluster::windows(std::uint32_t rank) {
  if (rank >= most_blocks_of_cluster || (all_ >> rank & 1) == 0) return nullptr;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return (shown_ >> rank & 1) != 0 || has_given_up_; });
  return (shown_ >> rank & 1) != 0 ? &windows_[rank] : nullptr;
}

void Cluster::arrive(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  arrived_ |= std::uint32_t{1} << rank;
  meet_if_all_are_there();
}

// Blocks that have ended are not waited for, as on a GPU.
void Cluster::meet_if_all_are_there() {
  if (arrived_ == 0 || (arrived_ | ended_) != all_) return;
  arrived_ = 0;
  round_.fetch_add(1, std::memory_order_acq_rel);
  changed_.notify_all();
}

const char* Cluster::meet(std::uint64_t round) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_met(round) || has_given_up_; });
  return has_met(round) ? nullptr : "another block of the cluster has failed";
}

Fault run_in_clusters(Pieces& blocks, const ClusterShape& shape) { return Teams(blocks, shape).run(); }

void show_shared(const abi::SharedWindows* own) {
  if (current.cluster != nullptr) current.cluster->show(current.rank, *own);
}

const abi::SharedWindows* shared_of(std::uint32_t rank) {
  // Nothing with a destructor may be left here: a failed kernel is jumped out of.
  const abi::SharedWindows* const found = current.cluster != nullptr ? current.cluster->windows(rank) : nullptr;
  if (found == nullptr)
    fail_kernel(CUDA_ERROR_ILLEGAL_ADDRESS, "the shared memory of a block that the cluster does not have");
  return found;
}

void arrive_in_cluster() {
  if (current.cluster != nullptr) current.cluster->arrive(current.rank);
}

bool has_met_cluster(std::uint64_t round) { return current.cluster == nullptr || current.cluster->has_met(round); }

void meet_cluster(std::uint64_t round) {
  const char* why = current.cluster != nullptr ? current.cluster->meet(round) : nullptr;
  if (why != nullptr) fail_kernel(CUDA_ERROR_LAUNCH_FAILED, why);
}

}  // namespace aiocuda::emulator
