// The API of executable graphs.
#include "capture/capture.hpp"
#include "graph/calls.hpp"
#include "graph/executable.hpp"
#include "holding.hpp"

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

namespace {

constexpr unsigned long long known_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags, PlanFailure& failure,
                     std::shared_ptr<Executable>& made) {
  if (const CUresult error = check_call()) return error;
  if (handle == nullptr || (flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  {
    const std::lock_guard lock(graphs_mutex());
    const auto graph = graphs().find(graph_handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (graph->owner() != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // it runs as a part of another
    if (const CUresult error = Executable::make(*graph, flags, made, failure)) return error;
  }
  made->take_places();
  *handle = executables().add(made);
  return CUDA_SUCCESS;
}

// The frame of all functions that change a node of an executable: `make(the executable's parameters, others)`.
template <typename Parameters, typename Make>
CUresult set_node(CUgraphExec handle, CUgraphNode node_handle, bool is_described, Make&& make) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto executable = executables().find(handle);
  const auto node = nodes().find(node_handle);
  if (!executable || !node || !is_described) return CUDA_ERROR_INVALID_VALUE;
  const ParametersPointer known = executable->parameters(*node);
  const auto* const old = dynamic_cast<const Parameters*>(known.get());
  if (old == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ParametersPointer made;
  if (const CUresult error = make(*old, made)) return error;
  return executable->set_parameters(*node, std::move(made));
}

CUresult set_event(CUgraphNodeType type, CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_node<EventParameters>(handle, node, true, [&](const EventParameters& old, ParametersPointer& made) {
    return old.type() == type ? make_event(type, event, made) : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  // An upload needs a stream, which this function is not given.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const Entry entry = enter())
    if (const CUresult error = held("cuGraphInstantiateWithFlags", entry.context().device())) return error;
  PlanFailure failure;
  std::shared_ptr<Executable> made;
  return instantiate(handle, graph, flags, failure, made);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  given->hErrNode_out = nullptr;
  given->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  const bool uploads = (given->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  std::shared_ptr<Stream> stream;
  if (uploads) {
    if (const CUresult error = resolve_stream(given->hUploadStream, stream)) return error;
    if (const CUresult error = capture::check_not_captured(*stream)) return error;
  }
  PlanFailure failure;
  std::shared_ptr<Executable> made;
  if (const CUresult error = instantiate(handle, graph, given->flags, failure, made)) {
    if (failure.result != CUDA_GRAPH_INSTANTIATE_SUCCESS) given->result_out = failure.result;
    if (failure.node != nullptr) given->hErrNode_out = failure.node->handle();
    return error;
  }
  if (uploads) {
    if (const CUresult error = made->upload()) {
      executables().take(*handle);
      return error;
    }
  }
  given->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  if (const CUresult error = check_call()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  return executables().take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  if (const CUresult error = check_call()) return error;
  const auto executable = executables().find(handle);
  if (!executable || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = executable->flags() & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  const auto executable = executables().find(handle);
  if (!executable) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  return executable->upload();
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  const auto executable = executables().find(handle);
  if (!executable) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  if (const CUresult error = stream->context().pass_gate()) return error;
  return executable->launch(stream);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  if (const CUresult error = check_call()) return error;
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  const std::lock_guard lock(graphs_mutex());
  const auto executable = executables().find(handle);
  const auto graph = graphs().find(graph_handle);
  if (!executable || !graph || graph->owner() != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const UpdateResult result = executable->update(*graph);
  info->result = result.result;
  if (result.node != nullptr) info->errorNode = result.node->handle();
  if (result.from != nullptr) info->errorFromNode = result.from->handle();
  return result.is_success() ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node_handle, unsigned is_enabled) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto executable = executables().find(handle);
  const auto node = nodes().find(node_handle);
  return executable && node ? executable->set_enabled(*node, is_enabled != 0) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node_handle, unsigned* is_enabled) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto executable = executables().find(handle);
  const auto node = nodes().find(node_handle);
  if (!executable || !node || is_enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool enabled = false;
  if (const CUresult error = executable->get_enabled(*node, enabled)) return error;
  *is_enabled = enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return set_node<KernelParameters>(handle, node, given != nullptr,
                                    [&](const KernelParameters& old, ParametersPointer& made) {
                                      std::shared_ptr<const KernelParameters> kernel;
                                      const CUresult error = KernelParameters::make(*given, old.attributes(), kernel);
                                      made = kernel;
                                      return error;
                                    });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D* given,
                                        CUcontext context_handle) {
  return set_node<CopyParameters>(handle, node, given != nullptr, [&](const CopyParameters&, ParametersPointer& made) {
    std::shared_ptr<Context> context;
    if (const CUresult error = resolve_context(context_handle, context)) return error;
    return CopyParameters::make(*given, std::move(context), made);
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given,
                                        CUcontext context_handle) {
  return set_node<FillParameters>(handle, node, given != nullptr, [&](const FillParameters&, ParametersPointer& made) {
    std::shared_ptr<Context> context;
    if (const CUresult error = resolve_context(context_handle, context)) return error;
    return FillParameters::make(*given, std::move(context), made);
  });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  const bool is_described = given != nullptr && given->fn != nullptr;
  return set_node<HostParameters>(handle, node, is_described, [&](const HostParameters&, ParametersPointer& made) {
    made = std::make_shared<HostParameters>(*given);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, CUgraph child_handle) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto executable = executables().find(handle);
  const auto node = nodes().find(node_handle);
  const auto child = graphs().find(child_handle);
  return executable && node && child ? executable->set_child(*node, *child) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, handle, node, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, handle, node, event);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
  return set_node<BatchParameters>(handle, node, given != nullptr,
                                   [&](const BatchParameters&, ParametersPointer& made) {
                                     std::shared_ptr<const BatchParameters> batch;
                                     const CUresult error = BatchParameters::make(*given, batch);
                                     made = batch;
                                     return error;
                                   });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, CUgraphNodeParams* given) {
  if (given != nullptr && given->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return cuGraphExecChildGraphNodeSetParams(handle, node_handle, given->graph.graph);
  }
  const auto make = [&](const NodeParameters& old, ParametersPointer& made) {
    if (given->type != old.type()) return CUDA_ERROR_INVALID_VALUE;
    return make_parameters(*given, nodes().find(node_handle)->graph(), &old, made);
  };
  return set_node<NodeParameters>(handle, node_handle, given != nullptr, make);
}

// The forms of CUDA 10 and 11.
#undef cuGraphInstantiate
#undef cuGraphExecUpdate
#undef cuGraphExecKernelNodeSetParams
#define FORMER_API extern "C" [[gnu::visibility("default")]] CUresult

FORMER_API cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode* node, char* log, std::size_t log_bytes) {
  if (node != nullptr) *node = nullptr;
  if (log != nullptr && log_bytes > 0) log[0] = '\0';
  CUDA_GRAPH_INSTANTIATE_PARAMS given{};
  const CUresult error = cuGraphInstantiateWithParams(handle, graph, &given);
  if (node != nullptr) *node = given.hErrNode_out;
  return error;
}

FORMER_API cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode* node, char* log,
                                 std::size_t log_bytes) {
  return cuGraphInstantiate(handle, graph, node, log, log_bytes);
}

FORMER_API cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* node, CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult error = cuGraphExecUpdate_v2(handle, graph, &info);
  if (node != nullptr) *node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return error;
}

FORMER_API cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                          const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS same = as_kernel_parameters(*given);
  return cuGraphExecKernelNodeSetParams_v2(handle, node, &same);
}
