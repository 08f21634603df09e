// The pairing; see update.hpp.
#include "graph/update.hpp"

#include <unordered_map>

namespace aiocuda::emulator::graph {
namespace {

class Pairer {
 public:
  Pairer(const Plan& plan, Pairs& pairs) : plan_(plan), pairs_(pairs) {}

  UpdateResult pair_graphs(Index of_plan, const Graph& graph) {
    const std::vector<Index>& known = plan_.layout->graphs[of_plan];
    if (known.size() != graph.nodes().size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
    std::vector<Index> known_exits;
    for (const Index each : known) {
      if (plan_.layout->nodes[each].is_exit) known_exits.push_back(each);
    }
    std::vector<const Node*> exits;
    for (const auto& node : graph.nodes()) {
      if (node->dependents().empty()) exits.push_back(node.get());
    }
    if (known_exits.size() != exits.size()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, exits.empty() ? nullptr : exits.back()};
    }
    Pairs found;
    for (std::size_t each = 0; each < exits.size(); ++each) {
      pair(known_exits[each], *exits[each]);
      found.emplace_back(known_exits[each], exits[each]);
    }
    for (std::size_t visited = 0; visited < found.size(); ++visited) {
      const auto [index, node] = found[visited];
      const std::vector<Index>& before = plan_.layout->nodes[index].dependencies;
      if (before.size() != node->dependencies().size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node};
      for (std::size_t each = 0; each < before.size(); ++each) {
        const Node* const from = node->dependencies()[each].node;
        const auto known_pair = of_graph_.find(from);
        const bool is_new = known_pair == of_graph_.end() && !is_paired(before[each]);
        if (is_new) {
          pair(before[each], *from);
          found.emplace_back(before[each], from);
        } else if (known_pair == of_graph_.end() || known_pair->second != before[each]) {
          return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node, from};
        }
      }
    }
    for (const auto& [index, node] : found) {
      if (const UpdateResult refusal = check_node(index, *node); !refusal.is_success()) return refusal;
    }
    pairs_.insert(pairs_.end(), found.begin(), found.end());
    // Nodes that lead to no exit are parts of a circle.
    return {found.size() == known.size() ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  }

 private:
  UpdateResult check_node(Index index, const Node& node) {
    const NodeParameters& parameters = *plan_.parameters[index];
    if (parameters.type() != node.type()) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &node};
    const auto result = parameters.check_update(*node.parameters());
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {result, &node};
    if (const auto* const kernel = dynamic_cast<const KernelParameters*>(&parameters)) {
      const int priority = node.parameters_as<KernelParameters>()->attributes().priority;
      if (plan_.uses_node_priority && priority != kernel->attributes().priority)
        return {CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, &node};
    }
    return check_inner(index, node);
  }

  UpdateResult check_inner(Index index, const Node& node) {
    const std::vector<Index>& known = plan_.layout->nodes[index].graphs;
    std::vector<std::shared_ptr<Graph>> inner;
    if (const auto* const child = node.parameters_as<ChildParameters>()) inner = {child->graph()};
    if (const auto* const conditional = node.parameters_as<ConditionalParameters>()) inner = conditional->bodies();
    for (std::size_t each = 0; each < known.size(); ++each) {
      if (const auto refusal = pair_graphs(known[each], *inner[each]); !refusal.is_success()) return refusal;
    }
    return {};
  }

  void pair(Index index, const Node& node) {
    of_graph_.emplace(&node, index);
    of_plan_.emplace(index, &node);
  }
  bool is_paired(Index index) const { return of_plan_.contains(index); }

  const Plan& plan_;
  Pairs& pairs_;
  std::unordered_map<const Node*, Index> of_graph_;
  std::unordered_map<Index, const Node*> of_plan_;
};

}  // namespace

UpdateResult pair_nodes(const Plan& plan, Index graph_of_plan, const Graph& graph, Pairs& pairs) {
  return Pairer(plan, pairs).pair_graphs(graph_of_plan, graph);
}

void replace_parameters(Plan& plan, const Pairs& pairs) {
  for (const auto& [index, node] : pairs) plan.set_parameters(index, node->parameters());
}

}  // namespace aiocuda::emulator::graph
