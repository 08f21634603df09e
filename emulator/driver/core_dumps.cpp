// The settings of GPU core dumps. The emulator writes none: a process keeps what it sets, as CUDA does,
// but what would make the driver write a dump cannot be turned on.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "api.hpp"

using namespace aiocuda::emulator;

namespace {

constexpr std::size_t most_name_bytes = 1023;

struct CoreDumpSettings {
  std::mutex mutex;
  bool trigger_host = true;
  bool lightweight = false;
  int generation_flags = 0;
  std::string file;
  std::string pipe;
};

CoreDumpSettings& core_dump_settings() {
  static CoreDumpSettings* const settings = new CoreDumpSettings;
  return *settings;
}

template <typename Value>
CUresult get_value(Value stored, void* value, std::size_t* bytes) {
  if (value != nullptr) {
    if (*bytes < sizeof stored) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, &stored, sizeof stored);
  }
  *bytes = sizeof stored;
  return CUDA_SUCCESS;
}

CUresult get_name(const std::string& stored, void* value, std::size_t* bytes) {
  if (value != nullptr) {
    if (*bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t copied = std::min(*bytes - 1, stored.size());
    std::memcpy(value, stored.data(), copied);
    static_cast<char*>(value)[copied] = '\0';
  }
  *bytes = stored.size() + 1;
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult set_value(Value& stored, const void* value, std::size_t bytes) {
  if (bytes < sizeof stored) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&stored, value, sizeof stored);
  return CUDA_SUCCESS;
}

CUresult set_name(std::string& stored, const void* value, std::size_t bytes) {
  const auto* const text = static_cast<const char*>(value);
  const std::size_t length = strnlen(text, bytes);
  if (length > most_name_bytes) return CUDA_ERROR_INVALID_VALUE;
  stored.assign(text, length);
  return CUDA_SUCCESS;
}

// Settings that would make the driver write a dump may stay off.
CUresult keep_off(const void* value, std::size_t bytes) {
  bool on = false;
  if (const CUresult error = set_value(on, value, bytes)) return error;
  return on ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

}  // namespace

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attribute, void* value, std::size_t* bytes) {
  if (const CUresult error = check_initialised()) return error;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CoreDumpSettings& settings = core_dump_settings();
  const std::lock_guard lock(settings.mutex);
  switch (static_cast<int>(attribute)) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return get_value(false, value, bytes);
    case CU_COREDUMP_TRIGGER_HOST:
      return get_value(settings.trigger_host, value, bytes);
    case CU_COREDUMP_LIGHTWEIGHT:
      return get_value(settings.lightweight, value, bytes);
    case CU_COREDUMP_GENERATION_FLAGS:
      return get_value(settings.generation_flags, value, bytes);
    case CU_COREDUMP_FILE:
      return get_name(settings.file, value, bytes);
    case CU_COREDUMP_PIPE:
      return get_name(settings.pipe, value, bytes);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attribute, void* value, std::size_t* bytes) {
  if (const CUresult error = check_initialised()) return error;
  if (value == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CoreDumpSettings& settings = core_dump_settings();
  const std::lock_guard lock(settings.mutex);
  switch (static_cast<int>(attribute)) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return keep_off(value, *bytes);
    case CU_COREDUMP_TRIGGER_HOST:
      return set_value(settings.trigger_host, value, *bytes);
    case CU_COREDUMP_LIGHTWEIGHT:
      return set_value(settings.lightweight, value, *bytes);
    case CU_COREDUMP_GENERATION_FLAGS:
      return set_value(settings.generation_flags, value, *bytes);
    case CU_COREDUMP_FILE:
      return set_name(settings.file, value, *bytes);
    case CU_COREDUMP_PIPE:
      return set_name(settings.pipe, value, *bytes);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
