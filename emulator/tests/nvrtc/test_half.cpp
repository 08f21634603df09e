// __half and __nv_bfloat16: every value's conversion, correct rounding of arithmetic, the functions.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support.hpp"

using namespace nvrtc_tests;

namespace {

// The format's value of some bits, and the nearest bits of a value (ties to even), by search over all values.
struct Format {
  int mantissa_bits;
  int bias;

  double value(unsigned bits) const {
    const unsigned exponent = (bits & 0x7fff) >> mantissa_bits;
    const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 2u * bias + 1) return mantissa != 0 ? std::nan("") : sign * INFINITY;
    const double scaled = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    return sign * std::ldexp(scaled, static_cast<int>(exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  }

  unsigned nearest(long double exact) const {
    if (std::isnan(exact)) return 0x7fff;
    const unsigned sign = std::signbit(exact) ? 0x8000 : 0;
    const long double magnitude = std::fabs(exact);
    unsigned low = 0;
    unsigned high = (2u * bias + 1) << mantissa_bits;  // infinity
    if (std::isinf(exact)) return sign | high;
    while (high - low > 1) {
      const unsigned middle = (low + high) / 2;
      (value(middle) <= magnitude ? low : high) = middle;
    }
    // Infinity stands one step above the largest value.
    const long double above =
        std::isinf(value(high)) ? value(low) + (value(low) - value(low - 1)) : static_cast<long double>(value(high));
    const long double to_low = magnitude - value(low);
    const long double to_high = above - magnitude;
    const bool up = to_high < to_low || (to_high == to_low && (low & 1) != 0);
    return sign | (up ? high : low);
  }
};

std::string source_for(const std::string& type, const std::string& name, const std::string& header) {
  std::string source = "#include <" + header + ">\n" + R"(
    extern "C" __global__ void widen(const T* in, float* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = __N2float(in[i]); }
    extern "C" __global__ void narrow(const float* in, T* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = __float2N_rn(in[i]); }
    extern "C" __global__ void narrow_default(const float* in, T* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = __float2N(in[i]); }
    extern "C" __global__ void narrow_double(const double* in, T* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = __double2N(in[i]); }
    extern "C" __global__ void arithmetic(const T* a, const T* b, const T* c, T* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) { out[i] = a[i] + b[i]; out[n + i] = __hsub(a[i], b[i]); out[2 * n + i] = a[i] * b[i];
        out[3 * n + i] = a[i] / b[i];
                   out[4 * n + i] = __hfma(a[i], b[i], c[i]); out[5 * n + i] = hsqrt(__habs(a[i])); } }
    extern "C" __global__ void directed(float v, T* out) {
      out[0] = __float2N_rz(v); out[1] = __float2N_ru(v); out[2] = __float2N_rd(v); }
    extern "C" __global__ void functions(float* out) {
      T one(1.0f), two = T(2), minus(-3.0f), nan = T(nanf(""));
      int i = 0;
      out[i++] = (float)(one + two); out[i++] = one < two; out[i++] = nan == nan; out[i++] = nan != nan;
        out[i++] = __hgt(two, one);
      out[i++] = (float)__hmax(one, minus); out[i++] = __hisnan(nan); out[i++] = (float)-two; two += one;
        out[i++] = (float)two;
      out[i++] = (float)hexp(T(0.0f)); out[i++] = (float)hfloor(T(1.5f)); out[i++] = __N2int_rn(T(2.5f));
        out[i++] = (float)__int2N_rn(7);
      out[i++] = __hltu(nan, one); out[i++] = __hlt(nan, one); out[i++] = (int)T(-1.75f);
        out[i++] = (float)__hadd_sat(T(0.75f), T(0.75f));
      out[i++] = (float)__shfl_xor_sync(~0u, T((float)threadIdx.x), 1);
      out[i++] = __N_as_ushort(T(1.0f)); out[i++] = (float)__ushort_as_N(__N_as_ushort(T(5.0f)));
      if (two) out[i++] = 1;
    }
    extern "C" __global__ void add_all(T* sum) { atomicAdd(sum, T(1.0f)); })";
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = source.find(from); at != std::string::npos; at = source.find(from, at + to.size()))
      source.replace(at, from.size(), to);
  };
  replace("__N2", "__" + name + "2");
  replace("__N_", "__" + name + "_");
  replace("2N", "2" + name);
  replace("as_N", "as_" + name);
  return "#define T " + type + "\n" + source;
}

using Words = std::vector<unsigned short>;

void check_format(const Module& module, const Format& format, float one_bits) {
  // Widening, of every value there is.
  Words all(65536);
  for (unsigned i = 0; i < 65536; ++i) all[i] = static_cast<unsigned short>(i);
  std::vector<float> wide(65536);
  const Module::Geometry geometry{.grid = {256}, .block = {256}};
  module.launch("widen", geometry, all.data(), wide.data(), 65536);
  std::size_t wrong = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    const double expected = format.value(i);
    const bool right = std::isnan(expected) ? std::isnan(wide[i])
                                            : wide[i] == expected && std::signbit(wide[i]) == std::signbit(expected);
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);

  // Narrowing, of values around every one of them, halfway too, and of others.
  std::vector<float> values = {0.0f,
                               -0.0f,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               1e-30f,
                               3e38f,
                               65519.9f,
                               65520.0f,
                               -65536.0f,
                               std::numeric_limits<float>::denorm_min()};
  for (unsigned i = 1; i < 32000; i += 3) {
    const double middle = (format.value(i) + format.value(i + 1)) / 2;
    if (!std::isfinite(middle)) break;
    const auto half = static_cast<float>(middle);
    values.insert(values.end(), {half, std::nextafter(half, INFINITY), std::nextafter(half, -INFINITY), -half});
  }
  Words narrow(values.size());
  for (const char* kernel : {"narrow", "narrow_default"}) {
    module.launch(kernel, {.grid = {512}, .block = {256}}, values.data(), narrow.data(),
                  static_cast<int>(values.size()));
    wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) wrong += narrow[i] == format.nearest(values[i]) ? 0 : 1;
    CHECK(wrong == 0);
  }
  // A double is rounded once, not by way of float.
  std::vector<double> doubles;
  for (unsigned i = 100; i < 30000; i += 97) {
    const double middle = (format.value(i) + format.value(i + 1)) / 2;
    doubles.insert(doubles.end(), {std::nextafter(middle, INFINITY), middle, std::nextafter(middle, 0.0)});
  }
  narrow.assign(doubles.size(), 0);
  module.launch("narrow_double", {.grid = {16}, .block = {256}}, doubles.data(), narrow.data(),
                static_cast<int>(doubles.size()));
  wrong = 0;
  for (std::size_t i = 0; i < doubles.size(); ++i) wrong += narrow[i] == format.nearest(doubles[i]) ? 0 : 1;
  CHECK(wrong == 0);

  // Arithmetic on random values, against long double, which holds sums and products of these exactly enough.
  std::mt19937 random(7);
  const int n = 4096;
  Words a(n);
  Words b(n);
  Words c(n);
  for (int i = 0; i < n; ++i) {
    a[static_cast<std::size_t>(i)] = static_cast<unsigned short>(random());
    b[static_cast<std::size_t>(i)] = static_cast<unsigned short>(random());
    c[static_cast<std::size_t>(i)] = static_cast<unsigned short>(random());
  }
  Words out(6 * n);
  module.launch("arithmetic", {.grid = {16}, .block = {256}}, a.data(), b.data(), c.data(), out.data(), n);
  wrong = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const long double x = format.value(a[i]);
    const long double y = format.value(b[i]);
    const long double z = format.value(c[i]);
    const long double product = x * y;
    // If z is too small to change the product's 64 digits exactly, a nudge stands for it.
    long double sum = product + z;
    if (std::isfinite(sum) && sum - product != z && z != 0 && product != 0)
      sum = std::fabs(product) > std::fabs(z) ? std::nextafter(product, z > 0 ? INFINITY : -INFINITY)
                                              : std::nextafter(z, product > 0 ? INFINITY : -INFINITY);
    const long double expected[] = {x + y, x - y, product, x / y, sum, std::sqrt(std::fabs(x))};
    for (std::size_t k = 0; k < 6; ++k) {
      const unsigned right = format.nearest(expected[k]);
      const unsigned got = out[k * n + i];
      wrong += got == right || (std::isnan(format.value(right)) && std::isnan(format.value(got))) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);

  Words directed(3);
  const float between = static_cast<float>(format.value(1000) + (format.value(1001) - format.value(1000)) * 0.25);
  module.launch("directed", {}, between, directed.data());
  CHECK(directed == Words{1000, 1001, 1000});
  module.launch("directed", {}, -between, directed.data());
  CHECK(directed == Words{0x8000 + 1000, 0x8000 + 1000, 0x8000 + 1001});

  std::vector<float> results(21);
  module.launch("functions", {}, results.data());
  const std::vector<float> expected = {3, 1, 0, 1, 1, 1, 1, -2, 3, 1, 1, 2, 7, 1, 0, -1, 1, 0, one_bits, 5, 1};
  CHECK(results == expected);

  unsigned short sum = 0;
  module.launch("add_all", {.grid = {4}, .block = {32}, .threads = 2}, &sum);
  CHECK(format.value(sum) == 128);
}

}  // namespace

TEST_CASE("__half is IEEE binary16") {
  const Module module(Program{.source = source_for("__half", "half", "cuda_fp16.h")});
  check_format(module, {10, 15}, 0x3c00);
}

TEST_CASE("__nv_bfloat16 is the upper half of a float") {
  const Module module(Program{.source = source_for("__nv_bfloat16", "bfloat16", "cuda_bf16.h")});
  check_format(module, {7, 127}, 0x3f80);
}

TEST_CASE("pairs of halves and of bfloat16s") {
  const Module module(R"(
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void pairs(float* out, half2* h, __nv_bfloat162* b) {
      half2 x = __floats2half2_rn(1.5f, -2.0f), y = __float2half2_rn(2.0f);
      half2 z = __hfma2(x, y, __half2half2(__float2half(1.0f)));
      float2 f = __half22float2(z);
      int i = 0;
      out[i++] = f.x; out[i++] = f.y; out[i++] = __low2float(x + y); out[i++] = __high2float(__hmul2(x, y));
      out[i++] = __half2float(__high2half(__lowhigh2highlow(x))); out[i++] = __hbgt2(y, x);
        out[i++] = __low2float(__hgt2(x, y));
      h[0] = __halves2half2(__low2half(x), __high2half(y));
      atomicAdd(&h[1], y);
      __nv_bfloat162 p = __floats2bfloat162_rn(3.0f, 4.0f);
      b[0] = __hadd2(p, p) * p;
      out[i++] = __bfloat1622float2(b[0]).y;
      out[i++] = __low2float(h2sqrt(make_half2(4.0f, 9.0f)));
    })");
  std::vector<float> out(9);
  Words h(4);
  Words b(2);
  module.launch("pairs", {.block = {1}}, out.data(), h.data(), b.data());
  const std::vector<float> expected = {4, -3, 3.5f, -4, 1.5f, 1, 0, 32, 2};
  CHECK(out == expected);
  CHECK(h == Words{0x3e00, 0x4000, 0x4000, 0x4000});
}
