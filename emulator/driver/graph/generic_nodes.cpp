// cuGraphAddNode and cuGraphNodeSetParams: nodes of any type, described by one structure.
#include <algorithm>

#include "graph/calls.hpp"
#include "graph/conditional.hpp"
#include "graph/graph_memory.hpp"
#include "newer_api.hpp"

namespace aiocuda::emulator::graph {
namespace {

bool is_zero(const void* bytes, std::size_t count) {
  const auto* const first = static_cast<const unsigned char*>(bytes);
  return std::all_of(first, first + count, [](unsigned char each) { return each == 0; });
}

std::size_t own_bytes(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return sizeof(CUDA_KERNEL_NODE_PARAMS_v3);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return sizeof(CUDA_MEMCPY_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return sizeof(CUDA_MEMSET_NODE_PARAMS_v2);
    case CU_GRAPH_NODE_TYPE_HOST:
      return sizeof(HostNodeParameters);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return sizeof(CUDA_CHILD_GRAPH_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return 0;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return sizeof(CUDA_EVENT_WAIT_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return sizeof(CUDA_EVENT_RECORD_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return sizeof(CUDA_MEM_FREE_NODE_PARAMS);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v2);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return sizeof(CUDA_CONDITIONAL_NODE_PARAMS);
    default:
      return sizeof(CUgraphNodeParams::reserved1);  // of a type that is refused in any case
  }
}

// All that is not of the type's own structure must be zero.
bool is_rest_zero(const CUgraphNodeParams& given) {
  const std::size_t own = own_bytes(given.type);
  return is_zero(given.reserved0, sizeof given.reserved0) && given.reserved2 == 0 &&
         is_zero(reinterpret_cast<const unsigned char*>(given.reserved1) + own, sizeof given.reserved1 - own);
}

}  // namespace

CUresult make_event(CUgraphNodeType type, CUevent handle, ParametersPointer& made) {
  auto event = events().find(handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  made = std::make_shared<EventParameters>(type, std::move(event));
  return CUDA_SUCCESS;
}

CUresult make_child(CUgraph handle, CUgraphChildGraphNodeOwnership ownership, const Graph& parent,
                    ParametersPointer& made) {
  const auto child = graphs().find(handle);
  if (!child || &child->root() == &parent.root()) return CUDA_ERROR_INVALID_VALUE;
  if (child->has_conditional_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  if (ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    if (child->owner() != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    made = std::make_shared<ChildParameters>(child, true);
    return CUDA_SUCCESS;
  }
  if (ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
  if (child->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  made = std::make_shared<ChildParameters>(child->clone(), false);
  return CUDA_SUCCESS;
}

namespace {

CUresult make_host(const CUgraphNodeParams& given, ParametersPointer& made) {
  HostNodeParameters host;
  std::memcpy(&host, &given.host, sizeof host);
  if (host.function == nullptr || !is_host_task_mode(host.sync_mode)) return CUDA_ERROR_INVALID_VALUE;
  if (host.preferred != nullptr && !contexts().find(host.preferred)) return CUDA_ERROR_INVALID_CONTEXT;
  made = std::make_shared<HostParameters>(CUDA_HOST_NODE_PARAMS{host.function, host.user_data}, host.sync_mode,
                                          host.preferred);
  return CUDA_SUCCESS;
}

// Since CUDA 13.4: a function's context is not ignored beside the context that the node asks for.
CUresult check_kernel_context(const CUgraphNodeParams& given) {
  if (given.type != CU_GRAPH_NODE_TYPE_KERNEL || given.kernel.func == nullptr || given.kernel.ctx == nullptr)
    return CUDA_SUCCESS;
  const auto function = functions().find(given.kernel.func);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  return contexts().find(given.kernel.ctx).get() == &function->context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult make_parameters(CUgraphNodeParams& given, const Graph& graph, const NodeParameters* same_node,
                         ParametersPointer& made) {
  if (!is_rest_zero(given)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  switch (given.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto* const same_kernel = dynamic_cast<const KernelParameters*>(same_node);
      std::shared_ptr<const KernelParameters> kernel;
      const CUresult error =
          KernelParameters::make(as_kernel_parameters(given.kernel),
                                 same_kernel != nullptr ? same_kernel->attributes() : KernelAttributes(), kernel);
      made = kernel;
      return error;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (given.memcpy.flags != 0) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult error = resolve_context(given.memcpy.copyCtx, context)) return error;
      return CopyParameters::make(given.memcpy.copyParams, std::move(context), made);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& [address, pitch, value, element, width, height, handle] = given.memset;
      if (const CUresult error = resolve_context(handle, context)) return error;
      return FillParameters::make({address, pitch, value, element, width, height}, std::move(context), made);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return make_host(given, made);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return make_child(given.graph.graph, given.graph.ownership, graph, made);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      made = std::make_shared<EmptyParameters>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return make_event(given.type, given.eventWait.event, made);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return make_event(given.type, given.eventRecord.event, made);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const auto& [handle, count, operations, flags] = given.memOp;
      std::shared_ptr<const BatchParameters> batch;
      const CUresult error = BatchParameters::make({handle, count, operations, flags}, batch);
      made = batch;
      return error;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      if (same_node != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      const auto& [properties, access, access_count, bytes, address] = given.alloc;
      std::shared_ptr<const AllocateParameters> allocate;
      if (const CUresult error = AllocateParameters::make({properties, access, access_count, bytes, 0}, allocate))
        return error;
      given.alloc.dptr = allocate->allocation()->address();
      made = allocate;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return same_node != nullptr ? CUDA_ERROR_NOT_SUPPORTED : FreeParameters::make(given.free.dptr, made);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      if (same_node != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      std::shared_ptr<const ConditionalParameters> conditional;
      if (const CUresult error = ConditionalParameters::make(given.conditional, graph, conditional)) return error;
      given.conditional.phGraph_out = conditional->handles();
      made = conditional;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace aiocuda::emulator::graph

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

CUresult cuGraphAddNode_v2(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, std::size_t count, CUgraphNodeParams* given) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  if (handle == nullptr || !graph || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> edges;
  if (const CUresult error = resolve_dependencies(dependencies, data, count, edges)) return error;
  ParametersPointer parameters;
  if (const CUresult error = make_parameters(*given, *graph, nullptr, parameters)) return error;
  Node* node = nullptr;
  if (const CUresult error = graph->add(std::move(parameters), edges, node)) return error;
  *handle = node->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* given) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node || given == nullptr || given->type != node->type()) return CUDA_ERROR_INVALID_VALUE;
  ParametersPointer parameters;
  if (const CUresult error = make_parameters(*given, node->graph(), node->parameters().get(), parameters)) return error;
  return node->graph().set_parameters(*node, std::move(parameters));
}

CUresult cuGraphAddNode_v3(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, std::size_t count, CUgraphNodeParams* given) {
  if (const CUresult error = check_call()) return error;
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_kernel_context(*given)) return error;
  return cuGraphAddNode_v2(handle, graph, dependencies, data, count, given);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode handle, CUgraphNodeParams* given) {
  if (const CUresult error = check_call()) return error;
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_kernel_context(*given)) return error;
  return cuGraphNodeSetParams(handle, given);
}

// The form of CUDA 12.2, whose edges have no data.
#undef cuGraphAddNode
extern "C" [[gnu::visibility("default")]] CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph,
                                                                  const CUgraphNode* dependencies, std::size_t count,
                                                                  CUgraphNodeParams* given) {
  return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, given);
}
