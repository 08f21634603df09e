// The formats of texels: how many bytes an element has, and what its bits mean.
#pragma once
#include <cstddef>
#include <cstdint>

#include "api.hpp"

namespace aiocuda::emulator::texture {

struct Format {
  CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8;
  unsigned channels = 1;

  // 0 where the emulator does not know the format.
  std::size_t element_bytes() const noexcept;
  std::size_t texel_bytes() const noexcept { return element_bytes() * channels; }
  bool is_float() const noexcept { return format == CU_AD_FORMAT_FLOAT || format == CU_AD_FORMAT_HALF; }
  bool is_signed() const noexcept { return format == CU_AD_FORMAT_SIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT16; }
  // INVALID_VALUE, or NOT_SUPPORTED for formats that CUDA has and the emulator has not.
  CUresult check() const noexcept;
};

// An element as a float: of float formats its value, of others as CUDA normalises them, to [0, 1] or [-1, 1].
float float_of(const Format& format, const std::byte* element) noexcept;
// An element as the instructions return it where it is not made a float: an integer of 32 bits, or a float's bits.
std::uint32_t bits_of(const Format& format, const std::byte* element) noexcept;

}  // namespace aiocuda::emulator::texture
