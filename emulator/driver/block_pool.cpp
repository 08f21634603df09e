// The pool; see block_pool.hpp. A batch lives on its caller's stack: it is listed while it has pieces
// to give away, and the caller does not return before the last helper has let go of it.
#include "block_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "settings.hpp"
#include "shuffle.hpp"
#include "spin.hpp"
#include "thread.hpp"

namespace aiocuda::emulator {
namespace {

// Chunks per thread: enough that uneven blocks even out, few enough that taking one costs nothing.
constexpr std::uint64_t chunks_per_thread = 8;

struct Batch {
  Batch(Pieces& pieces_, std::uint64_t count_, std::uint64_t chunk_, int priority_)
      : pieces(pieces_),
        count(count_),
        chunk(chunk_),
        chunks((count_ + chunk_ - 1) / chunk_),
        priority(priority_),
        order(ChunkOrder::of_next_launch(chunks)) {}

  Pieces& pieces;
  const std::uint64_t count;
  const std::uint64_t chunk;
  const std::uint64_t chunks;
  const int priority;
  const ChunkOrder order;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stopped{false};
  std::atomic<int> helpers{0};  // changed under the pool's mutex
  std::mutex fault_mutex;
  Fault fault;

  bool has_more() const noexcept {
    return !stopped.load(std::memory_order_relaxed) && next.load(std::memory_order_relaxed) < chunks;
  }

  void work() {
    while (has_more()) {
      const std::uint64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= chunks) return;
      const std::uint64_t first = order[index] * chunk;
      auto run = [this, first] { pieces.run(first, std::min(count, first + chunk)); };
      if (Fault found = run_guarded(run, &stopped)) {
        const std::lock_guard lock(fault_mutex);
        if (!fault) fault = std::move(found);
        stopped.store(true, std::memory_order_release);
      }
    }
  }
};

class BlockPool {
 public:
  BlockPool() {
    for (int each = 1; each < settings().threads; ++each) start_thread("cuda-blocks", [this] { help(); });
  }

  void run(Batch& batch) {
    {
      const std::lock_guard lock(mutex_);
      // Behind those of the same priority; a lower number is a higher priority.
      const auto place = std::upper_bound(batches_.begin(), batches_.end(), &batch,
                                          [](const Batch* a, const Batch* b) { return a->priority < b->priority; });
      batches_.insert(place, &batch);
      if (parked_ > 0) work_ready_.notify_all();
    }
    batch.work();
    {
      const std::lock_guard lock(mutex_);
      batches_.erase(std::find(batches_.begin(), batches_.end(), &batch));
    }
    if (spin_until([&] { return batch.helpers.load(std::memory_order_acquire) == 0; }, spin_for_an_end)) {
      // A helper's last touch of the batch is under the mutex: it must be over, too.
      const std::lock_guard lock(mutex_);
      return;
    }
    std::unique_lock lock(mutex_);
    helper_left_.wait(lock, [&] { return batch.helpers.load(std::memory_order_relaxed) == 0; });
  }

 private:
  void help() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found =
          std::find_if(batches_.begin(), batches_.end(), [](const Batch* each) { return each->has_more(); });
      if (found == batches_.end()) {
        ++parked_;
        work_ready_.wait(lock);
        --parked_;
        continue;
      }
      Batch& batch = **found;
      batch.helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      batch.work();
      lock.lock();
      batch.helpers.fetch_sub(1, std::memory_order_release);
      helper_left_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable helper_left_;
  std::vector<Batch*> batches_;
  int parked_ = 0;
};

BlockPool& block_pool() {
  static BlockPool* const pool = new BlockPool;
  return *pool;
}

}  // namespace

Fault run_pieces(Pieces& pieces, std::uint64_t count, int priority) {
  if (count == 0) return {};
  const auto threads = static_cast<std::uint64_t>(settings().threads);
  const std::uint64_t chunk = std::max<std::uint64_t>(1, count / (threads * chunks_per_thread));
  const bool in_one = count == 1 || (threads == 1 && !settings().shuffle_seed);
  Batch batch(pieces, count, in_one ? count : chunk, priority);
  if (batch.chunk == count) {
    batch.work();
  } else {
    block_pool().run(batch);
  }
  return std::move(batch.fault);
}

}  // namespace aiocuda::emulator
