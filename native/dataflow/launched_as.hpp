// How launches' threads= became blocks, for the message of a fault: the launches that an operation waited for.
//
// Always true: a note holds no array and no kernel, so it keeps none alive. CUDA does not say which work caused a
// fault, so an operation that waited for a launch names that launch beside itself.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "graph_plan.hpp"

namespace aiocuda::dataflow {

struct LaunchedAs {
  LaunchShape shape;
  std::string kernel;
  Maker built;  // where the launch was built

  bool operator==(const LaunchedAs& other) const {
    return built.object() == other.built.object() && built.number() == other.built.number() &&
           shape.threads.of == other.shape.threads.of && kernel == other.kernel;
  }
};

struct Launches {
  static constexpr std::size_t most = 4;  // that one message names
  std::vector<std::shared_ptr<const LaunchedAs>> known;
  std::size_t others = 0;

  // Launches that one line makes again and again are told once.
  void add(const std::shared_ptr<const LaunchedAs>& each) {
    if (std::any_of(known.begin(), known.end(), [&](const auto& other) { return *other == *each; })) return;
    if (known.size() < most)
      known.push_back(each);
    else
      ++others;
  }
  void add(const Launches& more) {
    for (const auto& each : more.known) add(each);
    others += more.others;
  }
};

// Those of a graph's nodes; null where none has `threads=`.
std::shared_ptr<const Launches> launches_of(const GraphPlan& plan);

// The text about an operation's `threads=`, or about those of the launches that it waited for; empty if there are none.
std::string describe_launches(Op& op);

}  // namespace aiocuda::dataflow
