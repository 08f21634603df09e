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
  settings.path = variable("PATH");
  if (settings.path.empty()) settings.path = "/usr/local/bin:/usr/bin:/bin";
  settings.cache_directory = variable("AIOCUDA_CACHE_DIR");
  if (settings.cache_directory.empty()) {
    const std::string base = variable("XDG_CACHE_HOME");
    const std::string home = variable("HOME");
    if (!base.empty()) settings.cache_directory = base + "/aiocuda";
    if (base.empty() && !home.empty()) settings.cache_directory = home + "/.cache/aiocuda";
  }
  // A directory of its own: the one that is named may be others' too.
  if (!settings.cache_directory.empty()) settings.cache_directory += "/modules";
  settings.checked = !variable("AIOCUDA_EMULATOR_CHECK").empty();
  settings.allows_host_code = variable("AIOCUDA_EMULATOR_HOST_CODE") == "1";
  settings.temporary_directory = variable("TMPDIR");
  if (settings.temporary_directory.empty()) settings.temporary_directory = "/tmp";
  return settings;
}

}  // namespace aiocuda::emulator::nvrtc
