// Copies between arrays, which need not lie in one piece: what may be copied, and as which blocks of rows; and what may
// be filled.
#pragma once
#include <cstdint>
#include <vector>

#include "access.hpp"
#include "copy_block.hpp"
#include "fills.hpp"

namespace aiocuda::dataflow {

inline bool is_same_place(const Array& array, const Array& other) {
  return array.buffer.get() == other.buffer.get() && array.offset == other.offset && array.strides == other.strides;
}

inline void check_copy(const Array& destination, const Array& source) {
  auto where = [](const char* which) { return [which] { return std::string("copy: the ") + which; }; };
  check_usable(destination, true, where("destination"));
  check_usable(source, false, where("source"));
  for (const Array* array : {&destination, &source})
    if (array->is_partition())
      raise(error_types.argument_type, "copy: " + describe(*array) + " was given; unpartition() it first");
  if (destination.dtype != source.dtype || destination.shape != source.shape)
    raise(error_types.argument_value, "copy: destination and source differ: " + describe(destination) + " and " +
                                          describe(source) + "; give both the same shape and dtype");
  if (destination.buffer.get() != source.buffer.get() || is_same_place(destination, source)) return;
  if (overlap(destination.region(), source.region()))
    raise(error_types.argument_value,
          "copy: destination and source are parts of one array and overlap, which has no defined "
          "result; copy the source with dup() first");
}

inline void check_fill(const Array& array, const Pattern& pattern) {
  check_usable(array, true, [] { return std::string("fill: the destination"); });
  if (array.is_partition())
    raise(error_types.argument_type, "fill: " + describe(array) + " was given; unpartition() it first");
  if (pattern.size != dtypes[array.dtype].size_bytes)
    raise(error_types.argument_value,
          "fill: an item of " + std::to_string(pattern.size) + " bytes was given for " + describe(array));
  if (array.is_contiguous()) return;
  // Rows that lie upon one another, but not item upon item, as another library's may.
  const Region region = array.region();
  for (std::size_t axis = 0; axis < array.shape.size(); ++axis)
    if (array.shape[axis] > 1 && array.strides[axis] < region.run && array.strides[axis] % pattern.size)
      raise(error_types.argument_value,
            "fill: " + describe(array) + " has items that lie partly upon one another, which has no defined result");
}

// Calls `f(block)` until all of `from` is copied to `to`: arrays of the same shape and dtype, not empty.
template <class F>
void each_block(const Array& to, const Array& from, F&& f) {
  struct Axis {
    std::uint64_t extent, to_stride, from_stride;
  };
  std::vector<Axis> axes;
  for (std::size_t axis = 0; axis < to.shape.size(); ++axis) {
    if (to.shape[axis] == 1) continue;
    const Axis next{static_cast<std::uint64_t>(to.shape[axis]), static_cast<std::uint64_t>(to.stride(axis)),
                    static_cast<std::uint64_t>(from.stride(axis))};
    // Two axes are one where the outer steps over just what the inner covers, on both sides.
    if (!axes.empty() && axes.back().to_stride == next.extent * next.to_stride &&
        axes.back().from_stride == next.extent * next.from_stride) {
      axes.back() = {axes.back().extent * next.extent, next.to_stride, next.from_stride};
    } else {
      axes.push_back(next);
    }
  }
  CopyBlock block{to.address(), from.address(), dtypes[to.dtype].size_bytes, 1, 0, 0};
  if (!axes.empty() && axes.back().to_stride == block.width && axes.back().from_stride == block.width) {
    block.width *= axes.back().extent;
    axes.pop_back();
  }
  if (!axes.empty()) {
    block.rows = axes.back().extent;
    block.to_pitch = axes.back().to_stride;
    block.from_pitch = axes.back().from_stride;
    axes.pop_back();
  }
  std::uint64_t blocks = 1;
  for (const Axis& axis : axes) blocks *= axis.extent;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    CopyBlock at = block;
    std::uint64_t rest = i;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      at.to += rest % axis->extent * axis->to_stride;
      at.from += rest % axis->extent * axis->from_stride;
      rest /= axis->extent;
    }
    f(at);
  }
}

}  // namespace aiocuda::dataflow
