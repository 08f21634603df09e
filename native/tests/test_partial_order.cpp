// The order of a graph's nodes, against a model that keeps for every node all that come before it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "dataflow/partial_order.hpp"

using namespace aiocuda::dataflow;

// The sanitizers' allocators count; without one there is nothing to call.
extern "C" __attribute__((weak)) std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

using Nodes = std::vector<NodeIndex>;

// All that is allocated now: what is held, whatever machine it is held on.
std::size_t held_bytes() {
  return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
}

// The nodes that come before a node: one flag for each node that was added before it.
struct Model {
  std::vector<std::vector<bool>> before;

  bool precedes(NodeIndex earlier, NodeIndex later) const { return earlier < later && before[later][earlier]; }

  // Those of `needs`, each once, that come before no other of them; sorted.
  Nodes add(Nodes needs) {
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    std::vector<bool> mine(before.size(), false);
    Nodes direct;
    for (const NodeIndex need : needs) {
      mine[need] = true;
      for (NodeIndex node = 0; node < need; ++node) mine[node] = mine[node] || before[need][node];
      if (std::none_of(needs.begin(), needs.end(), [&](NodeIndex other) { return precedes(need, other); }))
        direct.push_back(need);
    }
    before.push_back(mine);
    return direct;
  }
};

// A graph, and what each of its nodes came to.
struct Services {
  PartialOrder order;
  std::vector<Tick> ticks;  // by node
  Nodes after;              // of the last node

  NodeIndex add(const Nodes& needs) {
    std::vector<Tick> needed;
    for (const NodeIndex need : needs) needed.push_back(ticks[need]);
    ticks.push_back(order.add(needed, after));
    return static_cast<NodeIndex>(ticks.size() - 1);
  }
  bool precedes(NodeIndex earlier, NodeIndex later) const { return order.precedes(ticks[earlier], ticks[later]); }
};

}  // namespace

TEST_CASE("a node comes directly behind what no other of its needs implies") {
  Services services;
  const NodeIndex root = services.add({});
  CHECK(services.after.empty());
  const NodeIndex left = services.add({root}), right = services.add({root});
  CHECK(services.after == Nodes{root});
  const NodeIndex join = services.add({root, right, left});
  std::sort(services.after.begin(), services.after.end());
  CHECK(services.after == Nodes{left, right});
  services.add({root, left, join, right});
  CHECK(services.after == Nodes{join});
  CHECK_FALSE(services.precedes(left, right));
  CHECK_FALSE(services.precedes(right, left));
}

TEST_CASE("what is needed twice is one edge, and what is no tick is none") {
  PartialOrder order;
  Nodes after{7};
  const Tick root = order.add({Tick{}, Tick{}}, after);
  CHECK(after.empty());
  const Tick other = order.add({}, after);
  const Tick join = order.add({root, Tick{}, other, root, Tick{other.stream, 0}, other}, after);
  std::sort(after.begin(), after.end());
  CHECK(after == Nodes{0, 1});
  CHECK(order.node_at(join) == 2);
  CHECK(order.precedes(Tick{}, root));
  CHECK(order.precedes(Tick{join.stream, 0}, other));
}

TEST_CASE("an edge that only other chains imply is left out") {
  Services services;
  const NodeIndex first = services.add({}), second = services.add({});
  const NodeIndex middle = services.add({first, second});
  const NodeIndex aside = services.add({middle}), ahead = services.add({middle});
  services.add({second, aside, ahead, first});
  std::sort(services.after.begin(), services.after.end());
  CHECK(services.after == Nodes{aside, ahead});
}

// Of each node's needs, some are new, some lately added, some anywhere, and some are there twice or are no ticks; so
// there are long chains, wide forks and joins, and roots that begin late.
TEST_CASE(
    "random graphs: the edges are the transitive reduction of the needs, and nodes come before those they reach") {
  std::size_t edges = 0, implied = 0, unordered = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t size = 1 + below(70), most_needs = 1 + below(seed % 3 == 0 ? 12 : 4), reach = 1 + below(20);
    const bool is_with_roots = seed % 4 == 3;  // many nodes need nothing, as fills do
    Services services;
    Model model;
    for (std::size_t node = 0; node < size; ++node) {
      Nodes needs;
      std::vector<Tick> needed;
      for (std::size_t i = node && !(is_with_roots && below(2)) ? below(most_needs + 1) : 0; i > 0; --i) {
        const std::size_t back = below(4) ? below(std::min(reach, node)) : below(node);
        needs.push_back(static_cast<NodeIndex>(node - 1 - back));
        if (below(6) == 0) needs.push_back(needs[below(needs.size())]);
      }
      for (const NodeIndex need : needs) {
        if (below(8) == 0) needed.push_back({static_cast<StreamIndex>(below(size)), 0});
        needed.push_back(services.ticks[need]);
      }
      services.ticks.push_back(services.order.add(needed, services.after));
      edges += services.after.size();
      implied += needs.size() - services.after.size();
      std::sort(services.after.begin(), services.after.end());
      REQUIRE(services.after == model.add(needs));
    }
    REQUIRE(services.order.size() == size);
    for (NodeIndex later = 0; later < size; ++later) {
      REQUIRE(services.order.node_at(services.ticks[later]) == later);
      for (NodeIndex earlier = 0; earlier < size; ++earlier) {
        REQUIRE(services.precedes(earlier, later) == model.precedes(earlier, later));
        unordered += earlier < later && !services.precedes(earlier, later);
      }
    }
  }
  CHECK(edges > 10000);
  CHECK(implied > 10000);
  CHECK(unordered > 10000);
}

// 16 bytes for each chain, 160,000 in all, would be 1.6 GB if each node behind the join held them again.
TEST_CASE("10,000 chains may be joined, and 10,000 nodes behind the join share what it knows") {
  constexpr NodeIndex wide = 10000;
  Services services;
  const std::size_t held_before = held_bytes();
  Nodes roots;
  for (NodeIndex i = 0; i < wide; ++i) roots.push_back(services.add({}));
  const NodeIndex join = services.add(roots);
  REQUIRE(services.after == roots);
  NodeIndex last = join;
  for (NodeIndex i = 0; i < wide; ++i) {
    const NodeIndex next = services.add({last});
    REQUIRE(services.after == Nodes{last});
    last = next;
  }
  CHECK(held_bytes() - held_before < 8'000'000);
  for (const NodeIndex root : roots) REQUIRE((services.precedes(root, last) && !services.precedes(last, root)));
  services.add({0, join, last, wide / 2});
  CHECK(services.after == Nodes{last});
}

// Each node has a clock with an entry for the other chain alone.
TEST_CASE("two chains that wait for one another again and again know of two chains, however long they are") {
  constexpr NodeIndex rungs = 10000;
  Services services;
  const std::size_t held_before = held_bytes();
  NodeIndex left = services.add({}), right = services.add({});
  for (NodeIndex i = 0; i < rungs; ++i) {
    const NodeIndex left_before = left;
    left = services.add({left, right});
    REQUIRE(services.after.size() == 2);
    right = services.add({right, left_before});
    REQUIRE(services.after.size() == 2);
  }
  CHECK(held_bytes() - held_before < 8'000'000);
  CHECK_FALSE(services.precedes(left, right));
  CHECK_FALSE(services.precedes(right, left));
}

// Each join comes after both chains; so both can go on from there. It took 4.8 GB where each diamond began a chain
// anew.
TEST_CASE("diamonds one behind another take two chains, however many they are") {
  constexpr NodeIndex diamonds = 3000;
  Services services;
  const std::size_t held_before = held_bytes();
  NodeIndex last = services.add({});
  for (NodeIndex i = 0; i < diamonds; ++i) {
    const NodeIndex left = services.add({last}), right = services.add({last});
    last = services.add({left, right});
  }
  CHECK(held_bytes() - held_before < 8'000'000);
  for (const Tick tick : services.ticks) REQUIRE(tick.stream < 2);
}

TEST_CASE("nodes behind a wide join share what it knows") {
  constexpr NodeIndex wide = 3000;
  Services services;
  const std::size_t held_before = held_bytes();
  Nodes roots;
  for (NodeIndex i = 0; i < wide; ++i) roots.push_back(services.add({}));
  const NodeIndex join = services.add(roots);
  for (NodeIndex i = 0; i < wide; ++i) services.add({join});
  CHECK(held_bytes() - held_before < 8'000'000);
}

// A kernel that goes on with the last one's result and reads a fresh array: a fill that comes after nothing. A clock
// with an entry for each fill would be 40 GB in all.
TEST_CASE("a chain of 100,000 nodes that each need a fresh root holds no more for each node, however long it is") {
  constexpr NodeIndex steps = 100000;
  constexpr std::size_t most_bytes = 300;
  for (const NodeIndex readers : {1u, 2u}) {
    Services services;
    const std::size_t held_before = held_bytes();
    Nodes last;
    for (NodeIndex i = 0; i < readers; ++i) last.push_back(services.add({}));
    Nodes roots;
    for (NodeIndex i = 0; i < steps; ++i) {
      const NodeIndex root = services.add({});
      if (i % 100 == 0) roots.push_back(root);
      for (NodeIndex& each : last) {
        each = services.add({root, each});
        REQUIRE(services.after.size() == 2);
      }
      if (i % 1000 == 999) REQUIRE(held_bytes() - held_before < std::size_t{i + 1} * (readers + 1) * most_bytes);
    }
    for (std::size_t i = 0; i < roots.size(); ++i) {
      REQUIRE((services.precedes(roots[i], last.back()) && !services.precedes(last.back(), roots[i])));
      REQUIRE((i == 0 || !services.precedes(roots[i - 1], roots[i])));
      REQUIRE(services.precedes(roots[i], roots[i] + 1));                   // its first reader
      REQUIRE((i == 0 || !services.precedes(roots[i], roots[i - 1] + 1)));  // an earlier one's
    }
    services.add({roots.front(), roots.back(), last.front()});
    CHECK(services.after == Nodes{last.front()});
  }
}

// Sums of two, and of these two, and so on: from leaf to root there is a join at each step.
TEST_CASE("a tree of 65,536 leaves: leaves come before its root, and no leaf before another's parent") {
  constexpr NodeIndex leaves = 65536;
  Services services;
  Nodes row;
  for (NodeIndex i = 0; i < leaves; ++i) row.push_back(services.add({}));
  const Nodes parents = [&] {
    Nodes first;
    while (row.size() > 1) {
      Nodes next;
      for (std::size_t i = 0; i < row.size(); i += 2) next.push_back(services.add({row[i], row[i + 1]}));
      if (first.empty()) first = next;
      row = next;
    }
    return first;
  }();
  for (NodeIndex leaf = 0; leaf < leaves; ++leaf) {
    REQUIRE(services.precedes(leaf, row.front()));
    REQUIRE(services.precedes(leaf, parents[leaf / 2]));
    REQUIRE_FALSE(services.precedes(leaf, parents[(leaf / 2 + 1) % parents.size()]));
  }
}
