// Arrays as the walk sees them, and the data types they have.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "loan.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

// Codes are given out by Python, which knows NumPy's types; code 0 means "any" (void*).
using DType = std::uint16_t;
inline constexpr DType any_dtype = 0;

using LentType = std::pair<std::uint8_t, std::uint8_t>;  // of items, as DLPack has it: a code, and bits

struct DTypeInfo {
  std::string name;
  std::uint32_t size_bytes;
  std::optional<LentType> lent_as;  // none: DLPack has no such dtype
};

class DTypes {
 public:
  DType add(std::string name, std::uint32_t size_bytes, std::optional<LentType> lent_as = {}) {
    table_.push_back({std::move(name), size_bytes, lent_as});
    return static_cast<DType>(table_.size() - 1);
  }
  const DTypeInfo& operator[](DType code) const { return table_.at(code); }
  // Of items that DLPack calls so; none: arrays cannot have them.
  std::optional<DType> find(LentType lent_as) const {
    for (std::size_t code = 0; code < table_.size(); ++code)
      if (table_[code].lent_as == lent_as) return static_cast<DType>(code);
    return {};
  }

 private:
  std::vector<DTypeInfo> table_{{"any", 0, {}}};
};
inline DTypes dtypes;

// A handle on a buffer or a part of it, in device or page-locked memory.
struct Array {
  BufferRef buffer{};        // empty once closed or moved
  std::uint64_t offset = 0;  // of its first byte in the buffer
  std::int32_t device = host_ordinal;
  DType dtype = any_dtype;
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  // in bytes, 0 or more; empty: C-contiguous
  GroupRef group{};                     // whose handle it is, once the array was shared, moved or partitioned
  std::vector<std::int64_t> tile{};     // of a partition: the shape of its tiles
  std::string ended{};                  // how its use ended, such as "was closed at file:line"
  std::shared_ptr<Loan> loan{};         // of memory that is somebody else's

  std::uint64_t address() const { return buffer->address + offset; }  // not of a closed one
  std::uint64_t size() const {
    std::uint64_t n = 1;
    for (const std::int64_t extent : shape) n *= static_cast<std::uint64_t>(extent);
    return n;
  }
  std::uint64_t size_bytes() const { return size() * dtypes[dtype].size_bytes; }
  // How many bytes its first item, or one of its steps along the first `axes` axes, is beyond a multiple of a power of
  // two; 0: none is. An array of a graph whose memory is not laid out yet begins as its buffer says that it will.
  std::uint64_t misalignment(std::uint64_t alignment, std::size_t axes) const {
    std::uint64_t bits = buffer->place() + offset;
    if (!strides.empty() && !(bits & (alignment - 1)))
      for (std::size_t axis = 0; axis < axes; ++axis)
        if (shape[axis] > 1 && !(bits & (alignment - 1))) bits = static_cast<std::uint64_t>(strides[axis]);
    return bits & (alignment - 1);
  }
  bool is_host() const { return device == host_ordinal; }
  bool is_managed() const { return buffer && buffer->kind == MemoryKind::managed; }
  bool is_contiguous() const { return strides.empty(); }
  bool is_partition() const { return !tile.empty(); }
  // The loan, if a framework's stream has to do with each use of it; else null.
  Loan* tensor() const { return loan && loan->lender ? loan.get() : nullptr; }

  std::int64_t stride(std::size_t axis) const {  // in bytes
    if (!strides.empty()) return strides[axis];
    std::int64_t step = dtypes[dtype].size_bytes;
    for (std::size_t i = shape.size(); --i > axis;) step *= std::max<std::int64_t>(shape[i], 1);
    return step;
  }

  Span span() const {  // of its buffer: from the first byte to behind the last
    if (strides.empty() || size() == 0) return {offset, offset + size_bytes()};
    std::uint64_t last = offset;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      last += static_cast<std::uint64_t>((shape[axis] - 1) * strides[axis]);
    return {offset, last + dtypes[dtype].size_bytes};
  }

  Region region() const {  // the same, without what is between its items
    const Span all = span();
    if (strides.empty() || size() == 0)
      return {static_cast<std::int64_t>(all.begin), static_cast<std::int64_t>(all.end - all.begin)};
    Region region{static_cast<std::int64_t>(all.begin), dtypes[dtype].size_bytes};
    for (std::size_t axis = 0; axis < shape.size(); ++axis) region.add(shape[axis], strides[axis]);
    region.join();
    return region;
  }

  // The pieces that it lies in, so that neighbouring columns are not taken for each other; as one, with what is
  // between them, where they are many.
  static constexpr std::uint64_t most_pieces = 32;
  template <class F>
  void each_piece(F&& f) const {
    if (strides.empty() || size() == 0) return f(span());
    const Region all = region();
    if (all.pieces() > most_pieces) return f(span());
    all.each_piece(f);
  }
};

// An object of Python's for an array, of one of the classes that stand on top of it.
inline nb::object make_array(nb::handle type, Array&& array) {
  nb::object object = nb::inst_alloc(type);
  new (nb::inst_ptr<Array>(object)) Array(std::move(array));
  nb::inst_mark_ready(object);
  return object;
}

inline std::string describe_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += std::to_string(shape[i]);
  }
  text += shape.size() == 1 ? ",)" : ")";
  return text;
}

inline std::string describe_place(std::int32_t device) {
  return device == host_ordinal ? "page-locked host memory" : "device " + std::to_string(device);
}

inline std::string describe_place(const Array& array) {
  return (array.is_managed() ? "managed memory of " : "") + describe_place(array.device);
}

inline std::string describe(const Array& array) {
  return (array.is_partition() ? "a partition of " : "") + dtypes[array.dtype].name + describe_shape(array.shape) +
         " in " + describe_place(array);
}

inline std::string describe_misalignment(const Array& array, std::uint64_t alignment, std::size_t axes) {
  const std::uint64_t first = array.misalignment(alignment, 0);
  const std::string beyond = std::to_string(first ? first : array.misalignment(alignment, axes)) + " beyond a multiple";
  return describe(array) + (first ? " begins " + beyond : " begins at a multiple, and takes steps that are " + beyond);
}

}  // namespace aiocuda::dataflow
