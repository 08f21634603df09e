// Code that __half and __nv_bfloat16 share: rounding into a 16-bit format, and their functions, which differ only in
// the type's name. Arithmetic is done in float (double for fused multiply-add) and rounded once into the format; float
// has more than twice the digits of either, so that is correct rounding.
#pragma once

#include "atomics.hpp"
#include "block.hpp"
#include "float_intrinsics.hpp"

namespace aiocuda_device {

enum class Rounding { nearest, zero, up, down };

// `value` in a format of `mantissa_bits` after the leading one and exponent bias `bias`, as bits.
template <int mantissa_bits, int bias>
inline unsigned short narrow(double value, Rounding rounding) {
  constexpr unsigned infinity = (2u * bias + 1u) << mantissa_bits;
  const unsigned long long word = bits<unsigned long long>(value);
  const unsigned sign = (unsigned)(word >> 48) & 0x8000u;
  const unsigned long long magnitude = word & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return 0x7fff;
  if (magnitude == 0x7ff0000000000000ull) return (unsigned short)(sign | infinity);
  if (magnitude == 0) return (unsigned short)sign;
  if (magnitude <
      0x0010000000000000ull) {  // far below the format's least value: all that counts is that it is not zero
    const bool away = (rounding == Rounding::up && sign == 0) || (rounding == Rounding::down && sign != 0);
    return (unsigned short)(sign | (away ? 1u : 0u));
  }
  const unsigned long long mantissa = (magnitude & 0x000fffffffffffffull) | 0x0010000000000000ull;
  const int exponent = (int)(magnitude >> 52) - 1075;  // value = mantissa * 2^exponent
  constexpr int least_quantum = 1 - bias - mantissa_bits;
  int quantum = exponent + 52 - mantissa_bits;
  if (quantum < least_quantum) quantum = least_quantum;
  const int shift = quantum - exponent;
  unsigned long long kept = shift > 63 ? 0 : mantissa >> shift;
  const unsigned long long rest = shift > 63 ? 1 : mantissa & ((1ull << shift) - 1);
  const unsigned long long half = shift > 63 ? 2 : 1ull << (shift - 1);
  const bool up = rounding == Rounding::nearest ? rest > half || (rest == half && (kept & 1) != 0)
                  : rounding == Rounding::up    ? rest != 0 && sign == 0
                  : rounding == Rounding::down  ? rest != 0 && sign != 0
                                                : false;
  kept += up ? 1 : 0;
  const unsigned long long encoded = kept + ((unsigned long long)(quantum - least_quantum) << mantissa_bits);
  if (encoded < infinity) return (unsigned short)(sign | (unsigned)encoded);
  const bool to_infinity = rounding == Rounding::nearest || (rounding == Rounding::up && sign == 0) ||
                           (rounding == Rounding::down && sign != 0);
  return (unsigned short)(sign | (to_infinity ? infinity : infinity - 1));
}

// a * b + c as a double that rounds into a narrower format as the exact result would: where it is not
// exact, its last digit is made odd.
inline double fused(float a, float b, float c) {
  const double product = (double)a * b;  // exact
  const double sum = uncontracted(product + (double)c);
  const double from_c = uncontracted(sum - product);
  const double error = uncontracted(product - uncontracted(sum - from_c)) + uncontracted((double)c - from_c);
  const unsigned long long word = bits<unsigned long long>(sum);
  if (error == 0 || !__builtin_isfinite(sum) || sum == 0 || (word & 1) != 0) return sum;
  const bool outward = (error > 0) == (sum > 0);
  return bits<double>(outward ? word + 1 : word - 1);
}

// A 64-bit integer as a double, with an odd last digit where it does not fit.
template <class I>
inline double odd_double(I value) {
  const double nearest = (double)value;
  if (nearest >= 18446744073709551616.0 || (I(-1) < I(0) && nearest >= 9223372036854775808.0)) {
    return bits<double>(bits<unsigned long long>(nearest) - 1);
  }
  const I back = (I)nearest;
  const unsigned long long word = bits<unsigned long long>(nearest);
  if (back == value || (word & 1) != 0) return nearest;
  return bits<double>((back < value) == (nearest > 0) ? word + 1 : word - 1);
}

}  // namespace aiocuda_device

// The scalar type T, its raw form R, the pair P. to_float(bits) and from_double(value, rounding) and
// from_float(value) are the format's, in namespace aiocuda_device::F.
#define AIOCUDA_NARROW_TYPE(T, R, P, PR, F)                                                                     \
  struct AIOCUDA_VISIBLE R {                                                                                    \
    unsigned short x;                                                                                           \
  };                                                                                                            \
  struct AIOCUDA_VISIBLE PR {                                                                                   \
    unsigned short x, y;                                                                                        \
  };                                                                                                            \
  struct AIOCUDA_VISIBLE __attribute__((aligned(2))) T {                                                        \
    unsigned short __x;                                                                                         \
    T() = default;                                                                                              \
    constexpr T(const R& raw) : __x(raw.x) {}                                                                   \
    template <class V, class = aiocuda_device::enable_if_t<aiocuda_device::is_same<V, T>>>                      \
    T(const volatile V& other) : __x(other.__x) {}                                                              \
    T(float v) : __x(aiocuda_device::F::from_float(v)) {}                                                       \
    T(double v) : __x(aiocuda_device::F::from_double(v, aiocuda_device::Rounding::nearest)) {}                  \
    T(short v) : T((float)v) {}                                                                                 \
    T(unsigned short v) : T((float)v) {}                                                                        \
    T(int v) : T((double)v) {}                                                                                  \
    T(unsigned v) : T((double)v) {}                                                                             \
    T(long v) : T(aiocuda_device::odd_double(v)) {}                                                             \
    T(unsigned long v) : T(aiocuda_device::odd_double(v)) {}                                                    \
    T(long long v) : T(aiocuda_device::odd_double(v)) {}                                                        \
    T(unsigned long long v) : T(aiocuda_device::odd_double(v)) {}                                               \
    T& operator=(float v) { return *this = T(v); }                                                              \
    T& operator=(double v) { return *this = T(v); }                                                             \
    T& operator=(short v) { return *this = T(v); }                                                              \
    T& operator=(unsigned short v) { return *this = T(v); }                                                     \
    T& operator=(int v) { return *this = T(v); }                                                                \
    T& operator=(unsigned v) { return *this = T(v); }                                                           \
    T& operator=(long long v) { return *this = T(v); }                                                          \
    T& operator=(unsigned long long v) { return *this = T(v); }                                                 \
    operator R() const { return {__x}; }                                                                        \
    operator float() const { return aiocuda_device::F::to_float(__x); }                                         \
    operator signed char() const { return aiocuda_device::narrow_to_integer<signed char>((float)*this); }       \
    operator unsigned char() const { return aiocuda_device::narrow_to_integer<unsigned char>((float)*this); }   \
    operator char() const { return aiocuda_device::narrow_to_integer<char>((float)*this); }                     \
    operator short() const { return aiocuda_device::narrow_to_integer<short>((float)*this); }                   \
    operator unsigned short() const { return aiocuda_device::narrow_to_integer<unsigned short>((float)*this); } \
    operator int() const { return __float2int_rz((float)*this); }                                               \
    operator unsigned() const { return __float2uint_rz((float)*this); }                                         \
    operator long() const { return __float2ll_rz((float)*this); }                                               \
    operator unsigned long() const { return __float2ull_rz((float)*this); }                                     \
    operator long long() const { return __float2ll_rz((float)*this); }                                          \
    operator unsigned long long() const { return __float2ull_rz((float)*this); }                                \
    operator bool() const { return (__x & 0x7fffu) != 0; }                                                      \
  };                                                                                                            \
  struct AIOCUDA_VISIBLE __attribute__((aligned(4))) P {                                                        \
    T x, y;                                                                                                     \
    P() = default;                                                                                              \
    constexpr P(const T& a, const T& b) : x(a), y(b) {}                                                         \
    constexpr P(const PR& raw) : x(R{raw.x}), y(R{raw.y}) {}                                                    \
    operator PR() const { return {x.__x, y.__x}; }                                                              \
  };

namespace aiocuda_device {
template <class I>
inline I narrow_to_integer(float value) {
  return to_integer<I>(__builtin_truncf(value), I(0));
}
}  // namespace aiocuda_device

#define AIOCUDA_NARROW_BINARY(T, P, name, name2, expression) \
  inline T name(T a, T b) { return expression; }             \
  inline P name2(P a, P b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define AIOCUDA_NARROW_UNARY(T, P, name, name2, expression) \
  inline T name(T a) { return expression; }                 \
  inline P name2(P a) { return {name(a.x), name(a.y)}; }
#define AIOCUDA_NARROW_TERNARY(T, P, name, name2, expression) \
  inline T name(T a, T b, T c) { return expression; }         \
  inline P name2(P a, P b, P c) { return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)}; }
// A comparison, ordered (false for not-a-number) and unordered (true for it).
#define AIOCUDA_NARROW_COMPARE(T, P, name, op)                                                                     \
  inline bool __h##name(T a, T b) { return !__builtin_isunordered((float)a, (float)b) && (float)a op(float) b; }   \
  inline bool __h##name##u(T a, T b) { return __builtin_isunordered((float)a, (float)b) || (float)a op(float) b; } \
  inline P __h##name##2(P a, P b) {                                                                                \
    return {T(__h##name(a.x, b.x) ? 1.0f : 0.0f), T(__h##name(a.y, b.y) ? 1.0f : 0.0f)};                           \
  }                                                                                                                \
  inline P __h##name##u2(P a, P b) {                                                                               \
    return {T(__h##name##u(a.x, b.x) ? 1.0f : 0.0f), T(__h##name##u(a.y, b.y) ? 1.0f : 0.0f)};                     \
  }                                                                                                                \
  inline bool __hb##name##2(P a, P b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }                       \
  inline bool __hb##name##u2(P a, P b) { return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y); }                \
  inline unsigned __h##name##2_mask(P a, P b) {                                                                    \
    return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);                        \
  }                                                                                                                \
  inline unsigned __h##name##u2_mask(P a, P b) {                                                                   \
    return (__h##name##u(a.x, b.x) ? 0xffffu : 0u) | (__h##name##u(a.y, b.y) ? 0xffff0000u : 0u);                  \
  }
#define AIOCUDA_NARROW_OPERATOR(T, P, op, name)                                                       \
  inline T operator op(const T& a, const T& b) { return __h##name(a, b); }                            \
  inline T& operator op## = (T & a, const T& b) { return a = __h##name(a, b); }                       \
  inline P operator op(const P& a, const P& b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; } \
  inline P& operator op## = (P & a, const P& b) { return a = a op b; }
#define AIOCUDA_NARROW_RELATION(T, P, op, name)                               \
  inline bool operator op(const T& a, const T& b) { return __h##name(a, b); } \
  inline bool operator op(const P& a, const P& b) { return __hb##name##2(a, b); }

#define AIOCUDA_NARROW_FUNCTIONS(T, R, P, F)                                                                       \
  AIOCUDA_NARROW_BINARY(T, P, __hadd, __hadd2, T((float)a + (float)b))                                             \
  AIOCUDA_NARROW_BINARY(T, P, __hsub, __hsub2, T((float)a - (float)b))                                             \
  AIOCUDA_NARROW_BINARY(T, P, __hmul, __hmul2, T((float)a*(float)b))                                               \
  AIOCUDA_NARROW_BINARY(T, P, __hdiv, __h2div, T((float)a / (float)b))                                             \
  AIOCUDA_NARROW_BINARY(T, P, __hadd_rn, __hadd2_rn, __hadd(a, b))                                                 \
  AIOCUDA_NARROW_BINARY(T, P, __hsub_rn, __hsub2_rn, __hsub(a, b))                                                 \
  AIOCUDA_NARROW_BINARY(T, P, __hmul_rn, __hmul2_rn, __hmul(a, b))                                                 \
  AIOCUDA_NARROW_BINARY(T, P, __hadd_sat, __hadd2_sat, T(__saturatef((float)__hadd(a, b))))                        \
  AIOCUDA_NARROW_BINARY(T, P, __hsub_sat, __hsub2_sat, T(__saturatef((float)__hsub(a, b))))                        \
  AIOCUDA_NARROW_BINARY(T, P, __hmul_sat, __hmul2_sat, T(__saturatef((float)__hmul(a, b))))                        \
  AIOCUDA_NARROW_TERNARY(T, P, __hfma, __hfma2, T(aiocuda_device::fused((float)a, (float)b, (float)c)))            \
  AIOCUDA_NARROW_TERNARY(T, P, __hfma_sat, __hfma2_sat, T(__saturatef((float)__hfma(a, b, c))))                    \
  AIOCUDA_NARROW_UNARY(T, P, __hneg, __hneg2, T(R{(unsigned short)(a.__x ^ 0x8000u)}))                             \
  AIOCUDA_NARROW_UNARY(T, P, __habs, __habs2, T(R{(unsigned short)(a.__x & 0x7fffu)}))                             \
  inline bool __hisnan(T a) { return __builtin_isnan((float)a); }                                                  \
  inline int __hisinf(T a) { return __builtin_isinf((float)a) ? ((float)a > 0 ? 1 : -1) : 0; }                     \
  inline P __hisnan2(P a) { return {T(__hisnan(a.x) ? 1.0f : 0.0f), T(__hisnan(a.y) ? 1.0f : 0.0f)}; }             \
  AIOCUDA_NARROW_TERNARY(T, P, __hfma_relu, __hfma2_relu,                                                          \
                         ((float)__hfma(a, b, c) > 0 || __hisnan(__hfma(a, b, c)) ? __hfma(a, b, c) : T(0.0f)))    \
  AIOCUDA_NARROW_BINARY(T, P, __hmax, __hmax2, T(__builtin_fmaxf((float)a, (float)b)))                             \
  AIOCUDA_NARROW_BINARY(T, P, __hmin, __hmin2, T(__builtin_fminf((float)a, (float)b)))                             \
  AIOCUDA_NARROW_BINARY(T, P, __hmax_nan, __hmax2_nan, (__hisnan(a) || __hisnan(b) ? T(R{0x7fff}) : __hmax(a, b))) \
  AIOCUDA_NARROW_BINARY(T, P, __hmin_nan, __hmin2_nan, (__hisnan(a) || __hisnan(b) ? T(R{0x7fff}) : __hmin(a, b))) \
  AIOCUDA_NARROW_UNARY(T, P, hsqrt, h2sqrt, T(__builtin_sqrtf((float)a)))                                          \
  AIOCUDA_NARROW_UNARY(T, P, hrsqrt, h2rsqrt, T(1.0 / sqrt((double)(float)a)))                                     \
  AIOCUDA_NARROW_UNARY(T, P, hrcp, h2rcp, T(1.0f / (float)a))                                                      \
  AIOCUDA_NARROW_UNARY(T, P, hexp, h2exp, T(exp((double)(float)a)))                                                \
  AIOCUDA_NARROW_UNARY(T, P, hexp2, h2exp2, T(exp2((double)(float)a)))                                             \
  AIOCUDA_NARROW_UNARY(T, P, hexp10, h2exp10, T(exp10((double)(float)a)))                                          \
  AIOCUDA_NARROW_UNARY(T, P, hlog, h2log, T(log((double)(float)a)))                                                \
  AIOCUDA_NARROW_UNARY(T, P, hlog2, h2log2, T(log2((double)(float)a)))                                             \
  AIOCUDA_NARROW_UNARY(T, P, hlog10, h2log10, T(log10((double)(float)a)))                                          \
  AIOCUDA_NARROW_UNARY(T, P, hsin, h2sin, T(sin((double)(float)a)))                                                \
  AIOCUDA_NARROW_UNARY(T, P, hcos, h2cos, T(cos((double)(float)a)))                                                \
  AIOCUDA_NARROW_UNARY(T, P, htanh, h2tanh, T(tanh((double)(float)a)))                                             \
  AIOCUDA_NARROW_UNARY(T, P, htanh_approx, h2tanh_approx, T(tanh((double)(float)a)))                               \
  AIOCUDA_NARROW_UNARY(T, P, hceil, h2ceil, T(__builtin_ceilf((float)a)))                                          \
  AIOCUDA_NARROW_UNARY(T, P, hfloor, h2floor, T(__builtin_floorf((float)a)))                                       \
  AIOCUDA_NARROW_UNARY(T, P, htrunc, h2trunc, T(__builtin_truncf((float)a)))                                       \
  AIOCUDA_NARROW_UNARY(T, P, hrint, h2rint, T(__builtin_rintf((float)a)))                                          \
  AIOCUDA_NARROW_COMPARE(T, P, eq, ==)                                                                             \
  inline bool __hne(T a, T b) { return !__builtin_isunordered((float)a, (float)b) && (float)a != (float)b; }       \
  inline bool __hneu(T a, T b) { return (float)a != (float)b; }                                                    \
  inline P __hne2(P a, P b) { return {T(__hne(a.x, b.x) ? 1.0f : 0.0f), T(__hne(a.y, b.y) ? 1.0f : 0.0f)}; }       \
  inline P __hneu2(P a, P b) { return {T(__hneu(a.x, b.x) ? 1.0f : 0.0f), T(__hneu(a.y, b.y) ? 1.0f : 0.0f)}; }    \
  inline bool __hbne2(P a, P b) { return __hne(a.x, b.x) && __hne(a.y, b.y); }                                     \
  inline bool __hbneu2(P a, P b) { return __hneu(a.x, b.x) && __hneu(a.y, b.y); }                                  \
  inline unsigned __hne2_mask(P a, P b) {                                                                          \
    return (__hne(a.x, b.x) ? 0xffffu : 0u) | (__hne(a.y, b.y) ? 0xffff0000u : 0u);                                \
  }                                                                                                                \
  inline unsigned __hneu2_mask(P a, P b) {                                                                         \
    return (__hneu(a.x, b.x) ? 0xffffu : 0u) | (__hneu(a.y, b.y) ? 0xffff0000u : 0u);                              \
  }                                                                                                                \
  AIOCUDA_NARROW_COMPARE(T, P, lt, <)                                                                              \
  AIOCUDA_NARROW_COMPARE(T, P, le, <=)                                                                             \
  AIOCUDA_NARROW_COMPARE(T, P, gt, >)                                                                              \
  AIOCUDA_NARROW_COMPARE(T, P, ge, >=)                                                                             \
  AIOCUDA_NARROW_OPERATOR(T, P, +, add)                                                                            \
  AIOCUDA_NARROW_OPERATOR(T, P, -, sub)                                                                            \
  AIOCUDA_NARROW_OPERATOR(T, P, *, mul)                                                                            \
  AIOCUDA_NARROW_OPERATOR(T, P, /, div)                                                                            \
  AIOCUDA_NARROW_RELATION(T, P, ==, eq)                                                                            \
  AIOCUDA_NARROW_RELATION(T, P, !=, neu)                                                                           \
  AIOCUDA_NARROW_RELATION(T, P, <, lt)                                                                             \
  AIOCUDA_NARROW_RELATION(T, P, <=, le)                                                                            \
  AIOCUDA_NARROW_RELATION(T, P, >, gt)                                                                             \
  AIOCUDA_NARROW_RELATION(T, P, >=, ge)                                                                            \
  inline T operator+(const T& a) { return a; }                                                                     \
  inline T operator-(const T& a) { return __hneg(a); }                                                             \
  inline P operator+(const P& a) { return a; }                                                                     \
  inline P operator-(const P& a) { return __hneg2(a); }                                                            \
  inline T& operator++(T& a) { return a = __hadd(a, T(1.0f)); }                                                    \
  inline T& operator--(T& a) { return a = __hsub(a, T(1.0f)); }                                                    \
  inline T operator++(T& a, int) {                                                                                 \
    const T before = a;                                                                                            \
    ++a;                                                                                                           \
    return before;                                                                                                 \
  }                                                                                                                \
  inline T operator--(T& a, int) {                                                                                 \
    const T before = a;                                                                                            \
    --a;                                                                                                           \
    return before;                                                                                                 \
  }                                                                                                                \
  AIOCUDA_SHUFFLES(T)                                                                                              \
  AIOCUDA_SHUFFLES(P)                                                                                              \
  inline T atomicAdd(T* address, T value) {                                                                        \
    return aiocuda_device::atomic_update(address, [=](T before) { return __hadd(before, value); });                \
  }                                                                                                                \
  inline P atomicAdd(P* address, P value) { return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)}; }

// Conversions named after the type N ("half" or "bfloat16"), for one integer type and for one rounding.
#define AIOCUDA_NARROW_INTEGER(T, N, F, I, In, wide)                      \
  AIOCUDA_NARROW_INTEGER_ROUNDED(T, N, F, I, In, wide, rn, rint, nearest) \
  AIOCUDA_NARROW_INTEGER_ROUNDED(T, N, F, I, In, wide, rz, trunc, zero)   \
  AIOCUDA_NARROW_INTEGER_ROUNDED(T, N, F, I, In, wide, ru, ceil, up)      \
  AIOCUDA_NARROW_INTEGER_ROUNDED(T, N, F, I, In, wide, rd, floor, down)
#define AIOCUDA_NARROW_INTEGER_ROUNDED(T, N, F, I, In, wide, suffix, round, mode)         \
  inline I __##N##2##In##_##suffix(T a) {                                                 \
    constexpr I not_a_number = sizeof(I) == 8 ? (I)0x8000000000000000ull : (I)0;          \
    return aiocuda_device::to_integer<I>(__builtin_##round##f((float)a), not_a_number);   \
  }                                                                                       \
  inline T __##In##2##N##_##suffix(I a) {                                                 \
    T result;                                                                             \
    result.__x = aiocuda_device::F::from_double(wide(a), aiocuda_device::Rounding::mode); \
    return result;                                                                        \
  }
#define AIOCUDA_NARROW_CONVERSIONS(T, N, F)                                            \
  inline T __float2##N(float a) { return T(a); }                                       \
  inline float __##N##2float(T a) { return (float)a; }                                 \
  inline T __double2##N(double a) { return T(a); }                                     \
  AIOCUDA_NARROW_FROM_FLOAT(T, N, F, rn, nearest)                                      \
  AIOCUDA_NARROW_FROM_FLOAT(T, N, F, rz, zero)                                         \
  AIOCUDA_NARROW_FROM_FLOAT(T, N, F, ru, up)                                           \
  AIOCUDA_NARROW_FROM_FLOAT(T, N, F, rd, down)                                         \
  AIOCUDA_NARROW_INTEGER(T, N, F, int, int, (double))                                  \
  AIOCUDA_NARROW_INTEGER(T, N, F, unsigned, uint, (double))                            \
  AIOCUDA_NARROW_INTEGER(T, N, F, short, short, (double))                              \
  AIOCUDA_NARROW_INTEGER(T, N, F, unsigned short, ushort, (double))                    \
  AIOCUDA_NARROW_INTEGER(T, N, F, long long, ll, aiocuda_device::odd_double)           \
  AIOCUDA_NARROW_INTEGER(T, N, F, unsigned long long, ull, aiocuda_device::odd_double) \
  inline signed char __##N##2char_rz(T a) { return (signed char)a; }                   \
  inline unsigned char __##N##2uchar_rz(T a) { return (unsigned char)a; }              \
  inline short __##N##_as_short(T a) { return (short)a.__x; }                          \
  inline unsigned short __##N##_as_ushort(T a) { return a.__x; }                       \
  inline T __short_as_##N(short a) { return aiocuda_device::bits<T>(a); }              \
  inline T __ushort_as_##N(unsigned short a) { return aiocuda_device::bits<T>(a); }
#define AIOCUDA_NARROW_FROM_FLOAT(T, N, F, suffix, mode)                                    \
  inline T __float2##N##_##suffix(float a) {                                                \
    T result;                                                                               \
    result.__x = aiocuda_device::F::from_double((double)a, aiocuda_device::Rounding::mode); \
    return result;                                                                          \
  }
