// How an operation touches bytes, and when two such touches need an order between them.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "abi/module_abi.hpp"

namespace aiocuda::emulator::checking {

using abi::AccessKind;
inline constexpr std::size_t access_kinds = 4;

// The kinds (a bit each) that race with this one. Atomic and volatile accesses are how operations that
// run at the same time talk to one another, so two of those never do.
constexpr unsigned conflicts_of(AccessKind kind) noexcept {
  constexpr auto bit = [](AccessKind each) { return 1u << each; };
  switch (kind) {
    case abi::access_read:
      return bit(abi::access_write) | bit(abi::access_atomic_write);
    case abi::access_write:
      return bit(abi::access_read) | bit(abi::access_write) | bit(abi::access_atomic_read) |
             bit(abi::access_atomic_write);
    case abi::access_atomic_read:
      return bit(abi::access_write);
    case abi::access_atomic_write:
      return bit(abi::access_read) | bit(abi::access_write);
  }
  return 0;
}

constexpr bool conflict(AccessKind one, AccessKind other) noexcept { return (conflicts_of(one) >> other & 1) != 0; }

// Whatever races with `weaker` races with `stronger`.
constexpr bool covers(AccessKind stronger, AccessKind weaker) noexcept {
  return (conflicts_of(weaker) & ~conflicts_of(stronger)) == 0;
}

constexpr bool is_write(AccessKind kind) noexcept {
  return kind == abi::access_write || kind == abi::access_atomic_write;
}

struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;  // exclusive
  AccessKind kind;
  bool ends_the_past = false;  // an allocation or a free: what was done with the bytes before matters no more
};
using Accesses = std::vector<Access>;

}  // namespace aiocuda::emulator::checking
