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
struct Services {
  Timeline timeline;
  std::vector<Emitted> waits;
  std::map<std::pair<StreamIndex, std::uint32_t>, std::uint64_t> marks;  // how much the stream held
  std::function<void(StreamIndex, std::uint32_t)> on_mark = [](StreamIndex, std::uint32_t) {};

  explicit Services(std::size_t streams) {
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
    for (auto [hazard, writes] : accesses) hazard->commit(writes, now);
    return now;
  }
};

}  // namespace

TEST_CASE("one stream needs no wait") {
  Services services(1);
  Hazard a, b;
  for (int i = 0; i < 3; ++i) services.submit(0, {{&a, true}, {&b, false}});
  CHECK(services.waits.empty());
}

TEST_CASE("each kind of hazard between two streams is one wait, once") {
  Services services(2);
  Hazard array;
  SUBCASE("read after write") {
    services.submit(0, {{&array, true}});
    services.submit(1, {{&array, false}});
    services.submit(1, {{&array, false}});
  }
  SUBCASE("write after read") {
    services.submit(0, {{&array, false}});
    services.submit(1, {{&array, true}});
    services.submit(1, {{&array, true}});
  }
  SUBCASE("write after write") {
    services.submit(0, {{&array, true}});
    services.submit(1, {{&array, true}});
    services.submit(1, {{&array, true}});
  }
  REQUIRE(services.waits.size() == 1);
  CHECK(services.waits[0].stream == 1);
  CHECK(services.waits[0].other == 0);
}

TEST_CASE("a wait is for the mark nearest behind the work, whatever came later") {
  Services services(3);
  Hazard a, b;
  services.submit(0, {{&a, true}}, true);
  REQUIRE(services.timeline.is_tail_wanted(0, 0));
  CHECK_FALSE(services.timeline.is_tail_wanted(0, 1));  // all that it wrote would be overwritten
  services.timeline.mark_end(0, services);
  services.submit(0, {{&b, true}});
  services.submit(1, {{&a, false}});
  services.submit(2, {{&a, false}});
  REQUIRE(services.waits.size() == 2);
  for (const Emitted wait : services.waits) CHECK(services.marks.at({0, wait.slot}) == 1);
  services.waits.clear();
  services.submit(1, {{&b, false}});
  REQUIRE(services.waits.size() == 1);
  CHECK(services.marks.at({0, services.waits[0].slot}) == 2);
}

TEST_CASE("what came after a mark is not taken for known") {
  Services services(3);
  Hazard a, b, c;
  services.submit(0, {{&a, true}}, true);
  services.timeline.mark_end(0, services);
  services.submit(2, {{&c, true}});
  services.submit(0, {{&c, false}, {&b, true}});  // only now is 0 ordered after 2
  services.waits.clear();
  services.submit(1, {{&a, false}});
  services.submit(1, {{&c, false}});
  REQUIRE(services.waits.size() == 2);
  CHECK(services.waits[1].other == 2);
}

TEST_CASE("marks are used again, the oldest first, and end with the stream") {
  Services services(2);
  Hazard a, b;
  for (std::uint32_t i = 0; i < 3 * most_marks; ++i) {
    services.submit(0, {{&b, true}});
    services.timeline.mark_end(0, services);
  }
  CHECK(services.marks.size() == most_marks);
  services.submit(0, {{&a, true}});
  services.timeline.mark_end(0, services);
  services.timeline.forget_marks(0);
  services.marks.clear();
  services.submit(1, {{&a, false}});
  CHECK(services.marks.size() == 1);  // made anew
}

TEST_CASE("work that several may consume is wanted until it is buried") {
  Services services(2);
  Hazard a;
  const Tick tick = services.submit(0, {{&a, true}});
  CHECK_FALSE(services.timeline.is_tail_wanted(0, 0));
  services.timeline.share(tick);
  CHECK(services.timeline.is_tail_wanted(0, 0));
  services.submit(0, {{&a, true}});
  services.timeline.share(tick);  // too late: it is not the last any more
  CHECK_FALSE(services.timeline.is_tail_wanted(0, 0));
}

TEST_CASE("readers do not wait for one another") {
  Services services(3);
  Hazard array;
  for (StreamIndex stream = 0; stream < 3; ++stream) services.submit(stream, {{&array, false}});
  CHECK(services.waits.empty());
}

TEST_CASE("readers and writers wait for what others did, and others wait for nobody") {
  Services services(6);
  Hazard array;
  services.submit(0, {{&array, false}});
  array.commit_of_others(services.timeline.advance(4, 1));
  array.commit_of_others(services.timeline.advance(5, 1));
  array.commit_of_others(services.timeline.advance(5, 1));
  CHECK(services.waits.empty());
  services.submit(1, {{&array, false}});
  CHECK(services.waits.size() == 2);
  for (const Emitted wait : services.waits) CHECK(wait.other >= 4);
  CHECK(services.marks.at({5, services.waits.back().slot}) == 2);
  services.waits.clear();
  services.submit(2, {{&array, true}});
  CHECK(services.waits.size() == 2);  // both readers, one of whom has waited for what others did
  CHECK(array.others.empty());
  services.waits.clear();
  services.submit(3, {{&array, false}});
  REQUIRE(services.waits.size() == 1);
  CHECK(services.waits[0].other == 2);
}

TEST_CASE("a wait implies what the other stream had waited for") {
  Services services(3);
  Hazard a, b;
  services.submit(0, {{&a, true}});
  services.submit(1, {{&a, false}, {&b, true}});
  services.submit(2, {{&b, false}});  // waits for 1, which follows 0
  services.waits.clear();
  services.submit(2, {{&a, false}});
  CHECK(services.waits.empty());
}

TEST_CASE("what is known to be complete needs no wait") {
  Services services(2);
  Hazard array;
  const Tick written = services.submit(0, {{&array, true}});
  CHECK_FALSE(services.timeline.is_known_complete(written));
  services.timeline.learn_complete(written);
  CHECK(services.timeline.is_known_complete(written));
  services.submit(1, {{&array, false}});
  CHECK(services.waits.empty());
}

TEST_CASE("what a stream is ordered after is complete when it is") {
  Services services(3);
  Hazard a, b, c;
  const Tick first = services.submit(0, {{&a, true}});
  const Tick unrelated = services.submit(2, {{&c, true}});
  const Tick second = services.submit(1, {{&a, false}, {&b, true}});
  const auto complete = services.timeline.snapshot(1);
  const Tick later = services.submit(0, {{&a, true}});
  SUBCASE("learned by the timeline") { services.timeline.learn(complete); }
  SUBCASE("learned without it") {
    for (const Progress& progress : services.timeline.progress_of(complete)) progress.learn();
  }
  CHECK(services.timeline.is_known_complete(first));
  CHECK(services.timeline.is_known_complete(second));
  CHECK_FALSE(services.timeline.is_known_complete(later));
  CHECK_FALSE(services.timeline.is_known_complete(unrelated));
}

TEST_CASE("what a stream comes after later is in no earlier snapshot, and in no earlier mark") {
  Services services(3);
  Hazard a, b, c;
  services.submit(0, {{&a, true}});
  services.submit(1, {{&a, false}, {&b, true}});
  const auto before = services.timeline.snapshot(1), copy = before;
  services.submit(2, {{&b, false}});  // a mark of stream 1
  const Tick other = services.submit(2, {{&c, true}});
  services.submit(1, {{&c, false}});
  CHECK(before.seen[2] == 0);
  CHECK(copy.seen[0] == 1);
  CHECK(services.timeline.snapshot(1).seen[2] == other.count);
  services.timeline.learn(before);
  CHECK_FALSE(services.timeline.is_known_complete(other));
}

TEST_CASE("a completion counter never goes back") {
  Services services(1);
  Hazard array;
  const Tick first = services.submit(0, {{&array, true}});
  const Tick second = services.submit(0, {{&array, true}});
  services.timeline.learn_complete(second);
  services.timeline.learn_complete(first);
  CHECK(services.timeline.is_known_complete(second));
}

TEST_CASE("random programs: every conflict is ordered, and no wait is in vain") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<StreamIndex>(random() % n); };
    const StreamIndex streams = 2 + below(4);
    Services services(streams);
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
    services.on_mark = [&](StreamIndex stream, std::uint32_t slot) { marked[{stream, slot}] = stream_after[stream]; };
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
      services.waits.clear();
      if (below(3) == 0) services.timeline.mark_end(below(streams), services);
      services.submit(stream, touched);
      std::set<std::size_t> before = stream_after[stream];
      for (const Emitted wait : services.waits) {
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

TEST_CASE("what a stream was ordered after is learnt once, and what it is ordered after since then is learnt, too") {
  Services services(3);
  Hazard array;
  const auto after_each = [&] {
    std::vector<Tick> producers;
    for (const StreamIndex producer : {0u, 1u}) {
      Hazard own;
      producers.push_back(services.submit(producer, {{&own, true}}));
      services.submit(2, {{&own, false}, {&array, true}});
    }
    return producers;
  };
  for (int round = 0; round < 3; ++round) {
    const auto producers = after_each();
    const Snapshot complete = services.timeline.snapshot(2);
    CHECK(services.timeline.unsettled(complete).size() == 2);
    CHECK(services.timeline.progress_of(complete).size() == 3);
    CHECK_FALSE(services.timeline.are_known_complete(producers));
    services.timeline.learn(complete);
    CHECK(services.timeline.are_known_complete(producers));
    services.submit(2, {{&array, true}});
    const Snapshot later = services.timeline.snapshot(2);
    CHECK(services.timeline.unsettled(later).empty());
    CHECK(services.timeline.progress_of(later).size() == 1);
    services.timeline.learn(later);
    CHECK(services.timeline.is_known_complete(later.last));
  }
}
