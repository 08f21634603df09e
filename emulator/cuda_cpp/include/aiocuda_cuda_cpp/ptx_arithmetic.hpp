// Arithmetic, conversions and comparisons of inline PTX, as functions that the rewriter calls (nvrtc/ptx.cpp). A
// register is 64 bits, of which an instruction uses as many as its type says.
#pragma once

#include "block.hpp"
#include "cuda_bf16.hpp"
#include "cuda_fp16.hpp"
#include "float_intrinsics.hpp"
#include "integer_intrinsics.hpp"
#include "math.hpp"

namespace aiocuda_device {
namespace ptx {

using Register = unsigned long long;

template <class T>
inline T get(Register r) {
  T value;
  __builtin_memcpy(&value, &r, sizeof value);
  return value;
}
template <class T>
inline Register put(T value) {
  if constexpr (is_integral<T>) {
    return (Register)(long long)value;
  } else {
    Register r = 0;
    __builtin_memcpy(&r, &value, sizeof value);
    return r;
  }
}

// Operands: what an expression of the program is in a register, and back.
template <class T>
inline Register in(T value) {
  if constexpr (is_integral<T>) {
    return (Register)(long long)value;
  } else if constexpr (sizeof(T) == 8 || sizeof(T) == 4 || sizeof(T) == 2 || sizeof(T) == 1) {
    return put(value);
  } else {
    static_assert(never<T>, "an operand of asm has 1, 2, 4 or 8 bytes");
  }
}
template <class T>
inline void out(T& to, Register r) {
  static_assert(sizeof(T) <= 8, "an operand of asm has at most 8 bytes");
  __builtin_memcpy(&to, &r, sizeof to);
}

template <class T>
struct WideOf;
template <>
struct WideOf<short> {
  using type = int;
};
template <>
struct WideOf<unsigned short> {
  using type = unsigned;
};
template <>
struct WideOf<int> {
  using type = long long;
};
template <>
struct WideOf<unsigned> {
  using type = unsigned long long;
};
template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<short> {
  using type = unsigned short;
};
template <>
struct UnsignedOf<int> {
  using type = unsigned;
};
template <>
struct UnsignedOf<long long> {
  using type = unsigned long long;
};

// Integers wrap around.
#define AIOCUDA_PTX_WRAPPING(name, operation)                                \
  template <class T>                                                         \
  inline Register name(Register a, Register b) {                             \
    if constexpr (is_integral<T>) {                                          \
      using U = typename UnsignedOf<T>::type;                                \
      return put((T)(U)((Register)get<U>(a) operation(Register) get<U>(b))); \
    } else {                                                                 \
      return put<T>(get<T>(a) operation get<T>(b));                          \
    }                                                                        \
  }
AIOCUDA_PTX_WRAPPING(add, +)
AIOCUDA_PTX_WRAPPING(sub, -)
AIOCUDA_PTX_WRAPPING(mul, *)
#undef AIOCUDA_PTX_WRAPPING

#define AIOCUDA_PTX_BINARY(name, expression)       \
  template <class T>                               \
  inline Register name(Register a_, Register b_) { \
    const T a = get<T>(a_);                        \
    const T b = get<T>(b_);                        \
    return put<T>(expression);                     \
  }
AIOCUDA_PTX_BINARY(bit_and, (T)(a & b))
AIOCUDA_PTX_BINARY(bit_or, (T)(a | b))
AIOCUDA_PTX_BINARY(bit_xor, (T)(a ^ b))
AIOCUDA_PTX_BINARY(div, (T)(a / b))
AIOCUDA_PTX_BINARY(rem, (T)(a % b))
AIOCUDA_PTX_BINARY(min, a != a ? b : b != b ? a : b < a ? b : a)
AIOCUDA_PTX_BINARY(max, a != a ? b : b != b ? a : a < b ? b : a)
#undef AIOCUDA_PTX_BINARY

template <class T>
inline Register shl(Register a, Register b) {
  const unsigned count = get<unsigned>(b);
  return count >= sizeof(T) * 8 ? 0 : put<T>((T)(get<T>(a) << count));
}
template <class T>
inline Register shr(Register a, Register b) {
  const unsigned count = get<unsigned>(b);
  const unsigned bits = sizeof(T) * 8;
  return put<T>((T)(get<T>(a) >> (count < bits ? count : bits - 1) >> (count < bits ? 0 : 1)));
}
template <class T>
inline Register mul_hi(Register a, Register b) {
  if constexpr (sizeof(T) == 8) {
    if constexpr (T(-1) < T(0)) {
      return put<T>((T)((__int128)get<T>(a) * get<T>(b) >> 64));
    } else {
      return put<T>((T)((unsigned __int128)get<T>(a) * get<T>(b) >> 64));
    }
  } else {
    using W = typename WideOf<T>::type;
    return put<T>((T)((W)get<T>(a) * (W)get<T>(b) >> (sizeof(T) * 8)));
  }
}
template <class T>
inline Register mul_wide(Register a, Register b) {
  using W = typename WideOf<T>::type;
  return put<W>((W)get<T>(a) * (W)get<T>(b));
}
template <class T>
inline Register mad(Register a, Register b, Register c) {
  return add<T>(mul<T>(a, b), c);
}
template <class T>
inline Register mad_hi(Register a, Register b, Register c) {
  return add<T>(mul_hi<T>(a, b), c);
}
template <class T>
inline Register mad_wide(Register a, Register b, Register c) {
  return add<typename WideOf<T>::type>(mul_wide<T>(a, b), c);
}
template <class T>
inline Register fma(Register a, Register b, Register c) {
  if constexpr (is_same<T, float>) {
    return put(__builtin_fmaf(get<float>(a), get<float>(b), get<float>(c)));
  } else if constexpr (is_same<T, double>) {
    return put(__builtin_fma(get<double>(a), get<double>(b), get<double>(c)));
  } else if constexpr (sizeof(T) == 2) {
    return put(::__hfma(get<T>(a), get<T>(b), get<T>(c)));
  } else {
    return put(::__hfma2(get<T>(a), get<T>(b), get<T>(c)));
  }
}
template <class T>
inline Register sad(Register a_, Register b_, Register c) {
  const T a = get<T>(a_);
  const T b = get<T>(b_);
  return add<T>(put<T>((T)(a < b ? b - a : a - b)), c);
}

template <class T>
inline Register neg(Register a) {
  return put<T>((T)(-get<T>(a)));
}
template <class T>
inline Register abs(Register a_) {
  if constexpr (is_integral<T>) {
    const T a = get<T>(a_);
    return a < 0 ? neg<T>(a_) : put<T>(a);
  } else {
    return a_ & ~(1ull << (sizeof(T) * 8 - 1));
  }
}
template <class T>
inline Register bit_not(Register a) {
  return put<T>((T)~get<T>(a));
}
inline Register not_predicate(Register a) { return a == 0; }
template <class T>
inline Register cnot(Register a) {
  return put<T>((T)(get<T>(a) == 0));
}
template <class T>
inline Register popc(Register a) {
  return (Register)__builtin_popcountll(get<T>(a));
}
template <class T>
inline Register clz(Register a) {
  const T value = get<T>(a);
  return value == 0 ? sizeof(T) * 8 : (Register)__builtin_clzll(value) - (64 - sizeof(T) * 8);
}
template <class T>
inline Register brev(Register a) {
  T result = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; ++i) result |= (T)(get<T>(a) >> i & 1) << (sizeof(T) * 8 - 1 - i);
  return put<T>(result);
}
template <class T>
inline Register bfind(Register a) {
  using U = typename UnsignedOf<T>::type;
  U value = get<U>(a);
  if (T(-1) < T(0) && (value >> (sizeof(T) * 8 - 1)) != 0) value = (U)~value;
  return value == 0 ? 0xffffffffu : 63 - (Register)__builtin_clzll(value);
}
template <class T>
inline Register bfe(Register a_, Register b, Register c) {
  using U = typename UnsignedOf<T>::type;
  const unsigned width = sizeof(T) * 8;
  const unsigned first = b & 0xff;
  const unsigned count = c & 0xff;
  if (count == 0) return 0;
  const U a = get<U>(a_);
  const unsigned last = first + count - 1 < width - 1 ? first + count - 1 : width - 1;
  const bool sign = T(-1) < T(0) && (a >> last & 1) != 0;
  U result = 0;
  for (unsigned i = 0; i < width; ++i) {
    const bool bit = i < count && first + i < width ? (a >> (first + i) & 1) != 0 : sign;
    result |= (U)bit << i;
  }
  return put<T>((T)result);
}
template <class T>
inline Register bfi(Register a_, Register b_, Register c, Register d) {
  const unsigned first = c & 0xff;
  const unsigned count = d & 0xff;
  const T a = get<T>(a_);
  T b = get<T>(b_);
  for (unsigned i = 0; i < count && first + i < sizeof(T) * 8; ++i) {
    b = (T)((b & ~((T)1 << (first + i))) | ((a >> i & 1) << (first + i)));
  }
  return put<T>(b);
}
// Ones from bit `first`, `count` of them; what would lie beyond the last bit is left out.
template <class T>
inline Register bmsk(Register first_, Register count_) {
  const unsigned first = (unsigned)first_;
  const unsigned count = (unsigned)count_;
  if (first >= 32) return 0;
  const unsigned ones = count >= 32 ? 0xffffffffu : (1u << count) - 1;
  return ones << first;
}
inline Register prmt(Register a, Register b, Register selector) {
  const unsigned long long both = (b & 0xffffffffull) << 32 | (a & 0xffffffffull);
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned byte = (unsigned)(both >> (8 * (selector >> (4 * i) & 7)) & 0xff);
    if ((selector >> (4 * i + 3) & 1) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // its sign, in all of it
    result |= byte << (8 * i);
  }
  return result;
}
inline Register lop3(Register a, Register b, Register c, Register table) {
  unsigned result = 0;
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
    result |= (unsigned)(table >> index & 1) << i;
  }
  return result;
}
inline Register shf(Register a, Register b, Register count, bool to_left, bool wraps) {
  const unsigned n = wraps ? (unsigned)count & 31 : (unsigned)count > 32 ? 32 : (unsigned)count;
  const unsigned long long both = (b & 0xffffffffull) << 32 | (a & 0xffffffffull);
  return to_left ? (unsigned)((both << n) >> 32) : (unsigned)(both >> n);
}
template <class A, class B>
inline Register dp4a(Register a, Register b, Register c) {
  int sum = (int)c;
  for (unsigned i = 0; i < 4; ++i) sum += (int)(A)(a >> (8 * i)) * (int)(B)(b >> (8 * i));
  return (unsigned)sum;
}

#define AIOCUDA_PTX_FUNCTION(name, single, twofold)                                                    \
  template <class T>                                                                                   \
  inline Register name(Register a) {                                                                   \
    if constexpr (is_same<T, double>) {                                                                \
      return put<double>(twofold);                                                                     \
    } else {                                                                                           \
      static_assert(is_same<T, float>, #name " of this type is not supported on the emulated driver"); \
      return put<float>(single);                                                                       \
    }                                                                                                  \
  }
AIOCUDA_PTX_FUNCTION(rcp, 1.0f / get<float>(a), 1.0 / get<double>(a))
AIOCUDA_PTX_FUNCTION(sqrt, __builtin_sqrtf(get<float>(a)), __builtin_sqrt(get<double>(a)))
AIOCUDA_PTX_FUNCTION(rsqrt, 1.0f / __builtin_sqrtf(get<float>(a)), 1.0 / __builtin_sqrt(get<double>(a)))
AIOCUDA_PTX_FUNCTION(ex2, ::exp2f(get<float>(a)), ::exp2(get<double>(a)))
AIOCUDA_PTX_FUNCTION(lg2, ::log2f(get<float>(a)), ::log2(get<double>(a)))
AIOCUDA_PTX_FUNCTION(sin, ::sinf(get<float>(a)), ::sin(get<double>(a)))
AIOCUDA_PTX_FUNCTION(cos, ::cosf(get<float>(a)), ::cos(get<double>(a)))
AIOCUDA_PTX_FUNCTION(tanh, ::tanhf(get<float>(a)), ::tanh(get<double>(a)))
#undef AIOCUDA_PTX_FUNCTION

// A number that the text of an instruction has, in the instruction's type.
template <class T>
inline Register literal(double value) {
  return put<T>((T)(float)value);
}
template <>
inline Register literal<double>(double value) {
  return put(value);
}

// ---- conversions: `rounding` is 'n', 'z', 'm' or 'p'; `saturates` to [0, 1] where To is a floating-point type.
template <class T>
inline constexpr bool is_narrow = is_one_of<T, __half, __nv_bfloat16>;

template <class To, class From>
inline Register cvt(Register a, char rounding, bool saturates) {
  const From value = get<From>(a);
  if constexpr (is_integral<From> && is_integral<To>) {
    if (!saturates) return put<To>((To)value);
    constexpr bool is_signed = To(-1) < To(0);
    const __int128 most = is_signed ? ((__int128)1 << (sizeof(To) * 8 - 1)) - 1 : ((__int128)1 << (sizeof(To) * 8)) - 1;
    const __int128 least = is_signed ? -most - 1 : 0;
    const __int128 wide = value;
    return put<To>((To)(wide < least ? least : wide > most ? most : wide));
  } else if constexpr (is_integral<To>) {
    const double wide = (double)(typename enable_if<true, From>::type)value;
    if (wide != wide) return sizeof(To) == 8 ? put<To>((To)1 << 63) : 0;
    const double whole = rounding == 'n'   ? __builtin_rint(wide)
                         : rounding == 'm' ? __builtin_floor(wide)
                         : rounding == 'p' ? __builtin_ceil(wide)
                                           : __builtin_trunc(wide);
    constexpr bool is_signed = To(-1) < To(0);
    const double past = __builtin_ldexp(1.0, sizeof(To) * 8 - (is_signed ? 1 : 0));
    if (whole >= past) return put<To>((To)(is_signed ? ~(typename UnsignedOf<To>::type)0 >> 1 : ~(To)0));
    if (whole < (is_signed ? -past : 0))
      return put<To>((To)(is_signed ? (To)((typename UnsignedOf<To>::type)1 << (sizeof(To) * 8 - 1)) : 0));
    return put<To>((To)whole);
  } else {
    const auto limited = [&](auto wide) { return !saturates ? wide : wide > 1 ? 1 : wide > 0 ? wide : 0; };
    if constexpr (is_narrow<To>) {
      return put(To(limited((double)value)));
    } else if constexpr (is_same<To, float> && is_same<From, double>) {
      return put(limited(rounding == 'z'   ? __double2float_rz(value)
                         : rounding == 'm' ? __double2float_rd(value)
                         : rounding == 'p' ? __double2float_ru(value)
                                           : (float)value));
    } else {
      return put<To>(limited((To)value));
    }
  }
}
// From floating point to the integral value of the same type.
template <class T>
inline Register cvt_to_whole(Register a, char rounding) {
  const double value = (double)get<T>(a);
  return put<T>((T)(rounding == 'n'   ? __builtin_rint(value)
                    : rounding == 'm' ? __builtin_floor(value)
                    : rounding == 'p' ? __builtin_ceil(value)
                                      : __builtin_trunc(value)));
}
template <class To>
inline Register cvt_pair(Register high, Register low) {
  return put(To(get<float>(high))) << 16 | put(To(get<float>(low)));
}
// tf32: a float with 10 digits behind the point.
inline unsigned to_tf32(float value) {
  const unsigned word = bits<unsigned>(value);
  if ((word & 0x7f800000u) == 0x7f800000u) return word;
  return (word + 0x1000u) & ~0x1fffu;
}
inline float from_tf32(unsigned word) { return bits<float>(word & ~0x1fffu); }

// ---- comparisons
enum class Comparison { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
template <class T>
inline bool compare(Comparison comparison, Register a_, Register b_) {
  const auto a = get<T>(a_);
  const auto b = get<T>(b_);
  bool unordered = false;
  if constexpr (!is_integral<T>) unordered = a != a || b != b;
  switch (comparison) {
    case Comparison::eq:
      return !unordered && a == b;
    case Comparison::ne:
      return !unordered && a != b;
    case Comparison::lt:
      return !unordered && a < b;
    case Comparison::le:
      return !unordered && a <= b;
    case Comparison::gt:
      return !unordered && a > b;
    case Comparison::ge:
      return !unordered && a >= b;
    case Comparison::equ:
      return unordered || a == b;
    case Comparison::neu:
      return unordered || a != b;
    case Comparison::ltu:
      return unordered || a < b;
    case Comparison::leu:
      return unordered || a <= b;
    case Comparison::gtu:
      return unordered || a > b;
    case Comparison::geu:
      return unordered || a >= b;
    case Comparison::num:
      return !unordered;
    default:
      return unordered;
  }
}

}  // namespace ptx
}  // namespace aiocuda_device
