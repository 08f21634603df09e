// See monitoring.hpp and abi/device_state.hpp.
#include "monitoring.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "abi/device_state.hpp"
#include "checkpoint/checkpoints.hpp"
#include "context.hpp"
#include "device.hpp"
#include "memory/memory.hpp"
#include "settings.hpp"

namespace aiocuda::emulator::monitoring {
namespace {

// Each on a cache line of its own: the streams of different devices never share one.
struct alignas(64) Counter {
  std::atomic<std::uint32_t> value{0};
};

std::atomic<std::uint32_t>& running(CUdevice device) noexcept {
  static std::array<Counter, 64> of_devices;
  return of_devices[static_cast<std::size_t>(device)].value;
}

}  // namespace

RunningKernel::RunningKernel(CUdevice device) noexcept : device_(device) {
  running(device_).fetch_add(1, std::memory_order_relaxed);
}
RunningKernel::~RunningKernel() { running(device_).fetch_sub(1, std::memory_order_relaxed); }

}  // namespace aiocuda::emulator::monitoring

using namespace aiocuda::emulator;

extern "C" [[gnu::visibility("default")]] int aiocuda_emulator_device_count() {
  return settings().error.empty() ? device_count() : -1;
}

extern "C" [[gnu::visibility("default")]] bool aiocuda_emulator_device_state(int hardware, abi::DeviceState* state) {
  if (state == nullptr || hardware < 0 || hardware >= aiocuda_emulator_device_count()) return false;
  const CUdevice device = device_of_hardware(hardware);
  *state = {};
  std::snprintf(state->name, sizeof state->name, "%s", device_name);
  const CUuuid uuid = device_uuid(device);
  std::memcpy(state->uuid, uuid.bytes, sizeof state->uuid);
  state->pci_bus = pci_bus_of(device);
  state->compute_capability_major = limits::compute_capability_major;
  state->compute_capability_minor = limits::compute_capability_minor;
  state->multiprocessor_count = multiprocessor_count();
  const memory::Usage usage = memory::usage(device);
  state->total_bytes = usage.total_bytes;
  const bool is_used = !checkpoint::has_left_devices();
  state->used_bytes = is_used ? usage.used_bytes : 0;
  state->running_kernels = monitoring::running(device).load(std::memory_order_relaxed);
  state->has_context =
      is_used && !contexts().find_if([&](const Context& context) { return context.device() == device; }).empty();
  state->reaches_peers = can_access_peers();
  return true;
}
