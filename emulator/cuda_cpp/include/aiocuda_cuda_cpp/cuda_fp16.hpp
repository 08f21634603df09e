// cuda_fp16.h: __half and __half2 (IEEE binary16), their arithmetic, comparisons and conversions.
#pragma once

#include "narrow_float.hpp"

namespace aiocuda_device {
namespace binary16 {

inline unsigned short from_double(double value, Rounding rounding) { return narrow<10, 15>(value, rounding); }

#if defined(__F16C__)
typedef float Float4 __attribute__((vector_size(16)));
typedef short Short8 __attribute__((vector_size(16)));

inline unsigned short from_float(float value) {
  if (value != value) return 0x7fff;
  return (unsigned short)((Short8)__builtin_ia32_vcvtps2ph(Float4{value, 0, 0, 0}, 0))[0];
}
inline float to_float(unsigned short word) {
#if __has_builtin(__builtin_ia32_vcvtph2ps)
  return __builtin_ia32_vcvtph2ps(Short8{(short)word, 0, 0, 0, 0, 0, 0, 0})[0];
#else  // newer clang has no name for the instruction, and makes it of the conversion
  return (float)bits<_Float16>(word);
#endif
}
#else
inline unsigned short from_float(float value) { return from_double((double)value, Rounding::nearest); }
inline float to_float(unsigned short word) {
  const unsigned sign = (unsigned)(word & 0x8000u) << 16;
  const unsigned rest = word & 0x7fffu;
  if (rest >= 0x7c00u) return bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest < 0x0400u) return bits<float>(bits<unsigned>((float)rest * 0x1p-24f) | sign);
  return bits<float>(sign | (rest + (112u << 10)) << 13);
}
#endif

}  // namespace binary16
}  // namespace aiocuda_device

AIOCUDA_NARROW_TYPE(__half, __half_raw, __half2, __half2_raw, binary16)
AIOCUDA_NARROW_FUNCTIONS(__half, __half_raw, __half2, binary16)
AIOCUDA_NARROW_CONVERSIONS(__half, half, binary16)

typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;
typedef __half nv_half;
typedef __half2 nv_half2;

inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }
inline float __low2float(__half2 a) { return (float)a.x; }
inline float __high2float(__half2 a) { return (float)a.y; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline __half2 __hcmadd(__half2 a, __half2 b, __half2 c) {
  return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)
