// Blocks that go back to the driver: see freeing.hpp.
#include "freeing.hpp"

#include <system_error>
#include <thread>

#include "captures.hpp"

namespace aiocuda::driver {

// What the driver answers concerns nobody: where it refuses, the context is broken, and the memory lost with it.
void FreeingThread::hand_over(CUcontext context, std::uint64_t address, Free free) {
  auto work = [shared = shared_, context, address, free] {
    {
      const RelaxedCaptures relaxed(shared->table);
      CUcontext before = nullptr;  // of the caller, if there is no thread to be had
      shared->table.cuCtxGetCurrent(&before);
      shared->table.cuCtxSetCurrent(context);
      free(shared->table, address);
      shared->table.cuCtxSetCurrent(before);
    }
    const std::scoped_lock lock(shared->mutex);
    shared->is_at_work.store(false, std::memory_order_release);
    shared->ended.notify_all();
  };
  shared_->is_at_work.store(true, std::memory_order_release);
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {
    work();
  }
}

void FreeingThread::finish() {
  std::unique_lock lock(shared_->mutex);
  shared_->ended.wait(lock, [&] { return !is_at_work(); });
}

bool FreeingThread::finish_within(std::chrono::milliseconds time) {
  std::unique_lock lock(shared_->mutex);
  return shared_->ended.wait_for(lock, time, [&] { return !is_at_work(); });
}

}  // namespace aiocuda::driver
