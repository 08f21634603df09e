// See numbers.hpp. Narrow floats are computed in float and rounded once, to nearest, ties to even.
#include "numbers.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace aiocuda::emulator::nccl {
namespace {

// A float of `exponent_bits` and `mantissa_bits`. `finite_only`: no infinities; the number with all bits set is NaN,
// and what is too large becomes NaN.
template <typename Word, int exponent_bits, int mantissa_bits, bool finite_only = false>
struct Narrow {
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr unsigned sign_bit = 1u << (exponent_bits + mantissa_bits);
  static constexpr unsigned most_exponent = (1u << exponent_bits) - 1;
  static constexpr unsigned infinity = most_exponent << mantissa_bits;
  static constexpr unsigned nan = finite_only ? sign_bit - 1 : infinity | (1u << (mantissa_bits - 1));
  Word bits = 0;

  Narrow() = default;
  explicit Narrow(float value) noexcept : bits(static_cast<Word>(rounded(value))) {}
  explicit operator float() const noexcept {
    const unsigned magnitude = bits & (sign_bit - 1);
    const unsigned exponent = magnitude >> mantissa_bits;
    const unsigned mantissa = magnitude & ((1u << mantissa_bits) - 1);
    float value = 0;
    if (finite_only ? magnitude == nan : exponent == most_exponent && mantissa != 0) {
      value = NAN;
    } else if (!finite_only && exponent == most_exponent) {
      value = INFINITY;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
    } else {
      const unsigned whole = mantissa | (1u << mantissa_bits);
      value = std::ldexp(static_cast<float>(whole), static_cast<int>(exponent) - bias - mantissa_bits);
    }
    return (bits & sign_bit) != 0 ? -value : value;
  }

 private:
  static unsigned rounded(float value) noexcept {
    const unsigned sign = std::signbit(value) ? sign_bit : 0;
    if (std::isnan(value)) return sign | nan;
    const float magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return sign | (finite_only ? nan : infinity);
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int least = 1 - bias - mantissa_bits;
    int quantum = exponent - 1 - mantissa_bits;  // of the last digit, as a power of two
    if (quantum < least) quantum = least;
    // Exact: a float has more digits than any of these, and the scaling is by a power of two.
    const double scaled = std::nearbyint(std::ldexp(static_cast<double>(magnitude), -quantum));
    const unsigned encoded = static_cast<unsigned>(scaled) + (static_cast<unsigned>(quantum - least) << mantissa_bits);
    const unsigned largest = finite_only ? nan - 1 : infinity - 1;
    return sign | (encoded <= largest ? encoded : finite_only ? nan : infinity);
  }
};

using Half = Narrow<std::uint16_t, 5, 10>;
using Bfloat16 = Narrow<std::uint16_t, 8, 7>;
using Float8e4m3 = Narrow<std::uint8_t, 4, 3, true>;
using Float8e5m2 = Narrow<std::uint8_t, 5, 2>;

template <typename T>
inline constexpr bool is_narrow = !std::is_arithmetic_v<T>;

// Integers wrap around.
template <typename T, typename Function>
T apply(T a, T b, Function function) noexcept {
  if constexpr (is_narrow<T>) {
    return T(function(static_cast<float>(a), static_cast<float>(b)));
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    using Wide = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, Unsigned>;
    return static_cast<T>(
        function(static_cast<Wide>(static_cast<Unsigned>(a)), static_cast<Wide>(static_cast<Unsigned>(b))));
  } else {
    return function(a, b);
  }
}

// A NaN loses against a number, as in fmax and fmin.
template <typename T>
T larger(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    return a < b ? b : a;
  } else if constexpr (is_narrow<T>) {
    return T(std::fmax(static_cast<float>(a), static_cast<float>(b)));
  } else {
    return std::fmax(a, b);
  }
}
template <typename T>
T smaller(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    return b < a ? b : a;
  } else if constexpr (is_narrow<T>) {
    return T(std::fmin(static_cast<float>(a), static_cast<float>(b)));
  } else {
    return std::fmin(a, b);
  }
}

template <typename T>
struct Tag {
  using Type = T;
};

template <typename Function>
void with_type(ncclDataType_t type, Function function) noexcept {
  switch (type) {
    case ncclInt8:
      return function(Tag<std::int8_t>());
    case ncclUint8:
      return function(Tag<std::uint8_t>());
    case ncclInt32:
      return function(Tag<std::int32_t>());
    case ncclUint32:
      return function(Tag<std::uint32_t>());
    case ncclInt64:
      return function(Tag<std::int64_t>());
    case ncclUint64:
      return function(Tag<std::uint64_t>());
    case ncclFloat16:
      return function(Tag<Half>());
    case ncclFloat32:
      return function(Tag<float>());
    case ncclFloat64:
      return function(Tag<double>());
    case ncclBfloat16:
      return function(Tag<Bfloat16>());
    case ncclFloat8e4m3:
      return function(Tag<Float8e4m3>());
    case ncclFloat8e5m2:
      return function(Tag<Float8e5m2>());
    default:
      return;
  }
}

struct Known {
  const char* name;
  std::size_t bytes;
};
constexpr Known types[ncclNumTypes] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},       {"uint32", 4},
                                       {"int64", 8},   {"uint64", 8},   {"float16", 2},     {"float32", 4},
                                       {"float64", 8}, {"bfloat16", 2}, {"float8_e4m3", 1}, {"float8_e5m2", 1}};

bool is_integer(ncclDataType_t type) noexcept { return type <= ncclUint64; }

}  // namespace

std::size_t bytes_of(ncclDataType_t type) noexcept { return types[type].bytes; }
const char* name_of(ncclDataType_t type) noexcept { return types[type].name; }
const char* name_of(ncclRedOp_t op) noexcept {
  constexpr const char* names[ncclNumOps] = {"sum", "product", "maximum", "minimum", "average"};
  return op < ncclNumOps ? names[op] : "a sum of multiples";
}

Operator built_in_operator(ncclRedOp_t op, ncclDataType_t type, int ranks) noexcept {
  Operator made;
  made.join = op == ncclAvg ? ncclSum : op;
  if (op != ncclAvg) return made;
  if (is_integer(type)) {
    made.divisor = static_cast<std::uint64_t>(ranks);
    return made;
  }
  made.multiplies = true;
  with_type(type, [&](auto tag) {
    using T = decltype(tag)::Type;
    if constexpr (is_narrow<T> || std::is_floating_point_v<T>) {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const T scalar(Wide{1} / static_cast<Wide>(ranks));
      std::memcpy(&made.scalar, &scalar, sizeof scalar);
    }
  });
  return made;
}

void multiply(void* values, std::size_t count, ncclDataType_t type, std::uint64_t bits) noexcept {
  with_type(type, [&](auto tag) {
    using T = decltype(tag)::Type;
    T scalar{};
    std::memcpy(static_cast<void*>(&scalar), &bits, sizeof scalar);
    T* const all = static_cast<T*>(values);
    for (std::size_t each = 0; each < count; ++each) {
      all[each] = apply(all[each], scalar, [](auto a, auto b) { return static_cast<decltype(a)>(a * b); });
    }
  });
}

void join(void* into, const void* values, std::size_t count, ncclDataType_t type, ncclRedOp_t op) noexcept {
  with_type(type, [&](auto tag) {
    using T = decltype(tag)::Type;
    T* const to = static_cast<T*>(into);
    const T* const from = static_cast<const T*>(values);
    const auto each_pair = [&](auto function) {
      for (std::size_t each = 0; each < count; ++each) to[each] = function(to[each], from[each]);
    };
    switch (op) {
      case ncclProd:
        return each_pair(
            [](T a, T b) { return apply(a, b, [](auto x, auto y) { return static_cast<decltype(x)>(x * y); }); });
      case ncclMax:
        return each_pair([](T a, T b) { return larger(a, b); });
      case ncclMin:
        return each_pair([](T a, T b) { return smaller(a, b); });
      default:
        return each_pair(
            [](T a, T b) { return apply(a, b, [](auto x, auto y) { return static_cast<decltype(x)>(x + y); }); });
    }
  });
}

void divide(void* values, std::size_t count, ncclDataType_t type, std::uint64_t divisor) noexcept {
  with_type(type, [&](auto tag) {
    using T = decltype(tag)::Type;
    if constexpr (std::is_integral_v<T>) {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      T* const all = static_cast<T*>(values);
      for (std::size_t each = 0; each < count; ++each) {
        all[each] = static_cast<T>(static_cast<Wide>(all[each]) / static_cast<Wide>(divisor));
      }
    }
  });
}

}  // namespace aiocuda::emulator::nccl
