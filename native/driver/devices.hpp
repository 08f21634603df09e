// The devices that are open, and the binding of their contexts.
//
// Always true: `at` gives an open device; where it is not open yet, it is opened first. A device that `at` gave stays
// where it is. Guarded by the GIL.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "../dataflow/tick.hpp"
#include "captures.hpp"
#include "driver_now.hpp"
#include "executable_store.hpp"
#include "former_pools.hpp"
#include "guests.hpp"
#include "surroundings.hpp"
#include "table.hpp"

namespace aiocuda::driver {
using dataflow::StreamIndex;
using dataflow::Tick;

struct DeviceState {
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  std::uint64_t memory_bytes = 0;  // that it has
  StreamIndex default_stream = 0;
  int highest_priority = 0;            // of its streams, as CUDA counts: the least number. The lowest is 0
  std::optional<StreamIndex> aside{};  // for what must hold up no work: freeing what several streams used, and the like
  std::vector<std::optional<bool>> peers{};  // by ordinal: does this device reach the other's memory?
  bool writes_flags = true;                  // as far as is known: streams can write to memory
  bool has_written_flags = false;            // it is known
  ExecutableStore executables{};
};

class Devices {
 public:
  Devices(const Table& table, DriverNow& now, Surroundings& around) : table_(table), now_(now), around_(around) {}
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  bool is_open(std::int32_t ordinal) const {
    const auto slot = static_cast<std::size_t>(ordinal);
    return slot < devices_.size() && devices_[slot];
  }
  DeviceState& at(std::int32_t ordinal) {
    around_.require_usable();
    if (!is_open(ordinal)) [[unlikely]]
      around_.open(ordinal);
    return *devices_[static_cast<std::size_t>(ordinal)];
  }
  // It is open from here on: all that it needs is there.
  DeviceState& add(std::int32_t ordinal, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
                   StreamIndex default_stream, int highest_priority);
  // Memory is allocated from another pool from now on. The former one stays, until somebody says that it holds nothing.
  void set_pool(std::int32_t ordinal, CUmemoryPool pool);
  // Does a device reach the other's memory? Makes it so where it can be. Throws Refusal.
  bool is_peer(std::int32_t ordinal, std::int32_t other);

  const Table& table() const { return table_; }
  DriverNow& now() const { return now_; }
  Guests& guests() { return guests_; }
  FormerPools& former_pools() { return former_pools_; }
  // Null where the first device is not open.
  CUcontext first_context() const { return is_open(0) ? devices_.front()->context : nullptr; }
  bool is_over() const { return around_.is_over(); }
  void require_usable() const { around_.require_usable(); }

 private:
  const Table& table_;
  DriverNow& now_;
  Surroundings& around_;
  std::vector<std::unique_ptr<DeviceState>> devices_;  // by ordinal
  FormerPools former_pools_{table_};
  Guests guests_{*this};
};

// Binds contexts for the time of a submission, and puts back what the thread had. Until something is
// bound it calls nothing: work that touches no device needs no driver. A thread that had no context may keep the first
// device's, for CUDA's runtime uses that device in such a thread. It keeps no other: PyTorch would take it for the
// user's choice.
class ContextScope {
 public:
  explicit ContextScope(Devices& devices) : devices_(devices) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (bound_ != before_ && (before_ || bound_ != devices_.first_context())) devices_.table().cuCtxSetCurrent(before_);
  }
  void bind(std::int32_t device) {
    if (device == device_) return devices_.require_usable();  // a function of the program's may have forked since
    bind(devices_.at(device).context);
    device_ = device;
  }
  void bind(CUcontext context) {
    device_ = no_device;
    if (!asked_) {
      relaxed_.emplace(devices_.table());
      devices_.table().cuCtxGetCurrent(&before_);
      bound_ = before_;
      asked_ = true;
    }
    if (bound_ == context) return;
    devices_.table().cuCtxSetCurrent(context);
    bound_ = context;
  }

 private:
  Devices& devices_;
  static constexpr std::int32_t no_device = -1;
  bool asked_ = false;
  std::int32_t device_ = no_device;  // whose context was bound last, if it was bound as a device's
  std::optional<RelaxedCaptures> relaxed_;
  CUcontext before_ = nullptr, bound_ = nullptr;
};

}  // namespace aiocuda::driver
