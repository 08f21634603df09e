// The plan of an executable: the nodes of a graph, and of the graphs in it, as steps in an order that agrees with all
// edges. Everything that can be done once is done here, so that a replay is a walk along a vector. Always: a layout
// never changes, and neither does a plan that a launch holds; an executable that is updated has another plan from then
// on.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/conditional.hpp"
#include "graph/graph.hpp"
#include "graph/graph_memory.hpp"

namespace aiocuda::emulator::graph {

using Index = std::uint32_t;

// The steps of the graph itself, or of the body of a conditional node.
struct SequenceLayout {
  // For each step: which steps of the same sequence it comes directly after and before, which node it is of, and
  // the line of steps, each after the last, that it belongs to.
  std::vector<std::vector<Index>> after, before;
  std::vector<Index> node;
  std::vector<Index> line;
  Index lines = 0;
};

// A node as the executable remembers it, whatever becomes of the graph.
struct NodeLayout {
  std::uint64_t id;
  std::string place;  // in words: "node 3 of graph 7"
  CUgraphNodeType type;
  Index sequence = 0, first_step = 0, steps = 0;  // its own work; none for child graphs
  std::vector<Index> dependencies;                // nodes, in the order of its edges
  bool is_exit = false;
  std::vector<Index> graphs;  // the graphs in it, by their place in Layout::graphs
};

struct Layout {
  std::vector<SequenceLayout> sequences;  // the first is the whole graph's, the others are bodies
  std::vector<NodeLayout> nodes;
  // The nodes of each graph, in the order in which they were added; the first is the whole.
  std::vector<std::vector<Index>> graphs;
  std::unordered_map<std::uint64_t, Index> node_of_id;
};

// For the checker of races: a lane for each line of steps. Two nodes are then ordered where a path of edges leads from
// one to the other, and only there.
struct Branches {
  std::vector<std::vector<std::unique_ptr<checking::Checker::Lane>>> lanes;  // by sequence and line
};

struct Step {
  enum class Kind : std::uint8_t { nothing, work, record_event, wait_event, conditional };
  Kind kind = Kind::nothing;
  bool is_enabled = true;
  bool waits = false;          // for what others do
  Index number = 0;            // of a record, or a wait, among all of the plan; of the first body, for a conditional
  Context* context = nullptr;  // of the node, which its parameters hold
  std::shared_ptr<Work> work{};
};

struct Plan {
  std::shared_ptr<const Layout> layout;
  std::vector<std::vector<Step>> sequences;
  std::vector<ParametersPointer> parameters;  // by node
  std::vector<std::shared_ptr<Context>> contexts;
  std::vector<std::shared_ptr<GraphAllocation>> allocates, frees;
  std::vector<Index> events, conditionals;  // nodes of these types, in the order of their steps
  std::shared_ptr<const UserObjectReferences> references;
  std::shared_ptr<const Branches> branches;  // null where nothing is checked
  bool uses_node_priority = false;
  // A launch has given its stream's priority to the works.
  std::shared_ptr<std::atomic<bool>> had_priority = std::make_shared<std::atomic<bool>>(false);

  bool is_enabled(Index node) const;
  void set_enabled(Index node, bool enabled);
  bool copies_within_host() const;
  // Puts others, of the same type, in the place of a node's parameters.
  void set_parameters(Index node, ParametersPointer parameters);
};

struct PlanFailure {
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const Node* node = nullptr;  // an offending one
};

// INVALID_VALUE where edges form a circle, memory that a node needs has been freed, a conditional handle has no node,
// or a body has nodes that none may have.
CUresult make_plan(const Graph& graph, bool uses_node_priority, Plan& plan, PlanFailure& failure);

// The things that a graph, and the graphs in it, keep alive.
std::shared_ptr<const UserObjectReferences> references_of(const Graph& graph);

}  // namespace aiocuda::emulator::graph
