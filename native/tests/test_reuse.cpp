// Memory that arrays share, against a model that knows of every two nodes whether one reaches the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "dataflow/reuse.hpp"

using namespace aiocuda::dataflow;

namespace {

using Nodes = std::vector<NodeIndex>;

// A graph, and arrays of its own that its nodes use.
struct Plan {
  struct Array {
    std::uint64_t size_bytes;
    Nodes users;
  };
  PartialOrder order;
  std::vector<Tick> ticks;                 // by node
  std::vector<std::vector<bool>> reached;  // by node: from which of those before it
  std::vector<Array> arrays;

  NodeIndex add(const Nodes& needs) {
    std::vector<Tick> needed;
    std::vector<bool> from(ticks.size(), false);
    for (const NodeIndex need : needs) {
      needed.push_back(ticks[need]);
      from[need] = true;
      for (NodeIndex node = 0; node < need; ++node) from[node] = from[node] || reached[need][node];
    }
    Nodes after;
    ticks.push_back(order.add(needed, after));
    reached.push_back(from);
    return static_cast<NodeIndex>(ticks.size() - 1);
  }

  SharedLayout layout(std::uint64_t alignment = 1) const {
    std::vector<Temporary> temporaries;
    for (const Array& array : arrays) {
      temporaries.push_back({array.size_bytes, {}});
      for (const NodeIndex user : array.users) temporaries.back().lifetime.add(ticks[user]);
    }
    return place_temporaries(temporaries, order, alignment);
  }

  bool precedes(const Array& earlier, const Array& later) const {
    return std::all_of(earlier.users.begin(), earlier.users.end(), [&](NodeIndex mine) {
      return std::all_of(later.users.begin(), later.users.end(),
                         [&](NodeIndex theirs) { return mine < theirs && reached[theirs][mine]; });
    });
  }
};

// A chain of nodes behind `before`, each of which makes an array of what the one before it has made.
void add_chain(Plan& plan, NodeIndex before, std::size_t length, std::uint64_t size_bytes) {
  for (std::size_t i = 0; i < length; ++i) {
    const NodeIndex node = plan.add({before});
    if (i > 0) plan.arrays.back().users.push_back(node);
    plan.arrays.push_back({size_bytes, {node}});
    before = node;
  }
}

}  // namespace

TEST_CASE("a chain of equal arrays takes the place of two") {
  for (const std::size_t length : {2u, 3u, 4u, 100u}) {
    Plan plan;
    add_chain(plan, plan.add({}), length, 512);
    CHECK(plan.layout(256).size_bytes == 2 * 512);
  }
}

TEST_CASE("arrays that are used one after another take the place of one, in whatever order they are given") {
  Plan plan;
  for (NodeIndex i = 0; i < 8; ++i) plan.add(i ? Nodes{i - 1} : Nodes{});
  for (const NodeIndex first : {2u, 6u, 0u, 4u}) plan.arrays.push_back({100, {first + 1, first}});
  CHECK(plan.layout().size_bytes == 100);
}

TEST_CASE("of a chain whose arrays grow, the largest two have room for all") {
  Plan plan;
  NodeIndex before = plan.add({});
  for (std::uint64_t i = 0; i < 20; ++i) {
    const NodeIndex node = plan.add({before});
    plan.arrays.push_back({100 + i, {before, node}});
    before = node;
  }
  CHECK(plan.layout().size_bytes == 119 + 118);
}

TEST_CASE("parallel chains take two places each") {
  for (const std::size_t chains : {2u, 3u, 10u}) {
    Plan plan;
    const NodeIndex fork = plan.add({});
    for (std::size_t i = 0; i < chains; ++i) add_chain(plan, fork, 20, 64);
    CHECK(plan.layout().size_bytes == chains * 2 * 64);
  }
}

TEST_CASE("a branch does not take the place of what another branch still uses, and what is behind both does") {
  Plan plan;
  const NodeIndex root = plan.add({}), left = plan.add({root}), right = plan.add({root});
  const NodeIndex join = plan.add({left, right}), last = plan.add({join});
  plan.arrays = {{100, {root, right}}, {100, {left}}, {100, {last}}};
  const SharedLayout layout = plan.layout();
  CHECK(layout.size_bytes == 200);
  CHECK(layout.offsets[0] != layout.offsets[1]);
}

TEST_CASE(
    "a node's arrays lie beside one another, also where it is the last to use the one and the first to use the other") {
  Plan plan;
  const NodeIndex first = plan.add({}), second = plan.add({first}), third = plan.add({second});
  plan.arrays = {{100, {first, second}}, {100, {second, third}}, {100, {second}}};
  CHECK(plan.layout().size_bytes == 300);
}

TEST_CASE("empty arrays, and those that nobody uses, take nothing") {
  Plan plan;
  const NodeIndex root = plan.add({});
  CHECK(plan.layout(256).offsets.empty());
  plan.arrays = {{0, {root}}, {1000, {}}};
  CHECK(plan.layout(256).size_bytes == 0);
  CHECK(plan.layout(256).offsets == std::vector<std::uint64_t>{0, 0});
  plan.arrays.insert(plan.arrays.begin() + 1, {10, {root}});
  CHECK(plan.layout(256).size_bytes == 256);
}

TEST_CASE("random graphs: arrays lie upon one another only where all uses of the one come before all of the other") {
  std::size_t shared = 0, saved = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    Plan plan;
    const std::size_t nodes = 1 + below(60), most_needs = 1 + below(3), reach = 1 + below(12);
    for (std::size_t node = 0; node < nodes; ++node) {
      Nodes needs;
      for (std::size_t i = node && below(8) ? 1 + below(most_needs) : 0; i > 0; --i)
        needs.push_back(static_cast<NodeIndex>(node - 1 - below(std::min(reach, node))));
      plan.add(needs);
    }
    // Most are used by nodes that are near to one another, in any order; some by nobody, some are empty.
    const std::size_t sizes = below(2) ? 3 : 2000;
    for (std::size_t i = below(40); i > 0; --i) {
      const std::size_t around = below(nodes), spread = 1 + below(below(4) ? 4 : nodes);
      Plan::Array array{below(sizes), {}};
      for (std::size_t users = below(5); users > 0; --users)
        array.users.push_back(static_cast<NodeIndex>(std::min(nodes - 1, around + below(spread))));
      plan.arrays.push_back(array);
    }
    const std::uint64_t alignment = std::uint64_t{1} << below(9);
    const SharedLayout layout = plan.layout(alignment);
    REQUIRE(layout.offsets.size() == plan.arrays.size());

    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < plan.arrays.size(); ++i) {
      const Plan::Array& array = plan.arrays[i];
      if (array.users.empty() || array.size_bytes == 0) {
        REQUIRE(layout.offsets[i] == 0);
        continue;
      }
      const std::uint64_t begin = layout.offsets[i], end = begin + array.size_bytes;
      sum += (array.size_bytes + alignment - 1) / alignment * alignment;
      REQUIRE(begin % alignment == 0);
      REQUIRE(end <= layout.size_bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const Plan::Array& other = plan.arrays[j];
        if (other.users.empty() || begin >= layout.offsets[j] + other.size_bytes || layout.offsets[j] >= end) continue;
        REQUIRE((plan.precedes(array, other) || plan.precedes(other, array)));
        ++shared;
      }
    }
    REQUIRE(layout.size_bytes <= sum);
    saved += layout.size_bytes < sum;
  }
  CHECK(shared > 3000);
  CHECK(saved > 300);
}
