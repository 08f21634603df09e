// Threads that wait for one another without a barrier: lanes in step, as programs from before Volta count on,
// and loops that poll memory.
#include <doctest/doctest.h>

#include <numeric>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("lanes of a warp stay in step where they work on volatile shared memory") {
  const Module module(R"(
    __device__ void fold(volatile int* s, int t) {
      s[t] += s[t + 32]; s[t] += s[t + 16];
      s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
    }
    extern "C" __global__ void total(const int* in, int* out) {
      __shared__ int s[64 + 32];
      s[threadIdx.x] = in[threadIdx.x];
      __syncthreads();
      if (threadIdx.x < 32) fold(s, threadIdx.x);
      if (threadIdx.x == 0) *out = s[0];
    }
    extern "C" __global__ void chained(const int* in, int* out) {
      __shared__ int s[64];
      int mine = in[threadIdx.x];
      volatile int* v = s;
      v[threadIdx.x] = mine;
      v[threadIdx.x + 32] = 0;
      for (int d = 16; d > 0; d >>= 1) v[threadIdx.x] = mine = mine + v[threadIdx.x + d];
      if (threadIdx.x == 0) *out = mine;
    }
    extern "C" __global__ void scan(int* x) {
      __shared__ volatile int s[64];
      const int t = threadIdx.x, lane = t & 31;
      s[t] = x[t];
      if (lane >= 1) s[t] = s[t - 1] + s[t];
      if (lane >= 2) s[t] = s[t - 2] + s[t];
      if (lane >= 4) s[t] = s[t - 4] + s[t];
      if (lane >= 8) s[t] = s[t - 8] + s[t];
      if (lane >= 16) s[t] = s[t - 16] + s[t];
      x[t] = s[t];
    }
    extern "C" __global__ void told_by_two(const int* ends, int* out, int rows) {
      __shared__ volatile int range[2];
      __shared__ volatile int s[64];
      for (int row = 0; row < rows; ++row) {
        if (threadIdx.x < 2) range[threadIdx.x] = ends[row + threadIdx.x];
        const int begin = range[0];
        const int end = range[1];
        int sum = 0;
        for (int i = begin + threadIdx.x; i < end; i += 32) sum += i;
        s[threadIdx.x] = sum;
        s[threadIdx.x + 32] = 0;
        for (int d = 16; d > 0; d >>= 1) s[threadIdx.x] += s[threadIdx.x + d];
        if (threadIdx.x == 0) out[row] = s[0];
      }
    }
    extern "C" __global__ void tagged_histogram(const unsigned char* in, unsigned* out, int n) {
      __shared__ unsigned bins[8];
      volatile unsigned* counts = bins;
      if (threadIdx.x < 8) bins[threadIdx.x] = 0;
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += 32) {
        unsigned next;
        do {
          next = (counts[in[i]] & 0x7ffffffu) + 1u | threadIdx.x << 27;
          counts[in[i]] = next;
        } while (counts[in[i]] != next);
      }
      __syncthreads();
      if (threadIdx.x < 8) out[threadIdx.x] = bins[threadIdx.x] & 0x7ffffffu;
    })");
  std::vector<int> in(64);
  std::iota(in.begin(), in.end(), 3);
  int out = 0;
  module.launch("total", {.block = {64}}, in.data(), &out);
  CHECK(out == std::accumulate(in.begin(), in.end(), 0));
  module.launch("chained", {.block = {32}}, in.data(), &out);
  CHECK(out == std::accumulate(in.begin(), in.begin() + 32, 0));
  std::vector<int> sums = in;
  module.launch("scan", {.block = {64}}, sums.data());
  CHECK(sums[31] == std::accumulate(in.begin(), in.begin() + 32, 0));
  CHECK(sums[63] == std::accumulate(in.begin() + 32, in.end(), 0));
  const std::vector<int> ends = {0, 5, 5, 100, 140};
  std::vector<int> rows(4);
  module.launch("told_by_two", {.block = {32}}, ends.data(), rows.data(), 4);
  for (int row = 0; row < 4; ++row) {
    const int expected = (ends[row + 1] * (ends[row + 1] - 1) - ends[row] * (ends[row] - 1)) / 2;
    CHECK(rows[row] == expected);
  }
  std::vector<unsigned char> bytes(320);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = i < 200 ? 3 : i % 8;
  std::vector<unsigned> counts(8);
  module.launch("tagged_histogram", {.block = {32}}, bytes.data(), counts.data(), 320);
  for (unsigned bin = 0; bin < 8; ++bin) CHECK(counts[bin] == 15 + (bin == 3 ? 200u : 0u));
}

TEST_CASE("endless loops that poll let the threads go on for which they wait") {
  const Module module(R"(
    extern "C" __global__ void endless_for(int* out) {
      __shared__ volatile int turn;
      if (threadIdx.x == 0) turn = 0;
      __syncthreads();
      for (;;) {
        if (turn == (int)threadIdx.x) { out[threadIdx.x] = turn; turn = turn + 1; break; }
      }
    }
    extern "C" __global__ void backwards(int* out) {
      volatile int* seen = out;
      while (true) {
        const int now = seen[0];
        if (now == (int)(blockDim.x - 1 - threadIdx.x)) { seen[1 + threadIdx.x] = now; seen[0] = now + 1; break; }
      }
    }
    extern "C" __global__ void atomic_read(int* out) {
      for (;;) {
        if (atomicAdd(&out[0], 0) != (int)(blockDim.x - 1 - threadIdx.x)) continue;
        out[1 + threadIdx.x] = 1;
        __threadfence();
        atomicAdd(&out[0], 1);
        return;
      }
    }
    extern "C" __global__ void do_while(unsigned* out) {
      int tries = 0;
      do { ++tries; } while (atomicOr(&out[0], 0u) != blockDim.x - 1 - threadIdx.x);
      out[1 + threadIdx.x] = tries > 0;
      atomicAdd(&out[0], 1u);
    }
    __device__ volatile int gate;
    extern "C" __global__ void through_a_function(int* out);
    __device__ bool is_open() { return gate != 0; }
    extern "C" __global__ void through_a_function(int* out) {
      if (threadIdx.x == 40) { out[0] = 42; __threadfence(); gate = 1; }
      while (1) { if (is_open()) break; }
      out[1 + threadIdx.x] = out[0];
    })");
  std::vector<int> out(65);
  module.launch("endless_for", {.block = {64}}, out.data());
  for (int i = 0; i < 64; ++i) CHECK(out[i] == i);
  for (const char* name : {"backwards", "atomic_read", "do_while"}) {
    out.assign(65, 0);
    module.launch(name, {.block = {64}}, out.data());
    CHECK_MESSAGE(out[0] == 64, name);
  }
  module.launch("through_a_function", {.block = {64}}, out.data());
  for (int i = 1; i <= 64; ++i) CHECK(out[i] == 42);
}

TEST_CASE("a variable that only the leader of a warp sets may be handed to a shuffle") {
  const Module module(R"(
    __device__ int told_by(int value, int leader) { return __shfl_sync(__activemask(), value, leader); }
    __device__ int place(int* count) {
      const int mask = __ballot_sync(__activemask(), 1);
      const int leader = __ffs(mask) - 1, lane = threadIdx.x & 31;
      int first;
      if (lane == leader) first = atomicAdd(count, __popc(mask));
      return told_by(first, leader) + __popc(mask & ((1 << lane) - 1));
    }
    extern "C" __global__ void odd(int* out, int* count) {
      if (threadIdx.x % 2 == 1) out[place(count)] = threadIdx.x;
    })");
  std::vector<int> out(64);
  int count = 0;
  module.launch("odd", {.block = {64}}, out.data(), &count);
  CHECK(count == 32);
  for (int i = 0; i < 32; ++i) CHECK(out[i] == 2 * i + 1);
}
