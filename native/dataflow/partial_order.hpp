// Which of a graph's nodes come before which. Knows neither Python nor CUDA.
//
// Always true: the nodes lie on chains, each of which a node continues only where it comes after the chain's last; so
// a node is named by its place on a chain, a tick, and what comes before it is told by how far it is behind each
// chain (vector clocks; the chains are the processes: C. J. Fidge, "Timestamps in Message-Passing Systems", 1988).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "timeline.hpp"

namespace aiocuda::dataflow {

using NodeIndex = std::uint32_t;

class PartialOrder {
 public:
  // Adds a node behind others. `after` gets those of them that no other of them implies.
  Tick add(const std::vector<Tick>& needs, std::vector<NodeIndex>& after) {
    gather(needs);
    after.clear();
    direct_.clear();
    for (const Tick tick : latest_)
      if (behind(implied_, tick.stream) < tick.count) direct_.push_back(tick);
    for (const Tick tick : direct_) after.push_back(node_at(tick));
    std::shared_ptr<const Clock> behind_all = behind_of(direct_);
    const StreamIndex chain = chain_of(*behind_all);
    if (chain == chains_.size()) chains_.emplace_back();
    const auto node = static_cast<NodeIndex>(nodes_.size());
    nodes_.push_back({{chain, chains_[chain].size() + 1}, std::move(behind_all), nullptr});
    chains_[chain].push_back(node);
    return nodes_.back().at;
  }

  bool precedes(Tick earlier, Tick later) const {
    if (earlier.stream == later.stream) return earlier.count < later.count;
    return behind(*nodes_[node_at(later)].others, earlier.stream) >= earlier.count;
  }

  NodeIndex node_at(Tick tick) const { return chains_[tick.stream][tick.count - 1]; }
  std::size_t size() const { return nodes_.size(); }

 private:
  // How far behind each chain, sorted by chain; what is not there is 0.
  using Clock = std::vector<std::pair<StreamIndex, std::uint64_t>>;

  static std::uint64_t behind(const Clock& clock, StreamIndex chain) {
    const auto found = std::lower_bound(clock.begin(), clock.end(), std::make_pair(chain, std::uint64_t{0}));
    return found != clock.end() && found->first == chain ? found->second : 0;
  }

  // The latest of each chain, in the order in which the chains first stand in `needs`; and what they imply.
  void gather(const std::vector<Tick>& needs) {
    latest_.clear();
    implied_.clear();
    for (const Tick tick : needs) {
      if (tick.count == 0) continue;
      const auto same =
          std::find_if(latest_.begin(), latest_.end(), [&](Tick other) { return other.stream == tick.stream; });
      if (same == latest_.end()) {
        latest_.push_back(tick);
      } else {
        same->count = std::max(same->count, tick.count);
      }
    }
    if (latest_.size() < 2) return;
    for (const Tick tick : latest_) {
      const Clock& others = *nodes_[node_at(tick)].others;
      implied_.insert(implied_.end(), others.begin(), others.end());
    }
    sort_out(implied_);
  }

  // Sorted by chain, the farthest of each.
  static void sort_out(Clock& clock) {
    std::sort(clock.begin(), clock.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    clock.erase(
        std::unique(clock.begin(), clock.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        clock.end());
  }

  // A chain whose last the node comes after: that of its first need that is a last, else any; else a new one.
  StreamIndex chain_of(const Clock& clock) const {
    auto is_last = [&](StreamIndex chain, std::uint64_t count) { return count == chains_[chain].size(); };
    for (const Tick tick : direct_)
      if (is_last(tick.stream, tick.count)) return tick.stream;
    for (const auto& [chain, count] : clock)
      if (is_last(chain, count)) return chain;
    return static_cast<StreamIndex>(chains_.size());
  }

  // How far a node behind these is behind each chain. What is told of its own chain may be too little: nobody asks.
  std::shared_ptr<const Clock> behind_of(const std::vector<Tick>& direct) {
    if (direct.empty()) return none_;
    if (direct.size() == 1) return with_itself(nodes_[node_at(direct.front())]);
    Clock clock;
    for (const Tick tick : direct) {
      const Clock& others = *nodes_[node_at(tick)].others;
      clock.insert(clock.end(), others.begin(), others.end());
      clock.emplace_back(tick.stream, tick.count);
    }
    sort_out(clock);
    return std::make_shared<const Clock>(std::move(clock));
  }

  struct Node {
    Tick at;
    std::shared_ptr<const Clock> others;     // often the same as that of the node before it
    std::shared_ptr<const Clock> including;  // itself: for all that come behind it alone, on other chains
  };

  std::shared_ptr<const Clock> with_itself(Node& node) {
    // The next on its own chain needs no other clock.
    if (node.at.count == chains_[node.at.stream].size()) return node.others;
    if (!node.including) {
      Clock clock = *node.others;
      clock.emplace_back(node.at.stream, node.at.count);
      sort_out(clock);
      node.including = std::make_shared<const Clock>(std::move(clock));
    }
    return node.including;
  }

  std::vector<Node> nodes_;
  std::vector<std::vector<NodeIndex>> chains_;
  const std::shared_ptr<const Clock> none_ = std::make_shared<const Clock>();
  std::vector<Tick> latest_, direct_;  // of the node that is added
  Clock implied_;
};

}  // namespace aiocuda::dataflow
