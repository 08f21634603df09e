// Hazards by byte range, against a model that keeps a hazard for every single byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "dataflow/ranges.hpp"
#include "dataflow/timeline.hpp"

using namespace aiocuda::dataflow;

namespace {

using Ticks = std::set<std::pair<StreamIndex, std::uint64_t>>;

// The accesses that an access must be ordered after.
Ticks needed(const RangeHazards& ranges, Span span, bool writes) {
  Ticks ticks;
  ranges.each(span, [&](const Hazard& hazard, Span segment) {
    CHECK(segment.begin < span.end);
    CHECK(segment.end > span.begin);
    if (hazard.written.count) ticks.insert({hazard.written.stream, hazard.written.count});
    for (const Tick other : hazard.others) ticks.insert({other.stream, other.count});
    if (writes)
      for (const Tick read : hazard.reads) ticks.insert({read.stream, read.count});
  });
  return ticks;
}

Ticks needed(const std::vector<Hazard>& bytes, Span span, bool writes) {
  Ticks ticks;
  for (std::uint64_t byte = span.begin; byte < span.end; ++byte) {
    if (bytes[byte].written.count) ticks.insert({bytes[byte].written.stream, bytes[byte].written.count});
    for (const Tick other : bytes[byte].others) ticks.insert({other.stream, other.count});
    if (writes)
      for (const Tick read : bytes[byte].reads) ticks.insert({read.stream, read.count});
  }
  return ticks;
}

}  // namespace

TEST_CASE("a buffer that is only used whole has one segment") {
  RangeHazards ranges(100);
  ranges.commit({0, 100}, true, {0, 1});
  ranges.commit({0, 100}, false, {1, 1});
  CHECK(ranges.segment_count() == 1);
  CHECK(needed(ranges, {0, 100}, true) == Ticks{{0, 1}, {1, 1}});
}

TEST_CASE("disjoint slices know nothing of one another") {
  RangeHazards ranges(100);
  ranges.commit({0, 50}, true, {0, 1});
  ranges.commit({50, 100}, true, {1, 1});
  CHECK(needed(ranges, {0, 50}, true) == Ticks{{0, 1}});
  CHECK(needed(ranges, {50, 100}, true) == Ticks{{1, 1}});
  CHECK(needed(ranges, {49, 51}, false) == Ticks{{0, 1}, {1, 1}});
}

TEST_CASE("writing everything forgets the slices") {
  RangeHazards ranges(100);
  for (std::uint64_t i = 0; i < 10; ++i) ranges.commit({i * 10, i * 10 + 10}, true, {0, i + 1});
  CHECK(ranges.segment_count() == 10);
  ranges.commit({0, 100}, true, {1, 1});
  CHECK(ranges.segment_count() == 1);
  CHECK(needed(ranges, {0, 100}, true) == Ticks{{1, 1}});
}

TEST_CASE("writing over slices makes one of them") {
  RangeHazards ranges(100);
  for (std::uint64_t i = 0; i < 10; ++i) ranges.commit({i * 10, i * 10 + 10}, true, {0, i + 1});
  ranges.commit({15, 85}, true, {1, 1});
  CHECK(ranges.segment_count() == 5);
  CHECK(needed(ranges, {15, 85}, true) == Ticks{{1, 1}});
  CHECK(needed(ranges, {10, 15}, true) == Ticks{{0, 2}});
}

TEST_CASE("reading everything bounds the segments, and stands for what they remembered") {
  constexpr std::uint64_t slices = RangeHazards::most_segments + 500;
  RangeHazards ranges(slices);
  for (std::uint64_t i = 0; i < slices; ++i) ranges.commit({i, i + 1}, true, {0, i + 1});
  CHECK(ranges.segment_count() == slices);
  ranges.commit({0, slices}, false, {1, 1});  // it was ordered after all of them
  CHECK(ranges.segment_count() == 1);
  CHECK(needed(ranges, {7, 8}, false) == Ticks{{1, 1}});
}

TEST_CASE("what has passed is forgotten, when the segments have doubled") {
  Timeline timeline;
  timeline.add_stream();
  timeline.add_stream();
  constexpr std::uint64_t slices = 16 * RangeHazards::most_segments;
  RangeHazards ranges(slices);
  std::size_t most = 0;
  for (std::uint64_t i = 0; i < slices; ++i) {
    ranges.commit({i, i + 1}, true, timeline.advance(i % 2));
    if (i % 2 == 0) timeline.learn_complete({0, timeline.submitted(0)});
    if (i + 100 < slices) timeline.learn_complete({1, timeline.submitted(1)});
    ranges.forget_passed(timeline);
    most = std::max(most, ranges.segment_count());
  }
  CHECK(most <= 2 * RangeHazards::most_segments);
  // Everything that has not passed is there.
  std::size_t pending = 0;
  ranges.each([&](const Hazard& hazard, Span) { pending += !timeline.is_known_complete(hazard.written); });
  CHECK(pending == 50);
}

TEST_CASE("nothing is remembered of an access to nothing") {
  RangeHazards ranges(100), empty(0);
  ranges.commit({40, 40}, true, {0, 1});
  CHECK(ranges.segment_count() == 1);
  CHECK(needed(ranges, {0, 100}, true).empty());
  empty.commit({0, 0}, true, {0, 1});
  CHECK(empty.segment_count() == 1);
}

TEST_CASE("a copy is its own") {
  RangeHazards ranges(100);
  ranges.commit({0, 50}, true, {0, 1});
  RangeHazards copy = ranges;
  copy.commit({0, 100}, true, {1, 1});
  CHECK(needed(ranges, {0, 100}, true) == Ticks{{0, 1}});
}

TEST_CASE("random accesses: each byte remembers what it should") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint64_t n) { return static_cast<std::uint64_t>(random() % n); };
    const std::uint64_t size = 1 + below(60);
    RangeHazards ranges(size);
    std::vector<Hazard> bytes(size);
    std::vector<std::uint64_t> counts(4, 0);
    for (int access = 0; access < 80; ++access) {
      Span span{below(size), 0};
      span.end = span.begin + 1 + below(size - span.begin);
      if (below(8) == 0) span = {0, size};
      const bool writes = below(2) == 1;
      REQUIRE(needed(ranges, span, writes) == needed(bytes, span, writes));
      const auto stream = static_cast<StreamIndex>(below(4));
      const Tick now{stream, ++counts[stream]};
      if (below(10) == 0) {
        ranges.commit_reads_of_others(span, now);
        for (std::uint64_t byte = span.begin; byte < span.end; ++byte) bytes[byte].commit(false, now);
        continue;
      }
      if (below(5) == 0) {
        ranges.commit_of_others(span, now);
        for (std::uint64_t byte = span.begin; byte < span.end; ++byte) bytes[byte].commit_of_others(now);
        continue;
      }
      ranges.commit(span, writes, now);
      for (std::uint64_t byte = span.begin; byte < span.end; ++byte) bytes[byte].commit(writes, now);
    }
    CHECK(ranges.segment_count() <= size);
  }
}
