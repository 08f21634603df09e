// Parallel patterns as people write them, each checked against plain C++.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "numbers.hpp"
#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("reduction: a tree in shared memory, and warp shuffles behind it") {
  const Module module(Program{.source = R"(
    template <unsigned blockSize> __global__ void reduce_tree(const float* in, float* out, unsigned n) {
      extern __shared__ float sdata[];
      unsigned tid = threadIdx.x, i = blockIdx.x * (blockSize * 2) + tid, gridSize = blockSize * 2 * gridDim.x;
      float sum = 0;
      while (i < n) { sum += in[i]; if (i + blockSize < n) sum += in[i + blockSize]; i += gridSize; }
      sdata[tid] = sum;
      __syncthreads();
      if (blockSize >= 256) { if (tid < 128) { sdata[tid] = sum = sum + sdata[tid + 128]; } __syncthreads(); }
      if (blockSize >= 128) { if (tid < 64) { sdata[tid] = sum = sum + sdata[tid + 64]; } __syncthreads(); }
      if (tid < 32) {
        sum += sdata[tid + 32];
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
      }
      if (tid == 0) out[blockIdx.x] = sum;
    }
    __inline__ __device__ float warpReduceSum(float val) {
      for (int offset = warpSize / 2; offset > 0; offset /= 2) val += __shfl_down_sync(0xffffffff, val, offset);
      return val;
    }
    extern "C" __global__ void reduce_shuffle(const float* in, float* out, int n) {
      static __shared__ float shared[32];
      int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
      float val = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) val += in[i];
      val = warpReduceSum(val);
      if (lane == 0) shared[wid] = val;
      __syncthreads();
      val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0;
      if (wid == 0) val = warpReduceSum(val);
      if (threadIdx.x == 0) atomicAdd(out, val);
    })",
                              .name_expressions = {"reduce_tree<256>"}});
  const std::vector<float> in = random_floats(100003);
  const double exact = std::accumulate(in.begin(), in.end(), 0.0);
  std::vector<float> out(16);
  module.launch(module.lowered_names()[0], {.grid = {16}, .block = {256}, .dynamic_shared_bytes = 1024, .threads = 2},
                in.data(), out.data(), 100003u);
  CHECK(std::accumulate(out.begin(), out.end(), 0.0) == doctest::Approx(exact).epsilon(1e-4));
  float total = 0;
  module.launch("reduce_shuffle", {.grid = {16}, .block = {256}, .threads = 2}, in.data(), &total, 100003);
  CHECK(total == doctest::Approx(exact).epsilon(1e-3));
}

TEST_CASE("scan: work-efficient in shared memory, and by shuffles") {
  const Module module(R"(
    extern "C" __global__ void blelloch(int* data, int n) {
      extern __shared__ int temp[];
      int t = threadIdx.x, offset = 1;
      temp[2 * t] = data[2 * t]; temp[2 * t + 1] = data[2 * t + 1];
      for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) temp[offset * (2 * t + 2) - 1] += temp[offset * (2 * t + 1) - 1];
        offset *= 2;
      }
      if (t == 0) temp[n - 1] = 0;
      for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
          int ai = offset * (2 * t + 1) - 1, bi = offset * (2 * t + 2) - 1, v = temp[ai];
          temp[ai] = temp[bi]; temp[bi] += v;
        }
      }
      __syncthreads();
      data[2 * t] = temp[2 * t]; data[2 * t + 1] = temp[2 * t + 1];
    }
    extern "C" __global__ void shuffles(int* data) {
      __shared__ int sums[32];
      int v = data[threadIdx.x], lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
      #pragma unroll
      for (int d = 1; d < 32; d <<= 1) { int o = __shfl_up_sync(~0u, v, d); if (lane >= d) v += o; }
      if (lane == 31) sums[warp] = v;
      __syncthreads();
      if (warp == 0) { int s = lane < blockDim.x / 32 ? sums[lane] : 0;
        for (int d = 1; d < 32; d <<= 1) { int o = __shfl_up_sync(~0u, s, d); if (lane >= d) s += o; }
        sums[lane] = s; }
      __syncthreads();
      data[threadIdx.x] = v + (warp > 0 ? sums[warp - 1] : 0);
    })");
  std::vector<int> in(512);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7 % 13);
  std::vector<int> expected(512);
  std::exclusive_scan(in.begin(), in.end(), expected.begin(), 0);
  std::vector<int> data = in;
  module.launch("blelloch", {.block = {256}, .dynamic_shared_bytes = 2048}, data.data(), 512);
  CHECK(data == expected);
  std::inclusive_scan(in.begin(), in.end(), expected.begin());
  data = in;
  module.launch("shuffles", {.block = {512}}, data.data());
  CHECK(data == expected);
}

TEST_CASE("histogram with shared atomics, and with warp-aggregated ones") {
  const Module module(R"(
    extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int n) {
      __shared__ unsigned local[256];
      for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
      __syncthreads();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[in[i]], 1);
      __syncthreads();
      for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
    }
    __device__ int aggregated(int* counter) {
      unsigned mask = __activemask();
      int leader = __ffs(mask) - 1, lane = threadIdx.x & 31, base = 0;
      if (lane == leader) base = atomicAdd(counter, __popc(mask));
      base = __shfl_sync(mask, base, leader);
      return base + __popc(mask & ((1u << lane) - 1));
    }
    extern "C" __global__ void filter(const unsigned char* in, int* out, int* count, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n && in[i] > 128) out[aggregated(count)] = i;
    })");
  std::vector<unsigned char> in(20000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * i >> 3);
  std::vector<unsigned> expected(256);
  std::vector<int> kept;
  for (std::size_t i = 0; i < in.size(); ++i) {
    ++expected[in[i]];
    if (in[i] > 128) kept.push_back(static_cast<int>(i));
  }
  std::vector<unsigned> bins(256);
  module.launch("histogram", {.grid = {10}, .block = {192}, .threads = 2}, in.data(), bins.data(), 20000);
  CHECK(bins == expected);
  std::vector<int> out(in.size());
  int count = 0;
  module.launch("filter", {.grid = {79}, .block = {256}, .threads = 2}, in.data(), out.data(), &count, 20000);
  REQUIRE(count == static_cast<int>(kept.size()));
  out.resize(kept.size());
  std::sort(out.begin(), out.end());
  CHECK(out == kept);
}

TEST_CASE("transpose through a padded tile, and a stencil with halo") {
  const Module module(R"(
    #define TILE_DIM 32
    #define BLOCK_ROWS 8
    #define RADIUS 3
    extern "C" __global__ void transpose(float* odata, const float* idata, int width, int height) {
      __shared__ float tile[TILE_DIM][TILE_DIM + 1];
      int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
      for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
      __syncthreads();
      x = blockIdx.y * TILE_DIM + threadIdx.x; y = blockIdx.x * TILE_DIM + threadIdx.y;
      for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < height && y + j < width) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
    }
    extern "C" __global__ void stencil_1d(const int* in, int* out, int n) {
      __shared__ int temp[128 + 2 * RADIUS];
      int g = threadIdx.x + blockIdx.x * blockDim.x, l = threadIdx.x + RADIUS;
      temp[l] = g < n ? in[g] : 0;
      if (threadIdx.x < RADIUS) { temp[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0;
        temp[l + 128] = g + 128 < n ? in[g + 128] : 0; }
      __syncthreads();
      int result = 0;
      for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[l + offset];
      if (g < n) out[g] = result;
    })");
  const int width = 70;
  const int height = 45;
  const std::vector<float> in = random_floats(static_cast<std::size_t>(width) * height);
  std::vector<float> out(in.size());
  module.launch("transpose", {.grid = {3, 2}, .block = {32, 8}}, out.data(), in.data(), width, height);
  bool right = true;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      right = right && out[static_cast<std::size_t>(x) * height + y] == in[static_cast<std::size_t>(y) * width + x];
  CHECK(right);
  std::vector<int> line(500);
  std::iota(line.begin(), line.end(), 1);
  std::vector<int> sums(500);
  module.launch("stencil_1d", {.grid = {4}, .block = {128}}, line.data(), sums.data(), 500);
  for (int i = 0; i < 500; ++i) {
    int expected = 0;
    for (int j = std::max(0, i - 3); j <= std::min(499, i + 3); ++j) expected += line[static_cast<std::size_t>(j)];
    CHECK(sums[static_cast<std::size_t>(i)] == expected);
  }
}

TEST_CASE("the last block to finish reduces what all blocks left (threadfence reduction)") {
  const Module module(R"(
    __device__ unsigned retired = 0;
    extern "C" __global__ void sum(const float* in, volatile float* partial, float* out, int n) {
      __shared__ float s[64];
      __shared__ bool last;
      float v = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
      s[threadIdx.x] = v;
      for (int o = 32; o > 0; o >>= 1) { __syncthreads(); if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o]; }
      if (threadIdx.x == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&retired, gridDim.x) == gridDim.x - 1;
      }
      __syncthreads();
      if (last && threadIdx.x == 0) { float t = 0; for (int i = 0; i < gridDim.x; i++) t += partial[i]; out[0] = t;
        retired = 0; }
    })");
  const std::vector<float> in = random_floats(5000, 0, 1);
  std::vector<float> partial(8);
  for (int again = 0; again < 3; ++again) {
    float out = 0;
    module.launch("sum", {.grid = {8}, .block = {64}, .threads = 4}, in.data(), partial.data(), &out, 5000);
    CHECK(out == doctest::Approx(std::accumulate(in.begin(), in.end(), 0.0)).epsilon(1e-4));
  }
}
