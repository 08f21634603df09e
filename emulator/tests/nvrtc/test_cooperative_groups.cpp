// cooperative_groups: the block, tiles, coalesced threads, their collectives.
#include <doctest/doctest.h>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("cooperative groups: ranks, shuffles, votes and reductions") {
  const Module module(R"(
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __device__ int sum_of(cg::thread_group g, int* scratch, int value) {
      int rank = g.thread_rank();
      for (int i = g.size() / 2; i > 0; i /= 2) {
        scratch[rank] = value; g.sync();
        if (rank < i) value += scratch[rank + i];
        g.sync();
      }
      return value;
    }
    extern "C" __global__ void groups(int* out, float* f) {
      __shared__ int scratch[64];
      cg::thread_block block = cg::this_thread_block();
      auto warp = cg::tiled_partition<32>(block);
      cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
      int t = block.thread_rank();
      int* o = out + t * 12;
      o[0] = block.size();
      o[1] = tile.thread_rank() * 100 + tile.meta_group_rank();
      o[2] = cg::reduce(warp, t, cg::plus<int>());
      o[3] = cg::reduce(tile, t, cg::greater<int>());
      o[4] = tile.shfl(t, 3);
      o[5] = tile.shfl_down(t, 1);
      o[6] = tile.ballot(t % 2);
      o[7] = sum_of(block, scratch, t);
      if (t % 3 == 0) { cg::coalesced_group some = cg::coalesced_threads();
        o[8] = some.size() * 100 + some.thread_rank(); o[9] = some.shfl(t, 1); }
      else { o[8] = -1; o[9] = -1; }
      o[10] = cg::inclusive_scan(tile, 1);
      o[11] = cg::this_grid().thread_rank();
      f[t] = cg::reduce(tile, t * 0.5f, cg::less<float>());
      cg::sync(block);
      tile.sync();
    })");
  std::vector<int> out(64 * 12);
  std::vector<float> f(64);
  module.launch("groups", {.block = {16, 4}}, out.data(), f.data());
  for (int t = 0; t < 64; ++t) {
    CAPTURE(t);
    const int* o = &out[static_cast<std::size_t>(t) * 12];
    const int warp = t / 32 * 32;
    CHECK(o[0] == 64);
    CHECK(o[1] == t % 8 * 100 + t / 8);
    CHECK(o[2] == 496 + 32 * warp);
    CHECK(o[3] == t / 8 * 8 + 7);
    CHECK(o[4] == t / 8 * 8 + 3);
    CHECK(o[5] == (t % 8 == 7 ? t : t + 1));
    CHECK(o[6] == 0xaa);
    if (t == 0) CHECK(o[7] == 2016);
    if (t % 3 == 0) {
      const int first = (warp + 2) / 3 * 3;
      CHECK(o[8] == 1100 + (t - first) / 3);
      CHECK(o[9] == first + 3);
    }
    CHECK(o[10] == t % 8 + 1);
    CHECK(o[11] == t);
    CHECK(f[static_cast<std::size_t>(t)] == static_cast<float>(t / 8 * 8) * 0.5f);
  }
}

TEST_CASE("grid-wide synchronisation fails where no driver runs the blocks together") {
  const Module module(R"(#include <cooperative_groups.h>
    extern "C" __global__ void ask(int* out) { *out = cooperative_groups::this_grid().is_valid(); }
    extern "C" __global__ void meet() { cooperative_groups::this_grid().sync(); })");
  int valid = 7;
  module.launch("ask", {}, &valid);
  CHECK(valid == 0);
  CHECK_THROWS_AS(module.launch("meet", {.block = {2}}), LaunchFailure);
}
