// See grid.hpp.
#include "grid.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <vector>

#include "thread.hpp"

namespace aiocuda::emulator {
namespace {

class Grid {
 public:
  Grid(Pieces& blocks, std::uint64_t count, const std::optional<ClusterShape>& shape)
      : blocks_(blocks), count_(count), shape_(shape), live_(count), running_(count) {
    for (std::uint64_t each = 0; shape_ && each < shape_->clusters(); ++each)
      clusters_.push_back(std::make_unique<Cluster>(shape_->blocks_of_cluster()));
  }

  Fault run() {
    for (std::uint64_t block = 1; block < count_; ++block) {
      try {
        start_thread("cuda-grid", [this, block] { run(block); });
      } catch (const std::system_error&) {
        leave({CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "no thread for a block of a cooperative launch"});
        if (shape_) clusters_[shape_->place(block).cluster]->give_up();
        end();
      }
    }
    run(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
    return std::move(fault_);
  }

  // Why the calling block cannot go on; null where all have met.
  const char* meet() {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      blocks_.all_met();
      ++round_;
      changed_.notify_all();
      return nullptr;
    }
    changed_.wait(lock, [&] { return round_ != round || live_ < count_; });
    if (round_ != round) return nullptr;
    return fault_
               ? "another block of the grid has failed"
               : "the grid can never meet: a block of it has ended. Every thread of every block must come to the same "
                 "grid-wide synchronisation.";
  }

  static thread_local Grid* current;

 private:
  void run(std::uint64_t block) {
    current = this;
    if (shape_) {
      run_in_cluster(block);
    } else {
      auto one = [this, block] { blocks_.run(block, block + 1); };
      leave(run_guarded(one, &failed_));
    }
    current = nullptr;
    end();
  }

  // Blocks of the cluster may wait for the grid still: it must know first that this one has ended.
  void run_in_cluster(std::uint64_t block) {
    const auto [index, rank] = shape_->place(block);
    Cluster& cluster = *clusters_[index];
    Fault found = cluster.run(blocks_, rank, block, failed_);
    const auto has_failed = static_cast<bool>(found);
    leave(std::move(found));
    if (has_failed) cluster.give_up();
    cluster.end(rank);
  }

  void leave(Fault found) {
    const std::lock_guard lock(mutex_);
    if (found && !fault_) {
      fault_ = std::move(found);
      failed_.store(true, std::memory_order_release);
    }
    --live_;
    changed_.notify_all();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();  // under the mutex: who waits for the last thread then lets go of all this
  }

  Pieces& blocks_;
  const std::uint64_t count_;
  const std::optional<ClusterShape> shape_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t live_;         // blocks that have not ended
  std::uint64_t running_;      // their threads
  std::uint64_t arrived_ = 0;  // of this round
  std::uint64_t round_ = 0;
  Fault fault_;
  std::atomic<bool> failed_{false};  // for those who poll
};

thread_local Grid* Grid::current = nullptr;

}  // namespace

Fault run_together(Pieces& blocks, std::uint64_t count, const std::optional<ClusterShape>& clusters) {
  return Grid(blocks, count, clusters).run();
}

bool is_in_grid() { return Grid::current != nullptr; }

void meet_grid() {
  // Nothing with a destructor may be left here: a failed kernel is jumped out of.
  const char* why = Grid::current != nullptr ? Grid::current->meet()
                                             : "grid-wide synchronisation in a launch that is not cooperative";
  if (why != nullptr) fail_kernel(CUDA_ERROR_LAUNCH_FAILED, why);
}

}  // namespace aiocuda::emulator
