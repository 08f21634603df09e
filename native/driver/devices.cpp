// Devices: see devices.hpp.
#include "devices.hpp"

#include <utility>

namespace aiocuda::driver {

DeviceState& Devices::add(std::int32_t ordinal, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
                          StreamIndex default_stream, int highest_priority) {
  const auto slot = static_cast<std::size_t>(ordinal);
  if (devices_.size() <= slot) devices_.resize(slot + 1);
  if (!devices_[slot])
    devices_[slot] =
        std::make_unique<DeviceState>(DeviceState{context, pool, memory_bytes, default_stream, highest_priority});
  guests_.open(ordinal, context, pool, memory_bytes, default_stream);
  return *devices_[slot];
}

void Devices::set_pool(std::int32_t ordinal, CUmemoryPool pool) {
  former_pools_.add(ordinal, std::exchange(at(ordinal).pool, pool));
  guests_.set_pool(ordinal, pool);
  // Other devices were let into the former pool alone: each is asked again when it is next to reach this one's memory.
  const auto slot = static_cast<std::size_t>(ordinal);
  for (auto& device : devices_)
    if (device && device->peers.size() > slot) device->peers[slot].reset();
}

bool Devices::is_peer(std::int32_t ordinal, std::int32_t other) {
  DeviceState& here = at(ordinal);
  DeviceState& there = at(other);
  const auto slot = static_cast<std::size_t>(other);
  if (here.peers.size() <= slot) here.peers.resize(slot + 1);
  if (here.peers[slot]) return *here.peers[slot];
  const RelaxedCaptures relaxed(table_);
  CUdevice device_here = 0, device_there = 0;
  int is_possible = 0;
  check(table_.cuDeviceGet(&device_here, ordinal), "cuDeviceGet");
  check(table_.cuDeviceGet(&device_there, other), "cuDeviceGet");
  check(table_.cuDeviceCanAccessPeer(&is_possible, device_here, device_there), "cuDeviceCanAccessPeer");
  if (is_possible) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    is_possible = table_.cuMemPoolSetAccess(there.pool, &access, 1) == CUDA_SUCCESS;
  }
  here.peers[slot] = is_possible != 0;
  return is_possible != 0;
}

}  // namespace aiocuda::driver
