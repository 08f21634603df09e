// The choices of the policies, from what they are shown.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "dataflow/policies.hpp"

using namespace aiocuda::dataflow;

namespace {

struct Streams {
  Timeline timeline;
  PolicyStreams policy_streams;
  explicit Streams(StreamIndex count) {
    for (StreamIndex i = 0; i < count; ++i) policy_streams.streams.push_back(timeline.add_stream());
  }
};

}  // namespace

TEST_CASE("dataflow goes on where the producer ended") {
  Streams at(3);
  const Dataflow policy(3, 0);
  const Tick first = at.timeline.advance(1);
  CHECK(policy.choose(at.timeline, {first}, at.policy_streams) == 1);
  const Tick other = at.timeline.advance(2);
  CHECK(policy.choose(at.timeline, {other, first}, at.policy_streams) == 2);  // the first argument decides
  at.timeline.advance(1);                                                     // something came after it there
  CHECK(policy.choose(at.timeline, {first, other}, at.policy_streams) == 2);
  CHECK(policy.choose(at.timeline, {first}, at.policy_streams) == 0);  // what is idle
}

TEST_CASE("dataflow takes idle streams, then turns") {
  Streams at(3);
  const Dataflow policy(3, 0);
  for (StreamIndex expected : {0u, 1u, 2u}) {
    const StreamIndex chosen = policy.choose(at.timeline, {}, at.policy_streams);
    CHECK(chosen == expected);
    at.timeline.advance(chosen);
  }
  std::set<StreamIndex> turns;
  for (int i = 0; i < 3; ++i) turns.insert(policy.choose(at.timeline, {}, at.policy_streams));
  CHECK(turns.size() == 3);
  at.timeline.learn_complete({1, 1});
  CHECK(policy.choose(at.timeline, {}, at.policy_streams) == 1);
}

TEST_CASE("dataflow stays on streams of its own") {
  Streams at(2);
  const StreamIndex foreign = at.timeline.add_stream();
  const Dataflow policy(2, 0);
  CHECK(policy.choose(at.timeline, {at.timeline.advance(foreign)}, at.policy_streams) == 0);
}

TEST_CASE("round robin takes turns, whatever is idle") {
  Streams at(3);
  const RoundRobin policy(3, 0);
  for (StreamIndex expected : {0u, 1u, 2u, 0u}) CHECK(policy.choose(at.timeline, {}, at.policy_streams) == expected);
}

TEST_CASE("the least loaded has the fewest that have not passed") {
  Streams at(3);
  const LeastLoaded policy(3, 0);
  CHECK(policy.looks_at_progress());
  for (int i = 0; i < 3; ++i) at.timeline.advance(0);
  at.timeline.advance(1);
  at.timeline.advance(2);
  CHECK(policy.choose(at.timeline, {}, at.policy_streams) == 1);
  at.timeline.learn_complete({0, 3});
  CHECK(policy.choose(at.timeline, {}, at.policy_streams) == 0);
}

TEST_CASE("one stream is one stream") {
  Streams at(1);
  const SingleStream policy;
  CHECK(policy.uses_default_stream(0));
  CHECK_FALSE(policy.uses_default_stream(-1));
  for (int i = 0; i < 3; ++i) CHECK(policy.choose(at.timeline, {}, at.policy_streams) == 0);
}
