// Threads that meet: barriers and their votes, warp operations, and what can never go on.
#include <doctest/doctest.h>

#include <numeric>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("barrier votes count, and, or over the whole block") {
  const Module module(R"(extern "C" __global__ void votes(int* out, int limit) {
    int t = threadIdx.x + blockDim.x * threadIdx.y;
    int count = __syncthreads_count(t < limit);
    int all = __syncthreads_and(t < limit);
    int any = __syncthreads_or(t < limit);
    for (int i = 0; i < 10; i++) if (__syncthreads_count(t % 3 == i % 3) == 0) out[t * 3] = -1;
    out[t * 3] = count; out[t * 3 + 1] = all; out[t * 3 + 2] = any;
  })");
  for (const int limit : {0, 1, 50, 60}) {
    std::vector<int> out(60 * 3);
    module.launch("votes", {.block = {20, 3}}, out.data(), limit);
    for (int t = 0; t < 60; ++t) {
      CHECK(out[t * 3] == limit);
      CHECK((out[t * 3 + 1] != 0) == (limit == 60));
      CHECK((out[t * 3 + 2] != 0) == (limit > 0));
    }
  }
}

TEST_CASE("threads that have returned are not waited for") {
  const Module module(R"(extern "C" __global__ void early(int* out, int n) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (threadIdx.x >= n) return;
    atomicAdd(&sum, 1);
    __syncthreads();
    unsigned lanes = __ballot_sync(0xffffffffu, 1);
    out[threadIdx.x] = sum * 100 + __popc(lanes);
  })");
  std::vector<int> out(96, -1);
  module.launch("early", {.block = {96}}, out.data(), 40);
  CHECK(out[0] == 4032);
  CHECK(out[39] == 4008);
  CHECK(out[40] == -1);
}

TEST_CASE("shuffles move every type, in groups of any width") {
  const Module module(R"(
    template <class T> __device__ void four(T* out, T v) {
      unsigned lane = threadIdx.x;
      out[lane] = __shfl_sync(0xffffffffu, v, 5);
      out[32 + lane] = __shfl_up_sync(0xffffffffu, v, 3);
      out[64 + lane] = __shfl_down_sync(0xffffffffu, v, 3, 16);
      out[96 + lane] = __shfl_xor_sync(0xffffffffu, v, 1);
    }
    extern "C" __global__ void ints(int* o) { four<int>(o, (int)threadIdx.x - 7); }
    extern "C" __global__ void floats(float* o) { four<float>(o, threadIdx.x * 0.5f); }
    extern "C" __global__ void doubles(double* o) { four<double>(o, threadIdx.x * 0.25); }
    extern "C" __global__ void longs(long long* o) { four<long long>(o, (1ll << 40) + threadIdx.x); }
    extern "C" __global__ void unsigneds(unsigned long long* o) { four<unsigned long long>(o, ~0ull - threadIdx.x); }
    extern "C" __global__ void negative_source(int* o) { o[threadIdx.x] = __shfl_sync(~0u, (int)threadIdx.x, -1, 8);
      })");
  const auto check = [&]<class T>(const char* name, T (*value)(int)) {
    CAPTURE(name);
    std::vector<T> out(128);
    module.launch(name, {.block = {32}}, out.data());
    for (int lane = 0; lane < 32; ++lane) {
      CAPTURE(lane);
      CHECK(out[lane] == value(5));
      CHECK(out[32 + lane] == value(lane >= 3 ? lane - 3 : lane));
      CHECK(out[64 + lane] == value(lane % 16 + 3 < 16 ? lane + 3 : lane));
      CHECK(out[96 + lane] == value(lane ^ 1));
    }
  };
  check("ints", +[](int lane) { return lane - 7; });
  check("floats", +[](int lane) { return static_cast<float>(lane) * 0.5f; });
  check("doubles", +[](int lane) { return lane * 0.25; });
  check("longs", +[](int lane) { return (1ll << 40) + lane; });
  check("unsigneds", +[](int lane) { return ~0ull - static_cast<unsigned>(lane); });
  std::vector<int> out(32);
  module.launch("negative_source", {.block = {32}}, out.data());
  CHECK(out[0] == 7);
  CHECK(out[31] == 31);
}

TEST_CASE("a lane outside the mask, and one that has left, gives 0") {
  const Module module(R"(
    // The last step of a sum whose mask names only the lanes that hold a part of it.
    extern "C" __global__ void last_step(int* out) {
      const int t = threadIdx.x;
      int sum = 1 + t;
      const unsigned mask = __ballot_sync(~0u, t < 4);
      if (t < 4) {
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(mask, sum, offset);
        out[t] = sum;
      }
    }
    extern "C" __global__ void gone(double* out) {
      if (threadIdx.x >= 8) return;
      out[threadIdx.x] = __shfl_sync(~0u, 7.5, threadIdx.x * 2);
    })");
  std::vector<int> sums(4);
  module.launch("last_step", {.block = {32}}, sums.data());
  CHECK(sums[0] == 1 + 2 + 3 + 4);
  std::vector<double> out(8);
  module.launch("gone", {.block = {32}}, out.data());
  for (int lane = 0; lane < 8; ++lane) CHECK(out[lane] == (lane * 2 < 8 ? 7.5 : 0));
}

TEST_CASE("votes, matches and reductions over a warp, and over some of its lanes") {
  const Module module(R"(extern "C" __global__ void operations(unsigned* out) {
    unsigned lane = threadIdx.x;
    unsigned* o = out + lane * 20;
    o[0] = __any_sync(~0u, lane == 3);
    o[1] = __all_sync(~0u, lane < 32);
    o[2] = __all_sync(~0u, lane != 3);
    o[3] = __ballot_sync(~0u, lane % 3 == 0);
    o[4] = __match_any_sync(~0u, lane / 8);
    int same;
    o[5] = __match_all_sync(~0u, 7.5, &same); o[6] = same;
    o[7] = __match_all_sync(~0u, (unsigned long long)lane, &same); o[8] = same;
    o[9] = __reduce_add_sync(~0u, lane);
    o[10] = __reduce_min_sync(~0u, (int)lane - 10);
    o[11] = __reduce_max_sync(~0u, (int)lane - 40);
    o[12] = __reduce_and_sync(~0u, lane | 0x40);
    o[13] = __reduce_or_sync(~0u, lane);
    o[14] = __reduce_xor_sync(~0u, lane + 1);
    if (lane < 16) { o[15] = __reduce_add_sync(0xffffu, lane); o[16] = __activemask(); }
    else { o[15] = __reduce_add_sync(0xffff0000u, lane); o[16] = __activemask(); }
    __syncwarp();
    o[17] = __activemask();
    if (lane & 1) { __syncwarp(0xaaaaaaaau); o[18] = __ballot_sync(0xaaaaaaaau, lane > 8); } else o[18] = 0;
  })");
  std::vector<unsigned> out(32 * 20);
  module.launch("operations", {.block = {32}}, out.data());
  for (unsigned lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    const unsigned* o = &out[lane * 20];
    CHECK(o[0] == 1);
    CHECK(o[1] == 1);
    CHECK(o[2] == 0);
    CHECK(o[3] == 0x49249249u);
    CHECK(o[4] == 0xffu << (lane / 8 * 8));
    CHECK(o[5] == ~0u);
    CHECK(o[6] == 1);
    CHECK(o[7] == 0);
    CHECK(o[8] == 0);
    CHECK(o[9] == 496);
    CHECK(static_cast<int>(o[10]) == -10);
    CHECK(static_cast<int>(o[11]) == -9);
    CHECK(o[12] == 0x40);
    CHECK(o[13] == 31);
    CHECK(o[14] == 32);
    CHECK(o[15] == (lane < 16 ? 120 : 376));
    CHECK(o[16] == (lane < 16 ? 0xffffu : 0xffff0000u));
    CHECK(o[17] == ~0u);
    CHECK(o[18] == ((lane & 1) != 0 ? 0xaaaaaa00u : 0));
  }
}

TEST_CASE("a barrier that can never be passed fails the launch and says where") {
  const Module module(R"(extern "C" __global__ void stuck(int* out) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    out[0] = __shfl_sync(0xffffffffu, 1, 0);
  }
})");
  int out = 0;
  try {
    module.launch("stuck", {.grid = {1}, .block = {32}}, &out);
    FAIL("the launch ended");
  } catch (const LaunchFailure& failure) {
    CHECK(failure.error == 719);
    const std::string message = failure.what();
    CAPTURE(message);
    CHECK(message.find("block (0,0,0)") != std::string::npos);
    CHECK(message.find("16 at __syncthreads (line 3)") != std::string::npos);
    CHECK(message.find("16 at a warp operation (line 5)") != std::string::npos);
  }
  // The thread's state is good for the next launch.
  const Module next(
      R"(extern "C" __global__ void fine(int* out) { __syncthreads(); if (threadIdx.x == 0) out[0] = 5; })");
  next.launch("fine", {.block = {64}}, &out);
  CHECK(out == 5);
}

TEST_CASE("a warp operation whose mask leaves out the caller fails the launch") {
  const Module module(R"(extern "C" __global__ void wrong(int* out) { out[0] = __any_sync(0x1u, threadIdx.x); })");
  int out = 0;
  try {
    module.launch("wrong", {.block = {2}}, &out);
    FAIL("the launch ended");
  } catch (const LaunchFailure& failure) {
    CHECK(failure.error == 719);
    CHECK(std::string(failure.what()).find("mask 0x00000001") != std::string::npos);
  }
}

TEST_CASE("threads of a block that wait for one another through memory go on") {
  const Module module(R"(
    extern "C" __global__ void volatile_flag(int* out) {
      __shared__ volatile int turn;
      if (threadIdx.x == 0) turn = 0;
      __syncthreads();
      while (turn != (int)threadIdx.x) { }
      out[threadIdx.x] = turn;
      turn = threadIdx.x + 1;
    }
    extern "C" __global__ void atomic_flag(int* flag, int* out) {
      if (threadIdx.x == blockDim.x - 1) { __threadfence(); atomicExch(flag, 1); }
      while (atomicAdd(flag, 0) == 0);
      out[threadIdx.x] = 3;
    }
    extern "C" __global__ void polled(volatile int* flag, int* out) {
      if (threadIdx.x == 40) *flag = 9;
      int v;
      do { v = *flag; } while (v == 0);
      out[threadIdx.x] = v;
    }
    extern "C" __global__ void lock(int* mutex, int* out) {
      bool done = false;
      while (!done) {
        if (atomicCAS(mutex, 0, 1) == 0) { out[0] += 1; __threadfence(); atomicExch(mutex, 0); done = true; }
      }
      __syncthreads();
    })");
  std::vector<int> out(64);
  module.launch("volatile_flag", {.block = {64}}, out.data());
  for (int i = 0; i < 64; ++i) CHECK(out[i] == i);
  int flag = 0;
  module.launch("atomic_flag", {.block = {64}}, &flag, out.data());
  CHECK(out[0] == 3);
  flag = 0;
  module.launch("polled", {.block = {64}}, &flag, out.data());
  CHECK(out[0] == 9);
  flag = 0;
  out[0] = 0;
  module.launch("lock", {.grid = {16}, .block = {64}, .threads = 2}, &flag, out.data());
  CHECK(out[0] == 1024);
}

TEST_CASE("a block of 1024 threads with large stacks runs, again and again") {
  const Module module(R"(extern "C" __global__ void deep(float* out) {
    float local[8192];
    for (int i = 0; i < 8192; i++) local[i] = i + threadIdx.x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 8192; i += 512) sum += local[i];
    __syncthreads();
    if (threadIdx.x == 1023) out[blockIdx.x] = sum;
  })");
  std::vector<float> out(6);
  module.launch("deep", {.grid = {6}, .block = {1024}, .threads = 2}, out.data());
  for (const float value : out) CHECK(value == 16 * 1023 + 512 * 120);
}
