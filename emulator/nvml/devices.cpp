// See devices.hpp.
#include "devices.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace aiocuda::emulator::nvml {
namespace {

constexpr int most_devices = 64;
char places[most_devices];

}  // namespace

Device* handle_of(int ordinal) noexcept { return reinterpret_cast<Device*>(&places[ordinal]); }

std::optional<int> ordinal_of(const Device* device) noexcept {
  const int count = aiocuda_emulator_device_count();
  for (int each = 0; each < count && each < most_devices; ++each) {
    if (handle_of(each) == device) return each;
  }
  return std::nullopt;
}

Result state_of(const Device* device, abi::DeviceState& state) noexcept {
  if (!is_initialised()) return error_uninitialized;
  const std::optional<int> ordinal = ordinal_of(device);
  return ordinal && aiocuda_emulator_device_state(*ordinal, &state) ? success : error_invalid_argument;
}

std::string uuid_text(const abi::DeviceState& state) {
  std::string text = "GPU";
  char digits[3];
  for (int each = 0; each < 16; ++each) {
    if (each == 0 || each == 4 || each == 6 || each == 8 || each == 10) text += '-';
    std::snprintf(digits, sizeof digits, "%02x", state.uuid[each]);
    text += digits;
  }
  return text;
}

std::string pci_bus_text(const abi::DeviceState& state) {
  char text[32];
  std::snprintf(text, sizeof text, "%08X:%02X:%02X.0", state.pci_domain, state.pci_bus, state.pci_device);
  return text;
}

unsigned watch_kernels(int ordinal) noexcept {
  constexpr unsigned looks = 25;
  constexpr std::chrono::microseconds between{800};
  unsigned running = 0;
  for (unsigned each = 0; each < looks; ++each) {
    if (each > 0) std::this_thread::sleep_for(between);
    abi::DeviceState state;
    if (aiocuda_emulator_device_state(ordinal, &state) && state.running_kernels > 0) ++running;
  }
  return running * 100 / looks;
}

Result give(const std::string& text, char* to, unsigned length) noexcept {
  if (to == nullptr) return error_invalid_argument;
  if (text.size() >= length) return error_insufficient_size;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

}  // namespace aiocuda::emulator::nvml
