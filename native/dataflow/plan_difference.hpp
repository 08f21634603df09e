// Do two plans have the same shape, so that the one's graph can take the other's parameters?
#pragma once
#include <algorithm>
#include <optional>
#include <string>

#include "graph_plan.hpp"

namespace aiocuda::dataflow {

namespace detail {

inline std::string described(const GraphNode& node) {
  switch (node.kind()) {
    case NodeKind::kernel:
      return "a launch of " + node.name();
    case NodeKind::fill:
      return "a fill";
    case NodeKind::copy:
      return "a copy";
    case NodeKind::captured:
      return "a captured " + node.name();
    case NodeKind::conditional:
      return node.as<ConditionalNode>()->repeats ? "a loop" : "a branch";
    case NodeKind::join:
      break;
  }
  return "a join";
}

inline std::string described(const Several<NodeIndex, 2>& after) {
  if (after.empty()) return "after none";
  std::string text = "after ";
  for (std::size_t i = 0; i < after.size(); ++i) text += (i ? ", " : "") + std::to_string(after[i] + 1);
  return text;
}

}  // namespace detail

// In words, the first of what is not the same; none: only parameters are.
inline std::optional<std::string> first_difference(const GraphPlan& graph, const GraphPlan& given) {
  using detail::described;
  const std::size_t common = std::min(graph.nodes.size(), given.nodes.size());
  for (std::size_t i = 0; i < common; ++i) {
    const GraphNode &a = graph.nodes[i], &b = given.nodes[i];
    auto differ = [&](const std::string& in_graph, const std::string& in_given) {
      return "node " + std::to_string(i + 1) + " is " + in_graph + " in the graph, and " + in_given +
             " in what was given";
    };
    if (a.kind() != b.kind() || (a.kind() == NodeKind::kernel && a.name() != b.name()))
      return differ(described(a), described(b));
    const std::string what = described(a);
    if (a.inside != b.inside || a.body != b.body)
      return differ(what + (a.inside == no_node ? "" : " in a body of node " + std::to_string(a.inside + 1)),
                    b.inside == no_node ? "in no body" : "in a body of node " + std::to_string(b.inside + 1));
    if (const auto *const loop = a.as<ConditionalNode>(), *const other = b.as<ConditionalNode>();
        loop && (loop->repeats != other->repeats || loop->bodies != other->bodies))
      return differ(what + " of " + std::to_string(loop->bodies) + " bodies",
                    described(b) + " of " + std::to_string(other->bodies));
    if (a.device != b.device)
      return differ(what + " on device " + std::to_string(a.device), "on device " + std::to_string(b.device));
    if (!std::equal(a.after.begin(), a.after.end(), b.after.begin(), b.after.end()))
      return differ(what + " " + described(a.after), described(b.after));
    if (const auto *const kernel = a.as<KernelNode>(), *const other = b.as<KernelNode>(); kernel) {
      if (kernel->parameters != other->parameters)
        return differ(what + " with " + std::to_string(kernel->parameters) + " parameters",
                      "with " + std::to_string(other->parameters));
      const LaunchShape &shape = a.launch().shape, &of_other = b.launch().shape;
      const auto clusters = [](const LaunchShape& of) { return std::array{of.cluster.x, of.cluster.y, of.cluster.z}; };
      if (shape.cooperative != of_other.cooperative || clusters(shape) != clusters(of_other))
        return differ(what, "one with other clusters, or cooperative where it was not");
    }
    if (const auto *const captured = a.as<CapturedNode>(), *const other = b.as<CapturedNode>();
        captured && !captured->graph != !other->graph)
      return differ(what + (captured->graph ? " with work" : " without work"), other->graph ? "with work" : "without");
  }
  if (graph.nodes.size() != given.nodes.size()) {
    const bool is_longer = given.nodes.size() > common;
    return "the graph has " + std::to_string(graph.nodes.size()) + " nodes, and what was given " +
           std::to_string(given.nodes.size()) + ": the first more is " +
           described(is_longer ? given.nodes[common] : graph.nodes[common]);
  }
  const std::size_t inputs = std::min(graph.inputs.size(), given.inputs.size());
  for (std::size_t i = 0; i < inputs; ++i)
    if (graph.inputs[i].name != given.inputs[i].name)
      return "input " + std::to_string(i + 1) + " is " + graph.inputs[i].name + " in the graph, and " +
             given.inputs[i].name + " in what was given";
  if (graph.inputs.size() != given.inputs.size())
    return "the graph has " + std::to_string(graph.inputs.size()) + " inputs, and what was given " +
           std::to_string(given.inputs.size());
  return std::nullopt;
}

}  // namespace aiocuda::dataflow
