// The bytes that a strided array lies in, and whether two arrays have one in common. Knows neither Python nor CUDA.
//
// Always true: the answer is exact, however many pieces there are. Two that are cut alike, such as columns of one
// matrix, are compared in a few steps; others in as many as one of them has pieces within the other's reach.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ranges.hpp"

namespace aiocuda::dataflow {

struct Region {
  struct Axis {
    std::int64_t extent, stride;  // of more than one, in bytes, longer than what is within

    bool operator==(const Axis&) const = default;
  };
  std::int64_t begin = 0;
  std::int64_t run = 0;      // bytes of a piece; 0: there is none
  std::vector<Axis> axes{};  // from the longest stride to the shortest

  bool operator==(const Region&) const = default;

  // Another axis of an array, of one item or more; they may come in any order.
  void add(std::int64_t extent, std::int64_t stride) {
    if (extent > 1 && stride > 0) axes.push_back({extent, stride});
  }
  // After all axes: items that touch are one piece.
  void join() {
    std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
    for (; !axes.empty() && axes.back().stride <= run; axes.pop_back())
      run += (axes.back().extent - 1) * axes.back().stride;
  }

  std::uint64_t pieces() const {
    std::uint64_t count = 1;
    for (const Axis& axis : axes) count *= static_cast<std::uint64_t>(axis.extent);
    return count;
  }
  template <class F>
  void each_piece(F&& f) const {
    const std::uint64_t count = pieces();
    for (std::uint64_t piece = 0; piece < count; ++piece) {
      std::int64_t at = begin;
      std::uint64_t rest = piece;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        const auto extent = static_cast<std::uint64_t>(axis->extent);
        at += static_cast<std::int64_t>(rest % extent) * axis->stride;
        rest /= extent;
      }
      f(Span{static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(at + run)});
    }
  }
};

namespace detail {

// A region's part: its bytes at some place of the outer axes.
struct Within {
  std::int64_t begin;
  const Region& region;
  std::size_t axis;  // the first that is left

  bool is_piece() const { return axis == region.axes.size(); }
  const Region::Axis& outer() const { return region.axes[axis]; }
  std::int64_t length() const {
    std::int64_t bytes = region.run;
    for (std::size_t i = axis; i < region.axes.size(); ++i)
      bytes += (region.axes[i].extent - 1) * region.axes[i].stride;
    return bytes;
  }
  Within at(std::int64_t index) const { return {begin + index * outer().stride, region, axis + 1}; }
};

inline std::int64_t floor_divided(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

// Calls `f(i)`, until one is true, for all i of low to high where `moved`, moved by i strides, reaches into `fixed`.
template <class F>
bool any_step(const Within& moved, const Within& fixed, std::int64_t stride, std::int64_t low, std::int64_t high,
              F&& f) {
  const std::int64_t distance = fixed.begin - moved.begin;
  low = std::max(low, floor_divided(distance - moved.length(), stride) + 1);
  high = std::min(high, floor_divided(distance + fixed.length() - 1, stride));
  for (std::int64_t i = low; i <= high; ++i)
    if (f(i)) return true;
  return false;
}

inline bool overlap(const Within& a, const Within& b) {
  if (a.begin >= b.begin + b.length() || b.begin >= a.begin + a.length()) return false;
  if (a.is_piece() && b.is_piece()) return true;
  if (!a.is_piece() && !b.is_piece() && a.outer().stride == b.outer().stride) {
    // How far apart the steps are is all that matters.
    const std::int64_t stride = a.outer().stride;
    const Within first = a.at(0), other = b.at(0);
    return any_step(first, other, stride, 1 - b.outer().extent, a.outer().extent - 1, [&](std::int64_t i) {
      return overlap({first.begin + i * stride, first.region, first.axis}, other);
    });
  }
  const bool is_a_cut = !a.is_piece() && (b.is_piece() || a.outer().stride > b.outer().stride);
  const Within &cut = is_a_cut ? a : b, &whole = is_a_cut ? b : a;
  return any_step(cut.at(0), whole, cut.outer().stride, 0, cut.outer().extent - 1,
                  [&](std::int64_t i) { return overlap(cut.at(i), whole); });
}

}  // namespace detail

inline bool overlap(const Region& a, const Region& b) {
  if (a.axes.empty() && b.axes.empty()) return a.run && b.run && a.begin < b.begin + b.run && b.begin < a.begin + a.run;
  return a.run && b.run && detail::overlap({a.begin, a, 0}, {b.begin, b, 0});
}

}  // namespace aiocuda::dataflow
