// The hazards, against a model that shares no idea with them: a graph of everything submitted, in which
// an edge says "runs before", searched for every pair of conflicting accesses.
#include <doctest/doctest.h>

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
};

// Submits one access at a time and keeps what was emitted.
struct House {
  Timeline timeline;
  std::vector<Emitted> waits;

  explicit House(std::size_t streams) {
    for (std::size_t i = 0; i < streams; ++i) timeline.add_stream();
  }

  Tick submit(StreamIndex stream, std::vector<std::pair<Hazard*, bool>> accesses) {
    for (auto [hazard, writes] : accesses)
      timeline.order(stream, *hazard, writes, [&](StreamIndex other) { waits.push_back({stream, other}); });
    const Tick now = timeline.advance(stream);
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
      house.submit(stream, touched);
      std::set<std::size_t> before = stream_after[stream];
      for (const Emitted wait : house.waits) {
        const std::size_t known = before.size();
        before.insert(stream_after[wait.other].begin(), stream_after[wait.other].end());
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
