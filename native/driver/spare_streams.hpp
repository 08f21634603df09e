// Streams of ours that nobody uses.
//
// The driver may wait for all work of a device before it has made another stream. So a few are kept, to be used again.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "driver_now.hpp"

namespace aiocuda::driver {

class SpareStreams {
 public:
  SpareStreams(const Table& table, const DriverNow& now) : table_(table), now_(now) {}

  // One with nothing on it, of no special priority. In the device's context. Throws Refusal.
  CUstream take(std::int32_t device) {
    std::vector<CUstream>& kept = kept_[device];
    if (kept.empty()) return make(0);
    const CUstream last = kept.back();
    kept.pop_back();
    return last;
  }
  CUstream make(int priority) const {
    CUstream made = nullptr;
    check(table_.cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority), "cuStreamCreateWithPriority");
    return made;
  }
  // One from `take`, whose handle nobody else has.
  void give_back(CUstream taken, std::int32_t device, CUcontext context) {
    std::vector<CUstream>& kept = kept_[device];
    // It may wait for another library's event, or have none of its work done on a broken context.
    if (kept.size() < most && now_.query(taken, context) == CUDA_SUCCESS)
      kept.push_back(taken);
    else
      now_.destroy(taken);
  }

  static constexpr std::size_t most = 32;  // of a device

 private:
  const Table& table_;
  const DriverNow& now_;
  std::map<std::int32_t, std::vector<CUstream>> kept_;
};

}  // namespace aiocuda::driver
