// cuda_fp8.h: numbers of 8 bits, with 3 digits behind the point (E4M3, which has no infinity) or 2 (E5M2). They are for
// storage: arithmetic is that of what they convert to.
#pragma once

#include "cuda_bf16.hpp"
#include "cuda_fp16.hpp"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace aiocuda_device {

inline __nv_fp8_storage_t to_e5m2(double value, bool saturates) {
  if (value != value) return 0x7f;
  const unsigned word = narrow<2, 15>(value, Rounding::nearest);
  const unsigned sign = word >> 8 & 0x80u;
  const unsigned magnitude = word & 0x7fu;
  return (__nv_fp8_storage_t)(sign | (saturates && magnitude == 0x7c ? 0x7b : magnitude));
}
inline __nv_fp8_storage_t to_e4m3(double value, bool saturates) {
  if (value != value) return 0x7f;
  const unsigned sign = __builtin_signbit(value) ? 0x80u : 0;
  const double size = __builtin_fabs(value);
  if (size < 256) return (__nv_fp8_storage_t)(sign | (narrow<3, 7>(size, Rounding::nearest) & 0x7fu));
  // From 256 on, where other formats have infinity, the numbers go on to 448 in steps of 32.
  const double steps = __builtin_rint(size / 32);
  if (steps > 14) return (__nv_fp8_storage_t)(sign | (saturates ? 0x7e : 0x7f));
  return (__nv_fp8_storage_t)(sign | (0x78u + ((unsigned)steps - 8)));
}
inline __nv_fp8_storage_t to_fp8(double value, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
  const bool saturates = saturation == __NV_SATFINITE;
  return kind == __NV_E4M3 ? to_e4m3(value, saturates) : to_e5m2(value, saturates);
}
inline float from_fp8(__nv_fp8_storage_t word, __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E5M2) return binary16::to_float((unsigned short)(word << 8));
  const unsigned magnitude = word & 0x7fu;
  if (magnitude == 0x7f) return __builtin_nanf("");
  const unsigned digits = magnitude & 7u;
  const int exponent = (int)(magnitude >> 3);
  const float size =
      exponent == 0 ? __builtin_ldexpf((float)digits, -9) : __builtin_ldexpf((float)(8 + digits), exponent - 10);
  return (word & 0x80) != 0 ? -size : size;
}

}  // namespace aiocuda_device

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return aiocuda_device::to_fp8(x, s, k);
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return aiocuda_device::to_fp8(x, s, k);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return aiocuda_device::to_fp8((float)__half(x), s, k);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t s,
                                                      __nv_fp8_interpretation_t k) {
  return aiocuda_device::to_fp8((float)__nv_bfloat16(x), s, k);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(x.x, s, k) | __nv_cvt_float_to_fp8(x.y, s, k) << 8);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t k) {
  return __half(aiocuda_device::from_fp8(x, k));
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t k) {
  return {__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, k).x,
          __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), k).x};
}

#define AIOCUDA_FP8(name, kind)                                                                            \
  struct AIOCUDA_VISIBLE name {                                                                            \
    __nv_fp8_storage_t __x;                                                                                \
    name() = default;                                                                                      \
    explicit name(float v) : __x(aiocuda_device::to_fp8(v, __NV_SATFINITE, kind)) {}                       \
    explicit name(double v) : __x(aiocuda_device::to_fp8(v, __NV_SATFINITE, kind)) {}                      \
    explicit name(__half v) : name((float)v) {}                                                            \
    explicit name(__nv_bfloat16 v) : name((float)v) {}                                                     \
    explicit name(int v) : name((double)v) {}                                                              \
    explicit name(unsigned v) : name((double)v) {}                                                         \
    explicit name(short v) : name((double)v) {}                                                            \
    explicit name(unsigned short v) : name((double)v) {}                                                   \
    explicit name(long v) : name((double)v) {}                                                             \
    explicit name(unsigned long v) : name((double)v) {}                                                    \
    explicit name(long long v) : name((double)v) {}                                                        \
    explicit name(unsigned long long v) : name((double)v) {}                                               \
    explicit operator float() const { return aiocuda_device::from_fp8(__x, kind); }                        \
    explicit operator double() const { return (double)aiocuda_device::from_fp8(__x, kind); }               \
    explicit operator __half() const { return __half(aiocuda_device::from_fp8(__x, kind)); }               \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(aiocuda_device::from_fp8(__x, kind)); } \
    explicit operator int() const { return (int)aiocuda_device::from_fp8(__x, kind); }                     \
    explicit operator bool() const { return (__x & 0x7f) != 0; }                                           \
  };
AIOCUDA_FP8(__nv_fp8_e4m3, __NV_E4M3)
AIOCUDA_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef AIOCUDA_FP8

#define AIOCUDA_FP8_VECTORS(name, kind)                                                      \
  struct AIOCUDA_VISIBLE __attribute__((aligned(2))) name##x2 {                              \
    __nv_fp8x2_storage_t __x;                                                                \
    name##x2() = default;                                                                    \
    explicit name##x2(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}  \
    explicit operator float2() const {                                                       \
      return {aiocuda_device::from_fp8((__nv_fp8_storage_t)__x, kind),                       \
              aiocuda_device::from_fp8((__nv_fp8_storage_t)(__x >> 8), kind)};               \
    }                                                                                        \
    explicit operator __half2() const { return ::__float22half2_rn(operator float2()); }     \
  };                                                                                         \
  struct AIOCUDA_VISIBLE __attribute__((aligned(4))) name##x4 {                              \
    __nv_fp8x4_storage_t __x;                                                                \
    name##x4() = default;                                                                    \
    explicit name##x4(float4 v)                                                              \
        : __x(__nv_cvt_float2_to_fp8x2({v.x, v.y}, __NV_SATFINITE, kind) |                   \
              (unsigned)__nv_cvt_float2_to_fp8x2({v.z, v.w}, __NV_SATFINITE, kind) << 16) {} \
    explicit operator float4() const {                                                       \
      return {aiocuda_device::from_fp8((__nv_fp8_storage_t)__x, kind),                       \
              aiocuda_device::from_fp8((__nv_fp8_storage_t)(__x >> 8), kind),                \
              aiocuda_device::from_fp8((__nv_fp8_storage_t)(__x >> 16), kind),               \
              aiocuda_device::from_fp8((__nv_fp8_storage_t)(__x >> 24), kind)};              \
    }                                                                                        \
  };
AIOCUDA_FP8_VECTORS(__nv_fp8_e4m3, __NV_E4M3)
AIOCUDA_FP8_VECTORS(__nv_fp8_e5m2, __NV_E5M2)
#undef AIOCUDA_FP8_VECTORS
