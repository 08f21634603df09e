// Numerical kernels as people write them, each checked against plain C++.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "numbers.hpp"
#include "support.hpp"

using namespace nvrtc_tests;

namespace {

std::vector<float> multiplied(const std::vector<float>& a, const std::vector<float>& b, int m, int n, int k) {
  std::vector<float> c(static_cast<std::size_t>(m) * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p)
        sum += static_cast<double>(a[static_cast<std::size_t>(i) * k + p]) * b[static_cast<std::size_t>(p) * n + j];
      c[static_cast<std::size_t>(i) * n + j] = static_cast<float>(sum);
    }
  }
  return c;
}

}  // namespace

TEST_CASE("matrix products: tiled, and with float4 and register tiles") {
  const Module module(R"(
    #define TILE 16
    extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n) {
      __shared__ float As[TILE][TILE], Bs[TILE][TILE];
      int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
      float acc = 0;
      for (int t = 0; t < n / TILE; t++) {
        As[threadIdx.y][threadIdx.x] = A[row * n + t * TILE + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * TILE + threadIdx.y) * n + col];
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; k++) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
      }
      C[row * n + col] = acc;
    }
    extern "C" __global__ void __launch_bounds__(64) sgemm(int M, int N, int K, float alpha, float* A, float* B,
      float beta, float* C) {
      const int BM = 32, BN = 32, BK = 8, TM = 4, TN = 4;
      __shared__ float As[BK * BM];
      __shared__ float Bs[BK * BN];
      const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
      A += blockIdx.y * BM * K; B += blockIdx.x * BN; C += blockIdx.y * BM * N + blockIdx.x * BN;
      const int innerRowA = threadIdx.x / (BK / 4), innerColA = threadIdx.x % (BK / 4);
      const int innerRowB = threadIdx.x / (BN / 4), innerColB = threadIdx.x % (BN / 4);
      float threadResults[TM * TN] = {0.0f};
      float regM[TM] = {0.0f}, regN[TN] = {0.0f};
      for (int bk = 0; bk < K; bk += BK) {
        float4 tmp = reinterpret_cast<float4*>(&A[innerRowA * K + innerColA * 4])[0];
        As[(innerColA * 4 + 0) * BM + innerRowA] = tmp.x; As[(innerColA * 4 + 1) * BM + innerRowA] = tmp.y;
        As[(innerColA * 4 + 2) * BM + innerRowA] = tmp.z; As[(innerColA * 4 + 3) * BM + innerRowA] = tmp.w;
        reinterpret_cast<float4*>(&Bs[innerRowB * BN + innerColB * 4])[0] =
          reinterpret_cast<float4*>(&B[innerRowB * N + innerColB * 4])[0];
        __syncthreads();
        A += BK; B += BK * N;
        for (int dot = 0; dot < BK; ++dot) {
          for (int i = 0; i < TM; ++i) regM[i] = As[dot * BM + threadRow * TM + i];
          for (int i = 0; i < TN; ++i) regN[i] = Bs[dot * BN + threadCol * TN + i];
          for (int m = 0; m < TM; ++m) for (int n = 0; n < TN; ++n) threadResults[m * TN + n] += regM[m] * regN[n];
        }
        __syncthreads();
      }
      for (int m = 0; m < TM; m++) {
        float4 tmp = reinterpret_cast<float4*>(&C[(threadRow * TM + m) * N + threadCol * TN])[0];
        tmp.x = alpha * threadResults[m * TN] + beta * tmp.x; tmp.y = alpha * threadResults[m * TN + 1] + beta * tmp.y;
        tmp.z = alpha * threadResults[m * TN + 2] + beta * tmp.z;
          tmp.w = alpha * threadResults[m * TN + 3] + beta * tmp.w;
        reinterpret_cast<float4*>(&C[(threadRow * TM + m) * N + threadCol * TN])[0] = tmp;
      }
    })");
  const int n = 64;
  const std::vector<float> a = random_floats(n * n);
  const std::vector<float> b = random_floats(n * n, -2, 2);
  const std::vector<float> expected = multiplied(a, b, n, n, n);
  std::vector<float> c(n * n);
  module.launch("matmul", {.grid = {4, 4}, .block = {16, 16}, .threads = 2}, a.data(), b.data(), c.data(), n);
  CHECK(largest_difference(c, expected) < 1e-4);
  struct alignas(16) Line {
    float values[n];
  };
  std::vector<Line> a16(n), b16(n), c16(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      a16[i].values[j] = a[static_cast<std::size_t>(i) * n + j];
      b16[i].values[j] = b[static_cast<std::size_t>(i) * n + j];
      c16[i].values[j] = 1;
    }
  module.launch("sgemm", {.grid = {2, 2}, .block = {64}, .threads = 2}, n, n, n, 2.0f, a16.data(), b16.data(), 0.5f,
                c16.data());
  double largest = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      largest =
          std::max(largest, std::fabs(c16[i].values[j] - (2.0 * expected[static_cast<std::size_t>(i) * n + j] + 0.5)));
  CHECK(largest < 2e-4);
}

TEST_CASE("softmax, layer normalisation and attention") {
  const Module module(R"(
    __inline__ __device__ float block_reduce(float v, bool is_max) {
      __shared__ float s[32];
      for (int o = 16; o > 0; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = is_max ? fmaxf(v, w) : v + w; }
      __syncthreads();
      if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
      __syncthreads();
      v = s[0];
      for (int i = 1; i < blockDim.x / 32; i++) v = is_max ? fmaxf(v, s[i]) : v + s[i];
      return v;
    }
    extern "C" __global__ void softmax(const float* in, float* out, int cols) {
      const float* x = in + blockIdx.x * cols; float* y = out + blockIdx.x * cols;
      float m = __int_as_float(0xff800000);
      for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, x[i]);
      m = block_reduce(m, true);
      float sum = 0;
      for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += __expf(x[i] - m);
      sum = block_reduce(sum, false);
      for (int i = threadIdx.x; i < cols; i += blockDim.x) y[i] = __expf(x[i] - m) / sum;
    }
    extern "C" __global__ void layernorm(const float* in, float* out, const float* gamma, const float* beta, int cols) {
      const float* x = in + blockIdx.x * cols;
      float s = 0, q = 0;
      for (int i = threadIdx.x; i < cols; i += blockDim.x) { s += x[i]; q += x[i] * x[i]; }
      s = block_reduce(s, false) / cols; q = block_reduce(q, false) / cols - s * s;
      float r = rsqrtf(q + 1e-5f);
      for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[blockIdx.x * cols + i] = (x[i] - s) * r * gamma[i] + beta[i];
    }
    extern "C" __global__ void attention(const float* Q, const float* K, const float* V, float* O, int N, int d,
      float scale) {
      extern __shared__ float sram[];
      float* Kj = sram; float* Vj = sram + 32 * d;
      int row = blockIdx.x * blockDim.x + threadIdx.x;
      float acc[16] = {0}, m = __int_as_float(0xff800000), l = 0;
      for (int j = 0; j < N; j += 32) {
        for (int x = 0; x < d; x++) {
          Kj[threadIdx.x * d + x] = K[(j + threadIdx.x) * d + x];
          Vj[threadIdx.x * d + x] = V[(j + threadIdx.x) * d + x]; }
        __syncthreads();
        for (int k = 0; k < 32; k++) {
          float s = 0;
          for (int x = 0; x < d; x++) s += Q[row * d + x] * Kj[k * d + x];
          s *= scale;
          float m_new = max(m, s), c = __expf(m - m_new), p = __expf(s - m_new);
          l = l * c + p;
          for (int x = 0; x < d; x++) acc[x] = acc[x] * c + p * Vj[k * d + x];
          m = m_new;
        }
        __syncthreads();
      }
      for (int x = 0; x < d; x++) O[row * d + x] = acc[x] / l;
    })");
  const int rows = 5;
  const int cols = 300;
  const std::vector<float> in = random_floats(rows * cols, -4, 4);
  const std::vector<float> gamma = random_floats(cols);
  const std::vector<float> beta = random_floats(cols, 0, 1);
  std::vector<float> out(in.size());
  std::vector<float> expected(in.size());
  module.launch("softmax", {.grid = {rows}, .block = {128}}, in.data(), out.data(), cols);
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < cols; ++i) sum += std::exp(in[r * cols + i]);
    for (int i = 0; i < cols; ++i) expected[r * cols + i] = static_cast<float>(std::exp(in[r * cols + i]) / sum);
  }
  CHECK(largest_difference(out, expected) < 1e-6);
  module.launch("layernorm", {.grid = {rows}, .block = {64}}, in.data(), out.data(), gamma.data(), beta.data(), cols);
  for (int r = 0; r < rows; ++r) {
    double mean = 0;
    double square = 0;
    for (int i = 0; i < cols; ++i) mean += in[r * cols + i] / static_cast<double>(cols);
    for (int i = 0; i < cols; ++i) square += std::pow(in[r * cols + i] - mean, 2) / cols;
    for (int i = 0; i < cols; ++i)
      expected[r * cols + i] =
          static_cast<float>((in[r * cols + i] - mean) / std::sqrt(square + 1e-5) * gamma[i] + beta[i]);
  }
  CHECK(largest_difference(out, expected) < 1e-4);

  const int n = 64;
  const int d = 16;
  const std::vector<float> q = random_floats(n * d, -1, 1);
  const std::vector<float> k = random_floats(n * d, -2, 2);
  const std::vector<float> v = random_floats(n * d, 0, 1);
  std::vector<float> o(n * d);
  std::vector<float> o_expected(n * d);
  module.launch("attention", {.grid = {2}, .block = {32}, .dynamic_shared_bytes = 2 * 32 * d * 4}, q.data(), k.data(),
                v.data(), o.data(), n, d, 0.25f);
  for (int i = 0; i < n; ++i) {
    std::vector<double> p(n);
    double sum = 0;
    for (int j = 0; j < n; ++j) {
      double s = 0;
      for (int x = 0; x < d; ++x) s += static_cast<double>(q[i * d + x]) * k[j * d + x];
      sum += p[j] = std::exp(s * 0.25);
    }
    for (int x = 0; x < d; ++x) {
      double value = 0;
      for (int j = 0; j < n; ++j) value += p[j] / sum * v[j * d + x];
      o_expected[i * d + x] = static_cast<float>(value);
    }
  }
  CHECK(largest_difference(o, o_expected) < 1e-5);
}

TEST_CASE("n-body, bitonic sort, convolution, Mandelbrot and a random generator") {
  const Module module(Program{.source = R"(
    __device__ float3 bodyBodyInteraction(float4 bi, float4 bj, float3 ai) {
      float3 r = {bj.x - bi.x, bj.y - bi.y, bj.z - bi.z};
      float distSqr = r.x * r.x + r.y * r.y + r.z * r.z + 0.01f;
      float inv = rsqrtf(distSqr), s = bj.w * inv * inv * inv;
      ai.x += r.x * s; ai.y += r.y * s; ai.z += r.z * s;
      return ai;
    }
    extern "C" __global__ void nbody(const float4* pos, float3* acc, int n) {
      extern __shared__ float4 shPosition[];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float4 mine = pos[i];
      float3 a = make_float3(0.0f, 0.0f, 0.0f);
      for (int t = 0; t < n; t += blockDim.x) {
        shPosition[threadIdx.x] = pos[t + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < blockDim.x; j++) a = bodyBodyInteraction(mine, shPosition[j], a);
        __syncthreads();
      }
      acc[i] = a;
    }
    template <class K> __global__ void bitonic(K* keys) {
      __shared__ K s[512];
      s[threadIdx.x] = keys[threadIdx.x]; s[threadIdx.x + 256] = keys[threadIdx.x + 256];
      for (unsigned size = 2; size <= 512; size <<= 1)
        for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
          __syncthreads();
          unsigned pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
          bool up = (threadIdx.x & (size / 2)) == 0;
          K a = s[pos], b = s[pos + stride];
          if ((a > b) == up) { s[pos] = b; s[pos + stride] = a; }
        }
      __syncthreads();
      keys[threadIdx.x] = s[threadIdx.x]; keys[threadIdx.x + 256] = s[threadIdx.x + 256];
    }
    __constant__ float filter[5][5];
    extern "C" __global__ void convolve(const float* in, float* out, int w, int h) {
      int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
      if (x >= w || y >= h) return;
      float sum = 0;
      for (int dy = -2; dy <= 2; dy++) for (int dx = -2; dx <= 2; dx++) {
        int u = min(max(x + dx, 0), w - 1), v = min(max(y + dy, 0), h - 1);
        sum += filter[dy + 2][dx + 2] * in[v * w + u];
      }
      out[y * w + x] = sum;
    }
    extern "C" __global__ void mandelbrot(int* out, int w, int h, int limit) {
      int x = blockDim.x * blockIdx.x + threadIdx.x, y = blockDim.y * blockIdx.y + threadIdx.y;
      if (x < w && y < h) {
        double cr = -2.0 + 3.0 * x / w, ci = -1.0 + 2.0 * y / h, zr = 0, zi = 0;
        int i = 0;
        while (i < limit && __dadd_rn(__dmul_rn(zr, zr), __dmul_rn(zi, zi)) < 4.0) {
          double t = __dadd_rn(__dsub_rn(__dmul_rn(zr, zr), __dmul_rn(zi, zi)), cr);
          zi = __dadd_rn(__dmul_rn(2.0, __dmul_rn(zr, zi)), ci); zr = t; i++;
        }
        out[y * w + x] = i;
      }
    }
    struct Xorshift { unsigned a; __device__ unsigned next() { a ^= a << 13; a ^= a >> 17; a ^= a << 5; return a; } };
    extern "C" __global__ void monte_carlo(unsigned long long* inside, int rounds) {
      Xorshift r{(blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 1u};
      int hits = 0;
      for (int i = 0; i < rounds; i++) {
        float x = r.next() * 2.3283064e-10f, y = r.next() * 2.3283064e-10f;
        hits += x * x + y * y <= 1.0f;
      }
      atomicAdd(inside, (unsigned long long)hits);
    })",
                              .name_expressions = {"bitonic<float>"}});
  const int n = 128;
  const std::vector<float> p = random_floats(4 * n, 0.1f, 1);
  struct alignas(16) Body {
    float x, y, z, w;
  };
  std::vector<Body> bodies(n);
  for (int i = 0; i < n; ++i) bodies[i] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
  std::vector<float> acc(3 * n);
  std::vector<float> acc_expected(3 * n);
  module.launch("nbody", {.grid = {4}, .block = {32}, .dynamic_shared_bytes = 512}, bodies.data(), acc.data(), n);
  for (int i = 0; i < n; ++i) {
    double a[3] = {};
    for (const Body& b : bodies) {
      const double r[3] = {b.x - bodies[i].x, b.y - bodies[i].y, b.z - bodies[i].z};
      const double s = b.w / std::pow(r[0] * r[0] + r[1] * r[1] + r[2] * r[2] + 0.01, 1.5);
      for (int c = 0; c < 3; ++c) a[c] += r[c] * s;
    }
    for (int c = 0; c < 3; ++c) acc_expected[3 * i + c] = static_cast<float>(a[c]);
  }
  CHECK(largest_difference(acc, acc_expected) < 0.05);

  std::vector<float> keys = random_floats(512);
  std::vector<float> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  module.launch(module.lowered_names()[0], {.block = {256}}, keys.data());
  CHECK(keys == sorted);

  const int w = 50;
  const int h = 33;
  const std::vector<float> image = random_floats(w * h);
  const std::vector<float> weights = random_floats(25);
  std::copy(weights.begin(), weights.end(), module.variable<float>("filter"));
  std::vector<float> out(w * h);
  std::vector<float> out_expected(w * h);
  module.launch("convolve", {.grid = {4, 5}, .block = {16, 8}, .threads = 2}, image.data(), out.data(), w, h);
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      double sum = 0;
      for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx)
          sum +=
              weights[(dy + 2) * 5 + dx + 2] * image[std::clamp(y + dy, 0, h - 1) * w + std::clamp(x + dx, 0, w - 1)];
      out_expected[y * w + x] = static_cast<float>(sum);
    }
  CHECK(largest_difference(out, out_expected) < 1e-5);

  std::vector<int> steps(w * h);
  module.launch("mandelbrot", {.grid = {4, 5}, .block = {16, 8}}, steps.data(), w, h, 200);
  bool right = true;
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      volatile double zr = 0;
      volatile double zi = 0;
      const double cr = -2.0 + 3.0 * x / w;
      const double ci = -1.0 + 2.0 * y / h;
      int i = 0;
      for (; i < 200; ++i) {
        volatile const double rr = zr * zr;
        volatile const double ii = zi * zi;
        if (!(rr + ii < 4.0)) break;
        volatile const double difference = rr - ii;
        volatile const double ri = zr * zi;
        zi = 2.0 * ri + ci;
        zr = difference + cr;
      }
      // cr and ci may have been computed with a fused multiply-add: allow for it at the set's edge.
      right = right && (std::abs(steps[y * w + x] - i) <= 1 || i > 30);
    }
  CHECK(right);

  unsigned long long inside = 0;
  module.launch("monte_carlo", {.grid = {32}, .block = {64}, .threads = 2}, &inside, 500);
  CHECK(4.0 * static_cast<double>(inside) / (32 * 64 * 500) == doctest::Approx(3.14159).epsilon(0.01));
}
