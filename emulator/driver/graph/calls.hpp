// Code that the functions of the graph API share.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "graph/graph.hpp"

namespace aiocuda::emulator::graph {

// May a function of graphs go on on this thread?
inline CUresult check_call() noexcept {
  if (const CUresult error = check_initialised()) return error;
  return check_may_wait();
}

// The nodes that a call names, as dependencies of a node to be. INVALID_VALUE: one of them is none.
inline CUresult resolve_dependencies(const CUgraphNode* handles, const CUgraphEdgeData* data, std::size_t count,
                                     std::vector<Edge>& edges) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t each = 0; each < count; ++each) {
    const auto node = nodes().find(handles[each]);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    edges.push_back({node.get(), data != nullptr ? data[each] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

// The parameters of kernels came with more fields each time: what there was stayed where it was.
template <typename Other>
CUDA_KERNEL_NODE_PARAMS as_kernel_parameters(const Other& given) {
  static_assert(sizeof(Other) <= sizeof(CUDA_KERNEL_NODE_PARAMS) &&
                offsetof(Other, extra) == offsetof(CUDA_KERNEL_NODE_PARAMS, extra));
  CUDA_KERNEL_NODE_PARAMS same{};
  std::memcpy(&same, &given, sizeof given);
  return same;
}

// The parameters that a CUgraphNodeParams of any type describes, for a node of this graph. `same_node` is the node that
// gets the parameters, null for a new one: a kernel keeps its attributes, and some types cannot be set.
CUresult make_parameters(CUgraphNodeParams& given, const Graph& graph, const NodeParameters* same_node,
                         ParametersPointer& made);
CUresult make_event(CUgraphNodeType type, CUevent event, ParametersPointer& made);
// The child of a node: a copy of the graph, or the graph itself where it is moved.
CUresult make_child(CUgraph graph, CUgraphChildGraphNodeOwnership ownership, const Graph& parent,
                    ParametersPointer& made);

}  // namespace aiocuda::emulator::graph
