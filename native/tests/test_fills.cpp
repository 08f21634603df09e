// Fills with patterns, against a model that sets every single byte.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "dataflow/fills.hpp"

using namespace aiocuda::dataflow;

namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<FillBlock> blocks_of(const Pattern& pattern, const Region& region, std::uint64_t base = 0) {
  std::vector<FillBlock> blocks;
  each_fill(pattern, region, base, [&](const FillBlock& block) { blocks.push_back(block); });
  return blocks;
}
std::vector<FillBlock> blocks_of(const std::array<std::uint8_t, 16>& bytes, std::uint8_t size,
                                 std::uint64_t size_bytes) {
  return blocks_of(Pattern{bytes, size}, Region{0, static_cast<std::int64_t>(size_bytes)});
}

// A driver's reading of the blocks: it wants items that lie on multiples of their size, values that fit in them, and
// rows that do not lie upon one another. `times`: how often each byte was set.
Bytes filled(const std::vector<FillBlock>& blocks, std::uint64_t size_bytes, std::vector<int>& times,
             std::uint64_t base = 0) {
  Bytes bytes(size_bytes);
  times.assign(size_bytes, 0);
  for (const FillBlock& block : blocks) {
    REQUIRE((block.item_bytes == 1 || block.item_bytes == 2 || block.item_bytes == 4));
    REQUIRE(((base + block.offset) % block.item_bytes == 0 && block.pitch % block.item_bytes == 0));
    REQUIRE((block.rows == 1 || block.pitch >= block.width * block.item_bytes));
    REQUIRE((std::uint64_t{block.value} >> (8 * block.item_bytes)) == 0);
    for (std::uint64_t row = 0; row < block.rows; ++row)
      for (std::uint64_t item = 0; item < block.width; ++item) {
        const std::uint64_t at = block.offset + row * block.pitch + item * block.item_bytes;
        REQUIRE(at + block.item_bytes <= size_bytes);
        std::memcpy(bytes.data() + at, &block.value, block.item_bytes);
        for (std::uint64_t i = 0; i < block.item_bytes; ++i) ++times[at + i];
      }
  }
  return bytes;
}

}  // namespace

TEST_CASE("a pattern that repeats within is one fill with its shortest part") {
  for (const std::uint8_t pattern_bytes : std::array<std::uint8_t, 5>{1, 2, 4, 8, 16}) {
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
    std::array<std::uint8_t, 16> pattern{};
    for (std::uint8_t& byte : pattern) byte = static_cast<std::uint8_t>(below(kinds));  // also behind the pattern's end
    if (below(2)) {
      const std::uint32_t part = 1u << below(5);
      for (std::uint32_t i = part; i < pattern_bytes; ++i) pattern[i] = pattern[i - part];
    }
    const std::uint64_t size_bytes = std::uint64_t{pattern_bytes} * (1 + below(20));
    Bytes expected(size_bytes);
    for (std::uint64_t i = 0; i < size_bytes; ++i) expected[i] = pattern[i % pattern_bytes];
    const auto blocks = blocks_of(pattern, static_cast<std::uint8_t>(pattern_bytes), size_bytes);
    std::vector<int> times;
    REQUIRE(filled(blocks, size_bytes, times) == expected);
    for (const int each : times) REQUIRE(each == 1);
    REQUIRE(blocks.size() <= 4);
    for (const FillBlock& block : blocks)
      REQUIRE(block.rows == (blocks.size() == 1 ? 1 : size_bytes / (blocks.size() * 4)));
    ++number_of_blocks[blocks.size()];
  }
  CHECK(number_of_blocks[1] > 500);
  CHECK(number_of_blocks[2] > 500);
  CHECK(number_of_blocks[4] > 500);
}

TEST_CASE("random strided regions: each byte of them is set once, to what the pattern says, and none beside them") {
  std::array<int, 3> number_of_axes{};
  int alone = 0, rows = 0;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    Pattern pattern{{}, static_cast<std::uint8_t>(1u << below(5))};
    const std::uint32_t repeated = 1u << below(5);
    for (std::uint32_t i = 0; i < pattern.size; ++i)
      pattern.bytes[i] = i < repeated ? static_cast<std::uint8_t>(1 + below(255)) : pattern.bytes[i - repeated];
    // As an array has it: items, and axes around them; sometimes items that lie on no multiple of their size.
    const std::int64_t step = below(4) ? pattern.size : 1 + below(3);
    Region region{step * below(3), pattern.size};
    std::int64_t within = pattern.size;
    for (std::uint32_t axes = below(4); axes; --axes) {
      const std::int64_t extent = 1 + below(5), stride = (within + step - 1) / step * step + step * below(3);
      region.add(extent, stride);
      within = stride * (extent - 1) + within;
    }
    region.join();
    if (region.run % pattern.size) continue;
    const std::uint64_t base = below(3) ? 256 : below(8),
                        size_bytes = static_cast<std::uint64_t>(region.begin + within) + 8;
    Bytes expected(size_bytes);
    region.each_piece([&](Span piece) {
      for (std::uint64_t at = piece.begin; at < piece.end; ++at)
        expected[at] = pattern.bytes[(at - piece.begin) % pattern.size];
    });
    std::vector<int> times;
    const auto blocks = blocks_of(pattern, region, base);
    REQUIRE(filled(blocks, size_bytes, times, base) == expected);
    for (std::uint64_t at = 0; at < size_bytes; ++at) REQUIRE(times[at] == (expected[at] ? 1 : 0));
    if (step == pattern.size && base == 256) {  // as arrays lie that the library makes
      const std::uint32_t columns = pattern.part() > 4 ? pattern.part() / 4 : 1;
      std::uint64_t others = 1, longest = 1;
      for (const Region::Axis& axis : region.axes) {
        others *= static_cast<std::uint64_t>(axis.extent);
        longest = std::max(longest, static_cast<std::uint64_t>(axis.extent));
      }
      if (!is_fill_of_rows(pattern, region)) REQUIRE(blocks.size() == columns * (others / longest));
      ++(is_fill_of_rows(pattern, region) ? rows : alone);
    }
    ++number_of_axes[std::min<std::size_t>(region.axes.size(), 2)];
  }
  for (const int each : number_of_axes) CHECK(each > 300);
  CHECK(alone > 300);
  CHECK(rows > 50);
}
