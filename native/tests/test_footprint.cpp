// The bytes that something touches, against a model that has a flag for every single byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "dataflow/footprint.hpp"

using namespace aiocuda::dataflow;

namespace {

using Spans = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Spans spans_of(const Footprint& footprint) {
  Spans spans;
  for (const Span span : footprint.spans()) spans.push_back({span.begin, span.end});
  return spans;
}

Spans spans_of(const std::vector<bool>& bytes) {
  Spans spans;
  for (std::uint64_t byte = 0; byte < bytes.size(); ++byte) {
    if (!bytes[byte]) continue;
    if (spans.empty() || spans.back().second < byte) {
      spans.push_back({byte, byte + 1});
    } else {
      spans.back().second = byte + 1;
    }
  }
  return spans;
}

// Each span of `spans` lies in one of `cover`.
bool covers(const Spans& cover, const Spans& spans) {
  return std::all_of(spans.begin(), spans.end(), [&](auto span) {
    return std::any_of(cover.begin(), cover.end(),
                       [span](auto each) { return each.first <= span.first && span.second <= each.second; });
  });
}

}  // namespace

TEST_CASE("spans that touch are one") {
  Footprint footprint;
  footprint.add({10, 20});
  footprint.add({30, 40});
  CHECK(spans_of(footprint) == Spans{{10, 20}, {30, 40}});
  SUBCASE("behind one") {
    footprint.add({20, 25});
    CHECK(spans_of(footprint) == Spans{{10, 25}, {30, 40}});
  }
  SUBCASE("before one") {
    footprint.add({29, 30});
    CHECK(spans_of(footprint) == Spans{{10, 20}, {29, 40}});
  }
  SUBCASE("between two") {
    footprint.add({20, 30});
    CHECK(spans_of(footprint) == Spans{{10, 40}});
  }
  SUBCASE("over all") {
    footprint.add({5, 50});
    CHECK(spans_of(footprint) == Spans{{5, 50}});
  }
  SUBCASE("inside of one") {
    footprint.add({12, 18});
    CHECK(spans_of(footprint) == Spans{{10, 20}, {30, 40}});
  }
}

TEST_CASE("nothing is touched by an access to nothing") {
  Footprint footprint;
  footprint.add({5, 5});
  footprint.add({6, 5});
  CHECK(footprint.empty());
  footprint.add({10, 20});
  footprint.add({20, 20});
  footprint.add({30, 30});
  CHECK_FALSE(footprint.empty());
  CHECK(spans_of(footprint) == Spans{{10, 20}});
}

TEST_CASE("as many spans as there may be stay apart, and one more joins all") {
  Footprint footprint;
  for (std::uint64_t i = 0; i < Footprint::most_spans; ++i) {
    footprint.add({10 * i, 10 * i + 5});
    CHECK(footprint.spans().size() == i + 1);
  }
  footprint.add({12, 14});  // it adds no span
  CHECK(footprint.spans().size() == Footprint::most_spans);
  footprint.add({5000, 5001});
  CHECK(spans_of(footprint) == Spans{{0, 5001}});
}

TEST_CASE(
    "random spans: all that is touched and nothing else, and where that would be many spans, nothing beyond its ends") {
  int exact = 0, joined = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint64_t n) { return static_cast<std::uint64_t>(random() % n); };
    const std::uint64_t size = 1 + below(800), longest = 1 + below(below(2) ? 2 : 60);
    Footprint footprint;
    std::vector<bool> bytes(size, false);
    bool was_many = false;
    for (std::uint64_t adds = below(400); adds > 0; --adds) {
      Span span{below(size), 0};
      span.end = std::min(size, span.begin + below(longest + 1));
      footprint.add(span);
      for (std::uint64_t byte = span.begin; byte < span.end; ++byte) bytes[byte] = true;
      const Spans touched = spans_of(bytes), told = spans_of(footprint);
      was_many = was_many || touched.size() > Footprint::most_spans;
      REQUIRE(footprint.empty() == touched.empty());
      if (!was_many) {
        REQUIRE(told == touched);
        continue;
      }
      REQUIRE(covers(told, touched));
      REQUIRE(told.front().first == touched.front().first);
      REQUIRE(told.back().second == touched.back().second);
      REQUIRE(told.size() <= Footprint::most_spans);
      for (std::size_t i = 1; i < told.size(); ++i) REQUIRE(told[i - 1].second < told[i].first);
    }
    (was_many ? joined : exact) += 1;
  }
  CHECK(exact > 100);
  CHECK(joined > 50);
}
