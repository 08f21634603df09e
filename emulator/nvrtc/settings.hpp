// The settings of the emulated NVRTC, from the environment. Nothing else here reads the environment.
#pragma once

#include <cstdint>
#include <string>

namespace aiocuda::emulator::nvrtc {

struct Settings {
  std::string compiler;           // AIOCUDA_CXX: a command, may have arguments; empty: look for one
  std::string zig;                // AIOCUDA_ZIG: the zig executable of the ziglang wheel; empty: look on PATH
  std::string path;               // PATH; the usual directories, if it is not set
  std::string cache_directory;    // AIOCUDA_CACHE_DIR, else XDG_CACHE_HOME/aiocuda, else ~/.cache/aiocuda; may be empty
  std::string zig_cache;          // ZIG_GLOBAL_CACHE_DIR, else beside our own cache; may be empty
  bool checked = false;           // AIOCUDA_EMULATOR_CHECK is not empty; the driver reads which checks it names
  bool allows_host_code = false;  // AIOCUDA_EMULATOR_HOST_CODE=1: host headers and host functions, for debugging
  std::string temporary_directory;  // TMPDIR, else /tmp
  std::uint64_t cache_limit_bytes = 512ull << 20;
};

// Read anew at every call: a process may change its environment between compilations.
Settings read_settings();

}  // namespace aiocuda::emulator::nvrtc
