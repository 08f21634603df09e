// See grid.hpp.
#include "grid.hpp"

#include <condition_variable>
#include <mutex>
#include <system_error>

#include "thread.hpp"

namespace aiocuda::emulator {
namespace {

class Grid {
 public:
  Grid(Pieces& blocks, std::uint64_t count) : blocks_(blocks), count_(count), live_(count) {}

  Fault run() {
    for (std::uint64_t block = 1; block < count_; ++block) {
      try {
        start_thread("cuda-grid", [this, block] { run(block); });
      } catch (const std::system_error&) {
        leave({CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "no thread for a block of a cooperative launch"});
      }
    }
    run(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return live_ == 0; });
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
    auto one = [this, block] { blocks_.run(block, block + 1); };
    Fault found = run_guarded(one);
    current = nullptr;
    leave(std::move(found));
  }

  void leave(Fault found) {
    const std::lock_guard lock(mutex_);
    if (found && !fault_) fault_ = std::move(found);
    --live_;
    changed_.notify_all();  // under the mutex: who waits for the last block then lets go of all this
  }

  Pieces& blocks_;
  const std::uint64_t count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t live_;         // blocks that have not ended
  std::uint64_t arrived_ = 0;  // of this round
  std::uint64_t round_ = 0;
  Fault fault_;
};

thread_local Grid* Grid::current = nullptr;

}  // namespace

Fault run_together(Pieces& blocks, std::uint64_t count) { return Grid(blocks, count).run(); }

bool is_in_grid() { return Grid::current != nullptr; }

void meet_grid() {
  // Nothing with a destructor may be left here: a failed kernel is jumped out of.
  const char* why = Grid::current != nullptr ? Grid::current->meet()
                                             : "grid-wide synchronisation in a launch that is not cooperative";
  if (why != nullptr) fail_kernel(CUDA_ERROR_LAUNCH_FAILED, why);
}

}  // namespace aiocuda::emulator
