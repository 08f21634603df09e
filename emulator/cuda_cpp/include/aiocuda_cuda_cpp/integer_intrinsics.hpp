// Integer intrinsics: bits, bytes, wide products, and the packed (SIMD in a word) forms.
#pragma once

#include "language.hpp"

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x != 0 ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x != 0 ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
// The place of the n-th set bit at or past `base`, counted forward (offset > 0) or back (offset < 0).
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return (mask >> base & 1u) != 0 ? base : 0xffffffffu;
  int left = offset > 0 ? offset : -offset;
  for (unsigned i = base; i < 32; i += offset > 0 ? 1u : 0xffffffffu) {
    if ((mask >> i & 1u) != 0 && --left == 0) return i;
  }
  return 0xffffffffu;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i) & 15u;
    unsigned byte = (unsigned)(bytes >> (8 * (pick & 7u))) & 255u;
    if ((pick & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31u));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  const unsigned by = shift < 32u ? shift : 32u;
  return by == 32u ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  const unsigned by = shift < 32u ? shift : 32u;
  return by == 32u ? high : __funnelshift_r(low, high, by);
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int mulhi(int a, int b) { return __mulhi(a, b); }
inline unsigned mulhi(unsigned a, unsigned b) { return __umulhi(a, b); }
inline long long mul64hi(long long a, long long b) { return __mul64hi(a, b); }
inline unsigned long long mul64hi(unsigned long long a, unsigned long long b) { return __umul64hi(a, b); }
inline int __mul24(int a, int b) {
  return (int)((unsigned)((int)((unsigned)a << 8) >> 8) * (unsigned)((int)((unsigned)b << 8) >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int mul24(int a, int b) { return __mul24(a, b); }
inline unsigned umul24(unsigned a, unsigned b) { return __umul24(a, b); }
inline unsigned __sad(int a, int b, unsigned c) {
  return (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a) + c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
inline int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b + 1) >> 1); }

namespace aiocuda_device {

template <class T>
inline int packed_element(unsigned word, unsigned i) {
  return (int)(T)(word >> (8 * sizeof(T) * i));
}
// `operation` on each element of type T packed in a word.
template <class T, class F>
inline unsigned packed_apply(unsigned a, unsigned b, F operation) {
  constexpr unsigned width = 8 * sizeof(T);
  constexpr unsigned mask = (1u << width) - 1u;
  unsigned result = 0;
  for (unsigned i = 0; i < 32 / width; ++i) {
    result |= ((unsigned)operation(packed_element<T>(a, i), packed_element<T>(b, i)) & mask) << (width * i);
  }
  return result;
}
template <class A, class B>
inline int dot4(unsigned a, unsigned b) {
  int sum = 0;
  for (unsigned i = 0; i < 4; ++i) sum += packed_element<A>(a, i) * packed_element<B>(b, i);
  return sum;
}
template <class A, class B>
inline int dot2(unsigned a, unsigned b, unsigned first) {
  return packed_element<A>(a, 0) * packed_element<B>(b, first) +
         packed_element<A>(a, 1) * packed_element<B>(b, first + 1);
}
inline int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

}  // namespace aiocuda_device

inline int __dp4a(int a, int b, int c) { return aiocuda_device::dot4<signed char, signed char>(a, b) + c; }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return (unsigned)aiocuda_device::dot4<unsigned char, unsigned char>(a, b) + c;
}
inline int __dp2a_lo(int a, int b, int c) { return aiocuda_device::dot2<short, signed char>(a, b, 0) + c; }
inline int __dp2a_hi(int a, int b, int c) { return aiocuda_device::dot2<short, signed char>(a, b, 2) + c; }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return (unsigned)aiocuda_device::dot2<unsigned short, unsigned char>(a, b, 0) + c;
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return (unsigned)aiocuda_device::dot2<unsigned short, unsigned char>(a, b, 2) + c;
}

#define AIOCUDA_PACKED(name, T, expression)                                                \
  inline unsigned name(unsigned a, unsigned b) {                                           \
    return aiocuda_device::packed_apply<T>(a, b, [](int x, int y) { return expression; }); \
  }
#define AIOCUDA_PACKED_SET(count, S, U, smin, smax, umax)                                                        \
  AIOCUDA_PACKED(__vadd##count, U, x + y)                                                                        \
  AIOCUDA_PACKED(__vsub##count, U, x - y)                                                                        \
  AIOCUDA_PACKED(__vaddss##count, S, aiocuda_device::clamped(x + y, smin, smax))                                 \
  AIOCUDA_PACKED(__vaddus##count, U, aiocuda_device::clamped(x + y, 0, umax))                                    \
  AIOCUDA_PACKED(__vsubss##count, S, aiocuda_device::clamped(x - y, smin, smax))                                 \
  AIOCUDA_PACKED(__vsubus##count, U, aiocuda_device::clamped(x - y, 0, umax))                                    \
  AIOCUDA_PACKED(__vabsdiffs##count, S, (x > y ? x - y : y - x))                                                 \
  AIOCUDA_PACKED(__vabsdiffu##count, U, (x > y ? x - y : y - x))                                                 \
  AIOCUDA_PACKED(__vavgs##count, S, (x + y + (x + y >= 0)) >> 1)                                                 \
  AIOCUDA_PACKED(__vavgu##count, U, (x + y + 1) >> 1)                                                            \
  AIOCUDA_PACKED(__vhaddu##count, U, (x + y) >> 1)                                                               \
  AIOCUDA_PACKED(__vmaxs##count, S, (x > y ? x : y))                                                             \
  AIOCUDA_PACKED(__vmaxu##count, U, (x > y ? x : y))                                                             \
  AIOCUDA_PACKED(__vmins##count, S, (x < y ? x : y))                                                             \
  AIOCUDA_PACKED(__vminu##count, U, (x < y ? x : y))                                                             \
  AIOCUDA_PACKED_COMPARE(count, S, eq, x == y)                                                                   \
  AIOCUDA_PACKED_COMPARE(count, S, ne, x != y)                                                                   \
  AIOCUDA_PACKED_COMPARE(count, S, ges, x >= y)                                                                  \
  AIOCUDA_PACKED_COMPARE(count, U, geu, x >= y)                                                                  \
  AIOCUDA_PACKED_COMPARE(count, S, gts, x > y)                                                                   \
  AIOCUDA_PACKED_COMPARE(count, U, gtu, x > y)                                                                   \
  AIOCUDA_PACKED_COMPARE(count, S, les, x <= y)                                                                  \
  AIOCUDA_PACKED_COMPARE(count, U, leu, x <= y)                                                                  \
  AIOCUDA_PACKED_COMPARE(count, S, lts, x < y)                                                                   \
  AIOCUDA_PACKED_COMPARE(count, U, ltu, x < y)                                                                   \
  inline unsigned __vneg##count(unsigned a) { return __vsub##count(0u, a); }                                     \
  inline unsigned __vnegss##count(unsigned a) { return __vsubss##count(0u, a); }                                 \
  inline unsigned __vabs##count(unsigned a) {                                                                    \
    return aiocuda_device::packed_apply<S>(a, 0u, [](int x, int) { return x < 0 ? -x : x; });                    \
  }                                                                                                              \
  inline unsigned __vabsss##count(unsigned a) {                                                                  \
    return aiocuda_device::packed_apply<S>(a, 0u, [](int x, int) { return x == smin ? smax : x < 0 ? -x : x; }); \
  }                                                                                                              \
  inline unsigned __vsads##count(unsigned a, unsigned b) {                                                       \
    unsigned sum = 0;                                                                                            \
    for (unsigned i = 0; i < count; ++i) sum += aiocuda_device::packed_element<U>(__vabsdiffs##count(a, b), i);  \
    return sum;                                                                                                  \
  }                                                                                                              \
  inline unsigned __vsadu##count(unsigned a, unsigned b) {                                                       \
    unsigned sum = 0;                                                                                            \
    for (unsigned i = 0; i < count; ++i) sum += aiocuda_device::packed_element<U>(__vabsdiffu##count(a, b), i);  \
    return sum;                                                                                                  \
  }
#define AIOCUDA_PACKED_COMPARE(count, T, name, expression)        \
  AIOCUDA_PACKED(__vcmp##name##count, T, ((expression) ? -1 : 0)) \
  AIOCUDA_PACKED(__vset##name##count, T, ((expression) ? 1 : 0))
AIOCUDA_PACKED_SET(2, short, unsigned short, -32768, 32767, 65535)
AIOCUDA_PACKED_SET(4, signed char, unsigned char, -128, 127, 255)
#undef AIOCUDA_PACKED_SET
#undef AIOCUDA_PACKED_COMPARE
#undef AIOCUDA_PACKED

// Minimum and maximum of sums and of three, with a floor at zero ("relu"), and telling which operand it was.
#define AIOCUDA_SELECT(suffix, T)                                                                             \
  inline T __vimax_##suffix(T a, T b) { return a < b ? b : a; }                                               \
  inline T __vimin_##suffix(T a, T b) { return b < a ? b : a; }                                               \
  inline T __vimax3_##suffix(T a, T b, T c) { return __vimax_##suffix(__vimax_##suffix(a, b), c); }           \
  inline T __vimin3_##suffix(T a, T b, T c) { return __vimin_##suffix(__vimin_##suffix(a, b), c); }           \
  inline T __viaddmax_##suffix(T a, T b, T c) { return __vimax_##suffix((T)((unsigned)a + (unsigned)b), c); } \
  inline T __viaddmin_##suffix(T a, T b, T c) { return __vimin_##suffix((T)((unsigned)a + (unsigned)b), c); } \
  inline T __vibmax_##suffix(T a, T b, bool* first) {                                                         \
    *first = a >= b;                                                                                          \
    return *first ? a : b;                                                                                    \
  }                                                                                                           \
  inline T __vibmin_##suffix(T a, T b, bool* first) {                                                         \
    *first = a <= b;                                                                                          \
    return *first ? a : b;                                                                                    \
  }
AIOCUDA_SELECT(s32, int)
AIOCUDA_SELECT(u32, unsigned)
#undef AIOCUDA_SELECT
inline int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
inline int __vimin_s32_relu(int a, int b) { return __vimax_s32(__vimin_s32(a, b), 0); }
inline int __vimax3_s32_relu(int a, int b, int c) { return __vimax_s32(__vimax3_s32(a, b, c), 0); }
inline int __vimin3_s32_relu(int a, int b, int c) { return __vimax_s32(__vimin3_s32(a, b, c), 0); }
inline int __viaddmax_s32_relu(int a, int b, int c) { return __vimax_s32(__viaddmax_s32(a, b, c), 0); }
inline int __viaddmin_s32_relu(int a, int b, int c) { return __vimax_s32(__viaddmin_s32(a, b, c), 0); }

#define AIOCUDA_SELECT_PAIRS(suffix, max, min)                                                              \
  inline unsigned __vimax3_##suffix(unsigned a, unsigned b, unsigned c) { return max(max(a, b), c); }       \
  inline unsigned __vimin3_##suffix(unsigned a, unsigned b, unsigned c) { return min(min(a, b), c); }       \
  inline unsigned __viaddmax_##suffix(unsigned a, unsigned b, unsigned c) { return max(__vadd2(a, b), c); } \
  inline unsigned __viaddmin_##suffix(unsigned a, unsigned b, unsigned c) { return min(__vadd2(a, b), c); } \
  inline unsigned __vibmax_##suffix(unsigned a, unsigned b, bool* high, bool* low) {                        \
    const unsigned chosen = max(a, b);                                                                      \
    *high = chosen >> 16 == a >> 16;                                                                        \
    *low = (chosen & 0xffffu) == (a & 0xffffu);                                                             \
    return chosen;                                                                                          \
  }                                                                                                         \
  inline unsigned __vibmin_##suffix(unsigned a, unsigned b, bool* high, bool* low) {                        \
    const unsigned chosen = min(a, b);                                                                      \
    *high = chosen >> 16 == a >> 16;                                                                        \
    *low = (chosen & 0xffffu) == (a & 0xffffu);                                                             \
    return chosen;                                                                                          \
  }
AIOCUDA_SELECT_PAIRS(s16x2, __vmaxs2, __vmins2)
AIOCUDA_SELECT_PAIRS(u16x2, __vmaxu2, __vminu2)
#undef AIOCUDA_SELECT_PAIRS
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vimax3_s16x2(a, b, 0u); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) { return __vmaxs2(__vmins2(a, b), 0u); }
inline unsigned __vimax3_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return __vmaxs2(__vimax3_s16x2(a, b, c), 0u);
}
inline unsigned __vimin3_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return __vmaxs2(__vimin3_s16x2(a, b, c), 0u);
}
inline unsigned __viaddmax_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return __vmaxs2(__viaddmax_s16x2(a, b, c), 0u);
}
inline unsigned __viaddmin_s16x2_relu(unsigned a, unsigned b, unsigned c) {
  return __vmaxs2(__viaddmin_s16x2(a, b, c), 0u);
}

inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
inline unsigned __nv_bswap32(unsigned x) { return __builtin_bswap32(x); }
inline unsigned long long __nv_bswap64(unsigned long long x) { return __builtin_bswap64(x); }
