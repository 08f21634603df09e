// A policy that a Python function decides.
#pragma once
#include <algorithm>
#include <vector>

#include "operation.hpp"
#include "timeline.hpp"

namespace aiocuda::dataflow {

class AskedPolicy final : public Policy {
 public:
  AskedPolicy(nb::object function, std::uint32_t stream_count, int stream_priority)
      : Policy(stream_count, stream_priority), function_(std::move(function)) {}

  bool asks() const override { return true; }
  StreamIndex choose(const Timeline&, const std::vector<Tick>&, PolicyStreams& policy_streams) const override {
    return policy_streams.take_turn();
  }

  // `function(policy, op, device, producers' streams, candidates) -> stream`, streams by their ids.
  template <class IdOf>
  StreamId ask(Op& op, std::int32_t device, const std::vector<Tick>& needs, const PolicyStreams& policy_streams,
               const Timeline& timeline, IdOf&& id_of) const {
    std::vector<StreamIndex> producers;
    for (const Tick tick : needs)
      if (!timeline.is_known_complete(tick) &&
          std::find(producers.begin(), producers.end(), tick.stream) == producers.end())
        producers.push_back(tick.stream);
    auto ids = [&](const std::vector<StreamIndex>& of) {
      nb::list list;
      for (const StreamIndex stream : of) list.append(id_of(stream));
      return list;
    };
    const nb::object function = function_;
    return nb::cast<StreamId>(
        function(nb::find(*this), nb::find(op), device, ids(producers), ids(policy_streams.streams)));
  }

 private:
  nb::object function_;
};

}  // namespace aiocuda::dataflow
