// Guests: memory that other libraries take from the devices' memory pools by their own allocators.
//
// Always true: a guest is allocated in the order of the stream that its owner names. It is freed behind that stream and
// all streams that its owner said use it, or behind the one that its owner names then. A guest counts until the driver
// has its free. Nothing is allocated or freed in a capture. Any thread may call, without the GIL and whatever locks it
// holds: nothing here waits for Python, and no lock but `pools_` is held while the driver is called.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../dataflow/tick.hpp"
#include "table.hpp"

namespace aiocuda::driver {

class Devices;

class Guests {
 public:
  explicit Guests(Devices& devices) : devices_(devices) {}
  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;

  // Whom to tell that a device has more room, on any thread: its first stream names its line.
  void tell_of_room(std::function<void(dataflow::StreamIndex)> tell) { tell_of_room_ = std::move(tell); }

  // The device is open. A device that is not takes no guests.
  void open(std::int32_t device, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
            dataflow::StreamIndex first_stream);
  // Guests come from another pool from now on. When this returns, nobody allocates from the former one.
  void set_pool(std::int32_t device, CUmemoryPool pool);

  // The interpreter has ended. Nobody calls the driver from here on.
  void end() noexcept { has_ended_.store(true, std::memory_order_relaxed); }

  // The driver's answer; CUDA_ERROR_INVALID_DEVICE: the device is not open; CUDA_ERROR_DEINITIALIZED: nobody may call
  // the driver any more; one of those of captures: the stream is captured.
  CUresult allocate(std::int32_t device, std::uint64_t size_bytes, CUstream stream, CUdeviceptr& address);
  // Another stream uses the memory as well.
  void note_use(CUdeviceptr address, CUstream stream) noexcept;
  void free(CUdeviceptr address) noexcept;
  // Behind one stream alone, which its owner has put behind all who use it. The others may be gone.
  void free_behind(CUdeviceptr address, CUstream stream) noexcept;

  // The bytes that guests hold on a device: all that were allocated, and of those the freed ones.
  struct Account {
    std::uint64_t allocated_bytes = 0;
    std::shared_ptr<const std::atomic<std::uint64_t>> freed_bytes;

    std::uint64_t used_bytes() const { return allocated_bytes - freed_bytes->load(std::memory_order_acquire); }
  };
  Account account(std::int32_t device) const;

 private:
  struct Home {
    CUcontext context;
    CUmemoryPool pool;
    std::uint64_t memory_bytes;  // of the device
    dataflow::StreamIndex first_stream;
    CUstream aside = nullptr;  // frees what several streams used, so that this holds up none of them
    std::uint64_t allocated_bytes = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> freed_bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  struct Guest {
    CUdeviceptr address;
    std::uint64_t size_bytes;
    std::int32_t device;
    CUstream stream;
    std::vector<CUstream> users{};  // other streams
  };

  bool is_over() const;
  Home* find(std::int32_t device);                 // with the lock
  std::optional<Guest> take(CUdeviceptr address);  // it is known no more
  void free(Guest guest) noexcept;
  // False: not now.
  bool try_free(const Guest& guest) noexcept;
  CUresult free_aside(const Guest& guest);
  CUresult aside_of(std::int32_t device, CUstream& aside);
  // Frees what could not be freed before.
  void free_due() noexcept;

  Devices& devices_;
  std::atomic<bool> has_ended_{false};
  std::function<void(dataflow::StreamIndex)> tell_of_room_;
  std::shared_mutex pools_;  // shared while a pool is used; before `mutex_`
  mutable std::mutex mutex_;
  // With the lock:
  std::vector<std::optional<Home>> homes_;  // by device
  std::unordered_map<CUdeviceptr, Guest> guests_;
  std::deque<Guest> due_;  // that could not be freed yet, as a stream of theirs was captured
};

}  // namespace aiocuda::driver
