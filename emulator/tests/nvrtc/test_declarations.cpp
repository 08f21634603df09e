// How public programs declare things: each of these once did not compile here though NVRTC takes it.
#include <doctest/doctest.h>

#include <cstdint>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("a program's own types and constants come before the device headers'") {
  const Module module(R"(
    typedef long long int int64_t;
    typedef unsigned long long uint64_t;
    using uint32_t = unsigned int;
    __device__ const float M_PI = 3.0f;
    constexpr int INT_MAX = 7;
    enum { INFINITY = 5 };
    extern "C" __global__ void k(uint64_t* sum, uint32_t* out) {
      atomicAdd(sum, (uint64_t)3);
      const int64_t wide = INT_MAX;
      out[0] = (uint32_t)(M_PI + wide + INFINITY);
    })");
  unsigned long long sum = 4;
  unsigned out = 0;
  module.launch("k", {}, &sum, &out);
  CHECK(sum == 7);
  CHECK(out == 15);
}

TEST_CASE("alignment behind a memory qualifier, classes with static members, unnamed and named classes") {
  const Module module(R"(
    __device__ alignas(16) float table[4] = {1, 2, 3, 4};
    __constant__ alignas(32) int pair[2] = {5, 6};
    struct Twice { static __device__ int of(int x) { return 2 * x; } static constexpr int three = 3; };
    __device__ struct { int a[2]; } unnamed;
    __device__ struct Named { int b; } named = {9};
    extern "C" __global__ void k(int* out) {
      __shared__ alignas(64) float q[4];
      extern __shared__ alignas(128) unsigned char dynamic[];
      q[0] = table[1];
      dynamic[0] = 1;
      unnamed.a[1] = pair[1];
      out[0] = (int)q[0] + unnamed.a[1] + named.b + Twice::of(2) + Twice::three + dynamic[0];
      out[1] = ((size_t)q & 63) == 0 && ((size_t)table & 15) == 0 && ((size_t)pair & 31) == 0;
    })");
  int out[2] = {};
  module.launch("k", {.dynamic_shared_bytes = 16}, out);
  CHECK(out[0] == 25);
  CHECK(out[1] == 1);
}

TEST_CASE("name expressions reach unnamed namespaces, static functions and types of the headers") {
  const Program program{.source = R"(
    #include <cuda_fp16.h>
    namespace { template <class T> __global__ void twice(T* x) { x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; } }
    static __device__ int next(int x);
    static __device__ int next(int x) { return x + 1; }
    template <int (*F)(int)> static __global__ void map(int* x) { x[threadIdx.x] = F(x[threadIdx.x]); }
    typedef void (*Load)(const float*, half2&);
    static __device__ __forceinline__ void load(const float* x, half2& v) { v = __floats2half2_rn(x[0], x[1]); }
    template <Load F> __global__ void sum(const float* x, float* out) { half2 v; F(x, v); out[0] = (float)(v.x + v.y); }
    template <class T> __global__ void copy(const T* from, T* to) { to[threadIdx.x] = from[threadIdx.x]; }
  )",
                        .name_expressions = {"twice<float>", "map<next>", "sum<load>", "copy<float4>"}};
  const Module module(program);
  float x[4] = {1, 2, 3, 4};
  module.launch(module.lowered_names()[0], {.block = {4}}, x);
  CHECK(x[3] == 8);
  int i[2] = {1, 2};
  module.launch(module.lowered_names()[1], {.block = {2}}, i);
  CHECK(i[1] == 3);
  float sum = 0;
  module.launch(module.lowered_names()[2], {}, x, &sum);
  CHECK(sum == 6);
  alignas(16) float copy[4] = {};
  alignas(16) float from[4] = {1, 2, 3, 4};
  module.launch(module.lowered_names()[3], {}, from, copy);
  CHECK(copy[3] == 4);
}

TEST_CASE("inline assembly that reads a special register") {
  const Module module(R"(
    __device__ unsigned lane() { unsigned r; asm("mov.u32 %0, %laneid;" : "=r"(r)); return r; }
    __device__ __forceinline__ unsigned below() { unsigned r;
      asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(r) :: "memory"); return r; }
    extern "C" __global__ void k(unsigned* out) { out[threadIdx.x] = lane() | below() << 8; })");
  unsigned out[64];
  module.launch("k", {.block = {64}}, out);
  CHECK(out[0] == 0);
  CHECK(out[41] == (9u | 0x1ffu << 8));
}

TEST_CASE("later intrinsics: selections, byte swaps, aligned vectors, pipeline copies, cuda/std beside clock") {
  const Module module(R"(
    #include <cuda_pipeline.h>
    #include <cuda_bf16.h>
    #include <cuda/std/array>
    #include <cuda/std/complex>
    #include <cuda/std/atomic>
    extern "C" __global__ void k(int* out, const float4* in) {
      bool first;
      const long begin = clock();
      out[0] = __viaddmax_s32(3, 4, 5);
      out[1] = (int)__vimax3_u32(1u, 0xfffffff0u, 7u);
      out[2] = __vimin3_s32_relu(4, -3, 9);
      out[3] = __vibmin_s32(4, 3, &first) + first;
      out[4] = (int)__viaddmax_s16x2(0x00010002u, 0x00030004u, 0x00050001u);
      out[5] = (int)__nv_bswap32(0x01020304u);
      out[6] = __signbitf(-1.0f) + __finite(2.0);
      double4_32a wide = make_double4_32a(1, 2, 3, 4);
      out[7] = alignof(double4_32a) + (int)wide.w;
      __shared__ float4 s[1];
      __pipeline_memcpy_async(s, in, sizeof(float4));
      __pipeline_commit();
      __pipeline_wait_prior(0);
      out[8] = (int)s[0].z;
      cuda::std::array<int, 2> a = {3, 4};
      out[9] = a[1] + (int)cuda::std::complex<float>(1, 2).imag() + (clock() >= begin);
      out[10] = __bfloat162uchar_rz(__nv_bfloat16(300.0f)) +
        __hne2_mask(__float2bfloat162_rn(1.0f), __float2bfloat162_rn(1.0f));
    })");
  int out[11] = {};
  alignas(16) const float in[4] = {1, 2, 3, 4};
  module.launch("k", {}, out, in);
  const int expected[11] = {7, -16, 0, 3, 0x00050006, 0x04030201, 2, 36, 3, 7, 255};
  for (int i = 0; i < 11; ++i) CHECK_MESSAGE(out[i] == expected[i], i);
}
