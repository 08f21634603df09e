// A pattern that is repeated over memory, as what a driver can do: it fills with 1, 2 or 4 bytes.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace aiocuda::dataflow {

// `rows` rows of `width` items each, the rows `pitch` bytes apart.
struct FillBlock {
  std::uint64_t offset = 0;
  std::uint32_t value = 0;
  std::uint32_t item_bytes = 1;
  std::uint64_t width = 0, rows = 1, pitch = 0;
};

// Calls `f(block)` until all bytes are filled. Patterns longer than 4 bytes that do not repeat within are filled a
// 4-byte column at a time.
template <class F>
void each_fill(const std::array<std::uint8_t, 16>& pattern, std::uint32_t pattern_bytes, std::uint64_t size_bytes, F&& f) {
  if (!pattern_bytes || !size_bytes) return;
  std::uint32_t bytes = pattern_bytes;
  const auto begin = pattern.begin();
  while (bytes > 1 && bytes % 2 == 0 && std::equal(begin, begin + bytes / 2, begin + bytes / 2)) bytes /= 2;
  std::array<std::uint32_t, 4> words{};
  std::memcpy(words.data(), pattern.data(), bytes);
  if (bytes <= 4) return f(FillBlock{0, words[0], bytes, size_bytes / bytes, 1, 0});
  for (std::uint32_t column = 0; column < bytes / 4; ++column) f(FillBlock{column * 4, words[column], 4, 1, size_bytes / bytes, bytes});
}

}  // namespace aiocuda::dataflow
