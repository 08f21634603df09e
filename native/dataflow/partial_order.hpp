// Which of a graph's nodes come before which. Knows neither Python nor CUDA.
//
// The nodes lie on chains. A node continues a chain only where it comes after the chain's last node, so a node is named
// by its place on a chain, a tick. A vector clock tells what comes before a node: how far it is behind each chain (the
// chains are the processes: C. J. Fidge, "Timestamps in Message-Passing Systems", 1988).
//
// Most chains are short: a fill, and then the kernel that reads it, which lies on a longer chain. A clock with an entry
// for each of them would hold as many entries as there are nodes. So a chain that ends in a node of another chain notes
// that node, its *join*, and the join's clock has no entry for it. A node behind the join is behind the chain.
//
// Always true: a tick comes before a later node in two cases, and in no other. The node's clock reaches the tick on its
// chain; or the node is a join of the tick's chain, or comes after one. A chain joins only one that is at least as
// heavy: its weight is its nodes, and those of the chains that joined it. So the way from join to join is short.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tick.hpp"

namespace aiocuda::dataflow {

using NodeIndex = std::uint32_t;

class PartialOrder {
 public:
  // Adds a node behind others. `after` gets those of them that no other of them implies.
  Tick add(const std::vector<Tick>& needs, std::vector<NodeIndex>& after) {
    find_direct(needs);
    after.clear();
    for (const Tick tick : direct_) after.push_back(node_at(tick));
    const StreamIndex chain = chain_of();
    if (chain == chains_.size()) chains_.emplace_back();
    const Tick at{chain, chains_[chain].nodes.size() + 1};
    std::shared_ptr<const Clock> others = clock_of(at);
    chains_[chain].nodes.push_back(static_cast<NodeIndex>(nodes_.size()));
    ++chains_[chain].weight;
    nodes_.push_back({at, std::move(others), nullptr});
    return at;
  }

  bool precedes(Tick earlier, Tick later) const {
    if (earlier.stream == later.stream) return earlier.count < later.count;
    return earlier.count == 0 || reaches(Far{nodes_[node_at(later)]}, earlier);
  }

  // Does it come after nothing?
  bool is_root(Tick tick) const { return tick.count == 1 && nodes_[node_at(tick)].others->empty(); }

  NodeIndex node_at(Tick tick) const { return chains_[tick.stream].nodes[tick.count - 1]; }
  std::size_t size() const { return nodes_.size(); }

 private:
  // How far behind each chain, sorted by chain; what is not there is 0.
  using Clock = std::vector<std::pair<StreamIndex, std::uint64_t>>;

  // The chain up to `last` is before `at`, a node of another chain.
  struct Join {
    std::uint64_t last;
    Tick at;
  };

  struct Chain {
    std::vector<NodeIndex> nodes;
    std::vector<Join> joins;  // by `last`; of the same one, at most `most_joins`
    // The chains that a node of this one has joined, and its count. A node that comes after it may continue them.
    std::vector<std::pair<StreamIndex, std::uint64_t>> idle;
    std::size_t idle_from = 0;  // those before have been continued
    std::uint64_t weight = 0;
    // A node continued the chain, and comes after none of the joins that the chain had then. From there on the chain
    // has no joins, so clocks have entries for it.
    bool is_explicit = false;
  };
  static constexpr std::ptrdiff_t most_joins = 2;

  struct Node {
    Tick at;
    std::shared_ptr<const Clock> others;     // often the same as that of the node before it
    std::shared_ptr<const Clock> including;  // itself: for all that come behind it alone, on other chains
  };

  static std::uint64_t entry(const Clock& clock, StreamIndex chain) {
    const auto found = std::lower_bound(clock.begin(), clock.end(), std::make_pair(chain, std::uint64_t{0}));
    return found != clock.end() && found->first == chain ? found->second : 0;
  }

  // How far a node is behind each chain, its own as well, as far as its clock says.
  struct Far {
    const Node& node;
    std::uint64_t operator()(StreamIndex chain) const {
      return chain == node.at.stream ? node.at.count : entry(*node.others, chain);
    }
  };

  // Sorted by chain, the farthest of each.
  static void sort_out(Clock& clock) {
    std::sort(clock.begin(), clock.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    clock.erase(
        std::unique(clock.begin(), clock.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        clock.end());
  }

  // Does a tick come before what `far(chain)` tells the clock of, or is it a part of that?
  template <class Far>
  bool reaches(const Far& far, Tick tick) const {
    return far(tick.stream) >= tick.count || reaches_join(far, tick);
  }
  template <class Far>
  bool reaches_join(const Far& far, Tick tick) const {
    const std::vector<Join>& joins = chains_[tick.stream].joins;
    const auto first = std::lower_bound(joins.begin(), joins.end(), tick.count,
                                        [](const Join& each, std::uint64_t count) { return each.last < count; });
    for (auto join = first; join != joins.end() && join->last == first->last; ++join)
      if (reaches(far, join->at)) return true;
    return false;
  }

  bool is_last(Tick tick) const { return tick.count == chains_[tick.stream].nodes.size(); }

  // The latest need of each chain, in the order in which the chains first stand in `needs`, less those that others
  // imply. `known_`: what comes before the needs, and the needs.
  void find_direct(const std::vector<Tick>& needs) {
    direct_.clear();
    for (const Tick tick : needs)
      if (tick.count) direct_.push_back(tick);
    if (direct_.size() > 1) keep_latest();
    known_.clear();
    if (direct_.size() < 2) return;
    for (const Tick tick : direct_) {
      const Clock& others = *nodes_[node_at(tick)].others;
      known_.insert(known_.end(), others.begin(), others.end());
    }
    sort_out(known_);
    implied_.clear();
    for (const Tick tick : direct_) implied_.push_back(entry(known_, tick.stream) >= tick.count);
    for (const Tick tick : direct_) known_.emplace_back(tick.stream, tick.count);
    sort_out(known_);
    const auto far = [this](StreamIndex chain) { return entry(known_, chain); };
    std::size_t at = 0;
    std::erase_if(direct_, [&](Tick tick) { return implied_[at++] || reaches_join(far, tick); });
  }
  void keep_latest() {
    placed_.clear();
    for (const Tick tick : direct_) placed_.push_back({tick, placed_.size()});
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return a.tick.stream != b.tick.stream ? a.tick.stream < b.tick.stream : a.place < b.place;
    });
    std::size_t kept = 0;
    for (const Placed& each : placed_) {
      if (kept && placed_[kept - 1].tick.stream == each.tick.stream) {
        placed_[kept - 1].tick.count = std::max(placed_[kept - 1].tick.count, each.tick.count);
      } else {
        placed_[kept++] = each;
      }
    }
    placed_.resize(kept);
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.place < b.place; });
    direct_.clear();
    for (const Placed& each : placed_) direct_.push_back(each.tick);
  }

  // The chain that the new node continues: it comes after the chain's last node. If needs are the last of their chains,
  // it is the heaviest of these chains. Otherwise it is one that is idle or that the needs know, or else a new one.
  StreamIndex chain_of() {
    const auto fresh = static_cast<StreamIndex>(chains_.size());
    StreamIndex heaviest = fresh;
    for (const Tick tick : direct_)
      if (is_last(tick) && (heaviest == fresh || chains_[tick.stream].weight > chains_[heaviest].weight))
        heaviest = tick.stream;
    if (heaviest != fresh) return heaviest;
    for (const Tick tick : direct_)
      if (const StreamIndex chain = idle_at(tick); chain != none) return chain;
    for (const Tick tick : direct_) {
      for (const auto& [chain, count] : *nodes_[node_at(tick)].others) {
        if (is_last({chain, count})) return chain;
        if (const StreamIndex idle = idle_at({chain, count}); idle != none) return idle;
      }
    }
    return fresh;
  }
  // The first chain that was joined there, or before there on the same chain, and that nobody has continued.
  StreamIndex idle_at(Tick tick) {
    Chain& chain = chains_[tick.stream];
    while (chain.idle_from < chain.idle.size()) {
      const auto& [idle, at] = chain.idle[chain.idle_from];
      if (at > tick.count) break;
      const std::vector<Join>& joins = chains_[idle].joins;
      const bool is_idle =
          std::any_of(joins.end() - std::min(most_joins, std::ssize(joins)), joins.end(), [&](const Join& each) {
            return is_last({idle, each.last}) && each.at.stream == tick.stream && each.at.count == at;
          });
      if (is_idle) return idle;
      ++chain.idle_from;  // somebody has
    }
    return none;
  }

  // The new node's clock for other chains. Those that end in it are joined by it.
  std::shared_ptr<const Clock> clock_of(Tick at) {
    note_continuation(at);
    if (direct_.empty()) return none_;
    if (direct_.size() == 1 && (direct_.front().stream != at.stream))
      return with_itself(nodes_[node_at(direct_.front())]);
    if (direct_.size() == 1) return nodes_[node_at(direct_.front())].others;
    Clock clock;
    for (const Tick tick : direct_) {
      const Clock& others = *nodes_[node_at(tick)].others;
      clock.insert(clock.end(), others.begin(), others.end());
      if (tick.stream != at.stream && !join(tick, at)) clock.emplace_back(tick.stream, tick.count);
    }
    sort_out(clock);
    return std::make_shared<const Clock>(std::move(clock));
  }
  // The new node continues a chain. Is it behind a join of what the chain ended in?
  void note_continuation(Tick at) {
    Chain& chain = chains_[at.stream];
    const Tick last{at.stream, at.count - 1};
    if (chain.is_explicit || chain.joins.empty() || chain.joins.back().last != last.count) return;
    const bool is_behind = direct_.size() == 1
                               ? reaches_join(Far{nodes_[node_at(direct_.front())]}, last)
                               : reaches_join([this](StreamIndex other) { return entry(known_, other); }, last);
    chain.is_explicit = !is_behind;
  }
  bool join(Tick tick, Tick at) {
    Chain &chain = chains_[tick.stream], &other = chains_[at.stream];
    if (!is_last(tick) || chain.is_explicit || other.weight < chain.weight) return false;
    const auto of_last = std::count_if(chain.joins.rbegin(), chain.joins.rend(),
                                       [&](const Join& each) { return each.last == tick.count; });
    if (of_last == most_joins) return false;
    chain.joins.push_back({tick.count, at});
    other.idle.emplace_back(tick.stream, at.count);
    other.weight += chain.weight;
    return true;
  }
  std::shared_ptr<const Clock> with_itself(Node& node) {
    if (!node.including) {
      Clock clock = *node.others;
      clock.emplace_back(node.at.stream, node.at.count);
      sort_out(clock);
      node.including = std::make_shared<const Clock>(std::move(clock));
    }
    return node.including;
  }

  struct Placed {
    Tick tick;
    std::size_t place;
  };
  static constexpr StreamIndex none = ~StreamIndex{0};

  std::vector<Node> nodes_;
  std::vector<Chain> chains_;
  const std::shared_ptr<const Clock> none_ = std::make_shared<const Clock>();
  // Of the node that is added.
  std::vector<Tick> direct_;
  std::vector<Placed> placed_;
  std::vector<bool> implied_;
  Clock known_;
};

}  // namespace aiocuda::dataflow
