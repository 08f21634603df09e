// The API of graphs as structures: graphs, nodes and edges, whatever the nodes do.
#include <algorithm>

#include "capture/capture.hpp"
#include "graph/calls.hpp"

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

namespace {

// Fills in what was asked for, as the functions do that answer with an array: `*count` places, or only the count.
template <typename Handle>
void answer(const std::vector<Handle>& found, Handle* places, std::size_t* count) {
  if (places == nullptr) {
    *count = found.size();
    return;
  }
  const std::size_t filled = std::min(*count, found.size());
  std::copy_n(found.begin(), filled, places);
  std::fill(places + filled, places + *count, nullptr);
  *count = filled;
}

// The same of edge data, in the same places. LOSSY_QUERY where there is some that was not asked for.
CUresult answer_data(const std::vector<CUgraphEdgeData>& found, CUgraphEdgeData* places, bool has_places,
                     std::size_t count) {
  if (places != nullptr) {
    if (!has_places) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t filled = std::min(count, found.size());
    std::copy_n(found.begin(), filled, places);
    std::fill(places + filled, places + count, CUgraphEdgeData{});
    return CUDA_SUCCESS;
  }
  return !has_places || std::all_of(found.begin(), found.end(), is_default) ? CUDA_SUCCESS : CUDA_ERROR_LOSSY_QUERY;
}

CUresult answer_edges(const std::vector<Edge>& edges, CUgraphNode* others, CUgraphEdgeData* data, std::size_t* count) {
  std::vector<CUgraphNode> handles;
  std::vector<CUgraphEdgeData> all_data;
  for (const Edge& each : edges) {
    handles.push_back(each.node->handle());
    all_data.push_back(each.data);
  }
  if (const CUresult error = answer_data(all_data, data, others != nullptr, *count)) return error;
  answer(handles, others, count);
  return CUDA_SUCCESS;
}

enum class Change { connect, disconnect };

CUresult change_edges(Change change, CUgraph graph_handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, std::size_t count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Connection> connections;
  for (std::size_t each = 0; each < count; ++each) {
    const auto one = nodes().find(from[each]), other = nodes().find(to[each]);
    if (!one || !other) return CUDA_ERROR_INVALID_VALUE;
    connections.push_back({one.get(), other.get(), data != nullptr ? std::optional(data[each]) : std::nullopt});
  }
  return change == Change::connect ? graph->connect(connections) : graph->disconnect(connections);
}

}  // namespace

CUresult cuGraphCreate(CUgraph* handle, unsigned flags) {
  if (const CUresult error = check_call()) return error;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = Graph::create()->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  if (const CUresult error = check_call()) return error;
  std::shared_ptr<Graph> graph;  // ends after the lock
  const std::lock_guard lock(graphs_mutex());
  graph = graphs().find(handle);
  if (!graph || graph->owner() != nullptr) return CUDA_ERROR_INVALID_VALUE;  // a node owns its graph
  if (capture::is_captured_into(*graph)) return CUDA_ERROR_ILLEGAL_STATE;
  graph->destroy();
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* handle, CUgraph original_handle) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto original = graphs().find(original_handle);
  if (handle == nullptr || !original) return CUDA_ERROR_INVALID_VALUE;
  const auto copy = original->clone();
  if (!copy) return CUDA_ERROR_NOT_SUPPORTED;
  *handle = copy->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* handle, CUgraphNode original_handle, CUgraph clone_handle) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto original = nodes().find(original_handle);
  const auto copy = graphs().find(clone_handle);
  if (handle == nullptr || !original || !copy) return CUDA_ERROR_INVALID_VALUE;
  const Node* const found = copy->find_clone_of(*original);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = found->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* places, std::size_t* count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(handle);
  if (!graph || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> found;
  for (const auto& node : graph->nodes()) found.push_back(node->handle());
  answer(found, places, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* places, std::size_t* count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(handle);
  if (!graph || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> found;
  for (const auto& node : graph->nodes()) {
    if (node->dependencies().empty()) found.push_back(node->handle());
  }
  answer(found, places, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                            std::size_t* count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(handle);
  if (!graph || count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> origins, ends;
  std::vector<CUgraphEdgeData> all_data;
  for (const auto& node : graph->nodes()) {
    for (const Edge& each : node->dependencies()) {
      origins.push_back(each.node->handle());
      ends.push_back(node->handle());
      all_data.push_back(each.data);
    }
  }
  if (const CUresult error = answer_data(all_data, data, from != nullptr, *count)) return error;
  std::size_t same_count = *count;
  answer(origins, from, &same_count);
  answer(ends, to, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* places, CUgraphEdgeData* data,
                                       std::size_t* count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return answer_edges(node->dependencies(), places, data, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* places, CUgraphEdgeData* data,
                                         std::size_t* count) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return answer_edges(node->dependents(), places, data, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, std::size_t count) {
  return change_edges(Change::connect, graph, from, to, data, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, std::size_t count) {
  return change_edges(Change::disconnect, graph, from, to, data, count);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  return capture::is_captured_into(node->graph()) ? CUDA_ERROR_ILLEGAL_STATE : node->graph().remove(*node);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type();
  return CUDA_SUCCESS;
}

// The forms of CUDA 10 to 12, whose edges have no data.
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies
#define FORMER_API extern "C" [[gnu::visibility("default")]] CUresult

FORMER_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}

FORMER_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* places, std::size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, places, nullptr, count);
}

FORMER_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* places, std::size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(node, places, nullptr, count);
}

FORMER_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

FORMER_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
