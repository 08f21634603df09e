// The functions that add a node of one type, and that ask for its parameters or set them.
#include "graph/calls.hpp"

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

namespace {

// The frame of all functions that add a node, around the making of its parameters: `make(graph, parameters)`.
template <typename Make>
CUresult add_node(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies, std::size_t count,
                  bool is_described, Make&& make) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  if (handle == nullptr || !graph || !is_described) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> edges;
  if (const CUresult error = resolve_dependencies(dependencies, nullptr, count, edges)) return error;
  ParametersPointer parameters;
  if (const CUresult error = make(*graph, parameters)) return error;
  Node* node = nullptr;
  if (const CUresult error = graph->add(std::move(parameters), edges, node)) return error;
  *handle = node->handle();
  return CUDA_SUCCESS;
}

// `answer(parameters)` for a node of their type.
template <typename Parameters, typename Answer>
CUresult ask_node(CUgraphNode handle, bool has_place, Answer&& answer) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  const auto* const parameters = node ? node->parameters_as<Parameters>() : nullptr;
  if (parameters == nullptr || !has_place) return CUDA_ERROR_INVALID_VALUE;
  return answer(*parameters);
}

// `make(old parameters, new ones)` for a node of their type, which then has the new ones.
template <typename Parameters, typename Make>
CUresult set_node(CUgraphNode handle, bool is_described, Make&& make) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  const auto* const parameters = node ? node->parameters_as<Parameters>() : nullptr;
  if (parameters == nullptr || !is_described) return CUDA_ERROR_INVALID_VALUE;
  ParametersPointer made;
  if (const CUresult error = make(*parameters, made)) return error;
  return node->graph().set_parameters(*node, std::move(made));
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& given, const KernelAttributes& attributes,
                     ParametersPointer& made) {
  std::shared_ptr<const KernelParameters> kernel;
  const CUresult error = KernelParameters::make(given, attributes, kernel);
  made = kernel;
  return error;
}

CUresult get_event(CUgraphNodeType type, CUgraphNode node, CUevent* event) {
  return ask_node<EventParameters>(node, event != nullptr, [&](const EventParameters& parameters) {
    if (parameters.type() != type) return CUDA_ERROR_INVALID_VALUE;
    *event = EventTable::handle_of(*parameters.event());
    return CUDA_SUCCESS;
  });
}

CUresult set_event(CUgraphNodeType type, CUgraphNode node, CUevent event) {
  return set_node<EventParameters>(node, true, [&](const EventParameters& parameters, ParametersPointer& made) {
    return parameters.type() == type ? make_event(type, event, made) : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* given) {
  return add_node(node, graph, dependencies, count, given != nullptr,
                  [&](const Graph&, ParametersPointer& made) { return make_kernel(*given, KernelAttributes(), made); });
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* answer) {
  return ask_node<KernelParameters>(node, answer != nullptr, [&](const KernelParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return set_node<KernelParameters>(node, given != nullptr, [&](const KernelParameters& old, ParametersPointer& made) {
    return make_kernel(*given, old.attributes(), made);
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  return ask_node<KernelParameters>(node, value != nullptr, [&](const KernelParameters& parameters) {
    return parameters.attributes().get(attribute, *value);
  });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  return set_node<KernelParameters>(node, value != nullptr, [&](const KernelParameters& old, ParametersPointer& made) {
    KernelAttributes attributes = old.attributes();
    if (const CUresult error = attributes.set(attribute, *value)) return error;
    std::shared_ptr<const KernelParameters> kernel;
    const CUresult error = old.with(attributes, kernel);
    made = kernel;
    return error;
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  KernelAttributes attributes;
  std::shared_ptr<Context> context;
  const CUresult error = ask_node<KernelParameters>(from, true, [&](const KernelParameters& parameters) {
    attributes = parameters.attributes();
    context = parameters.context();
    return CUDA_SUCCESS;
  });
  if (error != CUDA_SUCCESS) return error;
  return set_node<KernelParameters>(to, true, [&](const KernelParameters& old, ParametersPointer& made) {
    if (old.context() != context) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<const KernelParameters> kernel;
    const CUresult refusal = old.with(attributes, kernel);
    made = kernel;
    return refusal;
  });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                              const CUDA_MEMCPY3D* given, CUcontext handle) {
  return add_node(node, graph, dependencies, count, given != nullptr, [&](const Graph&, ParametersPointer& made) {
    std::shared_ptr<Context> context;
    if (const CUresult error = resolve_context(handle, context)) return error;
    return CopyParameters::make(*given, std::move(context), made);
  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* answer) {
  return ask_node<CopyParameters>(node, answer != nullptr, [&](const CopyParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* given) {
  return set_node<CopyParameters>(node, given != nullptr, [&](const CopyParameters& old, ParametersPointer& made) {
    return CopyParameters::make(*given, old.context(), made);
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* given, CUcontext handle) {
  return add_node(node, graph, dependencies, count, given != nullptr, [&](const Graph&, ParametersPointer& made) {
    std::shared_ptr<Context> context;
    if (const CUresult error = resolve_context(handle, context)) return error;
    return FillParameters::make(*given, std::move(context), made);
  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* answer) {
  return ask_node<FillParameters>(node, answer != nullptr, [&](const FillParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given) {
  return set_node<FillParameters>(node, given != nullptr, [&](const FillParameters& old, ParametersPointer& made) {
    return FillParameters::make(*given, old.context(), made);
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                            const CUDA_HOST_NODE_PARAMS* given) {
  const bool is_described = given != nullptr && given->fn != nullptr;
  return add_node(node, graph, dependencies, count, is_described, [&](const Graph&, ParametersPointer& made) {
    made = std::make_shared<HostParameters>(*given);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* answer) {
  return ask_node<HostParameters>(node, answer != nullptr, [&](const HostParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  const bool is_described = given != nullptr && given->fn != nullptr;
  return set_node<HostParameters>(node, is_described, [&](const HostParameters&, ParametersPointer& made) {
    made = std::make_shared<HostParameters>(*given);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                  CUgraph child) {
  return add_node(node, graph, dependencies, count, true, [&](const Graph& parent, ParametersPointer& made) {
    return make_child(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, parent, made);
  });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* answer) {
  return ask_node<ChildParameters>(node, answer != nullptr, [&](const ChildParameters& parameters) {
    *answer = parameters.graph()->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count) {
  return add_node(node, graph, dependencies, count, true, [&](const Graph&, ParametersPointer& made) {
    made = std::make_shared<EmptyParameters>();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                   CUevent event) {
  return add_node(node, graph, dependencies, count, true, [&](const Graph&, ParametersPointer& made) {
    return make_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, made);
  });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                 CUevent event) {
  return add_node(node, graph, dependencies, count, true, [&](const Graph&, ParametersPointer& made) {
    return make_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, made);
  });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node, event);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, node, event);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node, event);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, node, event);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
  return add_node(node, graph, dependencies, count, given != nullptr, [&](const Graph&, ParametersPointer& made) {
    std::shared_ptr<const BatchParameters> batch;
    const CUresult error = BatchParameters::make(*given, batch);
    made = batch;
    return error;
  });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* answer) {
  return ask_node<BatchParameters>(node, answer != nullptr, [&](const BatchParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
  return set_node<BatchParameters>(node, given != nullptr, [&](const BatchParameters&, ParametersPointer& made) {
    std::shared_ptr<const BatchParameters> batch;
    const CUresult error = BatchParameters::make(*given, batch);
    made = batch;
    return error;
  });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  std::shared_ptr<const AllocateParameters> allocate;
  const CUresult error =
      add_node(node, graph, dependencies, count, given != nullptr, [&](const Graph&, ParametersPointer& made) {
        const CUresult refusal = AllocateParameters::make(*given, allocate);
        made = allocate;
        return refusal;
      });
  if (error == CUDA_SUCCESS) given->dptr = allocate->given().dptr;
  return error;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* answer) {
  return ask_node<AllocateParameters>(node, answer != nullptr, [&](const AllocateParameters& parameters) {
    *answer = parameters.given();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                               CUdeviceptr address) {
  return add_node(node, graph, dependencies, count, true,
                  [&](const Graph&, ParametersPointer& made) { return FreeParameters::make(address, made); });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* answer) {
  return ask_node<FreeParameters>(node, answer != nullptr, [&](const FreeParameters& parameters) {
    *answer = parameters.address();
    return CUDA_SUCCESS;
  });
}

// The forms of CUDA 10 to 11, which know functions only, and no kernels.
#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#define FORMER_API extern "C" [[gnu::visibility("default")]] CUresult

FORMER_API cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS same = as_kernel_parameters(*given);
  return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &same);
}

FORMER_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* answer) {
  CUDA_KERNEL_NODE_PARAMS found{};
  if (const CUresult error = cuGraphKernelNodeGetParams_v2(node, answer != nullptr ? &found : nullptr)) return error;
  *answer = {found.func,      found.gridDimX,  found.gridDimY,       found.gridDimZ,     found.blockDimX,
             found.blockDimY, found.blockDimZ, found.sharedMemBytes, found.kernelParams, found.extra};
  return CUDA_SUCCESS;
}

FORMER_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS same = as_kernel_parameters(*given);
  return cuGraphKernelNodeSetParams_v2(node, &same);
}
