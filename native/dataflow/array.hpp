// Arrays as the walk sees them, and the data types they have.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "buffer.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

// Codes are given out by Python, which knows NumPy's types; code 0 means "any" (void*).
using DType = std::uint16_t;
inline constexpr DType any_dtype = 0;

struct DTypeInfo {
  std::string name;
  std::uint32_t size_bytes;
};

class DTypes {
 public:
  DType add(std::string name, std::uint32_t size_bytes) {
    table_.push_back({std::move(name), size_bytes});
    return static_cast<DType>(table_.size() - 1);
  }
  const DTypeInfo& operator[](DType code) const { return table_.at(code); }

 private:
  std::vector<DTypeInfo> table_{{"any", 0}};
};
inline DTypes dtypes;

// A handle on a buffer or a part of it: C-contiguous, device or page-locked memory.
struct Array {
  BufferRef buffer;  // empty once closed
  std::uint64_t address = 0;
  std::int32_t device = host_ordinal;
  DType dtype = any_dtype;
  std::vector<std::int64_t> shape;

  std::uint64_t size() const {
    std::uint64_t n = 1;
    for (const std::int64_t extent : shape) n *= static_cast<std::uint64_t>(extent);
    return n;
  }
  std::uint64_t size_bytes() const { return size() * dtypes[dtype].size_bytes; }
  bool is_host() const { return device == host_ordinal; }
  Span span() const {  // of its buffer
    const std::uint64_t begin = address - buffer->address;
    return {begin, begin + size_bytes()};
  }
};

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

inline std::string describe(const Array& array) {
  return dtypes[array.dtype].name + describe_shape(array.shape) + " in " + describe_place(array.device);
}

}  // namespace aiocuda::dataflow
