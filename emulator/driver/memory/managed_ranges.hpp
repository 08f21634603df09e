// The advice and prefetches that a program has given for the parts of one managed allocation. They have no effect on a
// CPU, where one memory serves all. They are kept so that the program can ask for them. Always: the boundaries split
// the allocation into ranges with the same answers throughout.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "api.hpp"

namespace aiocuda::emulator::memory {

struct Place {
  CUmemLocationType type = CU_MEM_LOCATION_TYPE_INVALID;
  int id = CU_DEVICE_INVALID;
  bool operator==(const Place&) const = default;
};

struct RangeState {
  bool read_mostly = false;
  Place preferred;
  Place last_prefetch;
  std::set<CUdevice> accessed_by;  // CU_DEVICE_CPU for the host
};

class ManagedRanges {
 public:
  // Offsets are in bytes from the allocation's start; `size` is not 0.
  void change(std::size_t offset, std::size_t size, const std::function<void(RangeState&)>& how);
  // The answer that holds for all of the range; if its parts differ, the answer for none.
  RangeState common(std::size_t offset, std::size_t size) const;

 private:
  using Starts = std::map<std::size_t, RangeState>;
  Starts::iterator split(std::size_t offset);

  mutable std::mutex mutex_;
  Starts starts_{{0, RangeState{}}};
};

}  // namespace aiocuda::emulator::memory
