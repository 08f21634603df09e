// Which node of a graph stands for which node of a plan, and whether it may take its place. Nodes are paired as CUDA
// pairs them: those that nothing depends on in the order in which they were added, and what two paired nodes depend
// on in the order of their edges.
#pragma once
#include <utility>
#include <vector>

#include "graph/plan.hpp"

namespace aiocuda::emulator::graph {

// How an update with a graph went; the nodes are the graph's.
struct UpdateResult {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const Node* node = nullptr;
  const Node* from = nullptr;  // of an edge that has nothing to match it
  bool is_success() const noexcept { return result == CU_GRAPH_EXEC_UPDATE_SUCCESS; }
};

using Pairs = std::vector<std::pair<Index, const Node*>>;

// Pairs the nodes of a graph, and of those in it, with those of one of the plan's graphs (see Layout::graphs).
UpdateResult pair_nodes(const Plan& plan, Index graph_of_plan, const Graph& graph, Pairs& pairs);
// Puts the parameters of the graph's nodes in the place of the plan's.
void replace_parameters(Plan& plan, const Pairs& pairs);

}  // namespace aiocuda::emulator::graph
