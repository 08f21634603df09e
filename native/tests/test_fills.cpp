// Fills with patterns, against a model that sets every single byte.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "dataflow/fills.hpp"

using namespace aiocuda::dataflow;

namespace {

using Pattern = std::array<std::uint8_t, 16>;
using Bytes = std::vector<std::uint8_t>;

std::vector<FillBlock> blocks_of(const Pattern& pattern, std::uint32_t pattern_bytes, std::uint64_t size_bytes) {
  std::vector<FillBlock> blocks;
  each_fill(pattern, pattern_bytes, size_bytes, [&](const FillBlock& block) { blocks.push_back(block); });
  return blocks;
}

// What a driver makes of the blocks: it wants items that lie on multiples of their size, and values that fit in them.
Bytes filled(const std::vector<FillBlock>& blocks, std::uint64_t size_bytes) {
  Bytes bytes(size_bytes);
  std::vector<int> times(size_bytes);
  for (const FillBlock& block : blocks) {
    REQUIRE((block.item_bytes == 1 || block.item_bytes == 2 || block.item_bytes == 4));
    REQUIRE((block.offset % block.item_bytes == 0 && block.pitch % block.item_bytes == 0));
    REQUIRE((std::uint64_t{block.value} >> (8 * block.item_bytes)) == 0);
    for (std::uint64_t row = 0; row < block.rows; ++row)
      for (std::uint64_t item = 0; item < block.width; ++item) {
        const std::uint64_t at = block.offset + row * block.pitch + item * block.item_bytes;
        REQUIRE(at + block.item_bytes <= size_bytes);
        std::memcpy(bytes.data() + at, &block.value, block.item_bytes);
        for (std::uint64_t i = 0; i < block.item_bytes; ++i) ++times[at + i];
      }
  }
  for (const int each : times) REQUIRE(each == 1);
  return bytes;
}

}  // namespace

TEST_CASE("a pattern that repeats within is one fill with its shortest part") {
  for (const std::uint32_t pattern_bytes : {1u, 2u, 4u, 8u, 16u}) {
    const auto blocks = blocks_of({}, pattern_bytes, 160);
    REQUIRE(blocks.size() == 1);
    CHECK(blocks[0].item_bytes == 1);
    CHECK(blocks[0].width == 160);
  }
  const auto twos = blocks_of({1, 2, 1, 2, 1, 2, 1, 2}, 8, 160);
  REQUIRE(twos.size() == 1);
  CHECK(twos[0].item_bytes == 2);
  const auto fours = blocks_of({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}, 16, 160);
  REQUIRE(fours.size() == 1);
  CHECK(fours[0].item_bytes == 4);
}

TEST_CASE("a pattern that does not repeat within is a column for each four bytes of it") {
  CHECK(blocks_of({1}, 8, 160).size() == 2);
  CHECK(blocks_of({1, 0, 0, 0, 0, 0, 0, 0, 1}, 16, 160).size() == 2);
  CHECK(blocks_of({1}, 16, 160).size() == 4);
}

TEST_CASE("no pattern and no bytes are no fill") {
  CHECK(blocks_of({1, 2}, 0, 100).empty());
  CHECK(blocks_of({1, 2}, 2, 0).empty());
}

TEST_CASE("random patterns: each byte is set once, to what the pattern says") {
  std::array<int, 5> number_of_blocks{};
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::uint32_t pattern_bytes = 1u << below(5), kinds = below(2) ? 256 : 2;
    Pattern pattern{};
    for (std::uint8_t& byte : pattern) byte = static_cast<std::uint8_t>(below(kinds));  // also behind the pattern's end
    if (below(2)) {
      const std::uint32_t part = 1u << below(5);
      for (std::uint32_t i = part; i < pattern_bytes; ++i) pattern[i] = pattern[i - part];
    }
    const std::uint64_t size_bytes = std::uint64_t{pattern_bytes} * (1 + below(20));
    Bytes expected(size_bytes);
    for (std::uint64_t i = 0; i < size_bytes; ++i) expected[i] = pattern[i % pattern_bytes];
    const auto blocks = blocks_of(pattern, pattern_bytes, size_bytes);
    REQUIRE(filled(blocks, size_bytes) == expected);
    REQUIRE(blocks.size() <= 4);
    for (const FillBlock& block : blocks) REQUIRE(block.rows == (blocks.size() == 1 ? 1 : size_bytes / (blocks.size() * 4)));
    ++number_of_blocks[blocks.size()];
  }
  CHECK(number_of_blocks[1] > 500);
  CHECK(number_of_blocks[2] > 500);
  CHECK(number_of_blocks[4] > 500);
}
