// Room for executables in the driver's stores: where it is missing, and when it is made (see executable_store.hpp).
//
// Always true: room is made by somebody who has the right to submit, on a device that has done all that was submitted
// here, and while no calls are held back. Other threads have the GIL meanwhile. Where the driver refuses, its store
// stays as it is, and nobody asks again before the next executable. Guarded by the GIL and the right to submit.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "devices.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class GraphRoom {
 public:
  GraphRoom(Devices& devices, Streams& streams, Surroundings& around)
      : devices_(devices), streams_(streams), around_(around) {}
  GraphRoom(const GraphRoom&) = delete;
  GraphRoom& operator=(const GraphRoom&) = delete;

  // An executable will take so many places on each device, by ordinal. Makes room for it and more on those that are
  // idle. Throws Refusal on a broken context.
  void prepare(std::span<const std::uint64_t> places);
  // An executable has taken them. Where few are left, room is made when the device comes to rest.
  void take(std::span<const std::uint64_t> places);

  // Is a device to get room when it comes to rest?
  bool is_missing() const { return !missing_.empty(); }
  // Makes it on those devices that are at rest now.
  void make_where_idle() noexcept;

 private:
  bool make(std::int32_t device, std::uint64_t places);
  bool enlarge(CUcontext context, std::uint64_t places) const;

  Devices& devices_;
  Streams& streams_;
  Surroundings& around_;
  std::vector<std::int32_t> missing_;  // the devices, each once
};

}  // namespace aiocuda::driver
