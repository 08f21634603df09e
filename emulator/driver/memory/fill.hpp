// A memset: what is filled with what, and the work that fills it.
#pragma once
#include <cstddef>
#include <memory>

#include "memory/copy.hpp"
#include "memory/copy_pieces.hpp"

namespace aiocuda::emulator::memory {

struct Fill {
  CUdeviceptr address;
  std::size_t pitch_bytes;  // ignored with one row
  Pattern pattern;
  std::size_t width;  // in elements
  std::size_t height;
};

// For work of a device. An empty one is resolved no further.
CUresult resolve(const Fill& fill, CUdevice device, Operand& destination, Extent& extent);

// The context lives as long as the work.
std::unique_ptr<Work> make_fill_work(Context& context, int priority, const Operand& destination, const Pattern& pattern,
                                     const Extent& extent);

}  // namespace aiocuda::emulator::memory
