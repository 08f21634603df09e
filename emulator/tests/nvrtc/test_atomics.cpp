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
    extern "C" __global__ void ulongs(unsigned long long* v, unsigned long long* o) {
      integers<unsigned long long>(v, o, ~0ull, 2); }
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
    const std::vector<T> expected = {static_cast<T>(a + b),
                                     static_cast<T>(a - b),
                                     b,
                                     std::min(a, b),
                                     std::max(a, b),
                                     static_cast<T>(a & b),
                                     static_cast<T>(a | b),
                                     static_cast<T>(a ^ b),
                                     b,
                                     a};
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
  const Module module(
      R"(extern "C" __global__ void count(int* i, float* f, double* d, unsigned long long* u, int* most) {
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

TEST_CASE("cuda::atomic_ref and cuda::atomic do what libcu++'s do") {
  const Module module(R"(
    #include <cuda/atomic>
    extern "C" __global__ void operations(int* v, int* old) {
      cuda::atomic_ref<int, cuda::thread_scope_device> a{v[0]};
      old[0] = a.fetch_add(5, cuda::memory_order_relaxed);
      old[1] = a.fetch_sub(2);
      old[2] = a.fetch_and(6);
      old[3] = a.fetch_or(9);
      old[4] = a.fetch_xor(3);
      old[5] = a.fetch_min(4);
      old[6] = a.fetch_max(40, cuda::std::memory_order_acq_rel);
      old[7] = a.exchange(7);
      int expected = 3;
      old[8] = a.compare_exchange_strong(expected, 100);
      old[9] = expected;
      old[10] = a.compare_exchange_weak(expected, 8, cuda::memory_order_acquire, cuda::memory_order_relaxed);
      old[11] = a.load(cuda::memory_order_acquire);
      a.store(20, cuda::memory_order_release);
      old[12] = ++a; old[13] = a--; old[14] = a += 4; a = 11;
      cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_block);
    }
    extern "C" __global__ void count(int* out, float* sum) {
      __shared__ cuda::atomic<int, cuda::thread_scope_block> counter;
      if (threadIdx.x == 0) counter = 0;
      __syncthreads();
      ++counter;
      cuda::atomic_ref<float> total{*sum};
      total.fetch_add(0.5f);
      __syncthreads();
      if (threadIdx.x == 0) out[blockIdx.x] = counter;
    }
    extern "C" __global__ void hand_over(int* flag, int* out) {
      cuda::atomic_ref<int, cuda::thread_scope_system> signal{*flag};
      if (threadIdx.x == 0) { while (true) { if (signal.load(cuda::memory_order_relaxed)) break; } *out = 5; }
      else { __syncwarp(2); signal.store(1); }
    })");
  int value = 10;
  std::vector<int> old(15);
  module.launch("operations", {}, &value, old.data());
  CHECK(old == std::vector<int>{10, 15, 13, 4, 13, 14, 4, 40, 0, 7, 1, 8, 21, 21, 24});
  CHECK(value == 11);
  std::vector<int> counts(4);
  float sum = 0;
  module.launch("count", {.grid = {4, 1, 1}, .block = {96, 1, 1}}, counts.data(), &sum);
  CHECK(counts == std::vector<int>(4, 96));
  CHECK(sum == 4 * 96 * 0.5f);
  int flag = 0, out = 0;
  module.launch("hand_over", {.block = {2, 1, 1}}, &flag, &out);
  CHECK(out == 5);
}
