// Addresses as messages and pictures show them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace aiocuda::emulator {

inline std::string hexadecimal(std::uintptr_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<std::size_t>(value));
  return text;
}

}  // namespace aiocuda::emulator
