// Read from /proc, where a process that has ended and was not waited for is a zombie.
#include "process_identity.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace aiocuda::emulator {
namespace {

// When the process started; 0 where it has ended.
std::uint64_t start_of(std::int32_t id) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", id);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 1024> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  if (bytes <= 0) return 0;
  // The second field is the command in parentheses, which may hold anything.
  const char* field = std::strrchr(text.data(), ')');
  if (field == nullptr || field[1] == '\0') return 0;
  field += 2;
  if (*field == 'Z' || *field == 'X') return 0;
  for (int number = 3; number < 22; ++number) {
    field = std::strchr(field, ' ');
    if (field == nullptr) return 0;
    ++field;
  }
  return std::strtoull(field, nullptr, 10);
}

}  // namespace

bool ProcessIdentity::is_alive() const noexcept { return started != 0 && start_of(id) == started; }

ProcessIdentity this_process() noexcept {
  static const ProcessIdentity self = [] {
    const std::int32_t id = ::getpid();
    return ProcessIdentity{id, start_of(id)};
  }();
  return self;
}

}  // namespace aiocuda::emulator
