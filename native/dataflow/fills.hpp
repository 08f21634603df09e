// A pattern that is repeated over memory, as what a driver can do: it fills with 1, 2 or 4 bytes, in rows. Knows
// neither Python nor CUDA.
//
// Always true: every byte of the region is set, and none beside it; a block's items lie on multiples of their size.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "region.hpp"

namespace aiocuda::dataflow {

// The value of each item of an array.
struct Pattern {
  std::array<std::uint8_t, 16> bytes{};
  std::uint8_t size = 0;  // 0: they are left as they are

  // How many bytes of it are repeated within.
  std::uint32_t part() const {
    std::uint32_t part = size;
    const auto begin = bytes.begin();
    while (part > 1 && part % 2 == 0 && std::equal(begin, begin + part / 2, begin + part / 2)) part /= 2;
    return part;
  }
};

// `rows` rows of `width` items each, the rows `pitch` bytes apart.
struct FillBlock {
  std::uint64_t offset = 0;
  std::uint32_t value = 0;
  std::uint32_t item_bytes = 1;
  std::uint64_t width = 0, rows = 1, pitch = 0;
};

// Would a fill be a call for each row and more? Patterns longer than 4 bytes that do not repeat within are filled a
// 4-byte column at a time, and a call has one step from item to item.
inline bool is_fill_of_rows(const Pattern& pattern, const Region& region) {
  const std::uint32_t part = pattern.part();
  return part > 4 && !region.axes.empty() && region.run > part;
}

// Calls `f(block)` until all bytes of a region are filled. `base`: the address of what its offsets count from.
template <class F>
void each_fill(const Pattern& pattern, const Region& region, std::uint64_t base, F&& f) {
  if (!pattern.size || !region.run) return;
  const auto run = static_cast<std::uint64_t>(region.run), begin = static_cast<std::uint64_t>(region.begin);
  const std::uint32_t part = pattern.part();
  std::uint64_t steps = base + begin;
  for (const Region::Axis& axis : region.axes) steps |= static_cast<std::uint64_t>(axis.stride);
  std::uint32_t item = std::min(part, 4u);
  while (item > 1 && (steps % item || part % item)) item /= 2;
  FillBlock block{begin, 0, item, run / item, 1, 0};
  std::vector<Region::Axis> axes = region.axes;
  if (item < part) {
    block.width = 1;
    if (run > part) axes.push_back({static_cast<std::int64_t>(run / part), part});
  }
  // The most steps there are in one direction are one call's.
  const auto longest = std::max_element(
      axes.begin(), axes.end(), [](const Region::Axis& a, const Region::Axis& b) { return a.extent < b.extent; });
  if (longest != axes.end()) {
    block.rows = static_cast<std::uint64_t>(longest->extent);
    block.pitch = static_cast<std::uint64_t>(longest->stride);
    axes.erase(longest);
  }
  const Region others{region.begin, 1, std::move(axes)};
  others.each_piece([&](Span at) {
    for (std::uint32_t column = 0; column < part; column += item) {
      block.offset = at.begin + column;
      block.value = 0;
      std::memcpy(&block.value, pattern.bytes.data() + column, item);
      f(block);
    }
  });
}

}  // namespace aiocuda::dataflow
