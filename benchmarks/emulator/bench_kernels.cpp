// The emulated driver's kernels against plain C++ on as many threads, in one run: saxpy of 16 Mi floats, a
// tiled 512^3 matrix product with barriers, the cost of a barrier per thread, and compile times.
//   AIOCUDA_CXX=clang++ bench_kernels [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/nvrtc/support.hpp"

namespace {

using nvrtc_tests::Module;

constexpr unsigned saxpy_size = 16u << 20;
constexpr int matrix_size = 512;

const char* const source = R"(
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
#define TILE 16
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float As[TILE][TILE], Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float acc = 0;
  for (int t = 0; t < n / TILE; t++) {
    As[threadIdx.y][threadIdx.x] = A[row * n + t * TILE + threadIdx.x];
    Bs[threadIdx.y][threadIdx.x] = B[(t * TILE + threadIdx.y) * n + col];
    __syncthreads();
    for (int k = 0; k < TILE; k++) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  C[row * n + col] = acc;
}
extern "C" __global__ void barriers(int n) { for (int i = 0; i < n; i++) __syncthreads(); }
)";

// The least time of several runs.
template <class F>
double best_s(int runs, F f) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const auto before = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
  }
  return best;
}

__attribute__((noinline)) void plain_saxpy(float a, const float* x, float* y, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) y[i] = a * x[i] + y[i];
}

void plain_saxpy(unsigned threads, float a, const std::vector<float>& x, std::vector<float>& y) {
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] { plain_saxpy(a, x.data(), y.data(), x.size() * t / threads, x.size() * (t + 1) / threads); });
  }
  for (std::thread& thread : running) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : std::max(1u, std::thread::hardware_concurrency());
  const nvrtc_tests::ScratchDirectory cache;
  ::setenv("AIOCUDA_CACHE_DIR", cache.path().c_str(), 1);
  int copy = 0;
  const double compile_s = best_s(3, [&] {
    nvrtc_tests::compile({.source = "extern \"C\" __global__ void k" + std::to_string(copy++) + "(float* x) { x[threadIdx.x] += 1; }"});
  });
  const double cached_s = best_s(5, [] { nvrtc_tests::compile({.source = "extern \"C\" __global__ void k0(float* x) { x[threadIdx.x] += 1; }"}); });
  std::printf("compiling a small kernel: %.0f ms, from the cache %.2f ms\n", compile_s * 1e3, cached_s * 1e3);

  const Module module(source);
  std::vector<float> x(saxpy_size, 1.0f);
  std::vector<float> y(saxpy_size, 2.0f);
  double kernel_s = 1e9;
  double plain_s = 1e9;
  for (int round = 0; round < 5; ++round) {  // in turns, so that a busy machine is busy for both
    plain_s = std::min(plain_s, best_s(4, [&] { plain_saxpy(threads, 0.5f, x, y); }));
    kernel_s = std::min(kernel_s, best_s(4, [&] {
      module.launch("saxpy", {.grid = {saxpy_size / 256}, .block = {256}, .threads = threads}, 0.5f, x.data(), y.data(), saxpy_size);
    }));
  }
  std::printf("saxpy of %u floats on %u threads: %.2f ms, plain C++ %.2f ms, ratio %.2f (goal: 1.3 at most)\n", saxpy_size, threads,
              kernel_s * 1e3, plain_s * 1e3, kernel_s / plain_s);

  std::vector<float> a(matrix_size * matrix_size, 1.0f);
  std::vector<float> c(a.size());
  const unsigned tiles = matrix_size / 16;
  const double product_s = best_s(5, [&] {
    module.launch("matmul", {.grid = {tiles, tiles}, .block = {16, 16}, .threads = threads}, a.data(), a.data(), c.data(), matrix_size);
  });
  const double operations = 2.0 * matrix_size * matrix_size * matrix_size;
  std::printf("matrix product %d^3, tiled, on %u threads: %.0f ms, %.2f GFLOP/s (goal: 1.5 at least)\n", matrix_size, threads,
              product_s * 1e3, operations / product_s * 1e-9);

  constexpr int rounds = 1000;
  const double barrier_s = best_s(5, [&] { module.launch("barriers", {.grid = {8}, .block = {256}}, rounds); });
  std::printf("a barrier costs %.1f ns per thread of a block of 256\n", barrier_s / (8.0 * 256 * rounds) * 1e9);
  return 0;
}
