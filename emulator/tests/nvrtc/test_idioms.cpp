// Idioms of programs that are around: what the CUDA samples do with the language.
#include <doctest/doctest.h>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("dynamic shared memory by member functions of class templates") {
  const Module module(R"(
    template <class T> struct SharedMemory {
      __device__ inline operator T*() { extern __shared__ int memory[]; return (T*)memory; }
      __device__ inline operator const T*() const { extern __shared__ int memory[]; return (T*)memory; }
    };
    template <> struct SharedMemory<double> {
      __device__ inline operator double*() { extern __shared__ double memory_d[]; return memory_d; }
      __device__ inline operator const double*() const { extern __shared__ double memory_d[]; return memory_d; }
    };
    template <class T> __device__ void reverse(T* x) {
      T* kept = SharedMemory<T>();
      kept[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
    }
    extern "C" __global__ void floats(float* x) { reverse(x); }
    extern "C" __global__ void doubles(double* x) { reverse(x); })");
  std::vector<float> floats = {1, 2, 3};
  module.launch("floats", {.block = {3}, .dynamic_shared_bytes = 12}, floats.data());
  CHECK(floats == std::vector<float>{3, 2, 1});
  std::vector<double> doubles = {1, 2, 3};
  module.launch("doubles", {.block = {3}, .dynamic_shared_bytes = 24}, doubles.data());
  CHECK(doubles == std::vector<double>{3, 2, 1});
}

TEST_CASE("types and versions of the CUDA runtime have their names") {
  const Module module(R"(
    struct Plan { cudaStream_t stream; cudaEvent_t event; cudaPitchedPtr memory; cudaExtent extent; cudaError_t error; };
    extern "C" __global__ void k(int* x) {
      Plan plan = {};
      plan.memory = make_cudaPitchedPtr(x, 8, 2, 1);
      x[0] = CUDART_VERSION / 1000;
      x[1] = plan.error == cudaSuccess && cudaErrorInvalidValue == 1 && plan.memory.pitch == 8;
    })");
  int x[2] = {};
  module.launch("k", {}, &x[0]);
  CHECK(x[0] == 13);
  CHECK(x[1] == 1);
}

TEST_CASE("pointers tell which memory they lead to") {
  const Module module(R"(__constant__ float weight;
  extern "C" __global__ void k(unsigned* out) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[4];
    int own = threadIdx.x;
    __syncthreads();
    out[0] = __isShared(dynamic) + 2 * __isShared(&fixed[2]) + 4 * __isShared(&own) + 8 * __isShared(out);
    out[1] = __isLocal(dynamic) + 2 * __isLocal(&fixed[2]) + 4 * __isLocal(&own) + 8 * __isLocal(out);
    out[2] = __isGlobal(dynamic) + 2 * __isGlobal(&fixed[2]) + 4 * __isGlobal(&own) + 8 * __isGlobal(out);
    out[3] = (unsigned)(__cvta_generic_to_shared(&fixed[3]) - __cvta_generic_to_shared(&fixed[0]));
    out[4] = __cvta_shared_to_generic(__cvta_generic_to_shared(&dynamic[5])) == &dynamic[5];
    out[5] = __cvta_shared_to_generic(__cvta_generic_to_shared(&fixed[1])) == &fixed[1];
    out[6] = __cvta_local_to_generic(__cvta_generic_to_local(&own)) == &own;
    out[7] = __cvta_constant_to_generic(__cvta_generic_to_constant(&weight)) == &weight;
    out[8] = __isConstant(&weight) + 2 * __isConstant(out) + 4 * __isGlobal(&weight) + 8 * __isGridConstant(&weight);
  })");
  std::vector<unsigned> out(9);
  module.launch("k", {.block = {1}, .dynamic_shared_bytes = 64}, out.data());
  CHECK(out == std::vector<unsigned>{3, 4, 8, 12, 1, 1, 1, 1, 1});
}

TEST_CASE("tiles of several warps meet, reduce and scan") {
  const Module module(R"(
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    #include <cooperative_groups/scan.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int* out) {
      __shared__ cg::block_tile_memory<256> memory;
      cg::thread_block block = cg::this_thread_block(memory);
      auto tile = cg::tiled_partition<64>(block);
      __shared__ int turn[4];
      turn[tile.meta_group_rank()] = 0;
      tile.sync();
      if (tile.thread_rank() == 63) turn[tile.meta_group_rank()] = 5;
      tile.sync();
      int* o = out + block.thread_rank() * 6;
      o[0] = cg::reduce(tile, (int)block.thread_rank(), cg::plus<int>());
      o[1] = cg::inclusive_scan(tile, 1, cg::plus<int>());
      o[2] = cg::exclusive_scan(tile, 1, cg::plus<int>());
      o[3] = tile.any(block.thread_rank() == 70) + 2 * tile.all(tile.thread_rank() < 64);
      o[4] = turn[tile.meta_group_rank()];
      o[5] = tile.shfl((int)tile.thread_rank() * 2, 40) + tile.meta_group_size();
    })");
  std::vector<int> out(256 * 6);
  module.launch("k", {.block = {256}}, out.data());
  for (int t = 0; t < 256; ++t) {
    CAPTURE(t);
    const int* o = &out[t * 6];
    const int first = t / 64 * 64;
    CHECK(o[0] == 64 * first + 63 * 32);
    CHECK(o[1] == t % 64 + 1);
    CHECK(o[2] == t % 64);
    CHECK(o[3] == (t / 64 == 1 ? 3 : 2));
    CHECK(o[4] == 5);
    CHECK(o[5] == 84);
  }
}

TEST_CASE("threads of a tile of several warps that never meet fail the launch") {
  const Module module(R"(
    #include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int* out) {
      auto tile = cg::tiled_partition<64>(cg::this_thread_block());
      if (threadIdx.x < 40) tile.sync();
      else __syncthreads();
    })");
  int out = 0;
  CHECK_THROWS_WITH(module.launch("k", {.block = {64}}, &out), doctest::Contains("can never go on"));
}

TEST_CASE("cuda::barrier and cuda::pipeline hand copies from some threads to others") {
  const Module module(R"(
    #include <cooperative_groups.h>
    #include <cuda/barrier>
    #include <cuda/pipeline>
    namespace cg = cooperative_groups;
    extern "C" __global__ void met(const int* x, int* out) {
      auto block = cg::this_thread_block();
      __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
      __shared__ int kept[64];
      if (block.thread_rank() == 0) init(&barrier, block.size());
      block.sync();
      int sum = 0;
      for (int turn = 0; turn < 3; turn++) {
        cuda::memcpy_async(block, kept, x + 64 * turn, sizeof(int) * 64, barrier);
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
        sum += kept[63 - block.thread_rank()];
        barrier.arrive_and_wait();
      }
      out[block.thread_rank()] = sum;
    }
    extern "C" __global__ void staged(const int* x, int* out) {
      auto block = cg::this_thread_block();
      __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
      __shared__ int kept[2][64];
      auto pipeline = cuda::make_pipeline(block, &state);
      int sum = 0;
      for (int get = 0, put = 0; get < 3; get++) {
        for (; put < 3 && put < get + 2; put++) {
          pipeline.producer_acquire();
          cuda::memcpy_async(block, kept[put % 2], x + 64 * put, sizeof(int) * 64, pipeline);
          pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += kept[get % 2][63 - block.thread_rank()];
        pipeline.consumer_release();
      }
      out[block.thread_rank()] = sum;
    }
    extern "C" __global__ void split(const int* x, int* out) {
      auto block = cg::this_thread_block();
      __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
      __shared__ int kept[2][32];
      const bool produces = block.thread_rank() < 32;
      auto pipeline = cuda::make_pipeline(block, &state, produces ? cuda::pipeline_role::producer
                                                                  : cuda::pipeline_role::consumer);
      int sum = 0;
      for (int turn = 0; turn < 5; turn++) {
        if (produces) {
          pipeline.producer_acquire();
          kept[turn % 2][block.thread_rank()] = x[turn * 32 + block.thread_rank()];
          pipeline.producer_commit();
        } else {
          pipeline.consumer_wait();
          sum += kept[turn % 2][63 - block.thread_rank()];
          pipeline.consumer_release();
        }
      }
      if (!produces) out[block.thread_rank() - 32] = sum;
    })");
  std::vector<int> x(192);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i * i);
  for (const char* name : {"met", "staged"}) {
    CAPTURE(name);
    std::vector<int> out(64);
    module.launch(name, {.block = {64}}, x.data(), out.data());
    for (std::size_t t = 0; t < 64; ++t) CHECK(out[t] == x[63 - t] + x[127 - t] + x[191 - t]);
  }
  std::vector<int> out(32);
  module.launch("split", {.block = {64}}, x.data(), out.data());
  for (std::size_t t = 0; t < 32; ++t) {
    int expected = 0;
    for (std::size_t turn = 0; turn < 5; ++turn) expected += x[turn * 32 + 31 - t];
    CHECK(out[t] == expected);
  }
}

TEST_CASE("numbers of 8 bits") {
  const Module module(R"(
    #include <cuda_fp8.h>
    extern "C" __global__ void k(const float* x, float* out, unsigned char* words, int n) {
      for (int i = 0; i < n; i++) {
        __nv_fp8_e4m3 a(x[i]);
        __nv_fp8_e5m2 b(x[i]);
        out[2 * i] = (float)a; out[2 * i + 1] = (float)b;
        words[2 * i] = a.__x; words[2 * i + 1] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
      }
    })");
  const float x[] = {0, 1, -1.0625f, 0.001953125f, 300, 448, 464, 1e6f, -1e6f, 57344, 3.5e-5f};
  const float e4m3[] = {0, 1, -1, 0.001953125f, 288, 448, 448, 448, -448, 448, 0};
  const float e5m2[] = {0, 1, -1, 0.001953125f, 320, 448, 448, 57344, -57344, 57344, 3.0517578125e-5f};
  float out[22];
  unsigned char words[22];
  module.launch("k", {}, &x[0], &out[0], &words[0], 11);
  for (int i = 0; i < 11; ++i) {
    CAPTURE(x[i]);
    CHECK(out[2 * i] == e4m3[i]);
    CHECK(out[2 * i + 1] == e5m2[i]);
  }
  CHECK(words[2] == 0x38);
  CHECK(words[15] == 0x7c);
}
