// See settings.hpp.
#include "settings.hpp"

#include <cstdlib>

namespace aiocuda::emulator::nvrtc {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.compiler = variable("AIOCUDA_CXX");
  settings.zig = variable("AIOCUDA_ZIG");
  const char* path = std::getenv("PATH");  // one that is empty names no directory
  settings.path = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  settings.cache_directory = variable("AIOCUDA_CACHE_DIR");
  if (settings.cache_directory.empty()) {
    const std::string base = variable("XDG_CACHE_HOME");
    const std::string home = variable("HOME");
    if (!base.empty()) settings.cache_directory = base + "/aiocuda";
    if (base.empty() && !home.empty()) settings.cache_directory = home + "/.cache/aiocuda";
  }
  settings.zig_cache = variable("ZIG_GLOBAL_CACHE_DIR");
  if (settings.zig_cache.empty() && !settings.cache_directory.empty())
    settings.zig_cache = settings.cache_directory + "/zig";
  // A directory of its own: the one that is named may be others' too.
  if (!settings.cache_directory.empty()) settings.cache_directory += "/modules";
  settings.checked = !variable("AIOCUDA_EMULATOR_CHECK").empty();
  settings.allows_host_code = variable("AIOCUDA_EMULATOR_HOST_CODE") == "1";
  settings.temporary_directory = variable("TMPDIR");
  if (settings.temporary_directory.empty()) settings.temporary_directory = "/tmp";
  return settings;
}

}  // namespace aiocuda::emulator::nvrtc
