// Reads the settings; see settings.hpp. A value that makes no sense is an error that cuInit reports,
// never a silent default.
#include "settings.hpp"

#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

namespace aiocuda::emulator {
namespace {

constexpr int most_devices = 64;
constexpr int most_threads = 1024;
constexpr std::size_t least_memory = std::size_t{1} << 20;
constexpr std::size_t most_memory = std::size_t{1} << 40;

int available_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  const unsigned cores_of_machine = std::thread::hardware_concurrency();
  return cores_of_machine == 0 ? 1 : static_cast<int>(cores_of_machine);
}

bool is_set(const char* value) { return value != nullptr && *value != '\0'; }

bool parse_integer(const char* text, int lowest, int highest, int& value) {
  char* end = nullptr;
  errno = 0;
  const long parsed = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || parsed < lowest || parsed > highest) return false;
  value = static_cast<int>(parsed);
  return true;
}

bool parse_bytes(const char* text, std::size_t& value) {
  char* end = nullptr;
  errno = 0;
  if (*text < '0' || *text > '9') return false;
  const unsigned long long parsed = std::strtoull(text, &end, 10);
  unsigned shift = 0;
  switch (*end) {
    case 'K': case 'k': shift = 10; ++end; break;
    case 'M': case 'm': shift = 20; ++end; break;
    case 'G': case 'g': shift = 30; ++end; break;
    default: break;
  }
  if (*end != '\0' || errno != 0 || parsed > (most_memory >> shift)) return false;
  value = static_cast<std::size_t>(parsed) << shift;
  return value >= least_memory;
}

}  // namespace

Settings parse_settings(const char* devices, const char* memory, const char* threads) {
  Settings result;
  result.threads = available_cores();
  if (is_set(devices) && !parse_integer(devices, 0, most_devices, result.devices)) {
    result.error = std::string("AIOCUDA_EMULATED_DEVICES must be an integer from 0 to 64, found '") + devices + "'";
  } else if (is_set(memory) && !parse_bytes(memory, result.memory_bytes)) {
    result.error = std::string("AIOCUDA_EMULATED_MEMORY must be a number of bytes from 1M to 1024G, with an "
                               "optional suffix K, M or G, found '") + memory + "'";
  } else if (is_set(threads) && !parse_integer(threads, 1, most_threads, result.threads)) {
    result.error = std::string("AIOCUDA_EMULATED_THREADS must be an integer from 1 to 1024, found '") + threads + "'";
  }
  return result;
}

const Settings& settings() {
  static const Settings* const found =
      new Settings(parse_settings(std::getenv("AIOCUDA_EMULATED_DEVICES"), std::getenv("AIOCUDA_EMULATED_MEMORY"),
                                  std::getenv("AIOCUDA_EMULATED_THREADS")));
  return *found;
}

}  // namespace aiocuda::emulator
