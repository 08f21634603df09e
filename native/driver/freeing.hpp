// Gives a block that is not kept back to the driver, on a thread that has no Python: the driver takes some 100 ms to
// unlock 1 GiB.
//
// Always true: a block that was handed over is nobody's, and is freed once. There is one at a time, and its thread ends
// with it. If that is stopped inside the driver at the process' end, it is left alone. One thread hands over, any may
// ask.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "table.hpp"

namespace aiocuda::driver {

class FreeingThread {
 public:
  using Free = CUresult (*)(const Table& table, std::uint64_t address);

  explicit FreeingThread(const Table& table) : shared_(std::make_shared<Shared>(table)) {}
  FreeingThread(const FreeingThread&) = delete;
  FreeingThread& operator=(const FreeingThread&) = delete;

  // Hands a block over, when none is at work. Its memory is of the context, or of all contexts. If there is no thread
  // to be had, it is freed now.
  void hand_over(CUcontext context, std::uint64_t address, Free free);
  bool is_at_work() const { return shared_->is_at_work.load(std::memory_order_acquire); }
  // Waits until what was handed over is freed.
  void finish();
  // The same, for some time. False: it is not.
  bool finish_within(std::chrono::milliseconds time);

 private:
  // The thread's as well: it may outlive the engine.
  struct Shared {
    explicit Shared(const Table& of) : table(of) {}

    const Table& table;
    std::mutex mutex;
    std::condition_variable ended;
    std::atomic<bool> is_at_work = false;
  };

  const std::shared_ptr<Shared> shared_;
};

}  // namespace aiocuda::driver
