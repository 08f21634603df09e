// The language: where a thread is, shared memory, variables, templates, what the table says of kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "support.hpp"

using namespace nvrtc_tests;
namespace abi = aiocuda::emulator::abi;

TEST_CASE("built-in index variables are right in three dimensions") {
  const Module module(R"(
    __device__ unsigned flat_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    extern "C" __global__ void places(unsigned* out) {
      unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
    }
    extern "C" __global__ void through_function(unsigned* out) {
      unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      out[block * blockDim.x * blockDim.y * blockDim.z + flat_thread()] = block * 1000 + flat_thread();
    }
    extern "C" __global__ void as_fibers(unsigned* out) {
      __syncthreads();
      unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      out[block * blockDim.x * blockDim.y * blockDim.z + flat_thread()] = block * 1000 + flat_thread();
    }
    extern "C" __global__ void in_a_lambda(unsigned* out) {
      auto thread = [] { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); };
      unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      out[block * blockDim.x * blockDim.y * blockDim.z + thread()] = block * 1000 + thread();
    })");
  for (const char* name : {"places", "through_function", "as_fibers", "in_a_lambda"}) {
    CAPTURE(name);
    std::vector<unsigned> out(2 * 3 * 4 * 5 * 3 * 2, ~0u);
    module.launch(name, {.grid = {2, 3, 4}, .block = {5, 3, 2}, .threads = 2}, out.data());
    bool right = true;
    for (unsigned i = 0; i < out.size(); ++i) right = right && out[i] == i / 30 * 1000 + i % 30;
    CHECK(right);
  }
}

TEST_CASE("a grid of more blocks along x than fit 31 bits of threads counts right") {
  const Module module(R"(extern "C" __global__ void last(unsigned long long* out) {
    if (blockIdx.x == gridDim.x - 1) out[threadIdx.x] = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  })");
  std::vector<unsigned long long> out(4);
  module.launch("last", {.grid = {(1u << 21) + 5, 1, 1}, .block = {4, 1, 1}}, out.data());
  CHECK(out[3] == ((1ull << 21) + 4) * 4 + 3);
}

TEST_CASE("a kernel's guard lets exactly the right threads through") {
  const Module module(Program{.source = R"(
    extern "C" __global__ void below(int* out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] += 1;
      else atomicAdd(&out[n < 0 ? 0 : n], 1);
    }
    extern "C" __global__ void leave(int* out, size_t n) {
      const unsigned int i = threadIdx.x + blockDim.x * blockIdx.x;
      if (i >= n) return;
      out[i] += 1;
    }
    extern "C" __global__ void mixed(int* out, int n) {
      unsigned i = blockDim.x * blockIdx.x + threadIdx.x;
      if (i < n) atomicAdd(&out[i % 300], 1);
    }
    template <class T> __global__ void in_template(T* out, unsigned n) {
      auto i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) { out[i] += T(1); }
    })",
                              .name_expressions = {"in_template<int>"}});
  for (const int n : {0, 1, 63, 64, 65, 200, 256, 299}) {
    CAPTURE(n);
    std::vector<int> out(301);
    module.launch("below", {.grid = {4}, .block = {64}, .threads = 2}, out.data(), n);
    for (int i = 0; i < std::min(n, 256); ++i) CHECK(out[i] == 1);
    CHECK(out[n] == std::max(0, 256 - n));
    std::fill(out.begin(), out.end(), 0);
    module.launch("leave", {.grid = {4}, .block = {64}}, out.data(), static_cast<std::size_t>(n));
    module.launch(module.lowered_names()[0], {.grid = {4}, .block = {64}}, out.data(), static_cast<unsigned>(n));
    CHECK(std::accumulate(out.begin(), out.end(), 0) == 2 * std::min(n, 256));
  }
  std::vector<int> out(301);
  module.launch("below", {.grid = {4}, .block = {64}}, out.data(), -5);
  CHECK(out[0] == 256);
  // Compared as unsigned, a negative limit is a large one.
  std::fill(out.begin(), out.end(), 0);
  module.launch("mixed", {.grid = {4}, .block = {64}}, out.data(), -1);
  CHECK(std::accumulate(out.begin(), out.end(), 0) == 256);
  // Threads along y have the same index along x.
  std::fill(out.begin(), out.end(), 0);
  module.launch("mixed", {.grid = {2}, .block = {32, 3}}, out.data(), 40);
  CHECK(std::accumulate(out.begin(), out.end(), 0) == 120);
}

TEST_CASE("static shared memory, in kernels, functions and templates") {
  const Module module(Program{.source = R"(
    struct Pair { int key; float value; };
    __device__ int through_function(int v) {
      __shared__ int kept[64];
      kept[threadIdx.x] = v;
      __syncthreads();
      int r = kept[blockDim.x - 1 - threadIdx.x];
      __syncthreads();
      return r;
    }
    template <class T, int N> __global__ void reverse(T* data) {
      __shared__ T tile[N];
      tile[threadIdx.x] = data[blockIdx.x * N + threadIdx.x];
      __syncthreads();
      data[blockIdx.x * N + threadIdx.x] = tile[N - 1 - threadIdx.x];
    }
    extern "C" __global__ void structs(int* out) {
      static __shared__ Pair pairs[32];
      __shared__ int sum;
      if (threadIdx.x == 0) sum = 0;
      pairs[threadIdx.x] = {(int)threadIdx.x, 0.5f};
      __syncthreads();
      atomicAdd(&sum, pairs[31 - threadIdx.x].key + through_function(threadIdx.x));
      __syncthreads();
      if (threadIdx.x == 0) out[blockIdx.x] = sum;
    })",
                              .name_expressions = {"reverse<float, 64>", "reverse<double,32>"}});
  std::vector<float> f(128);
  std::iota(f.begin(), f.end(), 0.0f);
  module.launch(module.lowered_names()[0], {.grid = {2}, .block = {64}}, f.data());
  CHECK(f[0] == 63.0f);
  CHECK(f[127] == 64.0f);
  std::vector<double> d(32);
  std::iota(d.begin(), d.end(), 0.0);
  module.launch(module.lowered_names()[1], {.grid = {1}, .block = {32}}, d.data());
  CHECK(d[0] == 31.0);
  std::vector<int> sums(8);
  module.launch("structs", {.grid = {8}, .block = {32}, .threads = 2}, sums.data());
  for (const int sum : sums) CHECK(sum == 2 * 31 * 16);
}

TEST_CASE("char is signed, whatever it is on this processor") {
  const Module module(
      R"(extern "C" __global__ void k(const char* x, int* out) { out[0] = x[0]; out[1] = (char)200; })");
  const char x = static_cast<char>(-3);
  int out[2] = {};
  module.launch("k", {}, &x, &out[0]);
  CHECK(out[0] == -3);
  CHECK(out[1] == 200 - 256);
}

TEST_CASE("the table tells the static shared memory of each kernel") {
  const Module module(Program{.source = R"(
    template <int N> __global__ void tiles(float* p) { __shared__ float a[N]; __shared__ float b[N][2];
      a[threadIdx.x] = p[0]; b[threadIdx.x][1] = a[0]; p[1] = b[0][1]; }
    extern "C" __global__ void one(float* p) { __shared__ double x[16]; x[threadIdx.x] = p[0]; p[1] = (float)x[3]; }
    extern "C" __global__ void none(float* p) { p[0] = 1; })",
                              .name_expressions = {"tiles<32>", "tiles<64>"}});
  CHECK(module.kernel(module.lowered_names()[0]).static_shared_bytes == 32 * 4 * 3);
  CHECK(module.kernel(module.lowered_names()[1]).static_shared_bytes == 64 * 4 * 3);
  CHECK(module.kernel("one").static_shared_bytes == 128);
  CHECK(module.kernel("none").static_shared_bytes == 0);
}

TEST_CASE("the static shared memory of a function counts for the kernels that call it") {
  const Module module(Program{.source = R"(
    template <int N> __device__ __noinline__ float* tile() { __shared__ float a[N]; return a; }
    __device__ __noinline__ float through(float* p) { tile<32>()[threadIdx.x] = p[0]; __syncthreads();
      return tile<32>()[3]; }
    extern "C" __global__ void first(float* p) { p[1] = through(p); }
    extern "C" __global__ void second(float* p) {
      tile<64>()[threadIdx.x] = p[0];
      __syncthreads();
      p[1] = tile<64>()[5];
    }
    extern "C" __global__ void both(float* p) { p[1] = through(p) + tile<64>()[0]; }
    extern "C" __global__ void neither(float* p) { p[0] = 1; })"});
  CHECK(module.kernel("first").static_shared_bytes == 128);
  CHECK(module.kernel("second").static_shared_bytes == 256);
  CHECK(module.kernel("both").static_shared_bytes == 384);
  CHECK(module.kernel("neither").static_shared_bytes == 0);
}

TEST_CASE("more static shared memory than a block can have does not compile") {
  const Compiled compiled = compile({.source = R"(extern "C" __global__ void big(float* p) {
    __shared__ float a[16 * 1024]; a[threadIdx.x] = p[0]; __syncthreads(); p[1] = a[5]; })"});
  CHECK(compiled.result == 6);
  CHECK(compiled.log.find("too much shared data") != std::string::npos);
}

TEST_CASE("dynamic shared memory, at function and at namespace scope, of any type") {
  const Module module(Program{.source = R"(
    extern __shared__ int global_words[];
    template <class T> __global__ void typed(T* out) {
      extern __shared__ __align__(16) T words[];
      words[threadIdx.x] = (T)threadIdx.x;
      __syncthreads();
      out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
    }
    extern "C" __global__ void carved(float* out, int n) {
      extern __shared__ unsigned char bytes[];
      float* a = reinterpret_cast<float*>(bytes);
      int* b = reinterpret_cast<int*>(a + n);
      a[threadIdx.x] = threadIdx.x * 0.5f;
      b[threadIdx.x] = threadIdx.x;
      __syncthreads();
      out[threadIdx.x] = a[n - 1 - threadIdx.x] + b[threadIdx.x];
    }
    extern "C" __global__ void rows(int* out) {
      extern __shared__ int table[][4];
      table[threadIdx.x][3] = threadIdx.x * 7;
      __syncthreads();
      out[threadIdx.x] = table[threadIdx.x ^ 1][3];
    }
    extern "C" __global__ void global_scope(int* out) {
      global_words[threadIdx.x] = threadIdx.x + 1;
      __syncthreads();
      out[threadIdx.x] = global_words[(threadIdx.x + 1) % blockDim.x];
    })",
                              .name_expressions = {"typed<double>", "&typed<short>"}});
  std::vector<double> d(16);
  module.launch(module.lowered_names()[0], {.block = {16}, .dynamic_shared_bytes = 128}, d.data());
  CHECK(d[0] == 15.0);
  std::vector<short> s(16);
  module.launch(module.lowered_names()[1], {.block = {16}, .dynamic_shared_bytes = 32}, s.data());
  CHECK(s[15] == 0);
  std::vector<float> f(8);
  module.launch("carved", {.block = {8}, .dynamic_shared_bytes = 64}, f.data(), 8);
  CHECK(f[0] == 3.5f);
  CHECK(f[7] == 7.0f);
  std::vector<int> i(8);
  module.launch("rows", {.block = {8}, .dynamic_shared_bytes = 128}, i.data());
  CHECK(i[0] == 7);
  module.launch("global_scope", {.block = {8}, .dynamic_shared_bytes = 32}, i.data());
  CHECK(i[0] == 2);
  CHECK(i[7] == 1);
}

TEST_CASE("device, constant and managed variables are found by their symbols and are real") {
  const Module module(
      Program{.source = R"(
    __constant__ float weights[4];
    __constant__ const int fixed[3] = {1, 2, 3};
    __device__ int counter = 5;
    static __device__ unsigned hidden_counter;
    __managed__ double managed = 2.5;
    __device__ __constant__ int both = 9;
    namespace deep { __device__ float2 pair; }
    __device__ constexpr int plain = 4;
    extern "C" __global__ void use(float* out) {
      atomicAdd(&counter, 1);
      atomicAdd(&hidden_counter, 2u);
      out[threadIdx.x] = weights[threadIdx.x] + fixed[2] + (float)managed + both + deep::pair.y + plain;
    })",
              .name_expressions = {"&weights", "&counter", "&deep::pair", "hidden_counter", "&managed", "&fixed"}});
  CHECK(module.lowered_names()[0] == "weights");
  CHECK(module.lowered_names()[1] == "counter");
  CHECK(module.lowered_names()[2] == "_ZN4deep4pairE");
  CHECK(module.lowered_names()[5] == "fixed");
  float* weights = module.variable<float>("weights");
  for (int i = 0; i < 4; ++i) weights[i] = static_cast<float>(i);
  module.variable<float>("_ZN4deep4pairE")[1] = 0.25f;
  std::vector<float> out(4);
  module.launch("use", {.block = {4}}, out.data());
  CHECK(out[3] == 3 + 3 + 2.5f + 9 + 0.25f + 4);
  CHECK(*module.variable<int>("counter") == 9);
  CHECK(*module.variable<unsigned>(module.lowered_names()[3]) == 8);
  CHECK(*module.variable<double>("managed") == 2.5);
}

TEST_CASE("name expressions name templates, namespaces and overloads") {
  const Module module(Program{.source = R"(
    namespace a { namespace b {
      template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
      __global__ void plain(int* x) { x[0] = 11; }
    } }
    __global__ void both(int* x) { x[0] = 1; }
    __global__ void both(float* x) { x[0] = 2.5f; }
    template <class F> __global__ void apply(int* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }
    struct Twice { __device__ int operator()(int v) const { return 2 * v; } };
    template <> __global__ void apply<int>(int* x, int f) { x[threadIdx.x] += f; }
    template <class T> __global__ void instantiated(T* x) { x[0] = T(3); }
    template __global__ void instantiated<float>(float*);)",
                              .name_expressions = {"a::b::scale<float, 4>", "a::b::plain", "(void (*)(float*))both",
                                                   "apply<Twice>", "::a::b::scale<double,-1>"}});
  const auto& names = module.lowered_names();
  CHECK(names[0] == "_ZN1a1b5scaleIfLi4EEEvPT_");
  CHECK(names[1] == "_ZN1a1b5plainEPi");
  CHECK(names[2] == "_Z4bothPf");
  float f[2] = {1.5f, 2};
  module.launch(names[0], {.block = {2}}, &f[0]);
  CHECK(f[0] == 6.0f);
  module.launch(names[2], {}, &f[0]);
  CHECK(f[0] == 2.5f);
  int i[2] = {4, 5};
  module.launch(names[3], {.block = {2}}, &i[0], static_cast<char>(0));
  CHECK(i[1] == 10);
  module.launch("_Z4bothPi", {}, &i[0]);
  CHECK(i[0] == 1);
  module.launch("_Z5applyIiEvPiT_", {.block = {1}}, &i[0], 41);
  CHECK(i[0] == 42);
  module.launch("_Z12instantiatedIfEvPT_", {}, &f[0]);
  CHECK(f[0] == 3.0f);
}

TEST_CASE("the table tells parameters, their flags and the launch bounds") {
  const Module module(Program{.source = R"(
    struct Three { char c[3]; };
    extern "C" __global__ void __launch_bounds__(128) k(const float* __restrict__ a, float* b, double c, char d,
      short e,
                                                       const Three f, int* const g, const void* h) {}
    constexpr int limit = 64;
    __launch_bounds__(limit * 2, 4) __global__ void bounded(int) {}
    template <int N> __global__ void __launch_bounds__(N) templated(int* p) { p[0] = N; }
    __global__ void unbounded() {})",
                              .name_expressions = {"templated<96>"}});
  const abi::Kernel& k = module.kernel("k");
  REQUIRE(k.parameter_count == 8);
  const std::uint32_t offsets[] = {0, 8, 16, 24, 26, 28, 32, 40};
  const std::uint32_t sizes[] = {8, 8, 8, 1, 2, 3, 8, 8};
  const std::uint32_t flags[] = {3, 1, 0, 0, 0, 0, 1, 3};
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(k.parameters[i].offset_bytes == offsets[i]);
    CHECK(k.parameters[i].size_bytes == sizes[i]);
    CHECK(k.parameters[i].flags == flags[i]);
  }
  CHECK(k.max_threads_per_block == 128);
  CHECK(module.kernel("_Z7boundedi").max_threads_per_block == 128);
  CHECK(module.kernel(module.lowered_names()[0]).max_threads_per_block == 96);
  CHECK(module.kernel("_Z9unboundedv").max_threads_per_block == 1024);
  CHECK(module.kernel_count() == 4);
}

TEST_CASE("kernels made by macros and kept out by the preprocessor") {
  const Module module(R"(
    #define MAKE(name, T) extern "C" __global__ void name(T* x) { x[threadIdx.x] += T(1); }
    MAKE(add_float, float)
    MAKE(add_int, int)
    #if 0
    extern "C" __global__ void not_there(int* x) { this is not C++ }
    #endif
    // extern "C" __global__ void commented(int* x) {}
    const char* const text = "__global__ void in_text() {}";
    extern "C" __global__ void declared(int* x);
    extern "C" __global__ void declared(int* x) { x[0] = 77; })");
  CHECK(module.kernel_count() == 3);
  int i[1] = {1};
  module.launch("add_int", {}, &i[0]);
  CHECK(i[0] == 2);
  module.launch("declared", {}, &i[0]);
  CHECK(i[0] == 77);
}

TEST_CASE("vector types have CUDA's sizes, alignments and constructors") {
  const Module module(R"(
    extern "C" __global__ void vectors(int* sizes, float4* out, dim3 extent) {
      int i = 0;
      sizes[i++] = sizeof(char3); sizes[i++] = sizeof(uchar4); sizes[i++] = alignof(uchar4);
        sizes[i++] = sizeof(short4);
      sizes[i++] = sizeof(float3); sizes[i++] = alignof(float3); sizes[i++] = alignof(float2);
        sizes[i++] = alignof(float4);
      sizes[i++] = sizeof(double4); sizes[i++] = alignof(double2); sizes[i++] = sizeof(longlong2);
        sizes[i++] = alignof(double4);
      float4 v = make_float4(1, 2, 3, 4);
      int2 w = make_int2(5, 6);
      uchar3 u = make_uchar3(7, 8, 9);
      out[0] = make_float4(v.x + w.x, v.y + w.y, v.z + u.z, v.w + extent.y);
      uint3 t = threadIdx;
      dim3 d = blockDim;
      out[1].x = t.x + d.x;
    })");
  std::vector<int> sizes(12);
  struct alignas(16) Four {
    float x, y, z, w;
  } out[2];
  module.launch("vectors", {.block = {1}}, sizes.data(), &out[0], Extent{3, 4, 5});
  const std::vector<int> expected = {3, 4, 4, 8, 12, 4, 8, 16, 32, 16, 16, 16};
  CHECK(sizes == expected);
  CHECK(out[0].x == 6.0f);
  CHECK(out[0].z == 12.0f);
  CHECK(out[0].w == 8.0f);
  CHECK(out[1].x == 1.0f);
}

TEST_CASE("lambdas, unrolled loops, local arrays, new, malloc and memcpy in kernels") {
  const Module module(R"(
    struct Node { int value; Node* next; };
    template <class F> __device__ int repeat(int n, F f) { int s = 0; for (int i = 0; i < n; i++) s += f(i); return s; }
    extern "C" __global__ void mixed(int* out, int n) {
      int local[8];
      #pragma unroll
      for (int i = 0; i < 8; i++) local[i] = i * n;
      const int factor = 3;
      auto times = [=] __device__ (int v) { return v * factor; };
      int sum = repeat(4, [&](int i) { return local[i]; }) + times(2);
      Node* node = new Node{sum, nullptr};
      node->next = new Node{1, nullptr};
      int* copy = (int*)malloc(sizeof local);
      memcpy(copy, local, sizeof local);
      memset(local, 0, sizeof local);
      #pragma unroll 4
      for (int i = 0; i < 8; i++) sum += copy[i] + local[i];
      __builtin_assume(sum > 0);
      out[threadIdx.x] = sum + node->next->value;
      delete node->next;
      delete node;
      free(copy);
    })");
  std::vector<int> out(4);
  module.launch("mixed", {.block = {4}}, out.data(), 2);
  CHECK(out[0] == 12 + 6 + 56 + 1);
  CHECK(out[3] == out[0]);
}

TEST_CASE("every private copy of a module has its own variables") {
  const Compiled compiled =
      compile({.source = R"(__device__ int calls; extern "C" __global__ void call() { calls++; })"});
  REQUIRE(compiled.succeeded());
  const Module one(compiled.image);
  const Module other(compiled.image);
  one.launch("call", {});
  CHECK(*one.variable<int>("calls") == 1);
  CHECK(*other.variable<int>("calls") == 0);
}
