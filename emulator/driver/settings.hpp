// The driver's settings. The only place that reads the environment; read once, at the first use.
#pragma once
#include <cstddef>
#include <string>

namespace aiocuda::emulator {

struct Settings {
  int devices = 1;                                // AIOCUDA_EMULATED_DEVICES, 0..64
  std::size_t memory_bytes = std::size_t{8} << 30;  // AIOCUDA_EMULATED_MEMORY, of each device
  int threads = 1;                                // AIOCUDA_EMULATED_THREADS, for a kernel's blocks
  std::string error;                              // empty, or what is wrong with which variable
};

// Reads one setting of each kind out of the values given (null: not set). Pure, for the tests.
Settings parse_settings(const char* devices, const char* memory, const char* threads);

const Settings& settings();

}  // namespace aiocuda::emulator
