// A graph: nodes in the order in which they were added, and edges between them. Always: an edge joins two different
// nodes of one graph, at most one leads from one node to another, and a handle names a live object or nothing.
// Graphs lock nothing themselves: whoever looks into one, or changes it, holds graphs_mutex().
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/node_parameters.hpp"
#include "graph/user_object.hpp"
#include "handle_table.hpp"

namespace aiocuda::emulator::graph {

class Graph;
class Node;

// The other end of an edge.
struct Edge {
  Node* node;
  CUgraphEdgeData data{};
};

// An edge between two nodes. Without data it is made with the default, and found whatever its data are.
struct Connection {
  Node* from;
  Node* to;
  std::optional<CUgraphEdgeData> data{};
};

class Node {
 public:
  Node(Graph& graph, unsigned number, ParametersPointer parameters);

  Graph& graph() const noexcept { return graph_; }
  std::uint64_t id() const noexcept { return id_; }              // unique in the process, never used again
  unsigned number() const noexcept { return number_; }           // in its graph, from 0
  std::uint64_t original() const noexcept { return original_; }  // the id of the node it is a clone of; 0: of none
  CUgraphNode handle() const noexcept { return HandleTable<Node, CUgraphNode>::handle_of(*this); }
  CUgraphNodeType type() const noexcept { return parameters_->type(); }
  const ParametersPointer& parameters() const noexcept { return parameters_; }
  // Null where the node is of another type.
  template <typename Parameters>
  const Parameters* parameters_as() const noexcept {
    return dynamic_cast<const Parameters*>(parameters_.get());
  }
  // In the order in which the edges were added.
  const std::vector<Edge>& dependencies() const noexcept { return dependencies_; }
  const std::vector<Edge>& dependents() const noexcept { return dependents_; }

 private:
  friend class Graph;
  Graph& graph_;
  const std::uint64_t id_;
  const unsigned number_;
  std::uint64_t original_ = 0;
  ParametersPointer parameters_;
  std::vector<Edge> dependencies_;
  std::vector<Edge> dependents_;
};

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // With a handle of its own, which ends with destroy().
  static std::shared_ptr<Graph> create();

  std::uint64_t id() const noexcept { return id_; }
  CUgraph handle() const noexcept { return HandleTable<Graph, CUgraph>::handle_of(*this); }
  const std::vector<std::shared_ptr<Node>>& nodes() const noexcept { return nodes_; }

  // Adds a node behind others of this graph. INVALID_VALUE: a dependency named twice or of another graph, edge data
  // that no edge can have, or a node that may not be in this graph (see node_parameters.hpp and graph_memory.hpp).
  CUresult add(ParametersPointer parameters, std::span<const Edge> dependencies, Node*& node);
  // Puts others, of the same type, in the place of a node's parameters. INVALID_VALUE: a child graph with memory nodes
  // stays where it is.
  CUresult set_parameters(Node& node, ParametersPointer parameters);
  // All of them or none. INVALID_VALUE: nodes of another graph, one and the same node, an edge that is there already.
  CUresult connect(std::span<const Connection> connections);
  // All of them or none. INVALID_VALUE: no such edge, with such data; NOT_SUPPORTED: a graph with memory nodes keeps
  // all that it has.
  CUresult disconnect(std::span<const Connection> connections);
  // Removes a node and its edges. NOT_SUPPORTED: from a graph with memory nodes.
  CUresult remove(Node& node);

  // A copy with new nodes that do the same; child graphs are copied, too. Null where it has nodes that cannot be
  // copied: memory nodes and conditional ones.
  std::shared_ptr<Graph> clone() const;
  // This graph's copy of a node of the graph it was cloned from; null where there is none (any more).
  Node* find_clone_of(const Node& original) const;

  // Ends the handles of the graph, of its nodes and of the graphs in them; whoever still holds it sees it empty.
  void destroy();

  // The node that this graph is in, as a child or as a conditional body; null for a graph that stands alone.
  Node* owner() const noexcept { return owner_; }
  void set_owner(Node* owner) noexcept { owner_ = owner; }
  // The one that stands alone, in which this one is in the end.
  const Graph& root() const noexcept;
  // Of this graph or of graphs in its nodes.
  bool has_memory_nodes() const noexcept;
  bool has_conditional_nodes() const noexcept;
  UserObjectReferences& references() noexcept { return references_; }
  // Those of the graphs in it, too.
  void add_references_to(UserObjectReferences& references) const;
  // How many executables of it there are: of a graph with memory nodes, at most one.
  const std::shared_ptr<std::atomic<int>>& executables() const noexcept { return executables_; }

 private:
  CUresult check(const NodeParameters& parameters) const;
  void join(const Connection& connection);
  static void sever(const Connection& connection);
  bool owns(const Node& node) const noexcept { return &node.graph_ == this; }

  const std::uint64_t id_;
  unsigned next_number_ = 0;
  std::vector<std::shared_ptr<Node>> nodes_;
  Node* owner_ = nullptr;
  UserObjectReferences references_;
  const std::shared_ptr<std::atomic<int>> executables_ = std::make_shared<std::atomic<int>>(0);
};

using GraphTable = HandleTable<Graph, CUgraph>;
GraphTable& graphs();
using NodeTable = HandleTable<Node, CUgraphNode>;
NodeTable& nodes();

// Under it the structure of every graph is looked at and changed. A stream's lock may be taken under it, never the
// other way round.
std::mutex& graphs_mutex();

// May an edge have this data?
bool is_edge_data(const CUgraphEdgeData& data) noexcept;
inline bool is_default(const CUgraphEdgeData& data) noexcept {
  return data.from_port == 0 && data.to_port == 0 && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
}

}  // namespace aiocuda::emulator::graph
