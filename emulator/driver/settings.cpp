// Reads the settings; see settings.hpp. A value that makes no sense is an error that cuInit reports,
// never a silent default.
#include "settings.hpp"

#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

namespace aiocuda::emulator {
namespace {

constexpr int most_devices = 64;
constexpr int most_threads = 1024;
constexpr int most_dropped_wait = 1000000;
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
    case 'K':
    case 'k':
      shift = 10;
      ++end;
      break;
    case 'M':
    case 'm':
      shift = 20;
      ++end;
      break;
    case 'G':
    case 'g':
      shift = 30;
      ++end;
      break;
    default:
      break;
  }
  if (*end != '\0' || errno != 0 || parsed > (most_memory >> shift)) return false;
  value = static_cast<std::size_t>(parsed) << shift;
  return value >= least_memory;
}

bool parse_seed(const char* text, std::optional<std::uint64_t>& value) {
  char* end = nullptr;
  errno = 0;
  if (*text < '0' || *text > '9') return false;
  const unsigned long long parsed = std::strtoull(text, &end, 10);
  value = parsed;
  return *end == '\0' && errno == 0;
}

bool parse_checks(std::string_view text, Checks& checks) {
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    bool* const check = name == "memory"  ? &checks.memory
                        : name == "races" ? &checks.races
                        : name == "init"  ? &checks.init
                        : name == "sync"  ? &checks.sync
                                          : nullptr;
    if (check == nullptr) return false;
    *check = true;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Settings parse_settings(const GivenSettings& given) {
  Settings result;
  result.threads = available_cores();
  int peer_access = 1;
  const auto complain = [&](const char* variable, const char* rule, const char* found) {
    if (result.error.empty()) result.error = std::string(variable) + " must be " + rule + ", found '" + found + "'";
  };
  if (is_set(given.devices) && !parse_integer(given.devices, 0, most_devices, result.devices)) {
    complain("AIOCUDA_EMULATED_DEVICES", "an integer from 0 to 64", given.devices);
  }
  if (is_set(given.memory) && !parse_bytes(given.memory, result.memory_bytes)) {
    complain("AIOCUDA_EMULATED_MEMORY", "a number of bytes from 1M to 1024G, with an optional suffix K, M or G",
             given.memory);
  }
  if (is_set(given.threads) && !parse_integer(given.threads, 1, most_threads, result.threads)) {
    complain("AIOCUDA_EMULATED_THREADS", "an integer from 1 to 1024", given.threads);
  }
  if (is_set(given.peer_access) && !parse_integer(given.peer_access, 0, 1, peer_access)) {
    complain("AIOCUDA_EMULATED_PEER_ACCESS", "0 or 1", given.peer_access);
  }
  if (is_set(given.check) && !parse_checks(given.check, result.checks)) {
    complain("AIOCUDA_EMULATOR_CHECK", "a list of 'memory', 'races', 'init' and 'sync', separated by commas",
             given.check);
  }
  if (is_set(given.shuffle) && !parse_seed(given.shuffle, result.shuffle_seed)) {
    complain("AIOCUDA_EMULATOR_SHUFFLE", "an unsigned integer of at most 64 bits", given.shuffle);
  }
  if (is_set(given.dropped_wait) && !parse_integer(given.dropped_wait, 1, most_dropped_wait, result.dropped_wait)) {
    complain("AIOCUDA_EMULATOR_DROP_WAIT", "an integer from 1 to 1000000", given.dropped_wait);
  }
  if (is_set(given.hold)) result.hold = given.hold;
  if (is_set(given.faults)) {
    if (auto plan = injection::parse_plan(given.faults, result.devices)) {
      result.faults = std::move(*plan);
    } else {
      complain("AIOCUDA_EMULATOR_FAULTS", injection::grammar, given.faults);
    }
  }
  result.peer_access = peer_access == 1;
  result.loads_eagerly = is_set(given.module_loading) && std::string_view(given.module_loading) == "EAGER";
  return result;
}

const Settings& settings() {
  static const Settings* const found =
      new Settings(parse_settings({std::getenv("AIOCUDA_EMULATED_DEVICES"), std::getenv("AIOCUDA_EMULATED_MEMORY"),
                                   std::getenv("AIOCUDA_EMULATED_THREADS"), std::getenv("AIOCUDA_EMULATED_PEER_ACCESS"),
                                   std::getenv("AIOCUDA_EMULATOR_CHECK"), std::getenv("AIOCUDA_EMULATOR_SHUFFLE"),
                                   std::getenv("AIOCUDA_EMULATOR_DROP_WAIT"), std::getenv("AIOCUDA_EMULATOR_HOLD"),
                                   std::getenv("AIOCUDA_EMULATOR_FAULTS"), std::getenv("CUDA_MODULE_LOADING")}));
  return *found;
}

}  // namespace aiocuda::emulator
