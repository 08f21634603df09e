// Mathematical functions and intrinsics, against the C library and plain arithmetic.
#include <doctest/doctest.h>

#include <cfenv>
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "support.hpp"

using namespace nvrtc_tests;

namespace {

// A kernel that writes the expressions, in order, to out[0...] of the given type.
std::string kernel_of(const std::string& type, const std::vector<std::string>& expressions) {
  std::string source = "extern \"C\" __global__ void k(" + type +
                       "* out, float x, float y, double a, double b, int i, int j, "
                       "unsigned u, unsigned v, long long l) {\n";
  for (std::size_t n = 0; n < expressions.size(); ++n) {
    source += "out[" + std::to_string(n) + "] = " + expressions[n] + ";\n";
  }
  return source + "}";
}

template <class T>
std::vector<T> evaluate(const std::string& type, const std::vector<std::string>& expressions, float x = 0, float y = 0,
                        double a = 0, double b = 0, int i = 0, int j = 0, unsigned u = 0, unsigned v = 0,
                        long long l = 0) {
  const Module module(Program{.source = kernel_of(type, expressions), .options = {"-w"}});
  std::vector<T> out(expressions.size());
  module.launch("k", {}, out.data(), x, y, a, b, i, j, u, v, l);
  return out;
}

}  // namespace

TEST_CASE("single and double precision functions") {
  const float x = 0.7f;
  const float y = 1.9f;
  const double a = 0.7;
  const double b = 1.9;
  const std::pair<const char*, double> cases[] = {{"sinf(x)", std::sin(0.7)},
                                                  {"sin(a)", std::sin(a)},
                                                  {"sin(x)", std::sin(0.7)},
                                                  {"cos(a)", std::cos(a)},
                                                  {"tanf(x)", std::tan(0.7)},
                                                  {"__sinf(x)", std::sin(0.7)},
                                                  {"__cosf(x)", std::cos(0.7)},
                                                  {"expf(x)", std::exp(0.7)},
                                                  {"__expf(x)", std::exp(0.7)},
                                                  {"exp10f(x)", std::pow(10, 0.7)},
                                                  {"exp2(a)", std::exp2(a)},
                                                  {"expm1(a)", std::expm1(a)},
                                                  {"__logf(x)", std::log(0.7)},
                                                  {"log1p(a)", std::log1p(a)},
                                                  {"__log2f(x)", std::log2(0.7)},
                                                  {"log10(a)", std::log10(a)},
                                                  {"powf(x, y)", std::pow(0.7, 1.9)},
                                                  {"__powf(x, y)", std::pow(0.7, 1.9)},
                                                  {"pow(a, b)", std::pow(a, b)},
                                                  {"pow(x, 2)", 0.49},
                                                  {"pow(a, 3)", 0.343},
                                                  {"pow(2, 3)", 8},
                                                  {"sqrtf(x)", std::sqrt(0.7)},
                                                  {"sqrt(2)", std::sqrt(2)},
                                                  {"rsqrtf(x)", 1 / std::sqrt(0.7)},
                                                  {"rsqrt(a)", 1 / std::sqrt(a)},
                                                  {"cbrt(a)", std::cbrt(a)},
                                                  {"rcbrtf(x)", 1 / std::cbrt(0.7)},
                                                  {"hypotf(x, y)", std::hypot(0.7, 1.9)},
                                                  {"rhypot(a, b)", 1 / std::hypot(a, b)},
                                                  {"norm3df(x, y, 2.0f)", std::sqrt(0.49 + 3.61 + 4)},
                                                  {"rnorm3d(a, b, 2.0)", 1 / std::sqrt(0.49 + 3.61 + 4)},
                                                  {"norm4d(a, b, 1.0, 1.0)", std::sqrt(0.49 + 3.61 + 2)},
                                                  {"sinpif(x)", std::sin(M_PI * 0.7)},
                                                  {"cospi(b)", std::cos(M_PI * b)},
                                                  {"sinpi(b)", std::sin(M_PI * b)},
                                                  {"sinpi(3.0)", 0},
                                                  {"cospif(0.5f)", 0},
                                                  {"erff(x)", std::erf(0.7)},
                                                  {"erfc(b)", std::erfc(b)},
                                                  {"erfinv(0.3)", 0.27246271472675435},
                                                  {"erfinvf(-0.9f)", -1.1630871536766743},
                                                  {"erfcinv(1e-10)", 4.572824967389486},
                                                  {"erfcinvf(1.5f)", -0.4769362762044699},
                                                  {"erfcx(30.0)", 0.018795888861416751},
                                                  {"erfcx(2.0)", 0.2553956763105057},
                                                  {"normcdff(x)", 0.758036347776927},
                                                  {"normcdfinv(0.975)", 1.959963984540054},
                                                  {"lgamma(b)", std::lgamma(b)},
                                                  {"tgammaf(y)", std::tgamma(1.9)},
                                                  {"j0(a)", 0.8812008886074052},
                                                  {"y1(b)", -0.1644057723314536},
                                                  {"cyl_bessel_i0(2.0)", 2.2795853023360673},
                                                  {"cyl_bessel_i1f(1.0f)", 0.5651591039924851},
                                                  {"atan2f(x, y)", std::atan2(0.7, 1.9)},
                                                  {"asinh(a)", std::asinh(a)},
                                                  {"fmodf(y, x)", std::fmod(1.9f, 0.7f)},
                                                  {"remainder(b, a)", std::remainder(b, a)},
                                                  {"fdividef(x, y)", 0.7 / 1.9},
                                                  {"__fdividef(x, y)", 0.7 / 1.9},
                                                  {"fmaf(x, y, 1.0f)", 0.7 * 1.9 + 1},
                                                  {"fma(a, b, 1.0)", a * b + 1},
                                                  {"fdimf(y, x)", 1.2},
                                                  {"copysign(a, -1.0)", -0.7},
                                                  {"ldexpf(x, 3)", 5.6},
                                                  {"scalbn(a, -1)", 0.35},
                                                  {"floorf(y)", 1},
                                                  {"ceil(b)", 2},
                                                  {"rintf(2.5f)", 2},
                                                  {"roundf(2.5f)", 3},
                                                  {"truncf(-1.5f)", -1},
                                                  {"nearbyint(3.5)", 4},
                                                  {"fabsf(-x)", 0.7},
                                                  {"abs(-b)", 1.9},
                                                  {"fmin(x, b)", 0.7},
                                                  {"fmaxf(x, y)", 1.9},
                                                  {"max(x, y)", 1.9},
                                                  {"min(a, b)", 0.7},
                                                  {"max(x, 5.0)", 5},
                                                  {"__saturatef(y)", 1},
                                                  {"__saturatef(-y)", 0},
                                                  {"__saturatef(x)", 0.7},
                                                  {"__frcp_rn(x)", 1 / 0.7},
                                                  {"__fsqrt_rn(x)", std::sqrt(0.7)},
                                                  {"__frsqrt_rn(x)", 1 / std::sqrt(0.7)},
                                                  {"__ddiv_rn(a, b)", a / b},
                                                  {"logb(5.0)", 2},
                                                  {"nextafter(1.0, 2.0) - 1.0", 2.220446049250313e-16}};
  std::vector<std::string> expressions;
  for (const auto& [expression, value] : cases) expressions.push_back(expression);
  const std::vector<double> out = evaluate<double>("double", expressions, x, y, a, b);
  for (std::size_t n = 0; n < out.size(); ++n) {
    CAPTURE(expressions[n]);
    CHECK(out[n] == doctest::Approx(cases[n].second).epsilon(4e-7));
  }
}

TEST_CASE("functions of several results, and classification") {
  const std::vector<double> out = evaluate<double>(
      "double",
      {"([&] { float s, c; sincosf(x, &s, &c); return s * 10 + c; })()",
       "([&] { double s, c; sincospi(b, &s, &c); return s + 2 * c; })()",
       "([&] { int e; double m = frexp(b, &e); return m + 100 * e; })()",
       "([&] { float w; float f = modff(y, &w); return f + 10 * w; })()",
       "([&] { int q; double r = remquo(7.5, 2.0, &q); return r + 10 * q; })()",
       "isnan(nanf(\"\")) + 2 * isinf(__int_as_float(0x7f800000)) + 4 * isfinite(x) + 8 * signbit(-0.0f)",
       "isnan(x) + isinf(x) + signbit(x) + !isfinite(a)", "isnan(nan(\"\")) + isnan(nanf(\"\"))"},
      0.5f, 1.75f, 0.7, 1.5);
  CHECK(out[0] == doctest::Approx(std::sin(0.5) * 10 + std::cos(0.5)));
  CHECK(out[1] == doctest::Approx(-1.0));
  CHECK(out[2] == 100.75);
  CHECK(out[3] == 10.75);
  CHECK(out[4] == 39.5);
  CHECK(out[5] == 15);
  CHECK(out[6] == 0);
  CHECK(out[7] == 2);
}

TEST_CASE("directed rounding is the processor's own") {
  const std::pair<const char*, int> modes[] = {
      {"rz", FE_TOWARDZERO}, {"ru", FE_UPWARD}, {"rd", FE_DOWNWARD}, {"rn", FE_TONEAREST}};
  volatile float x = 1.1f;
  volatile float y = 3.3e-5f;
  volatile double a = 1.1;
  volatile double b = -3.3e-9;
  for (const auto& rounding : modes) {
    const std::string s = rounding.first;
    const int mode = rounding.second;
    CAPTURE(s);
    const std::vector<double> out = evaluate<double>(
        "double",
        {"__fadd_" + s + "(x, y)", "__fmul_" + s + "(x, y)", "__fdiv_" + s + "(x, y)", "__fsub_" + s + "(x, y)",
         "__fsqrt_" + s + "(x)", "__frcp_" + s + "(x)", "__fmaf_" + s + "(x, y, x)", "__dadd_" + s + "(a, b)",
         "__dmul_" + s + "(a, b)", "__ddiv_" + s + "(a, b)", "__dsqrt_" + s + "(a)", "__fma_" + s + "(a, b, a)",
         "__double2float_" + s + "(a)", "__int2float_" + s + "(i)", "__ll2double_" + s + "(l)"},
        x, y, a, b, 16777219, 0, 0, 0, (1ll << 53) + 3);
    std::fesetround(mode);
    volatile const double expected[] = {
        x + y, x * y, x / y, x - y,        std::sqrt(x),      1.0f / x, std::fma(x, y, x),
        a + b, a * b, a / b, std::sqrt(a), std::fma(a, b, a), 0,        0,
        0};
    volatile int i = 16777219;
    volatile long long l = (1ll << 53) + 3;
    volatile const double converted[] = {static_cast<double>(static_cast<float>(a)),
                                         static_cast<double>(static_cast<float>(i)), static_cast<double>(l)};
    std::fesetround(FE_TONEAREST);
    for (int n = 0; n < 12; ++n) {
      CAPTURE(n);
      CHECK(out[static_cast<std::size_t>(n)] == expected[n]);
    }
    for (int n = 0; n < 3; ++n) CHECK(out[static_cast<std::size_t>(12 + n)] == converted[n]);
  }
}

TEST_CASE("conversions to integers round as told, saturate, and know not-a-number") {
  const std::vector<long long> out = evaluate<long long>(
      "long long",
      {"__float2int_rn(2.5f)", "__float2int_rz(-2.7f)", "__float2int_ru(2.1f)", "__float2int_rd(-2.1f)",
       "__float2int_rz(3e9f)", "__float2int_rn(-3e9f)", "__float2int_rz(nanf(\"\"))", "__float2uint_rn(-1.0f)",
       "__float2uint_rz(5e9f)", "__double2int_rn(3.5)", "__double2uint_rz(4294967295.9)", "__float2ll_rn(1e19f)",
       "__double2ll_rd(-1.5)", "(long long)__double2ull_rn(1e30)", "__float2uint_ru(0.1f)",
       "__double2ll_rz(9007199254740993.0)", "__float2int_rz(2147483520.0f)"});
  const std::vector<long long> expected = {
      2, -2, 3, -3, INT_MAX, INT_MIN, 0, 0, UINT_MAX, 4, UINT_MAX, LLONG_MAX, -2, -1, 1, 9007199254740992, 2147483520};
  CHECK(out == expected);
}

TEST_CASE("integer intrinsics") {
  const std::vector<long long> out = evaluate<long long>("long long",
                                                         {"__popc(0xf0f0u)",
                                                          "__popcll(~0ull)",
                                                          "__clz(1)",
                                                          "__clz(0)",
                                                          "__clzll(1)",
                                                          "__ffs(0)",
                                                          "__ffs(8)",
                                                          "__ffsll(1ll << 40)",
                                                          "__brev(1u)",
                                                          "__brevll(2ull) >> 32",
                                                          "__byte_perm(0x33221100u, 0x77665544u, 0x7531u)",
                                                          "__byte_perm(0x00008000u, 0u, 0x9999u)",
                                                          "__funnelshift_l(0x80000000u, 1u, 1u)",
                                                          "__funnelshift_r(2u, 1u, 1u)",
                                                          "__funnelshift_lc(5u, 6u, 40u)",
                                                          "__funnelshift_rc(5u, 6u, 40u)",
                                                          "__mulhi(1 << 30, -8)",
                                                          "__umulhi(0x80000000u, 6u)",
                                                          "__mul64hi(1ll << 62, -8)",
                                                          "__umul64hi(1ull << 63, 6ull)",
                                                          "__mul24(-3, 5)",
                                                          "__umul24(0x1000003u, 5u)",
                                                          "__sad(-5, 7, 100u)",
                                                          "__usad(9u, 4u, 1u)",
                                                          "__hadd(-3, -4)",
                                                          "__rhadd(3, 4)",
                                                          "__uhadd(0xffffffffu, 1u)",
                                                          "__dp4a(0x01020304, 0x01010101, 5)",
                                                          "__dp4a(0xff000000u, 0x02000000u, 0u)",
                                                          "__dp4a((int)0xff000000, 0x02000000, 0)",
                                                          "__vadd4(0xff010203u, 0x01010101u)",
                                                          "__vaddus4(0xff010203u, 0x01010101u)",
                                                          "__vmaxs2(0xffff0005u, 0x00010003u)",
                                                          "__vcmpeq4(0x01020304u, 0x01000300u)",
                                                          "__vabsdiffu4(0x05000000u, 0x08000000u)",
                                                          "__vavgu4(0x03000000u, 0x06000000u)",
                                                          "__vsetgtu2(0x00050001u, 0x00040002u)",
                                                          "min(-1, 5u)",
                                                          "max(3ll, 9ll)",
                                                          "abs(-5)",
                                                          "abs(-6ll)",
                                                          "llabs(-7)",
                                                          "__fns(0xb4u, 0, 3)",
                                                          "__float_as_int(1.0f)",
                                                          "__double_as_longlong(2.0) >> 52",
                                                          "__double2hiint(1.0)",
                                                          "(int)__int_as_float(0x40400000)",
                                                          "(int)__hiloint2double(0x40080000, 0)",
                                                          "__ldg(&i)",
                                                          "u + __ldcs(&v)"},
                                                         0, 0, 0, 0, 21, 0, 2, 3);
  const std::vector<long long> expected = {8,           64,          31,          32,          63,
                                           0,           4,           41,          0x80000000u, 0x40000000u,
                                           0x77553311u, 0xffffffffu, 3,           0x80000001u, 5,
                                           6,           -2,          3,           -2,          3,
                                           -15,         15,          112,         6,           -4,
                                           4,           0x80000000u, 15,          510,         -2,
                                           0x00020304u, 0xff020304u, 0x00010005u, 0xff00ff00u, 0x03000000u,
                                           0x05000000u, 0x00010000u, 5,           9,           5,
                                           6,           7,           5,           0x3f800000,  0x400,
                                           0x3ff00000,  3,           3,           21,          5};
  for (std::size_t n = 0; n < out.size(); ++n) {
    CAPTURE(n);
    CHECK(out[n] == expected[n]);
  }
}
