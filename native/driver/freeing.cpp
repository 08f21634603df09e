// Blocks that go back to the driver: see freeing.hpp.
#include "freeing.hpp"

#include <system_error>
#include <thread>

#include "captures.hpp"

namespace aiocuda::driver {

void FreeingThread::hand_over(CUcontext context, std::uint64_t address, Free free) {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->blocks.push_back({context, address, free});
    if (shared_->is_running) return;
    try {
      std::thread([shared = shared_] { shared->run(); }).detach();
      shared_->is_running = true;
      return;
    } catch (const std::system_error&) {
      shared_->blocks.pop_back();
    }
  }
  free(shared_->table, address);
}

// What the driver answers concerns nobody: where it refuses, the context is broken, and the memory lost with it.
void FreeingThread::Shared::run() {
  std::unique_lock lock(mutex);
  while (!blocks.empty()) {
    const Block block = blocks.front();
    blocks.pop_front();
    lock.unlock();
    {
      const RelaxedCaptures relaxed(table);
      table.cuCtxSetCurrent(block.context);
      block.free(table, block.address);
    }
    lock.lock();
  }
  is_running = false;
  ended.notify_all();
}

void FreeingThread::finish() {
  std::unique_lock lock(shared_->mutex);
  shared_->ended.wait(lock, [&] { return !shared_->is_running; });
}

bool FreeingThread::finish_within(std::chrono::milliseconds time) {
  std::unique_lock lock(shared_->mutex);
  return shared_->ended.wait_for(lock, time, [&] { return !shared_->is_running; });
}

}  // namespace aiocuda::driver
