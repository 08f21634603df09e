// Atomic functions: their arithmetic, and that they are atomic between threads.
#include <doctest/doctest.h>

#include <algorithm>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("atomic functions answer the old value and leave the right new one") {
  const Module module(R"(
    template <class T> __device__ void integers(T* v, T* old, T a, T b) {
      T* o = old; T* p = v;
      *p = a; *o++ = atomicAdd(p++, b);
      *p = a; *o++ = atomicSub(p++, b);
      *p = a; *o++ = atomicExch(p++, b);
      *p = a; *o++ = atomicMin(p++, b);
      *p = a; *o++ = atomicMax(p++, b);
      *p = a; *o++ = atomicAnd(p++, b);
      *p = a; *o++ = atomicOr(p++, b);
      *p = a; *o++ = atomicXor(p++, b);
      *p = a; *o++ = atomicCAS(p++, a, b);
      *p = a; *o++ = atomicCAS_system(p++, b, a);
    }
    extern "C" __global__ void ints(int* v, int* o) { integers<int>(v, o, -6, 3); }
    extern "C" __global__ void unsigneds(unsigned* v, unsigned* o) { integers<unsigned>(v, o, 0xfffffff0u, 5u); }
    extern "C" __global__ void longs(long long* v, long long* o) { integers<long long>(v, o, -(1ll << 40), 12); }
    extern "C" __global__ void ulongs(unsigned long long* v, unsigned long long* o) { integers<unsigned long long>(v, o, ~0ull, 2); }
    extern "C" __global__ void others(float* f, double* d, unsigned* u, unsigned short* s) {
      f[1] = atomicAdd(&f[0], 1.5f); f[3] = atomicExch(&f[2], -2.0f); f[5] = atomicAdd_block(&f[4], 1);
      d[1] = atomicAdd(&d[0], 0.25); d[3] = atomicExch(&d[2], 8.0);
      u[0] = 3; u[1] = atomicInc(&u[0], 3); u[2] = 2; u[3] = atomicInc(&u[2], 3);
      u[4] = 0; u[5] = atomicDec(&u[4], 9); u[6] = 12; u[7] = atomicDec(&u[6], 9); u[8] = 5; atomicDec(&u[8], 9);
      s[1] = atomicCAS(&s[0], (unsigned short)4, (unsigned short)6);
    })");
  const auto check = [&]<class T>(const char* name, T a, T b) {
    CAPTURE(name);
    std::vector<T> v(10);
    std::vector<T> old(10);
    module.launch(name, {}, v.data(), old.data());
    const std::vector<T> expected = {static_cast<T>(a + b), static_cast<T>(a - b), b, std::min(a, b), std::max(a, b),
                                     static_cast<T>(a & b), static_cast<T>(a | b), static_cast<T>(a ^ b), b, a};
    CHECK(v == expected);
    CHECK(old == std::vector<T>(10, a));
  };
  check("ints", -6, 3);
  check("unsigneds", 0xfffffff0u, 5u);
  check("longs", -(1ll << 40), 12ll);
  check("ulongs", ~0ull, 2ull);
  float f[6] = {1, 0, 7, 0, 2, 0};
  double d[4] = {1, 0, 3, 0};
  unsigned u[9] = {};
  unsigned short s[2] = {4, 0};
  module.launch("others", {}, &f[0], &d[0], &u[0], &s[0]);
  CHECK(f[0] == 2.5f);
  CHECK(f[1] == 1.0f);
  CHECK(f[2] == -2.0f);
  CHECK(f[3] == 7.0f);
  CHECK(f[4] == 3.0f);
  CHECK(d[0] == 1.25);
  CHECK(d[3] == 3.0);
  CHECK(u[0] == 0);
  CHECK(u[2] == 3);
  CHECK(u[4] == 9);
  CHECK(u[6] == 9);
  CHECK(u[8] == 4);
  CHECK(s[0] == 6);
  CHECK(s[1] == 4);
}

TEST_CASE("atomic functions lose nothing between blocks on several threads") {
  const Module module(R"(extern "C" __global__ void count(int* i, float* f, double* d, unsigned long long* u, int* most) {
    atomicAdd(i, 1); atomicAdd(f, 1.0f); atomicAdd(d, 0.5); atomicAdd(u, 3ull);
    atomicMax(most, (int)(blockIdx.x * blockDim.x + threadIdx.x));
  })");
  int i = 0;
  float f = 0;
  double d = 0;
  unsigned long long u = 0;
  int most = 0;
  module.launch("count", {.grid = {500}, .block = {128}, .threads = 4}, &i, &f, &d, &u, &most);
  CHECK(i == 64000);
  CHECK(f == 64000.0f);
  CHECK(d == 32000.0);
  CHECK(u == 192000);
  CHECK(most == 63999);
}
