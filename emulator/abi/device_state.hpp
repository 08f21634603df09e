// What the emulated driver tells the emulated NVML of a device, without being initialised. Plain data, as the two are
// libraries of their own; both are built and installed together.
#pragma once
#include <cstdint>

namespace aiocuda::emulator::abi {

struct DeviceState {
  char name[96];
  unsigned char uuid[16];
  std::uint32_t pci_domain, pci_bus, pci_device;
  std::int32_t compute_capability_major, compute_capability_minor;
  std::int32_t multiprocessor_count;
  std::uint64_t total_bytes;
  std::uint64_t used_bytes;       // allocated in this process, or held by its pools
  std::uint32_t running_kernels;  // at this moment, of this process
  bool has_context;               // this process uses the device
  bool reaches_peers;             // kernels may use the memory of other devices
};

}  // namespace aiocuda::emulator::abi

extern "C" {
// The number of devices; -1 where the driver's settings make no sense.
int aiocuda_emulator_device_count();
// False where there is no such device.
bool aiocuda_emulator_device_state(int device, aiocuda::emulator::abi::DeviceState* state);
}
