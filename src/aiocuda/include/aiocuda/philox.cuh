// Random numbers that depend on a key and a place alone, in CUDA C++17. No other header is needed.
//
//   aiocuda::Philox draw(key, counter);        // draw.words: four random words of 64 bits
//   aiocuda::normal(word)                      // a word as a normally distributed number
//
// Always true: all is computed with integers, and with sums, products, quotients, roots and multiply-adds of float64,
// each of which IEEE 754 rounds once; so it is the same on every processor, whatever the options.
#pragma once

namespace aiocuda {

// Philox 4x64-10: a counter of 256 bits, encrypted in ten rounds. J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC'11, doi:10.1145/2063384.2063405; the constants are theirs.
struct Philox {
  unsigned long long words[4];

  // With the upper words of the counter and of the key at 0.
  __device__ __forceinline__ Philox(unsigned long long key, unsigned long long counter)
      : Philox(key, 0, counter, 0, 0, 0) {}

  __device__ __forceinline__ Philox(unsigned long long key0, unsigned long long key1, unsigned long long counter0,
                                    unsigned long long counter1, unsigned long long counter2,
                                    unsigned long long counter3)
      : words{counter0, counter1, counter2, counter3} {
    constexpr unsigned long long multiplier0 = 0xD2E7470EE14C6C93, multiplier1 = 0xCA5A826395121157;
    constexpr unsigned long long increment0 = 0x9E3779B97F4A7C15, increment1 = 0xBB67AE8584CAA73B;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const unsigned long long low0 = multiplier0 * words[0], high0 = __umul64hi(multiplier0, words[0]);
      const unsigned long long low1 = multiplier1 * words[2], high1 = __umul64hi(multiplier1, words[2]);
      words[0] = high1 ^ words[1] ^ key0;
      words[1] = low1;
      words[2] = high0 ^ words[3] ^ key1;
      words[3] = low0;
      key0 += increment0;
      key1 += increment1;
    }
  }
};

namespace detail {

// c[0] x^n + c[1] x^(n-1) + ... + c[n]
template <int N>
__device__ __forceinline__ double polynomial(const double (&c)[N], double x) {
  double sum = c[0];
#pragma unroll
  for (int i = 1; i < N; ++i) sum = __fma_rn(sum, x, c[i]);
  return sum;
}

// The logarithm of a normal number above 0: that of its exponent, and twice the area tangent of what is left, whose
// series ends where it is below a hundredth of the last bit.
__device__ __forceinline__ double logarithm(double x) {
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(x));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  unsigned long long field = 1023;
  if ((bits & 0xfffffffffffffull) > 0x6a09e667f3bcdull) {  // above the root of 2
    ++exponent;
    --field;
  }
  const double m = __longlong_as_double(static_cast<long long>(field << 52 | (bits & 0xfffffffffffffull)));
  const double s = __ddiv_rn(__dadd_rn(m, -1.0), __dadd_rn(m, 1.0)), square = __dmul_rn(s, s);
  const double series[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                           2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3,  2.0};
  return __fma_rn(static_cast<double>(exponent), 0.6931471805599453, __dmul_rn(s, polynomial(series, square)));
}

}  // namespace detail

// The number below which lies the word's share of a standard normal distribution: the inverse of its distribution
// function, at (k + 1/2) / 2^52 for the word's first 52 bits k. So no more than 8.21 from 0, and symmetric.
// M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988),
// doi:10.2307/2347330; the coefficients are his, of PPND16, good to 16 digits.
__device__ __forceinline__ double normal(unsigned long long word) {
  const double a[] = {2.50908092873012226727e+3, 3.34305755835881281050e+4, 6.72657709270087008530e+4,
                      4.59219539315498714570e+4, 1.37316937655094611250e+4, 1.97159095030655144270e+3,
                      1.33141667891784377450e+2, 3.38713287279636660800e+0};
  const double b[] = {5.22649527885285456100e+3, 2.87290857357219426740e+4, 3.93078958000927106100e+4,
                      2.12137943015865958670e+4, 5.39419602142475110770e+3, 6.87187007492057908300e+2,
                      4.23133307016009112520e+1, 1.0};
  const double c[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                      1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                      4.63033784615654529590e+0, 1.42343711074968357734e+0};
  const double d[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                      1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                      2.05319162663775882187e+0, 1.0};
  const double e[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                      2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                      5.46378491116411436990e+0, 6.65790464350110377720e+0};
  const double f[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                      7.86869131145613259100e-4,  1.48753612908506148525e-2, 1.36929880922735805310e-1,
                      5.99832206555887937690e-1,  1.0};
  const double share = __dmul_rn(__dadd_rn(static_cast<double>(word >> 12), 0.5), 0x1p-52);
  const double q = __dadd_rn(share, -0.5);
  if (fabs(q) <= 0.425) {
    const double r = __fma_rn(-q, q, 0.180625);
    return __ddiv_rn(__dmul_rn(detail::polynomial(a, r), q), detail::polynomial(b, r));
  }
  const double r = __dsqrt_rn(-detail::logarithm(q < 0 ? share : __dadd_rn(1.0, -share)));
  const double near = __dadd_rn(r, -1.6), far = __dadd_rn(r, -5.0);
  const double size = r <= 5.0 ? __ddiv_rn(detail::polynomial(c, near), detail::polynomial(d, near))
                               : __ddiv_rn(detail::polynomial(e, far), detail::polynomial(f, far));
  return q < 0 ? -size : size;
}

}  // namespace aiocuda
