// Kernels that are split at their barriers, and kernels that look like them and are not: all must do what threads do
// that wait for one another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>

#include "support.hpp"

using namespace nvrtc_tests;

namespace {

std::vector<int> counted(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

// What 64 threads make of 64 numbers.
std::vector<int> made_by(const char* source, int n = 64) {
  const Module module(source);
  const std::vector<int> in = counted(64);
  std::vector<int> out(64);
  module.launch("k", {.block = {64}, .dynamic_shared_bytes = 256}, in.data(), out.data(), n);
  return out;
}

}  // namespace

TEST_CASE("what a thread keeps across barriers is its own") {
  const auto out = made_by(R"(extern "C" __global__ void k(const int* in, int* out, int n) {
    __shared__ int s[64];
    const int t = threadIdx.x, left = (t + n - 1) % n;
    int mine = in[t], *place = &out[t];
    s[t] = mine;
    __syncthreads();
    int other = s[left];
    __syncthreads();
    s[t] = 100 * other;
    __syncthreads();
    *place = s[left] + mine;
  })");
  for (int t = 0; t < 64; ++t) CHECK(out[t] == 100 * ((t + 62) % 64 + 1) + t + 1);
}

TEST_CASE("barriers stand in loops, in loops in loops, and behind pragmas") {
  const auto out = made_by(R"(extern "C" __global__ void k(const int* in, int* out, int n) {
    extern __shared__ int s[];
    int rounds = n / 32;
    int sum = 0;
    s[threadIdx.x] = in[threadIdx.x];
    #pragma unroll
    for (int round = 0; round < rounds; ++round) {
      for (unsigned half = blockDim.x / 2; half > 0; half >>= 1) {
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 1; ++i) if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
      }
      __syncthreads();
      sum += s[0];
      __syncthreads();
      int next = sum;
      s[threadIdx.x] = 1;
      sum = next;
    }
    out[threadIdx.x] = sum;
  })");
  CHECK(out == std::vector<int>(64, 64 * 65 / 2 + 64));
}

TEST_CASE("loops that end for each thread by itself, and names that are used twice, stay right") {
  const auto out = made_by(R"(extern "C" __global__ void k(const int* in, int* out, int n) {
    __shared__ int s[64];
    int i = 7;
    int t = threadIdx.x;
    for (int i = 0; i < 2; ++i) {
      s[t] = in[t] + i;
      __syncthreads();
      int seen = 0;
      for (int j = 0; j < t; ++j) { if (j == 5) break; seen += s[j]; }
      __syncthreads();
      out[t] = seen + i;
    }
    out[t] += i;
  })");
  for (int t = 0; t < 64; ++t) {
    int seen = 0;
    for (int j = 0; j < std::min(t, 5); ++j) seen += j + 2;
    CHECK(out[t] == seen + 1 + 7);
  }
}

TEST_CASE("parameters that a thread changes are its own") {
  for (const char* change : {"n += threadIdx.x;", "int& r = n; r += threadIdx.x;", "add(n, threadIdx.x);"}) {
    CAPTURE(change);
    const std::string source = std::string(R"(__device__ void add(int& to, int what) { to += what; }
    extern "C" __global__ void k(const int* in, int* out, int n) {
      __shared__ int s[64];
      )") + change + R"(
      s[threadIdx.x] = n;
      __syncthreads();
      out[threadIdx.x] = s[(threadIdx.x + 1) % 64] + n;
    })";
    const auto out = made_by(source.c_str(), 10);
    for (int t = 0; t < 64; ++t) CHECK(out[t] == 10 + (t + 1) % 64 + 10 + t);
  }
}

TEST_CASE("blocks of three dimensions are split, and each block anew") {
  const Module module(R"(extern "C" __global__ void k(int* out) {
    __shared__ int s[24];
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    s[t] = t * 10 + blockIdx.x;
    __syncthreads();
    out[blockIdx.x * 24 + t] = s[23 - t];
  })");
  std::vector<int> out(48);
  module.launch("k", {.grid = {2}, .block = {4, 3, 2}}, out.data());
  for (int block = 0; block < 2; ++block)
    for (int t = 0; t < 24; ++t) CHECK(out[block * 24 + t] == (23 - t) * 10 + block);
}

TEST_CASE("a thread that leaves early is not waited for") {
  const auto out = made_by(R"(extern "C" __global__ void k(const int* in, int* out, int n) {
    __shared__ int s[64];
    if (threadIdx.x >= n) return;
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
  })",
                           32);
  for (int t = 0; t < 64; ++t) CHECK(out[t] == (t < 32 ? 32 - t : 0));
}

TEST_CASE("values that a thread computes anew are those that it had") {
  const auto out = made_by(R"(constexpr int half = 32;
  extern "C" __global__ void k(const int* in, int* out, int n) {
    __shared__ int s[2 * half], last, twice[64];
    const int t = threadIdx.x, left = t == 0 ? n - 1 : t - 1;
    const int *here = in + t, *behind = here - t + left;
    unsigned wrapped = (threadIdx.x - 1u) * 4u + 8u;
    int changed = t * 2, hidden = t;
    changed += 1;
    { int hidden; hidden = 5; s[t] = *here + hidden; }
    if (t == n - 1) last = 7;
    __syncthreads();
    for (int round = 0; round < half / 16; ++round) {
      const int shifted = (t + round) % 64;
      twice[t] = s[shifted];
      __syncthreads();
      s[t] = twice[left] + shifted;
      __syncthreads();
    }
    out[t] = s[t] * 1000 + *behind + int(wrapped) + changed + hidden + last;
  })");
  std::vector<int> s(64), twice(64);
  for (int t = 0; t < 64; ++t) s[t] = t + 1 + 5;
  for (int round = 0; round < 2; ++round) {
    for (int t = 0; t < 64; ++t) twice[t] = s[(t + round) % 64];
    for (int t = 0; t < 64; ++t) s[t] = twice[(t + 63) % 64] + (t + round) % 64;
  }
  for (int t = 0; t < 64; ++t) CHECK(out[t] == s[t] * 1000 + (t + 63) % 64 + 1 + 4 * t + 4 + 2 * t + 1 + t + 7);
}

TEST_CASE("indices in 32 bits are right in small launches and in others") {
  const Module module(R"(extern "C" __global__ void k(const int* in, int* out, int n, unsigned m) {
    __shared__ int s[32][4];
    const int row = blockIdx.y * 4 + threadIdx.y;
    s[threadIdx.x][threadIdx.y] = in[(row - n) * m + threadIdx.x + n * m];
    __syncthreads();
    out[(blockIdx.y * 4 + threadIdx.y) * blockDim.x + threadIdx.x] = s[blockDim.x - 1 - threadIdx.x][threadIdx.y];
  })");
  for (const unsigned width : {16u, 32u, 24u}) {
    for (const int n : {0, 3, 40000, -7, 0x7fffffff}) {
      CAPTURE(width);
      CAPTURE(n);
      const std::vector<int> in = counted(8 * width);
      std::vector<int> out(8 * width);
      module.launch("k", {.grid = {1, 2}, .block = {width, 4}}, in.data(), out.data(), n, width);
      for (unsigned row = 0; row < 8; ++row)
        for (unsigned x = 0; x < width; ++x) CHECK(out[row * width + x] == in[row * width + width - 1 - x]);
    }
  }
}

TEST_CASE("kernels of these forms run without fibers") {
  if (std::getenv("AIOCUDA_EMULATOR_CHECK") != nullptr) return;  // there every kernel with barriers runs as fibers
  const auto bytes_between_threads = [](const std::string& body) {
    const std::string source = R"(static const int rounds_of_all = 3;
    extern "C" __global__ void k(unsigned long long* out, int n) {
      __shared__ int s[64];
      int mine = threadIdx.x;
      )" + body + "out[threadIdx.x] = (unsigned long long)&mine; }";
    const Module module(source.c_str());
    std::vector<unsigned long long> out(64);
    module.launch("k", {.block = {64}}, out.data(), 2);
    return out[1] - out[0];
  };
  CHECK(bytes_between_threads("s[threadIdx.x] = mine; __syncthreads(); mine = s[0];") == 4);
  CHECK(
      bytes_between_threads("const int rounds = (n + 1) / 2;\n#pragma unroll\nfor (int i = 0; i < rounds; i++) {\n"
                            "s[threadIdx.x] = i; __syncthreads();\n#pragma unroll\nfor (int j = 0; j < 4; ++j) mine += "
                            "s[j];\n__syncthreads(); }") == 4);
  CHECK(bytes_between_threads("for (int i = blockDim.x >> 1; i > 0; i >>= 1) { if (threadIdx.x < i) s[threadIdx.x] += "
                              "s[threadIdx.x + i]; __syncthreads(); }") == 4);
  CHECK(bytes_between_threads("for (int i = 0; i < rounds_of_all; ++i) { s[threadIdx.x] = i; __syncthreads(); }") == 4);
  CHECK(bytes_between_threads("int rounds_of_all = threadIdx.x; for (int i = 0; i < rounds_of_all; ++i) { "
                              "__syncthreads(); }") > 1000);
  CHECK(bytes_between_threads("if (threadIdx.x > 70) return; __syncthreads();") > 1000);
  CHECK(bytes_between_threads("for (int i = 0; i < mine; ++i) { if (i == n) break; } for (int i = 0; i < s[0]; ++i) { "
                              "__syncthreads(); }") > 1000);
}
