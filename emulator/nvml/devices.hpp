// The emulated devices as NVML's handles: the address of a device's place in a table that never changes.
#pragma once
#include <optional>
#include <string>

#include "abi/device_state.hpp"
#include "nvml_types.hpp"

namespace aiocuda::emulator::nvml {

struct Device;  // opaque: nvmlDevice_t points at one

// Between nvmlInit and the last nvmlShutdown; every other function asks.
bool is_initialised() noexcept;

Device* handle_of(int ordinal) noexcept;
// The ordinal of a live handle; nothing where it is none.
std::optional<int> ordinal_of(const Device* device) noexcept;

// The state of a device: UNINITIALIZED or INVALID_ARGUMENT where there is none to tell.
Result state_of(const Device* device, abi::DeviceState& state) noexcept;

std::string uuid_text(const abi::DeviceState& state);     // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
std::string pci_bus_text(const abi::DeviceState& state);  // "dddddddd:bb:dd.0"

// Percent of the time in which kernels of this process run on a device, looked at for some milliseconds. Blocks as
// long.
unsigned watch_kernels(int ordinal) noexcept;

// Copies a text to where a caller wants it; INSUFFICIENT_SIZE where it does not fit.
Result give(const std::string& text, char* to, unsigned length) noexcept;

}  // namespace aiocuda::emulator::nvml
