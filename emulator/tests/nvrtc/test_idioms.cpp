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
  const Module module(R"(extern "C" __global__ void k(unsigned* out) {
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
  })");
  std::vector<unsigned> out(6);
  module.launch("k", {.block = {1}, .dynamic_shared_bytes = 64}, out.data());
  CHECK(out == std::vector<unsigned>{3, 4, 8, 12, 1, 1});
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
