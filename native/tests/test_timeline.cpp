// The hazards, against a model that shares no idea with them: a graph of everything submitted, in which
// an edge says "runs before", searched for every pair of conflicting accesses.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "dataflow/timeline.hpp"

using namespace aiocuda::dataflow;

namespace {

struct Emitted {
  StreamIndex stream, other;
  std::uint32_t slot;
};

// Submits one access at a time and keeps what was emitted.
struct House {
  Timeline timeline;
  std::vector<Emitted> waits;
  std::map<std::pair<StreamIndex, std::uint32_t>, std::uint64_t> marks;  // how much the stream held
  std::function<void(StreamIndex, std::uint32_t)> on_mark = [](StreamIndex, std::uint32_t) {};

  explicit House(std::size_t streams) {
    for (std::size_t i = 0; i < streams; ++i) timeline.add_stream();
  }

  void mark(StreamIndex stream, std::uint32_t slot) {
    marks[{stream, slot}] = timeline.submitted(stream);
    on_mark(stream, slot);
  }
  void wait(StreamIndex stream, StreamIndex other, std::uint32_t slot) { waits.push_back({stream, other, slot}); }

  Tick submit(StreamIndex stream, std::vector<std::pair<Hazard*, bool>> accesses, bool is_shared = false) {
    std::uint32_t outputs = 0;
    for (auto [hazard, writes] : accesses) {
      timeline.order(stream, *hazard, writes, *this);
      outputs += writes;
    }
    const Tick now = timeline.advance(stream, outputs, is_shared);
    for (auto [hazard, writes] : accesses) Timeline::commit(*hazard, writes, now);
    return now;
  }
};

}  // namespace

TEST_CASE("one stream needs no wait") {
  House house(1);
  Hazard a, b;
  for (int i = 0; i < 3; ++i) house.submit(0, {{&a, true}, {&b, false}});
  CHECK(house.waits.empty());
}

TEST_CASE("each kind of hazard between two streams is one wait, once") {
  House house(2);
  Hazard array;
  SUBCASE("read after write") {
    house.submit(0, {{&array, true}});
    house.submit(1, {{&array, false}});
    house.submit(1, {{&array, false}});
  }
  SUBCASE("write after read") {
    house.submit(0, {{&array, false}});
    house.submit(1, {{&array, true}});
    house.submit(1, {{&array, true}});
  }
  SUBCASE("write after write") {
    house.submit(0, {{&array, true}});
    house.submit(1, {{&array, true}});
    house.submit(1, {{&array, true}});
  }
  REQUIRE(house.waits.size() == 1);
  CHECK(house.waits[0].stream == 1);
  CHECK(house.waits[0].other == 0);
}

TEST_CASE("a wait is for the mark nearest behind the work, whatever came later") {
  House house(3);
  Hazard a, b;
  house.submit(0, {{&a, true}}, true);
  REQUIRE(house.timeline.is_tail_wanted(0, 0));
  CHECK_FALSE(house.timeline.is_tail_wanted(0, 1));  // all that it wrote would be overwritten
  house.timeline.mark_end(0, house);
  house.submit(0, {{&b, true}});
  house.submit(1, {{&a, false}});
  house.submit(2, {{&a, false}});
  REQUIRE(house.waits.size() == 2);
  for (const Emitted wait : house.waits) CHECK(house.marks.at({0, wait.slot}) == 1);
  house.waits.clear();
  house.submit(1, {{&b, false}});
  REQUIRE(house.waits.size() == 1);
  CHECK(house.marks.at({0, house.waits[0].slot}) == 2);
}

TEST_CASE("what came after a mark is not taken for known") {
  House house(3);
  Hazard a, b, c;
  house.submit(0, {{&a, true}}, true);
  house.timeline.mark_end(0, house);
  house.submit(2, {{&c, true}});
  house.submit(0, {{&c, false}, {&b, true}});  // only now is 0 ordered after 2
  house.waits.clear();
  house.submit(1, {{&a, false}});
  house.submit(1, {{&c, false}});
  REQUIRE(house.waits.size() == 2);
  CHECK(house.waits[1].other == 2);
}

TEST_CASE("marks are used again, the oldest first, and end with the stream") {
  House house(2);
  Hazard a, b;
  for (std::uint32_t i = 0; i < 3 * Timeline::most_marks; ++i) {
    house.submit(0, {{&b, true}});
    house.timeline.mark_end(0, house);
  }
  CHECK(house.marks.size() == Timeline::most_marks);
  house.submit(0, {{&a, true}});
  house.timeline.mark_end(0, house);
  house.timeline.forget_marks(0);
  house.marks.clear();
  house.submit(1, {{&a, false}});
  CHECK(house.marks.size() == 1);  // made anew
}

TEST_CASE("work that several may consume is wanted until it is buried") {
  House house(2);
  Hazard a;
  const Tick tick = house.submit(0, {{&a, true}});
  CHECK_FALSE(house.timeline.is_tail_wanted(0, 0));
  house.timeline.share(tick);
  CHECK(house.timeline.is_tail_wanted(0, 0));
  house.submit(0, {{&a, true}});
  house.timeline.share(tick);  // too late: it is not the last any more
  CHECK_FALSE(house.timeline.is_tail_wanted(0, 0));
}

TEST_CASE("readers do not wait for one another") {
  House house(3);
  Hazard array;
  for (StreamIndex stream = 0; stream < 3; ++stream) house.submit(stream, {{&array, false}});
  CHECK(house.waits.empty());
}

TEST_CASE("a wait implies what the other stream had waited for") {
  House house(3);
  Hazard a, b;
  house.submit(0, {{&a, true}});
  house.submit(1, {{&a, false}, {&b, true}});
  house.submit(2, {{&b, false}});  // waits for 1, which follows 0
  house.waits.clear();
  house.submit(2, {{&a, false}});
  CHECK(house.waits.empty());
}

TEST_CASE("what is known to be complete needs no wait") {
  House house(2);
  Hazard array;
  const Tick written = house.submit(0, {{&array, true}});
  CHECK_FALSE(house.timeline.is_known_complete(written));
  house.timeline.learn_complete(written);
  CHECK(house.timeline.is_known_complete(written));
  house.submit(1, {{&array, false}});
  CHECK(house.waits.empty());
}

TEST_CASE("what a stream is ordered after is complete when it is") {
  House house(3);
  Hazard a, b, c;
  const Tick first = house.submit(0, {{&a, true}});
  const Tick unrelated = house.submit(2, {{&c, true}});
  const Tick second = house.submit(1, {{&a, false}, {&b, true}});
  const auto complete = house.timeline.snapshot(1);
  const Tick later = house.submit(0, {{&a, true}});
  SUBCASE("learned by the timeline") { house.timeline.learn(complete); }
  SUBCASE("learned without it") {
    for (const Progress& progress : house.timeline.progress_of(complete)) progress.learn();
  }
  CHECK(house.timeline.is_known_complete(first));
  CHECK(house.timeline.is_known_complete(second));
  CHECK_FALSE(house.timeline.is_known_complete(later));
  CHECK_FALSE(house.timeline.is_known_complete(unrelated));
}

TEST_CASE("a completion counter never goes back") {
  House house(1);
  Hazard array;
  const Tick first = house.submit(0, {{&array, true}});
  const Tick second = house.submit(0, {{&array, true}});
  house.timeline.learn_complete(second);
  house.timeline.learn_complete(first);
  CHECK(house.timeline.is_known_complete(second));
}

TEST_CASE("random programs: every conflict is ordered, and no wait is in vain") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<StreamIndex>(random() % n); };
    const StreamIndex streams = 2 + below(4);
    House house(streams);
    std::vector<Hazard> arrays(1 + below(6));
    // after[k]: the submissions that k is known to run after.
    std::vector<std::set<std::size_t>> after;
    std::vector<std::set<std::size_t>> stream_after(streams);  // what the next one of a stream runs after
    struct Access {
      std::size_t submission, array;
      bool writes;
    };
    std::vector<Access> accesses;
    std::map<std::pair<StreamIndex, std::uint32_t>, std::set<std::size_t>> marked;  // what is before a mark
    house.on_mark = [&](StreamIndex stream, std::uint32_t slot) { marked[{stream, slot}] = stream_after[stream]; };
    for (std::size_t submission = 0; submission < 60; ++submission) {
      const StreamIndex stream = below(streams);
      std::map<std::size_t, bool> uses;
      for (unsigned i = 0, n = 1 + below(3); i < n; ++i) {
        const std::size_t array = below(arrays.size());
        const bool writes = below(2) == 1;
        uses[array] = uses[array] || writes;
      }
      std::vector<std::pair<Hazard*, bool>> touched;
      for (auto [array, writes] : uses) touched.push_back({&arrays[array], writes});
      house.waits.clear();
      if (below(3) == 0) house.timeline.mark_end(below(streams), house);
      house.submit(stream, touched);
      std::set<std::size_t> before = stream_after[stream];
      for (const Emitted wait : house.waits) {
        const std::size_t known = before.size();
        const std::set<std::size_t>& waited = marked.at({wait.other, wait.slot});
        before.insert(waited.begin(), waited.end());
        CHECK(before.size() > known);  // it brought something new
      }
      for (auto [array, writes] : uses)
        for (const Access& earlier : accesses)
          if (earlier.array == array && (writes || earlier.writes)) CHECK(before.contains(earlier.submission));
      for (auto [array, writes] : uses) accesses.push_back({submission, array, writes});
      after.push_back(before);
      before.insert(submission);
      stream_after[stream] = std::move(before);
    }
  }
}
