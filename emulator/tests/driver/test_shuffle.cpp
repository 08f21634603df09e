// The seeded choices by themselves; that results do not change is what the suites run under them show.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "shuffle.hpp"

using namespace aiocuda::emulator;

TEST_CASE("whatever the seed, every chunk is taken once") {
  bool some_are_out_of_order = false;
  for (const std::uint64_t seed : {0ull, 1ull, 0x123456789abcdefull, ~0ull}) {
    for (const std::uint64_t count : {1ull, 2ull, 6ull, 7ull, 32ull, 1000ull}) {
      const ChunkOrder order(count, seed);
      std::vector<std::uint64_t> taken;
      for (std::uint64_t index = 0; index < count; ++index) taken.push_back(order[index]);
      if (seed == 0) CHECK(std::is_sorted(taken.begin(), taken.end()));
      some_are_out_of_order |= !std::is_sorted(taken.begin(), taken.end());
      std::sort(taken.begin(), taken.end());
      for (std::uint64_t index = 0; index < count; ++index) REQUIRE(taken[index] == index);
    }
  }
  CHECK(some_are_out_of_order);
}

TEST_CASE("a stream that is held back goes on by itself and at once when somebody waits") {
  Shuffle alone(3);
  for (int piece = 0; piece < 50; ++piece) alone.let_others_go();
  Shuffle wanted(3);
  wanted.somebody_waits();
  std::jthread stream([&] {
    for (int piece = 0; piece < 1000; ++piece) wanted.let_others_go();
  });
  stream.join();
  wanted.nobody_waits();
}
