// The bytes of strided arrays, against a model that knows every single byte.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "dataflow/region.hpp"

using namespace aiocuda::dataflow;

namespace {

using Axes = std::vector<Region::Axis>;
using Bytes = std::set<std::int64_t>;

Region region_of(std::int64_t begin, std::int64_t item, const Axes& axes) {
  Region region{begin, item};
  for (const auto& [extent, stride] : axes) region.add(extent, stride);
  region.join();
  return region;
}

Bytes bytes_of(std::int64_t begin, std::int64_t item, const Axes& axes) {
  std::vector<std::int64_t> items{begin};
  for (const auto& [extent, stride] : axes) {
    std::vector<std::int64_t> more;
    for (const std::int64_t at : items)
      for (std::int64_t i = 0; i < extent; ++i) more.push_back(at + i * stride);
    items = std::move(more);
  }
  Bytes bytes;
  for (const std::int64_t at : items)
    for (std::int64_t i = 0; i < item; ++i) bytes.insert(at + i);
  return bytes;
}

Bytes bytes_of(const Region& region) {
  Bytes bytes;
  region.each_piece([&](Span piece) {
    for (std::uint64_t byte = piece.begin; byte < piece.end; ++byte) bytes.insert(static_cast<std::int64_t>(byte));
  });
  return bytes;
}

bool share_bytes(const Bytes& a, const Bytes& b) {
  for (const std::int64_t byte : a)
    if (b.count(byte)) return true;
  return false;
}

}  // namespace

TEST_CASE("what lies in one piece is one, in whatever order the axes come") {
  CHECK(region_of(8, 4, {{3, 20}, {5, 4}}) == Region{8, 60});
  CHECK(region_of(8, 4, {{5, 4}, {3, 20}}) == Region{8, 60});
  CHECK(region_of(0, 4, {{1, 999}, {7, 4}, {6, 0}}) == Region{0, 28});  // nothing is stepped along these
  CHECK(region_of(0, 4, {{3, 2}}) == Region{0, 8});                     // items that overlap
}

TEST_CASE("columns have a piece a row") {
  const Region left = region_of(0, 4, {{100, 40}, {5, 4}}), right = region_of(20, 4, {{100, 40}, {5, 4}});
  CHECK(left.pieces() == 100);
  CHECK_FALSE(overlap(left, right));
  CHECK(overlap(left, region_of(16, 4, {{100, 40}, {5, 4}})));
  CHECK_FALSE(overlap(region_of(0, 4, {{50, 80}, {10, 4}}), region_of(40, 4, {{50, 80}, {10, 4}})));
}

TEST_CASE("as many pieces as an array can have are compared at once") {
  const std::int64_t rows = std::int64_t{1} << 40;
  const Region even = region_of(0, 4, {{rows, 64}, {8, 8}}), odd = region_of(4, 4, {{rows, 64}, {8, 8}});
  CHECK_FALSE(overlap(even, odd));
  CHECK(overlap(even, region_of(64 * (rows - 1), 4, {{2, 64}, {8, 8}})));
  CHECK_FALSE(overlap(even, region_of(64 * (rows - 1) + 4, 4, {{2, 64}, {8, 8}})));
}

TEST_CASE("nothing overlaps nothing") {
  CHECK_FALSE(overlap(Region{4, 0}, Region{0, 100}));
  CHECK_FALSE(overlap(Region{0, 100}, Region{4, 0}));
  CHECK_FALSE(overlap(Region{0, 4}, Region{4, 4}));
}

TEST_CASE("random regions: their bytes, and whether they share some") {
  int shared = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
    auto axes = [&] {
      Axes made;
      for (std::int64_t axis = below(4); axis > 0; --axis) made.push_back({1 + below(4), below(12)});
      return made;
    };
    // Often cut alike, as parts of one array are.
    const Axes first = axes(), second = below(2) ? first : axes();
    const std::int64_t begin = below(40), other_begin = below(40), item = 1 + below(3), other_item = 1 + below(3);
    const Region region = region_of(begin, item, first), other = region_of(other_begin, other_item, second);
    const Bytes bytes = bytes_of(begin, item, first), other_bytes = bytes_of(other_begin, other_item, second);
    REQUIRE(bytes_of(region) == bytes);
    REQUIRE(overlap(region, other) == share_bytes(bytes, other_bytes));
    REQUIRE(overlap(other, region) == overlap(region, other));
    shared += overlap(region, other);
  }
  CHECK(shared > 1000);
  CHECK(shared < 3000);
}
