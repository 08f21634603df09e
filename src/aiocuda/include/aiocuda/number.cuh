// Conversions between the types of NumPy and ml_dtypes, to the bit, in CUDA C++17. No other header is needed.
//
// Each type is a class here: `Word` is an item in memory; `read` gives its value as one of int, unsigned, long long,
// unsigned long long, Float or Double (the last two are the bits of a number); `write` takes any of these. So
// `to.write(from.read(word))` converts. Complex types have two parts.
//
// Always true: floats are rounded to nearest, ties to even; nothing depends on the option --fmad, on the processor, or
// on functions of a math library, as long as subnormal numbers are not made 0 (--ftz). Integers wrap. Floats that the
// integer type does not hold become the nearest one that it does, and NaN becomes 0. The 8-bit types and bfloat16 go by
// way of float32, as those of ml_dtypes do. NaN keeps its sign; what else it keeps is what NumPy on x86-64 and
// ml_dtypes keep.
#pragma once

namespace aiocuda::number {

using Bits32 = unsigned;
using Bits64 = unsigned long long;

struct Float {
  Bits32 bits;
};
struct Double {
  Bits64 bits;
};

__device__ constexpr Bits32 magnitude(Float x) { return x.bits & 0x7fffffffu; }
__device__ constexpr Bits64 magnitude(Double x) { return x.bits & 0x7fffffffffffffffull; }
__device__ constexpr bool is_nan(Float x) { return magnitude(x) > 0x7f800000u; }
__device__ constexpr bool is_nan(Double x) { return magnitude(x) > 0x7ff0000000000000ull; }
__device__ constexpr unsigned sign(Float x) { return x.bits >> 31; }
__device__ constexpr unsigned sign(Double x) { return static_cast<unsigned>(x.bits >> 63); }

__device__ __forceinline__ float value(Float x) { return __uint_as_float(x.bits); }
__device__ __forceinline__ double value(Double x) { return __longlong_as_double(static_cast<long long>(x.bits)); }

// NaN as processors disagree on it: quiet here, with the first bits of its payload.
__device__ __forceinline__ Double to_double(Float x) {
  if (is_nan(x)) {
    const Bits64 payload = x.bits & 0x7fffffu;
    return {static_cast<Bits64>(sign(x)) << 63 | 0x7ff8000000000000ull | payload << 29};
  }
  return {static_cast<Bits64>(__double_as_longlong(static_cast<double>(value(x))))};
}
__device__ __forceinline__ Float to_float(Double x) {
  if (is_nan(x)) return {sign(x) << 31 | 0x7fc00000u | static_cast<Bits32>(x.bits >> 29 & 0x7fffffu)};
  return {__float_as_uint(__double2float_rn(value(x)))};
}
__device__ __forceinline__ Float to_float(Float x) { return x; }
__device__ __forceinline__ Double to_double(Double x) { return x; }
template <class I>
__device__ __forceinline__ Float to_float(I x) {
  return {__float_as_uint(static_cast<float>(x))};
}
template <class I>
__device__ __forceinline__ Double to_double(I x) {
  return {static_cast<Bits64>(__double_as_longlong(static_cast<double>(x)))};
}

// Rounds the magnitude of a wide float to a format of fewer mantissa bits; as that format's bits, the exponent
// counting on where the format ends. Wide numbers below the normal ones are too small for any format.
template <class Bits>
__device__ __forceinline__ Bits rounded(Bits magnitude, int wide_mantissa, int wide_bias, int mantissa, int bias) {
  const Bits one = 1, unit = one << wide_mantissa;
  if (magnitude < unit) return 0;
  const int exponent = static_cast<int>(magnitude >> wide_mantissa) - wide_bias + bias;
  const Bits significand = (magnitude & (unit - 1)) | unit;
  const int shift = wide_mantissa - mantissa + (exponent >= 1 ? 0 : 1 - exponent);
  if (shift > wide_mantissa + 1) return 0;  // less than half of the smallest
  const Bits even = (significand >> shift) & 1;
  const Bits kept = (significand + (one << (shift - 1)) - 1 + even) >> shift;
  return exponent >= 1 ? (static_cast<Bits>(exponent - 1) << mantissa) + kept : kept;
}

struct Bool {
  using Word = unsigned char;
  __device__ explicit Bool(int) {}
  __device__ unsigned read(Word word) const { return word != 0; }
  template <class I>
  __device__ Word write(I x) const {
    return x != 0;
  }
  __device__ Word write(Float x) const { return magnitude(x) != 0; }
  __device__ Word write(Double x) const { return magnitude(x) != 0; }
};

// The integer nearest to a float that is cut off behind the point; 0 for NaN. `bits` are without the sign.
template <class F>
__device__ __forceinline__ long long signed_from(F x, int bits) {
  const long long last = static_cast<long long>((1ull << bits) - 1);
  if (!(x == x)) return 0;
  if (x >= static_cast<F>(1ull << bits)) return last;
  return x < -static_cast<F>(1ull << bits) ? -last - 1 : static_cast<long long>(x);
}
template <class F>
__device__ __forceinline__ unsigned long long unsigned_from(F x, int bits) {
  if (!(x > 0)) return 0;
  const F end = 2 * static_cast<F>(1ull << (bits - 1));
  return x >= end ? ~0ull >> (64 - bits) : static_cast<unsigned long long>(x);
}

// `Value` is what arithmetic on an `I` is done in: all of them are exact in it.
template <class I, class Value>
struct Integer {
  using Word = I;
  static constexpr bool is_signed = static_cast<I>(-1) < static_cast<I>(0);
  static constexpr int bits = 8 * sizeof(I) - is_signed;

  __device__ explicit Integer(int) {}
  __device__ Value read(Word word) const { return word; }
  template <class J>
  __device__ Word write(J x) const {
    return static_cast<Word>(x);
  }
  __device__ Word write(Float x) const { return of(value(x)); }
  __device__ Word write(Double x) const { return of(value(x)); }

 private:
  template <class F>
  __device__ Word of(F x) const {
    if constexpr (is_signed) {
      return static_cast<Word>(signed_from(x, bits));
    } else {
      return static_cast<Word>(unsigned_from(x, bits));
    }
  }
};

// An integer of fewer than 8 bits, in a byte whose other bits mean nothing: `format` is their number, negative where
// one of them is the sign.
struct NarrowInteger {
  using Word = unsigned char;
  __device__ explicit NarrowInteger(int format) : bits_(format < 0 ? -format : format), is_signed_(format < 0) {}
  __device__ int read(Word word) const {
    const int low = word & ((1 << bits_) - 1);
    return is_signed_ && (low >> (bits_ - 1)) ? low - (1 << bits_) : low;
  }
  template <class I>
  __device__ Word write(I x) const {
    return static_cast<Word>(static_cast<unsigned>(x) & ((1u << bits_) - 1));
  }
  __device__ Word write(Float x) const { return of(value(x)); }
  __device__ Word write(Double x) const { return of(value(x)); }

 private:
  int bits_;
  bool is_signed_;
  template <class F>
  __device__ Word of(F x) const {
    return is_signed_ ? write(signed_from(x, bits_ - 1)) : write(unsigned_from(x, bits_));
  }
};

struct Float32 {
  using Word = unsigned;
  __device__ explicit Float32(int) {}
  __device__ Float read(Word word) const { return {word}; }
  template <class V>
  __device__ Word write(V x) const {
    return to_float(x).bits;
  }
};

struct Float64 {
  using Word = unsigned long long;
  __device__ explicit Float64(int) {}
  __device__ Double read(Word word) const { return {word}; }
  template <class V>
  __device__ Word write(V x) const {
    return to_double(x).bits;
  }
};

struct Float16 {
  using Word = unsigned short;
  __device__ explicit Float16(int) {}
  __device__ Float read(Word word) const {
    const Bits32 sign = (word & 0x8000u) << 16, rest = word & 0x7fffu;
    if (rest >= 0x7c00u) return {sign | 0x7f800000u | (rest & 0x3ffu) << 13};
    if (rest >= 0x400u) return {sign | ((rest << 13) + (112u << 23))};
    return {sign | __float_as_uint(static_cast<float>(rest) * 0x1p-24f)};
  }
  template <class I>
  __device__ Word write(I x) const {
    return write(to_float(x));
  }
  __device__ Word write(Float x) const { return of(x, magnitude(x), 23, 127); }
  __device__ Word write(Double x) const { return of(x, magnitude(x), 52, 1023); }

 private:
  template <class Wide, class Bits>
  __device__ static Word of(Wide x, Bits magnitude, int mantissa, int bias) {
    const Word sign_bit = static_cast<Word>(sign(x) << 15);
    if (is_nan(x)) {  // with the first bits of the payload; where these are 0, with the last of them
      const unsigned payload = static_cast<unsigned>(magnitude >> (mantissa - 10)) & 0x3ffu;
      return static_cast<Word>(sign_bit | 0x7c00u | (payload ? payload : 1u));
    }
    const Bits found = rounded(magnitude, mantissa, bias, 10, 15);
    return static_cast<Word>(sign_bit | static_cast<unsigned>(found > 0x7c00u ? 0x7c00u : found));
  }
};

struct Bfloat16 {
  using Word = unsigned short;
  __device__ explicit Bfloat16(int) {}
  __device__ Float read(Word word) const { return {static_cast<Bits32>(word) << 16}; }
  template <class V>
  __device__ Word write(V x) const {
    const Float single = to_float(x);
    if (is_nan(single)) return static_cast<Word>(sign(single) << 15 | 0x7fc0u);
    return static_cast<Word>((single.bits + 0x7fffu + (single.bits >> 16 & 1)) >> 16);
  }
};

// A float of up to 8 bits, in a byte: the last bits are the mantissa, those before it the exponent, the first the sign.
struct NarrowFormat {
  int mantissa, bias;
  unsigned sign;          // its bit; of types of fewer than 8 bits, any bit from there on reads as the sign
  unsigned largest;       // the greatest finite number
  unsigned beyond;        // what numbers become that are greater, and infinity
  unsigned nan;           // what NaN becomes
  bool has_infinity;       // `beyond` is infinity
  bool has_negative_zero;  // else -0 is 0, and the bits of -0 are the one NaN
};

// In the order of their names, but for float8_e8m0fnu, which is last: it has neither a sign nor a mantissa.
__device__ __forceinline__ NarrowFormat narrow_format(int index) {
  switch (index) {
    case 0: return {1, 1, 0x08, 0x07, 0x07, 0x08, false, true};   // float4_e2m1fn
    case 1: return {3, 1, 0x20, 0x1f, 0x1f, 0x20, false, true};   // float6_e2m3fn
    case 2: return {2, 3, 0x20, 0x1f, 0x1f, 0x20, false, true};   // float6_e3m2fn
    case 3: return {4, 3, 0x80, 0x6f, 0x70, 0x78, true, true};    // float8_e3m4
    case 4: return {3, 7, 0x80, 0x77, 0x78, 0x7c, true, true};    // float8_e4m3
    case 5: return {3, 11, 0x80, 0x7f, 0x80, 0x80, false, false}; // float8_e4m3b11fnuz
    case 6: return {3, 7, 0x80, 0x7e, 0x7f, 0x7f, false, true};   // float8_e4m3fn
    case 7: return {3, 8, 0x80, 0x7f, 0x80, 0x80, false, false};  // float8_e4m3fnuz
    case 8: return {2, 15, 0x80, 0x7b, 0x7c, 0x7e, true, true};   // float8_e5m2
    case 9: return {2, 16, 0x80, 0x7f, 0x80, 0x80, false, false}; // float8_e5m2fnuz
    default: return {};
  }
}

struct NarrowFloat {
  using Word = unsigned char;
  __device__ explicit NarrowFloat(int format) : is_power_(format == 10), format_(narrow_format(format)) {}

  __device__ Float read(Word word) const {
    if (is_power_) return {word == 255 ? 0x7fc00000u : word == 0 ? 0x00400000u : static_cast<Bits32>(word) << 23};
    const NarrowFormat& f = format_;
    const unsigned rest = word & (f.sign - 1);
    const Bits32 sign = rest != word ? 0x80000000u : 0u;
    if (!f.has_negative_zero && word == f.nan) return {0xffc00000u};
    if (rest > f.largest) return {sign | (f.has_infinity && rest == f.beyond ? 0x7f800000u : 0x7fc00000u)};
    if (rest >> f.mantissa) return {sign | ((rest << (23 - f.mantissa)) + (static_cast<unsigned>(127 - f.bias) << 23))};
    const float unit = __uint_as_float(static_cast<unsigned>(128 - f.bias - f.mantissa) << 23);
    return {sign | __float_as_uint(static_cast<float>(rest) * unit)};
  }
  template <class V>
  __device__ Word write(V x) const {
    const Float single = to_float(x);
    return static_cast<Word>(is_power_ ? power(single) : of(single));
  }

 private:
  bool is_power_;
  NarrowFormat format_;

  __device__ unsigned of(Float x) const {
    const NarrowFormat& f = format_;
    const unsigned sign_bit = sign(x) ? f.sign : 0;
    if (is_nan(x)) return f.has_negative_zero ? f.nan ^ sign_bit : f.nan;
    const unsigned found = rounded(magnitude(x), 23, 127, f.mantissa, f.bias);
    const unsigned clipped = found > f.largest ? f.beyond : found;
    return f.has_negative_zero || clipped ? clipped | sign_bit : 0;
  }
  // 2 to the power of the byte less 127: there is no 0 and nothing negative, a half is rounded up, and so is all
  // between the two smallest ones.
  __device__ static unsigned power(Float x) {
    const Bits32 wide = magnitude(x);
    if (sign(x) || wide == 0 || wide >= 0x7f800000u) return 255;
    return wide < 0x00800000u ? wide > 0x00400000u : (wide + 0x00400000u) >> 23;
  }
};

// Two numbers of a kind, the real part first.
template <class Part>
struct Complex {
  struct Word {
    typename Part::Word real, imaginary;
  };
  __device__ explicit Complex(int) {}
};

template <class From, class To>
__device__ __forceinline__ typename To::Word converted(From from, To to, typename From::Word word) {
  return to.write(from.read(word));
}
// By way of float32 this one would make signalling NaNs quiet, and the next one would keep their payload.
__device__ __forceinline__ Float64::Word converted(Float16 from, Float64 to, Float16::Word word) {
  if ((word & 0x7fffu) <= 0x7c00u) return to.write(from.read(word));
  return static_cast<Bits64>(word & 0x8000u) << 48 | 0x7ff0000000000000ull | static_cast<Bits64>(word & 0x3ffu) << 42;
}
__device__ __forceinline__ Float16::Word converted(Bfloat16 from, Float16 to, Bfloat16::Word word) {
  if ((word & 0x7fffu) <= 0x7f80u) return to.write(from.read(word));
  return static_cast<Float16::Word>((word & 0x8000u) | 0x7e00u);
}
template <class Part, class To>
__device__ __forceinline__ typename To::Word converted(Complex<Part>, To to, typename Complex<Part>::Word word) {
  return converted(Part(0), to, word.real);
}
template <class Part>
__device__ __forceinline__ Bool::Word converted(Complex<Part>, Bool to, typename Complex<Part>::Word word) {
  return converted(Part(0), to, word.real) | converted(Part(0), to, word.imaginary);
}
template <class From, class Part>
__device__ __forceinline__ typename Complex<Part>::Word converted(From from, Complex<Part>, typename From::Word word) {
  return {converted(from, Part(0), word), 0};
}
template <class Part, class Other>
__device__ __forceinline__ typename Complex<Other>::Word converted(Complex<Part>, Complex<Other>,
                                                                    typename Complex<Part>::Word word) {
  return {converted(Part(0), Other(0), word.real), converted(Part(0), Other(0), word.imaginary)};
}

}  // namespace aiocuda::number
