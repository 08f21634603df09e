// Which process something belongs to, and whether that one still lives.
#pragma once
#include <cstdint>

namespace aiocuda::emulator {

struct ProcessIdentity {
  std::int32_t id = 0;
  std::uint64_t started = 0;  // the system's ticks since it booted: ids are used again
  bool operator==(const ProcessIdentity&) const = default;
  bool is_alive() const noexcept;
};

ProcessIdentity this_process() noexcept;

}  // namespace aiocuda::emulator
