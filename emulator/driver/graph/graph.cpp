// Nodes and edges; see graph.hpp.
#include "graph/graph.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "graph/conditional.hpp"
#include "graph/graph_memory.hpp"

namespace aiocuda::emulator::graph {
namespace {

bool is_memory_node(CUgraphNodeType type) noexcept {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

const Edge* find_edge(const std::vector<Edge>& edges, const Node& other) noexcept {
  const auto found = std::find_if(edges.begin(), edges.end(), [&](const Edge& each) { return each.node == &other; });
  return found == edges.end() ? nullptr : &*found;
}

void erase_edge(std::vector<Edge>& edges, const Node& other) {
  std::erase_if(edges, [&](const Edge& each) { return each.node == &other; });
}

// Programmatic dependencies are of kernels on kernels, and so are the ports they leave by.
bool may_join(const Node& from, const NodeParameters& to, const CUgraphEdgeData& data) noexcept {
  if (!is_edge_data(data)) return false;
  if (is_default(data)) return true;
  return from.type() == CU_GRAPH_NODE_TYPE_KERNEL &&
         (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || to.type() == CU_GRAPH_NODE_TYPE_KERNEL);
}

// The graphs that a node owns: the child's, or the bodies of a conditional one.
std::vector<std::shared_ptr<Graph>> graphs_in(const Node& node) {
  if (const auto* const child = node.parameters_as<ChildParameters>()) return {child->graph()};
  if (const auto* const conditional = node.parameters_as<ConditionalParameters>()) return conditional->bodies();
  return {};
}

template <typename Picks>
bool any_node(const Graph& graph, Picks&& picks) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    if (picks(*node)) return true;
    const auto inner = graphs_in(*node);
    return std::any_of(inner.begin(), inner.end(), [&](const auto& each) { return any_node(*each, picks); });
  });
}

}  // namespace

GraphTable& graphs() {
  static auto* const table = new GraphTable;
  return *table;
}

NodeTable& nodes() {
  static auto* const table = new NodeTable;
  return *table;
}

std::mutex& graphs_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

bool is_edge_data(const CUgraphEdgeData& data) noexcept {
  const auto is_zero = [](unsigned char each) { return each == 0; };
  if (data.to_port != 0 || !std::all_of(std::begin(data.reserved), std::end(data.reserved), is_zero)) return false;
  switch (data.from_port) {
    case CU_GRAPH_KERNEL_NODE_PORT_DEFAULT:
      return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
    case CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC:
      return data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    case CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER:
      return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    default:
      return false;
  }
}

Node::Node(Graph& graph, unsigned number, ParametersPointer parameters)
    : graph_(graph), id_(next_id()), number_(number), parameters_(std::move(parameters)) {}

Graph::Graph() : id_(next_id()) {}

Graph::~Graph() { destroy(); }

std::shared_ptr<Graph> Graph::create() {
  auto graph = std::make_shared<Graph>();
  graphs().add(graph);
  return graph;
}

const Graph& Graph::root() const noexcept {
  const Graph* graph = this;
  while (graph->owner_ != nullptr) graph = &graph->owner_->graph();
  return *graph;
}

bool Graph::has_memory_nodes() const noexcept {
  return any_node(*this, [](const Node& node) { return is_memory_node(node.type()); });
}

bool Graph::has_conditional_nodes() const noexcept {
  return any_node(*this, [](const Node& node) { return node.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL; });
}

CUresult Graph::check(const NodeParameters& parameters) const {
  const CUgraphNodeType type = parameters.type();
  // In the body of a conditional node it is found out when an executable is made, as for others.
  const bool is_child = owner_ != nullptr && owner_->type() == CU_GRAPH_NODE_TYPE_GRAPH;
  if (is_memory_node(type) && is_child) return CUDA_ERROR_NOT_SUPPORTED;
  if (const auto* const free = dynamic_cast<const FreeParameters*>(&parameters)) {
    return free->allocation()->add_free_node(id_);
  }
  return CUDA_SUCCESS;
}

CUresult Graph::add(ParametersPointer parameters, std::span<const Edge> dependencies, Node*& node) {
  std::unordered_set<const Node*> named;
  for (const auto& [from, data] : dependencies) {
    if (from == nullptr || !owns(*from) || !may_join(*from, *parameters, data)) return CUDA_ERROR_INVALID_VALUE;
    if (!named.insert(from).second) return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult error = check(*parameters)) return error;
  auto made = std::make_shared<Node>(*this, next_number_++, std::move(parameters));
  node = made.get();
  if (const auto* const allocate = made->parameters_as<AllocateParameters>()) allocate->allocation()->set_owner(id_);
  for (const auto& inner : graphs_in(*made)) inner->set_owner(node);
  for (const auto& [from, data] : dependencies) join({from, node, data});
  graph::nodes().add(made);
  nodes_.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult Graph::set_parameters(Node& node, ParametersPointer parameters) {
  const auto before = graphs_in(node);
  for (const auto& inner : before) {
    if (inner->has_memory_nodes()) return CUDA_ERROR_INVALID_VALUE;
  }
  node.parameters_ = std::move(parameters);
  for (const auto& inner : before) inner->destroy();
  for (const auto& inner : graphs_in(node)) inner->set_owner(&node);
  return CUDA_SUCCESS;
}

void Graph::join(const Connection& connection) {
  const CUgraphEdgeData data = connection.data.value_or(CUgraphEdgeData{});
  connection.from->dependents_.push_back({connection.to, data});
  connection.to->dependencies_.push_back({connection.from, data});
}

void Graph::sever(const Connection& connection) {
  erase_edge(connection.to->dependencies_, *connection.from);
  erase_edge(connection.from->dependents_, *connection.to);
}

CUresult Graph::connect(std::span<const Connection> connections) {
  for (std::size_t each = 0; each < connections.size(); ++each) {
    const auto& [from, to, data] = connections[each];
    const bool is_possible = owns(*from) && owns(*to) && from != to && find_edge(to->dependencies_, *from) == nullptr &&
                             may_join(*from, *to->parameters_, data.value_or(CUgraphEdgeData{}));
    if (!is_possible) {
      for (const Connection& made : connections.first(each)) sever(made);
      return CUDA_ERROR_INVALID_VALUE;
    }
    join(connections[each]);
  }
  return CUDA_SUCCESS;
}

CUresult Graph::disconnect(std::span<const Connection> connections) {
  if (!connections.empty() && has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<Connection> gone;
  for (const Connection& each : connections) {
    const auto& [from, to, data] = each;
    const Edge* const edge = owns(*from) && owns(*to) ? find_edge(to->dependencies_, *from) : nullptr;
    if (edge == nullptr || (data && std::memcmp(&edge->data, &*data, sizeof *data) != 0)) {
      for (const Connection& other : gone) join(other);
      return CUDA_ERROR_INVALID_VALUE;
    }
    gone.push_back({from, to, edge->data});
    sever(each);
  }
  return CUDA_SUCCESS;
}

CUresult Graph::remove(Node& node) {
  if (!owns(node)) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  for (const Edge& each : node.dependencies_) erase_edge(each.node->dependents_, node);
  for (const Edge& each : node.dependents_) erase_edge(each.node->dependencies_, node);
  for (const auto& inner : graphs_in(node)) inner->destroy();
  graph::nodes().take(node.handle());
  std::erase_if(nodes_, [&](const auto& each) { return each.get() == &node; });
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> Graph::clone() const {
  if (has_memory_nodes() || has_conditional_nodes()) return nullptr;
  auto copy = create();
  std::unordered_map<const Node*, Node*> copies;
  for (const auto& node : nodes_) {
    ParametersPointer parameters = node->parameters_;
    if (const auto* const child = node->parameters_as<ChildParameters>()) {
      parameters = std::make_shared<ChildParameters>(child->graph()->clone(), false);
    }
    Node* made = nullptr;
    copy->add(std::move(parameters), {}, made);
    made->original_ = node->id_;
    copies.emplace(node.get(), made);
  }
  // Both ends' lists keep their order: pairs of nodes are found by it when an executable is updated.
  const auto translated = [&](const std::vector<Edge>& edges) {
    std::vector<Edge> of_copy;
    of_copy.reserve(edges.size());
    for (const auto& [other, data] : edges) of_copy.push_back({copies.at(other), data});
    return of_copy;
  };
  for (const auto& [node, made] : copies) {
    made->dependencies_ = translated(node->dependencies_);
    made->dependents_ = translated(node->dependents_);
  }
  copy->references_.add(references_);
  return copy;
}

Node* Graph::find_clone_of(const Node& original) const {
  for (const auto& node : nodes_) {
    if (node->original_ == original.id_) return node.get();
    for (const auto& inner : graphs_in(*node)) {
      if (Node* const found = inner->find_clone_of(original)) return found;
    }
  }
  return nullptr;
}

void Graph::add_references_to(UserObjectReferences& references) const {
  references.add(references_);
  for (const auto& node : nodes_) {
    for (const auto& inner : graphs_in(*node)) inner->add_references_to(references);
  }
}

void Graph::destroy() {
  graphs().take(handle());
  for (const auto& node : nodes_) {
    graph::nodes().take(node->handle());
    for (const auto& inner : graphs_in(*node)) inner->destroy();
  }
  nodes_.clear();
}

}  // namespace aiocuda::emulator::graph
