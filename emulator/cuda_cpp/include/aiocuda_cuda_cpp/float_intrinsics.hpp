// Single and double precision intrinsics: fast forms, forms of fixed rounding, conversions.
// A fixed-rounding form is never contracted with what stands around it; the directed ones set the
// processor's rounding mode for their one operation.
#pragma once

#include "math.hpp"

extern "C" {
int fegetround() noexcept;
int fesetround(int) noexcept;
}

namespace aiocuda_device {

#if defined(__aarch64__)
inline constexpr int toward_zero = 0xc00000, upward = 0x400000, downward = 0x800000;
#else
inline constexpr int toward_zero = 0xc00, upward = 0x800, downward = 0x400;
#endif

// Hides where a value comes from, so that no multiply-add is made of it.
template <class T>
inline __attribute__((always_inline)) T uncontracted(T value) {
#if defined(__x86_64__)
  __asm__("" : "+x"(value));
#elif defined(__aarch64__)
  __asm__("" : "+w"(value));
#else
  volatile T kept = value;
  value = kept;
#endif
  return value;
}

// `operation` on volatile operands, so that it happens between the two changes of mode.
template <class T, class... A, class F>
inline __attribute__((noinline)) T rounded(int mode, F operation, A... operands) {
  const int before = fegetround();
  fesetround(mode);
  volatile T result = operation(*const_cast<volatile A*>(&operands)...);
  fesetround(before);
  return result;
}

}  // namespace aiocuda_device

inline float __fadd_rn(float a, float b) { return aiocuda_device::uncontracted(a + b); }
inline float __fsub_rn(float a, float b) { return aiocuda_device::uncontracted(a - b); }
inline float __fmul_rn(float a, float b) { return aiocuda_device::uncontracted(a * b); }
inline float __fdiv_rn(float a, float b) { return aiocuda_device::uncontracted(a / b); }
inline float __frcp_rn(float a) { return aiocuda_device::uncontracted((float)1 / a); }
inline float __fsqrt_rn(float a) { return aiocuda_device::uncontracted(__builtin_sqrtf(a)); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rz(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x, float y) { return x + y; }, a, b);
}
inline float __fsub_rz(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x, float y) { return x - y; }, a, b);
}
inline float __fmul_rz(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x, float y) { return x * y; }, a, b);
}
inline float __fdiv_rz(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x, float y) { return x / y; }, a, b);
}
inline float __frcp_rz(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x) { return (float)1 / x; }, a);
}
inline float __fsqrt_rz(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](float x) { return __builtin_sqrtf(x); }, a);
}
inline float __fmaf_rz(float a, float b, float c) {
  return aiocuda_device::rounded<float>(
      aiocuda_device::toward_zero, [](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c);
}
inline float __fadd_ru(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x, float y) { return x + y; }, a, b);
}
inline float __fsub_ru(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x, float y) { return x - y; }, a, b);
}
inline float __fmul_ru(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x, float y) { return x * y; }, a, b);
}
inline float __fdiv_ru(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x, float y) { return x / y; }, a, b);
}
inline float __frcp_ru(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x) { return (float)1 / x; }, a);
}
inline float __fsqrt_ru(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](float x) { return __builtin_sqrtf(x); }, a);
}
inline float __fmaf_ru(float a, float b, float c) {
  return aiocuda_device::rounded<float>(
      aiocuda_device::upward, [](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c);
}
inline float __fadd_rd(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x, float y) { return x + y; }, a, b);
}
inline float __fsub_rd(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x, float y) { return x - y; }, a, b);
}
inline float __fmul_rd(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x, float y) { return x * y; }, a, b);
}
inline float __fdiv_rd(float a, float b) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x, float y) { return x / y; }, a, b);
}
inline float __frcp_rd(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x) { return (float)1 / x; }, a);
}
inline float __fsqrt_rd(float a) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](float x) { return __builtin_sqrtf(x); }, a);
}
inline float __fmaf_rd(float a, float b, float c) {
  return aiocuda_device::rounded<float>(
      aiocuda_device::downward, [](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c);
}
inline double __dadd_rn(double a, double b) { return aiocuda_device::uncontracted(a + b); }
inline double __dsub_rn(double a, double b) { return aiocuda_device::uncontracted(a - b); }
inline double __dmul_rn(double a, double b) { return aiocuda_device::uncontracted(a * b); }
inline double __ddiv_rn(double a, double b) { return aiocuda_device::uncontracted(a / b); }
inline double __drcp_rn(double a) { return aiocuda_device::uncontracted((double)1 / a); }
inline double __dsqrt_rn(double a) { return aiocuda_device::uncontracted(__builtin_sqrt(a)); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline double __dadd_rz(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x, double y) { return x + y; }, a, b);
}
inline double __dsub_rz(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x, double y) { return x - y; }, a, b);
}
inline double __dmul_rz(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x, double y) { return x * y; }, a, b);
}
inline double __ddiv_rz(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x, double y) { return x / y; }, a, b);
}
inline double __drcp_rz(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x) { return (double)1 / x; }, a);
}
inline double __dsqrt_rz(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](double x) { return __builtin_sqrt(x); }, a);
}
inline double __fma_rz(double a, double b, double c) {
  return aiocuda_device::rounded<double>(
      aiocuda_device::toward_zero, [](double x, double y, double z) { return __builtin_fma(x, y, z); }, a, b, c);
}
inline double __dadd_ru(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x, double y) { return x + y; }, a, b);
}
inline double __dsub_ru(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x, double y) { return x - y; }, a, b);
}
inline double __dmul_ru(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x, double y) { return x * y; }, a, b);
}
inline double __ddiv_ru(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x, double y) { return x / y; }, a, b);
}
inline double __drcp_ru(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x) { return (double)1 / x; }, a);
}
inline double __dsqrt_ru(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](double x) { return __builtin_sqrt(x); }, a);
}
inline double __fma_ru(double a, double b, double c) {
  return aiocuda_device::rounded<double>(
      aiocuda_device::upward, [](double x, double y, double z) { return __builtin_fma(x, y, z); }, a, b, c);
}
inline double __dadd_rd(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x, double y) { return x + y; }, a, b);
}
inline double __dsub_rd(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x, double y) { return x - y; }, a, b);
}
inline double __dmul_rd(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x, double y) { return x * y; }, a, b);
}
inline double __ddiv_rd(double a, double b) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x, double y) { return x / y; }, a, b);
}
inline double __drcp_rd(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x) { return (double)1 / x; }, a);
}
inline double __dsqrt_rd(double a) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](double x) { return __builtin_sqrt(x); }, a);
}
inline double __fma_rd(double a, double b, double c) {
  return aiocuda_device::rounded<double>(
      aiocuda_device::downward, [](double x, double y, double z) { return __builtin_fma(x, y, z); }, a, b, c);
}
inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
inline float __fmaf_ieee_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn_ftz(float a, float b) { return __fmul_rn(a, b); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline double fdivide(double a, double b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline int __float_as_int(float x) { return aiocuda_device::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return aiocuda_device::bits<unsigned>(x); }
inline float __int_as_float(int x) { return aiocuda_device::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return aiocuda_device::bits<float>(x); }
inline long long __double_as_longlong(double x) { return aiocuda_device::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return aiocuda_device::bits<double>(x); }
inline int __double2hiint(double x) { return (int)(aiocuda_device::bits<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return (int)aiocuda_device::bits<unsigned long long>(x); }
inline double __hiloint2double(int high, int low) {
  return aiocuda_device::bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

namespace aiocuda_device {

// To an integer as the GPU converts: past the ends it saturates, and not-a-number has a value.
template <class I, class F>
inline I to_integer(F whole, I not_a_number) {
  constexpr int width = (int)sizeof(I) * 8 - (I(-1) < I(0) ? 1 : 0);
  constexpr I highest = (I)(~0ull >> (64 - width));
  constexpr I lowest = I(-1) < I(0) ? (I)(-highest - 1) : I(0);
  const F past = (F)(1ull << (width - 1)) * 2;
  if (whole != whole) return not_a_number;
  if (whole >= past) return highest;
  if (whole <= (F)lowest) return lowest;
  return (I)whole;
}

}  // namespace aiocuda_device
inline int __float2int_rn(float x) { return aiocuda_device::to_integer<int>(__builtin_rintf(x), 0); }
inline int __float2int_rz(float x) { return aiocuda_device::to_integer<int>(__builtin_truncf(x), 0); }
inline int __float2int_ru(float x) { return aiocuda_device::to_integer<int>(__builtin_ceilf(x), 0); }
inline int __float2int_rd(float x) { return aiocuda_device::to_integer<int>(__builtin_floorf(x), 0); }
inline unsigned __float2uint_rn(float x) { return aiocuda_device::to_integer<unsigned>(__builtin_rintf(x), 0u); }
inline unsigned __float2uint_rz(float x) { return aiocuda_device::to_integer<unsigned>(__builtin_truncf(x), 0u); }
inline unsigned __float2uint_ru(float x) { return aiocuda_device::to_integer<unsigned>(__builtin_ceilf(x), 0u); }
inline unsigned __float2uint_rd(float x) { return aiocuda_device::to_integer<unsigned>(__builtin_floorf(x), 0u); }
inline long long __float2ll_rn(float x) {
  return aiocuda_device::to_integer<long long>(__builtin_rintf(x), (long long)0x8000000000000000ull);
}
inline long long __float2ll_rz(float x) {
  return aiocuda_device::to_integer<long long>(__builtin_truncf(x), (long long)0x8000000000000000ull);
}
inline long long __float2ll_ru(float x) {
  return aiocuda_device::to_integer<long long>(__builtin_ceilf(x), (long long)0x8000000000000000ull);
}
inline long long __float2ll_rd(float x) {
  return aiocuda_device::to_integer<long long>(__builtin_floorf(x), (long long)0x8000000000000000ull);
}
inline unsigned long long __float2ull_rn(float x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_rintf(x), 0x8000000000000000ull);
}
inline unsigned long long __float2ull_rz(float x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_truncf(x), 0x8000000000000000ull);
}
inline unsigned long long __float2ull_ru(float x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_ceilf(x), 0x8000000000000000ull);
}
inline unsigned long long __float2ull_rd(float x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_floorf(x), 0x8000000000000000ull);
}
inline int __double2int_rn(double x) { return aiocuda_device::to_integer<int>(__builtin_rint(x), (int)0x80000000u); }
inline int __double2int_rz(double x) { return aiocuda_device::to_integer<int>(__builtin_trunc(x), (int)0x80000000u); }
inline int __double2int_ru(double x) { return aiocuda_device::to_integer<int>(__builtin_ceil(x), (int)0x80000000u); }
inline int __double2int_rd(double x) { return aiocuda_device::to_integer<int>(__builtin_floor(x), (int)0x80000000u); }
inline unsigned __double2uint_rn(double x) {
  return aiocuda_device::to_integer<unsigned>(__builtin_rint(x), 0x80000000u);
}
inline unsigned __double2uint_rz(double x) {
  return aiocuda_device::to_integer<unsigned>(__builtin_trunc(x), 0x80000000u);
}
inline unsigned __double2uint_ru(double x) {
  return aiocuda_device::to_integer<unsigned>(__builtin_ceil(x), 0x80000000u);
}
inline unsigned __double2uint_rd(double x) {
  return aiocuda_device::to_integer<unsigned>(__builtin_floor(x), 0x80000000u);
}
inline long long __double2ll_rn(double x) {
  return aiocuda_device::to_integer<long long>(__builtin_rint(x), (long long)0x8000000000000000ull);
}
inline long long __double2ll_rz(double x) {
  return aiocuda_device::to_integer<long long>(__builtin_trunc(x), (long long)0x8000000000000000ull);
}
inline long long __double2ll_ru(double x) {
  return aiocuda_device::to_integer<long long>(__builtin_ceil(x), (long long)0x8000000000000000ull);
}
inline long long __double2ll_rd(double x) {
  return aiocuda_device::to_integer<long long>(__builtin_floor(x), (long long)0x8000000000000000ull);
}
inline unsigned long long __double2ull_rn(double x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_rint(x), 0x8000000000000000ull);
}
inline unsigned long long __double2ull_rz(double x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_trunc(x), 0x8000000000000000ull);
}
inline unsigned long long __double2ull_ru(double x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_ceil(x), 0x8000000000000000ull);
}
inline unsigned long long __double2ull_rd(double x) {
  return aiocuda_device::to_integer<unsigned long long>(__builtin_floor(x), 0x8000000000000000ull);
}

inline float __int2float_rn(int x) { return (float)x; }
inline float __int2float_rz(int x) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](int v) { return (float)v; }, x);
}
inline float __int2float_ru(int x) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](int v) { return (float)v; }, x);
}
inline float __int2float_rd(int x) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](int v) { return (float)v; }, x);
}
inline double __int2double_rn(int x) { return (double)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __uint2float_rz(unsigned x) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](unsigned v) { return (float)v; }, x);
}
inline float __uint2float_ru(unsigned x) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](unsigned v) { return (float)v; }, x);
}
inline float __uint2float_rd(unsigned x) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](unsigned v) { return (float)v; }, x);
}
inline double __uint2double_rn(unsigned x) { return (double)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ll2float_rz(long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](long long v) { return (float)v; }, x);
}
inline float __ll2float_ru(long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](long long v) { return (float)v; }, x);
}
inline float __ll2float_rd(long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](long long v) { return (float)v; }, x);
}
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ll2double_rz(long long x) {
  return aiocuda_device::rounded<double>(aiocuda_device::toward_zero, [](long long v) { return (double)v; }, x);
}
inline double __ll2double_ru(long long x) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](long long v) { return (double)v; }, x);
}
inline double __ll2double_rd(long long x) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](long long v) { return (double)v; }, x);
}
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline float __ull2float_rz(unsigned long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](unsigned long long v) { return (float)v; }, x);
}
inline float __ull2float_ru(unsigned long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](unsigned long long v) { return (float)v; }, x);
}
inline float __ull2float_rd(unsigned long long x) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](unsigned long long v) { return (float)v; }, x);
}
inline double __ull2double_rn(unsigned long long x) { return (double)x; }
inline double __ull2double_rz(unsigned long long x) {
  return aiocuda_device::rounded<double>(
      aiocuda_device::toward_zero, [](unsigned long long v) { return (double)v; }, x);
}
inline double __ull2double_ru(unsigned long long x) {
  return aiocuda_device::rounded<double>(aiocuda_device::upward, [](unsigned long long v) { return (double)v; }, x);
}
inline double __ull2double_rd(unsigned long long x) {
  return aiocuda_device::rounded<double>(aiocuda_device::downward, [](unsigned long long v) { return (double)v; }, x);
}
inline float __double2float_rn(double x) { return (float)x; }
inline float __double2float_rz(double x) {
  return aiocuda_device::rounded<float>(aiocuda_device::toward_zero, [](double v) { return (float)v; }, x);
}
inline float __double2float_ru(double x) {
  return aiocuda_device::rounded<float>(aiocuda_device::upward, [](double v) { return (float)v; }, x);
}
inline float __double2float_rd(double x) {
  return aiocuda_device::rounded<float>(aiocuda_device::downward, [](double v) { return (float)v; }, x);
}
