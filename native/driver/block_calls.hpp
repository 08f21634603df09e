// The driver's calls for a block of a copy or of a fill.
//
// Always true: the work's context is bound, and all that it touches is there. A refused call is thrown as Refusal.
#pragma once
#include "../dataflow/copy_block.hpp"
#include "../dataflow/fills.hpp"
#include "table.hpp"

namespace aiocuda::driver {

// One block of a copy.
inline void call_copy(const Table& table, const dataflow::CopyBlock& block, CUstream stream) {
  if (block.rows == 1) return check(table.cuMemcpyAsync(block.to, block.from, block.width, stream), "cuMemcpyAsync");
  if (block.to_pitch < block.width || block.from_pitch < block.width) {  // rows that lie upon one another
    for (std::uint64_t row = 0; row < block.rows; ++row)
      check(table.cuMemcpyAsync(block.to + row * block.to_pitch, block.from + row * block.from_pitch, block.width,
                                stream),
            "cuMemcpyAsync");
    return;
  }
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = block.from;
  copy.dstDevice = block.to;
  copy.srcPitch = block.from_pitch;
  copy.dstPitch = block.to_pitch;
  copy.WidthInBytes = block.width;
  copy.Height = block.rows;
  check(table.cuMemcpy2DAsync(&copy, stream), "cuMemcpy2DAsync");
}

// One block of a fill; its offset is an address.
inline void call_fill(const Table& table, const dataflow::FillBlock& block, CUstream stream) {
  const CUdeviceptr to = block.offset;
  const auto byte = static_cast<unsigned char>(block.value);
  const auto word = static_cast<unsigned short>(block.value);
  if (block.rows == 1) {
    if (block.item_bytes == 1) return check(table.cuMemsetD8Async(to, byte, block.width, stream), "cuMemsetD8Async");
    if (block.item_bytes == 2) return check(table.cuMemsetD16Async(to, word, block.width, stream), "cuMemsetD16Async");
    return check(table.cuMemsetD32Async(to, block.value, block.width, stream), "cuMemsetD32Async");
  }
  if (block.item_bytes == 1)
    return check(table.cuMemsetD2D8Async(to, block.pitch, byte, block.width, block.rows, stream), "cuMemsetD2D8Async");
  if (block.item_bytes == 2)
    return check(table.cuMemsetD2D16Async(to, block.pitch, word, block.width, block.rows, stream),
                 "cuMemsetD2D16Async");
  check(table.cuMemsetD2D32Async(to, block.pitch, block.value, block.width, block.rows, stream), "cuMemsetD2D32Async");
}

}  // namespace aiocuda::driver
