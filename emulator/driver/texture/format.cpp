// See format.hpp.
#include "texture/format.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace aiocuda::emulator::texture {
namespace {

template <typename Value>
Value read(const std::byte* from) noexcept {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float float_of_half(std::uint16_t half) noexcept {
  const unsigned exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1f) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400), static_cast<int>(exponent) - 25);
}

// The least value of a signed type counts as the one above it.
template <typename Value>
float normalised(const std::byte* from) noexcept {
  const float most = std::numeric_limits<Value>::max();
  return std::max(static_cast<float>(read<Value>(from)) / most, -1.0F);
}

}  // namespace

std::size_t Format::element_bytes() const noexcept {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

CUresult Format::check() const noexcept {
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes() != 0) return CUDA_SUCCESS;
  // Planes of video, normalised and compressed formats have numbers from here on.
  return format >= CU_AD_FORMAT_UNORM_INT_101010_2 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

float float_of(const Format& format, const std::byte* element) noexcept {
  switch (format.format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return normalised<std::uint8_t>(element);
    case CU_AD_FORMAT_SIGNED_INT8:
      return normalised<std::int8_t>(element);
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return normalised<std::uint16_t>(element);
    case CU_AD_FORMAT_SIGNED_INT16:
      return normalised<std::int16_t>(element);
    case CU_AD_FORMAT_HALF:
      return float_of_half(read<std::uint16_t>(element));
    default:
      return read<float>(element);
  }
}

std::uint32_t bits_of(const Format& format, const std::byte* element) noexcept {
  switch (format.format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return read<std::uint8_t>(element);
    case CU_AD_FORMAT_SIGNED_INT8:
      return static_cast<std::uint32_t>(std::int32_t{read<std::int8_t>(element)});
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return read<std::uint16_t>(element);
    case CU_AD_FORMAT_SIGNED_INT16:
      return static_cast<std::uint32_t>(std::int32_t{read<std::int16_t>(element)});
    case CU_AD_FORMAT_HALF:
      return std::bit_cast<std::uint32_t>(float_of_half(read<std::uint16_t>(element)));
    default:
      return read<std::uint32_t>(element);
  }
}

}  // namespace aiocuda::emulator::texture
