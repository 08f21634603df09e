// Holds back the other threads of a context while a free waits for the device, as NVIDIA's driver does.
//
// Held back are launches, fills, copies, records of events, allocations, new streams and events, and loads of modules.
// Queries, cuStreamWaitEvent, cuStreamWriteValue32 and cuMemAllocAsync go on. Both were measured on an H100, with
// driver 580. A program that stands still there stands still here, too.
#pragma once
#include <atomic>

namespace aiocuda::emulator {

class Gate {
 public:
  // The gate is closed while one of these lives.
  class Closed {
   public:
    explicit Closed(Gate& gate) noexcept : gate_(gate) { gate_.closings_.fetch_add(1); }
    ~Closed() {
      if (gate_.closings_.fetch_sub(1) == 1) gate_.closings_.notify_all();
    }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
  };

  bool is_closed() const noexcept { return closings_.load(std::memory_order_acquire) != 0; }

  // Waits until nobody holds the gate closed.
  void pass() const noexcept {
    while (const int closings = closings_.load(std::memory_order_acquire)) closings_.wait(closings);
  }

 private:
  std::atomic<int> closings_{0};
};

}  // namespace aiocuda::emulator
