// Host memory of any strides, as the bytes of its items in C order. It packs them into a piece of page-locked memory,
// and unpacks them from one. Knows neither CUDA nor Python.
//
// Always true: a part is any range of those bytes, so parts can be copied by several threads at once.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace aiocuda::staging {

class HostLayout {
 public:
  struct Axis {
    std::int64_t extent, stride;  // in bytes; a stride may be negative or 0
  };

  HostLayout() = default;
  // `strides` in bytes, one for each extent; an empty array has no bytes.
  HostLayout(void* address, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
             std::uint64_t item_bytes)
      : first_(static_cast<std::byte*>(address)), run_bytes_(item_bytes), size_bytes_(item_bytes) {
    for (const std::int64_t extent : shape) size_bytes_ *= static_cast<std::uint64_t>(extent);
    if (size_bytes_ == 0) return;
    std::int64_t low = 0, high = static_cast<std::int64_t>(item_bytes);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      const std::int64_t reach = (shape[axis] - 1) * strides[axis];
      (reach < 0 ? low : high) += reach;
      // Two axes are one if the outer one steps over just what the inner one covers.
      if (!axes_.empty() && axes_.back().stride == shape[axis] * strides[axis]) {
        axes_.back() = {axes_.back().extent * shape[axis], strides[axis]};
      } else {
        axes_.push_back({shape[axis], strides[axis]});
      }
    }
    begin_ = reinterpret_cast<std::uint64_t>(first_) + static_cast<std::uint64_t>(low);
    end_ = reinterpret_cast<std::uint64_t>(first_) + static_cast<std::uint64_t>(high);
    if (!axes_.empty() && axes_.back().stride == static_cast<std::int64_t>(run_bytes_)) {
      run_bytes_ *= static_cast<std::uint64_t>(axes_.back().extent);
      axes_.pop_back();
    }
  }

  std::uint64_t size_bytes() const { return size_bytes_; }
  // The addresses between which it lies, with the gaps between its items.
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  bool meets(const HostLayout& other) const { return begin_ < other.end_ && other.begin_ < end_; }
  // Do several of its items lie in one place, as on an axis without a stride?
  bool repeats() const {
    return std::any_of(axes_.begin(), axes_.end(), [](const Axis& axis) { return axis.stride == 0; });
  }

  // Copies the bytes from `begin` to `end`, in C order, to `packed`; or from there.
  void pack(std::uint64_t begin, std::uint64_t end, std::byte* packed) const {
    each_row(begin, end, [&](std::byte* at, std::uint64_t width, std::uint64_t count, std::int64_t stride) {
      rows(width, count, [&](std::uint64_t i, std::uint64_t bytes) {
        std::memcpy(packed + i * bytes, at + static_cast<std::int64_t>(i) * stride, bytes);
      });
      packed += width * count;
    });
  }
  void unpack(std::uint64_t begin, std::uint64_t end, const std::byte* packed) const {
    each_row(begin, end, [&](std::byte* at, std::uint64_t width, std::uint64_t count, std::int64_t stride) {
      rows(width, count, [&](std::uint64_t i, std::uint64_t bytes) {
        std::memcpy(at + static_cast<std::int64_t>(i) * stride, packed + i * bytes, bytes);
      });
      packed += width * count;
    });
  }

 private:
  // One instruction moves an item of a usual size; a call moves others.
  template <class Move>
  static void rows(std::uint64_t width, std::uint64_t count, Move&& move) {
    auto all = [&](auto bytes) {
      for (std::uint64_t i = 0; i < count; ++i) move(i, bytes);
    };
    switch (width) {
      case 1:
        return all(std::integral_constant<std::uint64_t, 1>());
      case 2:
        return all(std::integral_constant<std::uint64_t, 2>());
      case 4:
        return all(std::integral_constant<std::uint64_t, 4>());
      case 8:
        return all(std::integral_constant<std::uint64_t, 8>());
      case 16:
        return all(std::integral_constant<std::uint64_t, 16>());
      default:
        return all(width);
    }
  }

  // Calls `f(address, width, count, stride)` for the pieces between two places: `count` runs of `width` bytes.
  template <class F>
  void each_row(std::uint64_t begin, std::uint64_t end, F&& f) const {
    while (begin < end) {
      std::uint64_t rest = begin / run_bytes_;
      const std::uint64_t within = begin % run_bytes_;
      std::byte* at = first_ + within;
      std::uint64_t left_in_row = 1;
      std::int64_t stride = 0;
      for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
        const auto extent = static_cast<std::uint64_t>(axis->extent);
        if (axis == axes_.rbegin()) {
          left_in_row = extent - rest % extent;
          stride = axis->stride;
        }
        at += static_cast<std::int64_t>(rest % extent) * axis->stride;
        rest /= extent;
      }
      const bool is_whole = within == 0 && end - begin >= run_bytes_;
      const std::uint64_t width = is_whole ? run_bytes_ : std::min(run_bytes_ - within, end - begin);
      const std::uint64_t count = is_whole ? std::min(left_in_row, (end - begin) / run_bytes_) : 1;
      f(at, width, count, stride);
      begin += width * count;
    }
  }

  std::byte* first_ = nullptr;
  std::uint64_t run_bytes_ = 0;  // that lie in one piece
  std::vector<Axis> axes_{};     // of runs, the last one fastest
  std::uint64_t size_bytes_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace aiocuda::staging
