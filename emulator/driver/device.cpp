// The emulated devices as the API describes them: identity, memory size, peers.
#include "device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "context.hpp"
#include "settings.hpp"

namespace aiocuda::emulator {
namespace {

std::array<std::atomic<int>, 64> moved;  // by how many places, each device

CUuuid uuid_of_hardware(int hardware) noexcept {
  static constexpr char prefix[] = "aiocuda-emu";
  CUuuid uuid{};
  std::memcpy(uuid.bytes, prefix, sizeof prefix - 1);
  uuid.bytes[15] = static_cast<char>(hardware);
  return uuid;
}

}  // namespace

int device_count() noexcept { return settings().devices; }
int multiprocessor_count() noexcept { return settings().threads; }
std::size_t device_memory_bytes() noexcept { return settings().memory_bytes; }
bool can_access_peers() noexcept { return settings().peer_access; }

int hardware_of(CUdevice device) noexcept { return moved[static_cast<std::size_t>(device)].load() + device; }

CUdevice device_of_hardware(int hardware) noexcept {
  CUdevice device = 0;
  while (device < device_count() - 1 && hardware_of(device) != hardware) ++device;
  return device;
}

int hardware_with_uuid(const CUuuid& uuid) noexcept {
  for (int hardware = 0; hardware < device_count(); ++hardware) {
    const CUuuid its = uuid_of_hardware(hardware);
    if (std::memcmp(its.bytes, uuid.bytes, sizeof its.bytes) == 0) return hardware;
  }
  return -1;
}

bool move_to_hardware(const std::vector<int>& hardware) noexcept {
  for (int each = 0; each < device_count(); ++each) {
    if (std::count(hardware.begin(), hardware.end(), each) != 1) return false;
  }
  for (CUdevice device = 0; device < device_count(); ++device)
    moved[static_cast<std::size_t>(device)].store(hardware[static_cast<std::size_t>(device)] - device);
  return true;
}

CUuuid device_uuid(CUdevice device) noexcept { return uuid_of_hardware(hardware_of(device)); }
unsigned pci_bus_of(CUdevice device) noexcept { return static_cast<unsigned>(hardware_of(device)) + 1; }

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

namespace {

constexpr std::size_t pci_bus_id_length = 13;  // "dddd:bb:dd.f" and its end, as the API documents

void format_pci_bus_id(char (&text)[32], CUdevice device) {
  std::snprintf(text, sizeof text, "0000:%02X:00.0", pci_bus_of(device));
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = check_initialised()) return error;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_device(ordinal)) return error;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = check_initialised()) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", device_name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device_uuid(device);
  return CUDA_SUCCESS;
}

extern "C" [[gnu::visibility("default")]] CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
#undef cuDeviceGetUuid
extern "C" [[gnu::visibility("default")]] CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device_memory_bytes();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  char id[32];
  format_pci_bus_id(id, device);
  if (static_cast<std::size_t>(length) < pci_bus_id_length) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  if (const CUresult error = check_initialised()) return error;
  if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  const bool full = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
  if (!full) {
    function = 0;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(text, "%x:%x.%x", &bus, &slot, &function) != 3) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (domain != 0 || slot != 0 || function != 0 || bus == 0 || bus > static_cast<unsigned>(device_count())) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = device_of_hardware(static_cast<int>(bus) - 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  if (const CUresult error = check_device(device)) return error;
  if (const CUresult error = check_device(peer)) return error;
  if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can_access = device != peer && can_access_peers();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  if (const CUresult error = check_device(device)) return error;
  if (const CUresult error = check_device(peer)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == peer) return CUDA_ERROR_INVALID_DEVICE;
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      *value = can_access_peers();
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = can_access_peers();
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    case 5:
      *value = 0;
      return CUDA_SUCCESS;  // only some native atomics: no, all of them
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (supported == nullptr || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}
