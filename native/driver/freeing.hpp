// Gives blocks that are not kept back to the driver, on a thread that has no Python. NVIDIA's driver first waits for
// the device, and then takes some 100 ms to unlock 1 GiB. That must hold up nobody who drops an array or submits.
//
// Always true: a block that was handed over is nobody's, and is freed once. The thread ends when nothing is left. If it
// is stopped inside the driver at the process' end, it is left alone. Any thread may call this.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

  // Hands a block over. Its memory is of the context, or of all contexts. If there is no thread to be had, it is freed
  // now, with whatever context is bound.
  void hand_over(CUcontext context, std::uint64_t address, Free free);
  // Waits until all that was handed over is freed.
  void finish();
  // The same, for some time. False: there is still some.
  bool finish_within(std::chrono::milliseconds time);

 private:
  struct Block {
    CUcontext context;
    std::uint64_t address;
    Free free;
  };
  // The thread's as well: it may outlive the engine.
  struct Shared {
    explicit Shared(const Table& of) : table(of) {}
    void run();

    const Table& table;
    std::mutex mutex;
    std::condition_variable ended;
    std::deque<Block> blocks;
    bool is_running = false;
  };

  const std::shared_ptr<Shared> shared_;
};

}  // namespace aiocuda::driver
