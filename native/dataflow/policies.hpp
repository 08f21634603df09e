// The policies that choose by themselves. They know neither Python nor CUDA.
#pragma once
#include <algorithm>
#include <vector>

#include "policy.hpp"
#include "timeline.hpp"

namespace aiocuda::dataflow {

// A consumer goes on where its producer ended, when nothing came after it there; all else takes an idle stream, or
// where none is known to be, the next in turn. A chain then needs no wait, and branches overlap.
class Dataflow final : public Policy {
 public:
  using Policy::Policy;
  StreamIndex choose(const Timeline& timeline, const std::vector<Tick>& needs,
                     PolicyStreams& policy_streams) const override {
    for (const Tick tick : needs)
      if (timeline.is_tail(tick) && policy_streams.contain(tick.stream)) return tick.stream;
    for (const StreamIndex stream : policy_streams.streams)
      if (timeline.backlog(stream) == 0) return stream;
    return policy_streams.take_turn();
  }
  bool uses_default_stream(int stream_priority) const override { return stream_priority == 0; }
  bool goes_on() const override { return true; }
};

class RoundRobin final : public Policy {
 public:
  using Policy::Policy;
  StreamIndex choose(const Timeline&, const std::vector<Tick>&, PolicyStreams& policy_streams) const override {
    return policy_streams.take_turn();
  }
};

class SingleStream final : public Policy {
 public:
  SingleStream() : Policy(1, 0) {}
  StreamIndex choose(const Timeline&, const std::vector<Tick>&, PolicyStreams& policy_streams) const override {
    return policy_streams.streams.front();
  }
  bool uses_default_stream(int stream_priority) const override { return stream_priority == 0; }
};

// The stream with the fewest submissions that have not passed; the first of several.
class LeastLoaded final : public Policy {
 public:
  using Policy::Policy;
  StreamIndex choose(const Timeline& timeline, const std::vector<Tick>&, PolicyStreams& policy_streams) const override {
    return *std::min_element(policy_streams.streams.begin(), policy_streams.streams.end(),
                             [&](StreamIndex a, StreamIndex b) { return timeline.backlog(a) < timeline.backlog(b); });
  }
  bool looks_at_progress() const override { return true; }
};

}  // namespace aiocuda::dataflow
