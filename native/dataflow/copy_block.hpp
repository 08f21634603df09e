// A part of a copy that a driver makes in one call. Knows neither Python nor CUDA.
#pragma once
#include <cstdint>

namespace aiocuda::dataflow {

// `rows` rows of `width` bytes each.
struct CopyBlock {
  std::uint64_t to = 0, from = 0;
  std::uint64_t width = 0, rows = 1;
  std::uint64_t to_pitch = 0, from_pitch = 0;
};

}  // namespace aiocuda::dataflow
