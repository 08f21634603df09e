// The functions of NVML that the emulated devices have an answer to. What a CPU has not (clocks, fans, links, an
// InfoROM) is NVML_ERROR_NOT_SUPPORTED, as on a device without it.
#include <sched.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "devices.hpp"

namespace aiocuda::emulator::nvml {
namespace {

std::atomic<int> initialised{0};

// The CUDA version that the emulated driver reports, and the branch of NVIDIA's driver that came with it.
constexpr int cuda_version = 13050;
constexpr char driver_version[] = "580.0";
constexpr char nvml_version[] = "13.580.0";
constexpr char driver_branch[] = "aiocuda_emulated";

constexpr unsigned not_of_a_part = 0xffffffffu;  // of MIG's instances
constexpr unsigned unknown_architecture = 0xffffffffu;
constexpr int topology_system = 50;
constexpr unsigned any_event = 0;

Result find_by(const char* text, Device** device, std::string (*name)(const abi::DeviceState&), std::size_t skip) {
  if (!is_initialised()) return error_uninitialized;
  if (text == nullptr || device == nullptr) return error_invalid_argument;
  abi::DeviceState state;
  for (int each = 0; aiocuda_emulator_device_state(each, &state); ++each) {
    const std::string whole = name(state);
    if (strcasecmp(text, whole.c_str()) != 0 && strcasecmp(text, whole.c_str() + skip) != 0) continue;
    *device = handle_of(each);
    return success;
  }
  return error_not_found;
}

Result text_of(const Device* device, char* to, unsigned length, std::string (*text)(const abi::DeviceState&)) {
  abi::DeviceState state;
  const Result result = state_of(device, state);
  return result == success ? give(text(state), to, length) : result;
}

template <class T>
Result answer(const Device* device, T* to, T value) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (to == nullptr) return error_invalid_argument;
  *to = value;
  return success;
}

Result refuse_change(const Device* device) {
  abi::DeviceState state;
  const Result result = state_of(device, state);
  return result == success ? error_no_permission : result;
}

Result sleep_without_event(unsigned timeout_ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms));
  return error_timeout;
}

// Every device, to a caller who first asks how many there are.
Result give_devices(unsigned* count, Device** devices, const Device* except) {
  if (count == nullptr) return error_invalid_argument;
  unsigned given = 0;
  const int there_are = aiocuda_emulator_device_count();
  for (int each = 0; each < there_are; ++each) {
    if (handle_of(each) == except) continue;
    if (devices != nullptr && given < *count) devices[given] = handle_of(each);
    ++given;
  }
  *count = given;
  return success;
}

}  // namespace

bool is_initialised() noexcept { return initialised.load() > 0; }
int not_supported() noexcept { return is_initialised() ? error_not_supported : error_uninitialized; }

}  // namespace aiocuda::emulator::nvml

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::nvml;

#define NVML_API [[gnu::visibility("default")]]

extern "C" {

// ---- the library

NVML_API int nvmlInitWithFlags(unsigned) {
  if (aiocuda_emulator_device_count() < 0) return error_driver_not_loaded;
  ++initialised;
  return success;
}
NVML_API int nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML_API int nvmlInit() { return nvmlInitWithFlags(0); }

NVML_API int nvmlShutdown() {
  for (int users = initialised.load(); users > 0;) {
    if (initialised.compare_exchange_weak(users, users - 1)) return success;
  }
  return error_uninitialized;
}

NVML_API const char* nvmlErrorString(int result) {
  switch (result) {
    case success:
      return "The operation was successful";
    case error_uninitialized:
      return "NVML was not initialized with nvmlInit()";
    case error_invalid_argument:
      return "An argument is invalid";
    case error_not_supported:
      return "The emulated device does not have this";
    case error_no_permission:
      return "The emulated device does not let this be changed";
    case error_not_found:
      return "There is nothing of this name";
    case error_insufficient_size:
      return "The space given is too small";
    case error_driver_not_loaded:
      return "The emulated driver's settings make no sense; cuInit says why";
    case error_timeout:
      return "The time given has passed";
    case error_argument_version_mismatch:
      return "The version of an argument is not known";
    default:
      return "An error that the emulated NVML does not know";
  }
}

NVML_API int nvmlSystemGetDriverVersion(char* to, unsigned length) {
  return is_initialised() ? give(driver_version, to, length) : error_uninitialized;
}
NVML_API int nvmlSystemGetNVMLVersion(char* to, unsigned length) { return give(nvml_version, to, length); }
NVML_API int nvmlSystemGetCudaDriverVersion(int* version) {
  if (version == nullptr) return error_invalid_argument;
  *version = cuda_version;
  return success;
}
NVML_API int nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }
NVML_API int nvmlSystemGetDriverBranch(DriverBranch* to, unsigned length) {
  if (!is_initialised()) return error_uninitialized;
  if (to == nullptr) return error_invalid_argument;
  if (to->version != version_of<DriverBranch>(1)) return error_argument_version_mismatch;
  return give(driver_branch, to->branch, length < sizeof to->branch ? length : sizeof to->branch);
}

NVML_API int nvmlSystemGetProcessName(unsigned pid, char* to, unsigned length) {
  if (!is_initialised()) return error_uninitialized;
  if (to == nullptr || length == 0) return error_invalid_argument;
  std::ifstream command("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::string name;
  if (!command || !std::getline(command, name, '\0')) return error_not_found;
  return give(name.substr(0, length - 1), to, length);
}

NVML_API int nvmlSystemGetTopologyGpuSet(unsigned, unsigned* count, Device** devices) {
  return is_initialised() ? give_devices(count, devices, nullptr) : error_uninitialized;
}

// ---- which devices there are

NVML_API int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!is_initialised()) return error_uninitialized;
  if (count == nullptr) return error_invalid_argument;
  *count = static_cast<unsigned>(aiocuda_emulator_device_count());
  return success;
}
NVML_API int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (!is_initialised()) return error_uninitialized;
  if (device == nullptr || index >= static_cast<unsigned>(aiocuda_emulator_device_count()))
    return error_invalid_argument;
  *device = handle_of(static_cast<int>(index));
  return success;
}
NVML_API int nvmlDeviceGetHandleByIndex(unsigned index, Device** device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}
// Also without the prefix, as CUDA tells it.
NVML_API int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  return find_by(uuid, device, &uuid_text, std::strlen("GPU-"));
}
NVML_API int nvmlDeviceGetHandleByUUIDV(const Uuid* uuid, Device** device) {
  if (!is_initialised()) return error_uninitialized;
  if (uuid == nullptr || device == nullptr) return error_invalid_argument;
  if (uuid->version != version_of<Uuid>(1)) return error_argument_version_mismatch;
  if (uuid->form == UuidForm::text) {
    const std::string text(uuid->text, strnlen(uuid->text, sizeof uuid->text));
    return nvmlDeviceGetHandleByUUID(text.c_str(), device);
  }
  if (uuid->form != UuidForm::bytes) return error_invalid_argument;
  abi::DeviceState state;
  for (int each = 0; aiocuda_emulator_device_state(each, &state); ++each) {
    if (std::memcmp(state.uuid, uuid->bytes, sizeof uuid->bytes) != 0) continue;
    *device = handle_of(each);
    return success;
  }
  return error_not_found;
}
// The domain may be told in four digits, as CUDA does, or in eight.
NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Device** device) {
  return find_by(bus, device, &pci_bus_text, 4);
}
NVML_API int nvmlDeviceGetHandleByPciBusId(const char* bus, Device** device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}

// ---- what a device is

NVML_API int nvmlDeviceGetIndex(const Device* device, unsigned* index) {
  return answer(device, index, static_cast<unsigned>(ordinal_of(device).value_or(0)));
}
NVML_API int nvmlDeviceGetMinorNumber(const Device* device, unsigned* number) {
  return nvmlDeviceGetIndex(device, number);
}
NVML_API int nvmlDeviceGetModuleId(const Device* device, unsigned* id) { return answer(device, id, 0u); }
NVML_API int nvmlDeviceGetName(const Device* device, char* to, unsigned length) {
  return text_of(device, to, length, [](const abi::DeviceState& state) { return std::string(state.name); });
}
NVML_API int nvmlDeviceGetUUID(const Device* device, char* to, unsigned length) {
  return text_of(device, to, length, &uuid_text);
}
NVML_API int nvmlDeviceGetBrand(const Device* device, int* brand) { return answer(device, brand, 0); }
NVML_API int nvmlDeviceGetArchitecture(const Device* device, unsigned* architecture) {
  return answer(device, architecture, unknown_architecture);
}
NVML_API int nvmlDeviceGetCudaComputeCapability(const Device* device, int* major, int* minor) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (major == nullptr || minor == nullptr) return error_invalid_argument;
  *major = state.compute_capability_major;
  *minor = state.compute_capability_minor;
  return success;
}
NVML_API int nvmlDeviceGetAttributes_v2(const Device* device, DeviceAttributes* attributes) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (attributes == nullptr) return error_invalid_argument;
  *attributes = {};
  attributes->multiprocessor_count = static_cast<unsigned>(state.multiprocessor_count);
  attributes->memory_size_mb = state.total_bytes >> 20;
  return success;
}
NVML_API int nvmlDeviceIsMigDeviceHandle(const Device* device, unsigned* is_mig) { return answer(device, is_mig, 0u); }
NVML_API int nvmlDeviceGetNumFans(const Device* device, unsigned* count) { return answer(device, count, 0u); }
NVML_API int nvmlDeviceGetDisplayMode(const Device* device, int* mode) { return answer(device, mode, 0); }
NVML_API int nvmlDeviceGetDisplayActive(const Device* device, int* mode) { return answer(device, mode, 0); }
NVML_API int nvmlDeviceGetComputeMode(const Device* device, int* mode) { return answer(device, mode, 0); }
NVML_API int nvmlDeviceSetComputeMode(const Device* device, int) { return refuse_change(device); }
NVML_API int nvmlDeviceGetVirtualizationMode(const Device* device, int* mode) { return answer(device, mode, 0); }
NVML_API int nvmlDeviceGetCapabilities(const Device* device, Capabilities* to) {
  if (to == nullptr) return is_initialised() ? error_invalid_argument : error_uninitialized;
  if (to->version != version_of<Capabilities>(1)) return error_argument_version_mismatch;
  return answer(device, &to->mask, 0u);
}
NVML_API int nvmlDeviceGetC2cModeInfoV(const Device* device, C2cMode* mode) { return answer(device, mode, C2cMode{0}); }
// The driver stays as long as the process, and nothing changes that.
NVML_API int nvmlDeviceGetPersistenceMode(const Device* device, int* mode) { return answer(device, mode, 1); }
NVML_API int nvmlDeviceSetPersistenceMode(const Device* device, int) { return refuse_change(device); }

// ---- its place: a bus with no link

NVML_API int nvmlDeviceGetPciInfo_v3(const Device* device, PciInfo* to) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (to == nullptr) return error_invalid_argument;
  *to = {};
  to->domain = state.pci_domain;
  to->bus = state.pci_bus;
  to->device = state.pci_device;
  const std::string text = pci_bus_text(state);
  std::snprintf(to->bus_id, sizeof to->bus_id, "%s", text.c_str());
  std::snprintf(to->bus_id_legacy, sizeof to->bus_id_legacy, "%s", text.c_str() + 4);
  return success;
}
NVML_API int nvmlDeviceGetPciInfoExt(const Device* device, PciInfoExt* to) {
  if (to == nullptr) return is_initialised() ? error_invalid_argument : error_uninitialized;
  if (to->version != version_of<PciInfoExt>(1)) return error_argument_version_mismatch;
  PciInfo plain;
  if (const int result = nvmlDeviceGetPciInfo_v3(device, &plain)) return result;
  const unsigned version = to->version;
  *to = {};
  to->version = version;
  to->domain = plain.domain;
  to->bus = plain.bus;
  to->device = plain.device;
  std::memcpy(to->bus_id, plain.bus_id, sizeof to->bus_id);
  return success;
}
NVML_API int nvmlDeviceGetMaxPcieLinkGeneration(const Device* device, unsigned* to) { return answer(device, to, 0u); }
NVML_API int nvmlDeviceGetGpuMaxPcieLinkGeneration(const Device* device, unsigned* to) {
  return answer(device, to, 0u);
}
NVML_API int nvmlDeviceGetMaxPcieLinkWidth(const Device* device, unsigned* to) { return answer(device, to, 0u); }
NVML_API int nvmlDeviceGetCurrPcieLinkGeneration(const Device* device, unsigned* to) { return answer(device, to, 0u); }
NVML_API int nvmlDeviceGetCurrPcieLinkWidth(const Device* device, unsigned* to) { return answer(device, to, 0u); }
NVML_API int nvmlDeviceGetPcieReplayCounter(const Device* device, unsigned* to) { return answer(device, to, 0u); }

NVML_API int nvmlDeviceGetTopologyCommonAncestor(const Device* device, const Device* other, int* level) {
  abi::DeviceState state;
  if (const Result result = state_of(other, state)) return result;
  return answer(device, level, topology_system);
}
NVML_API int nvmlDeviceGetTopologyNearestGpus(const Device* device, int level, unsigned* count, Device** devices) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (level == topology_system) return give_devices(count, devices, device);
  if (count == nullptr) return error_invalid_argument;
  *count = 0;
  return success;
}
NVML_API int nvmlDeviceGetP2PStatus(const Device* device, const Device* other, int, int* status) {
  abi::DeviceState state;
  if (const Result result = state_of(other, state)) return result;
  constexpr int supported = 0, not_supported_by_both = 5;
  return answer(device, status, state.reaches_peers ? supported : not_supported_by_both);
}

// The cores that the process may use, and the memory beside them.
NVML_API int nvmlDeviceGetCpuAffinityWithinScope(const Device* device, unsigned words, unsigned long* set, unsigned) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (set == nullptr || words == 0) return error_invalid_argument;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return error_not_supported;
  constexpr unsigned bits = 8 * sizeof *set;
  for (unsigned word = 0; word < words; ++word) {
    set[word] = 0;
    for (unsigned bit = 0; bit < bits && word * bits + bit < CPU_SETSIZE; ++bit) {
      if (CPU_ISSET(word * bits + bit, &usable)) set[word] |= 1ul << bit;
    }
  }
  return success;
}
NVML_API int nvmlDeviceGetCpuAffinity(const Device* device, unsigned words, unsigned long* set) {
  return nvmlDeviceGetCpuAffinityWithinScope(device, words, set, 0);
}
NVML_API int nvmlDeviceGetMemoryAffinity(const Device* device, unsigned words, unsigned long* set, unsigned) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (set == nullptr || words == 0) return error_invalid_argument;
  std::memset(set, 0, words * sizeof *set);
  std::ifstream online("/sys/devices/system/node/online");  // such as 0-1,3
  for (unsigned first = 0, last = 0; online >> first; online.ignore(1)) {
    last = first;
    if (online.peek() == '-') {
      online.ignore(1);
      online >> last;
    }
    for (unsigned node = first; node <= last && node / (8 * sizeof *set) < words; ++node) {
      set[node / (8 * sizeof *set)] |= 1ul << node % (8 * sizeof *set);
    }
  }
  return success;
}

// ---- what it does now

NVML_API int nvmlDeviceGetMemoryInfo(const Device* device, Memory* memory) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (memory == nullptr) return error_invalid_argument;
  *memory = {state.total_bytes, state.total_bytes - state.used_bytes, state.used_bytes};
  return success;
}
NVML_API int nvmlDeviceGetMemoryInfo_v2(const Device* device, Memory2* memory) {
  if (memory == nullptr) return is_initialised() ? error_invalid_argument : error_uninitialized;
  if (memory->version != version_of<Memory2>(2)) return error_argument_version_mismatch;
  Memory plain;
  if (const int result = nvmlDeviceGetMemoryInfo(device, &plain)) return result;
  *memory = {memory->version, plain.total, 0, plain.free, plain.used};
  return success;
}

// A running kernel is taken to use its memory.
NVML_API int nvmlDeviceGetUtilizationRates(const Device* device, Utilization* utilization) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (utilization == nullptr) return error_invalid_argument;
  const unsigned percent = watch_kernels(ordinal_of(device).value_or(0));
  *utilization = {percent, percent};
  return success;
}

// A device is emulated within one process, which sees itself alone.
NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(const Device* device, unsigned* count, ProcessInfo* processes) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (count == nullptr) return error_invalid_argument;
  const unsigned room = *count;
  *count = state.has_context ? 1 : 0;
  if (*count == 0) return success;
  if (room == 0 || processes == nullptr) return error_insufficient_size;
  processes[0] = {static_cast<unsigned>(getpid()), state.used_bytes, not_of_a_part, not_of_a_part};
  return success;
}

NVML_API int nvmlDeviceGetFieldValues(const Device* device, int count, FieldValue* values) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  if (count < 0 || (count > 0 && values == nullptr)) return error_invalid_argument;
  for (int each = 0; each < count; ++each) values[each].result = error_not_supported;
  return success;
}

// ---- events: a program may wait for them, and none ever comes

NVML_API int nvmlDeviceGetSupportedEventTypes(const Device* device, unsigned long long* types) {
  return answer(device, types, static_cast<unsigned long long>(any_event));
}
NVML_API int nvmlEventSetCreate(void** set) {
  static char place;
  if (!is_initialised()) return error_uninitialized;
  if (set == nullptr) return error_invalid_argument;
  *set = &place;
  return success;
}
NVML_API int nvmlEventSetFree(void*) { return is_initialised() ? success : error_uninitialized; }
NVML_API int nvmlDeviceRegisterEvents(const Device* device, unsigned long long, void* set) {
  abi::DeviceState state;
  if (const Result result = state_of(device, state)) return result;
  return set != nullptr ? success : error_invalid_argument;
}
NVML_API int nvmlEventSetWait_v2(void* set, void*, unsigned timeout_ms) {
  if (!is_initialised()) return error_uninitialized;
  return set != nullptr ? sleep_without_event(timeout_ms) : error_invalid_argument;
}
NVML_API int nvmlSystemEventSetCreate(SystemEventSet* request) {
  if (request == nullptr) return is_initialised() ? error_invalid_argument : error_uninitialized;
  return nvmlEventSetCreate(&request->set);
}
NVML_API int nvmlSystemEventSetFree(SystemEventSet*) { return is_initialised() ? success : error_uninitialized; }
NVML_API int nvmlSystemRegisterEvents(void* request) {
  if (!is_initialised()) return error_uninitialized;
  return request != nullptr ? success : error_invalid_argument;
}
NVML_API int nvmlSystemEventSetWait(SystemEventWait* request) {
  if (request == nullptr) return is_initialised() ? error_invalid_argument : error_uninitialized;
  request->event_count = 0;
  return nvmlEventSetWait_v2(request->set, nullptr, request->timeout_ms);
}
}
