// CUDA arrays, plain and mipmapped: texels of a device, in rows and slices without gaps. Always: the memory of an array
// is on the list of allocations, so copies and checks know it like any other; only the program has no address of it.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "context.hpp"
#include "handle_table.hpp"
#include "memory/allocation.hpp"
#include "texture/format.hpp"

namespace aiocuda::emulator::texture {

struct Extents {
  std::size_t width = 0, height = 0, depth = 0;  // in texels; 0: it has no such dimension. Layers are depth
};

class Array {
 public:
  // INVALID_VALUE, NOT_SUPPORTED or OUT_OF_MEMORY.
  static CUresult make(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description, std::shared_ptr<Array>& made);
  // Gives the memory back where it has not been; nothing may use it any more.
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Context& context() const noexcept { return *context_; }
  const CUDA_ARRAY3D_DESCRIPTOR& description() const noexcept { return description_; }
  Format format() const noexcept { return {description_.Format, description_.NumChannels}; }
  bool is_layered() const noexcept { return (description_.Flags & CUDA_ARRAY3D_LAYERED) != 0; }
  bool is_cube() const noexcept { return (description_.Flags & CUDA_ARRAY3D_CUBEMAP) != 0; }

  std::uintptr_t address() const noexcept { return allocation_->address; }
  std::size_t bytes() const noexcept { return allocation_->bytes; }
  std::size_t row_bytes() const noexcept { return description_.Width * format().texel_bytes(); }
  std::size_t rows() const noexcept { return description_.Height == 0 ? 1 : description_.Height; }
  std::size_t slices() const noexcept { return description_.Depth == 0 ? 1 : description_.Depth; }

 private:
  Array(std::shared_ptr<Context> context, const CUDA_ARRAY3D_DESCRIPTOR& description,
        std::shared_ptr<memory::Allocation> allocation)
      : context_(std::move(context)), description_(description), allocation_(std::move(allocation)) {}

  const std::shared_ptr<Context> context_;
  const CUDA_ARRAY3D_DESCRIPTOR description_;
  const std::shared_ptr<memory::Allocation> allocation_;
};

struct MipmappedArray {
  Context& context() const noexcept { return levels.front()->context(); }
  std::vector<std::shared_ptr<Array>> levels;  // each half as large as the one before
};

using ArrayTable = HandleTable<Array, CUarray>;
ArrayTable& arrays();
using MipmappedArrayTable = HandleTable<MipmappedArray, CUmipmappedArray>;
MipmappedArrayTable& mipmapped_arrays();

}  // namespace aiocuda::emulator::texture
