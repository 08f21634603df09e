// The driver's settings. The only place that reads the environment; read once, at the first use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "injection.hpp"

namespace aiocuda::emulator {

// What AIOCUDA_EMULATOR_CHECK names.
struct Checks {
  bool memory = false;  // accesses outside of what a kernel may use
  bool races = false;   // between operations, and between the threads of a launch
  bool init = false;    // reads of memory that nobody has written
  bool sync = false;    // barriers and warp operations that are used wrongly
  bool any() const noexcept { return memory || races || init || sync; }
};

struct Settings {
  int devices = 1;                                  // AIOCUDA_EMULATED_DEVICES, 0..64
  std::size_t memory_bytes = std::size_t{8} << 30;  // AIOCUDA_EMULATED_MEMORY, of each device
  int threads = 1;                                  // AIOCUDA_EMULATED_THREADS, for a kernel's blocks
  bool peer_access = true;                          // AIOCUDA_EMULATED_PEER_ACCESS, between any two devices
  Checks checks;                                    // AIOCUDA_EMULATOR_CHECK
  std::optional<std::uint64_t> shuffle_seed;        // AIOCUDA_EMULATOR_SHUFFLE
  int dropped_wait = 0;                             // AIOCUDA_EMULATOR_DROP_WAIT, from 1; 0: none
  std::string hold;                                 // AIOCUDA_EMULATOR_HOLD, a directory; empty: nothing is held
  injection::Plan faults;                           // AIOCUDA_EMULATOR_FAULTS
  bool loads_eagerly = false;                       // CUDA_MODULE_LOADING, CUDA's own variable
  std::string error;                                // empty, or what is wrong with which variable
};

// The variables' values; null where one is not set.
struct GivenSettings {
  const char* devices = nullptr;
  const char* memory = nullptr;
  const char* threads = nullptr;
  const char* peer_access = nullptr;
  const char* check = nullptr;
  const char* shuffle = nullptr;
  const char* dropped_wait = nullptr;
  const char* hold = nullptr;
  const char* faults = nullptr;
  const char* module_loading = nullptr;
};

// Reads the settings out of the values given. Pure, for the tests.
Settings parse_settings(const GivenSettings& given);

const Settings& settings();

}  // namespace aiocuda::emulator
