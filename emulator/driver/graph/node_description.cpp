// What a graph, an executable and a node tell of themselves: their ids, and a node's parameters as the structure that
// describes nodes of any type.
#include <cstring>

#include "graph/calls.hpp"
#include "graph/conditional.hpp"
#include "graph/executable.hpp"
#include "graph/graph_memory.hpp"
#include "newer_api.hpp"

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

namespace {

// The context that a structure names; null for parameters that need none.
CUcontext context_handle(const NodeParameters& parameters) {
  const auto context = parameters.context();
  return context ? context->handle() : nullptr;
}

void describe(const KernelParameters& parameters, CUgraphNodeParams& answer) {
  const CUDA_KERNEL_NODE_PARAMS kernel = parameters.given();
  static_assert(sizeof kernel == sizeof answer.kernel);
  std::memcpy(&answer.kernel, &kernel, sizeof kernel);
}

void describe(const CopyParameters& parameters, CUgraphNodeParams& answer) {
  answer.memcpy.copyCtx = context_handle(parameters);
  answer.memcpy.copyParams = parameters.given();
}

void describe(const FillParameters& parameters, CUgraphNodeParams& answer) {
  const auto& [address, pitch, value, element, width, height] = parameters.given();
  answer.memset = {address, pitch, value, element, width, height, context_handle(parameters)};
}

void describe(const HostParameters& parameters, CUgraphNodeParams& answer) {
  const HostNodeParameters host{parameters.given().fn, parameters.given().userData, parameters.sync_mode(),
                                parameters.preferred_context()};
  std::memcpy(&answer.host, &host, sizeof host);
}

void describe(const ChildParameters& parameters, CUgraphNodeParams& answer) {
  answer.graph.graph = parameters.graph()->handle();
  answer.graph.ownership =
      parameters.was_moved() ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
}

void describe(const EventParameters& parameters, CUgraphNodeParams& answer) {
  const CUevent event = EventTable::handle_of(*parameters.event());
  if (parameters.type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
    answer.eventWait.event = event;
  } else {
    answer.eventRecord.event = event;
  }
}

void describe(const AllocateParameters& parameters, CUgraphNodeParams& answer) {
  const auto& [properties, access, access_count, bytes, address] = parameters.given();
  answer.alloc = {properties, access, access_count, bytes, address};
}

void describe(const FreeParameters& parameters, CUgraphNodeParams& answer) { answer.free.dptr = parameters.address(); }

void describe(const BatchParameters& parameters, CUgraphNodeParams& answer) {
  const auto& [context, count, operations, flags] = parameters.given();
  answer.memOp = {context, count, operations, flags};
}

void describe(const ConditionalParameters& parameters, CUgraphNodeParams& answer) {
  answer.conditional.handle = reinterpret_cast<std::uintptr_t>(&parameters.value()->value);
  answer.conditional.type = parameters.kind();
  answer.conditional.size = static_cast<unsigned>(parameters.bodies().size());
  answer.conditional.phGraph_out = parameters.handles();
  answer.conditional.ctx = context_handle(parameters);
}

// The parameters of the node, if they are of this class.
template <typename Parameters>
bool describe_as(const Node& node, CUgraphNodeParams& answer) {
  const auto* const parameters = node.parameters_as<Parameters>();
  if (parameters != nullptr) describe(*parameters, answer);
  return parameters != nullptr;
}

template <typename... Parameters>
void describe_as_one_of(const Node& node, CUgraphNodeParams& answer) {
  (void)(describe_as<Parameters>(node, answer) || ...);
}

// `answer(node)` for the node of a handle.
template <typename Answer>
CUresult ask(CUgraphNode handle, bool has_place, Answer&& answer) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto node = nodes().find(handle);
  if (!node || !has_place) return CUDA_ERROR_INVALID_VALUE;
  answer(*node);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* answer) {
  return ask(handle, answer != nullptr, [&](const Node& node) {
    std::memset(answer, 0, sizeof *answer);
    answer->type = node.type();
    describe_as_one_of<KernelParameters, CopyParameters, FillParameters, HostParameters, ChildParameters,
                       EventParameters, AllocateParameters, FreeParameters, BatchParameters, ConditionalParameters>(
        node, *answer);
  });
}

// The ids that cuGraphDebugDotPrint draws.
CUresult cuGraphGetId(CUgraph handle, unsigned* id) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(handle);
  if (!graph || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = static_cast<unsigned>(graph->id());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned* id) {
  return ask(handle, id != nullptr, [&](const Node& node) { *id = node.number(); });
}

CUresult cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* id) {
  return ask(handle, id != nullptr, [&](const Node& node) { *id = node.id(); });
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* graph) {
  return ask(handle, graph != nullptr, [&](const Node& node) { *graph = node.graph().handle(); });
}

CUresult cuGraphExecGetId(CUgraphExec handle, unsigned* id) {
  if (const CUresult error = check_call()) return error;
  const auto executable = executables().find(handle);
  if (!executable || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = static_cast<unsigned>(executable->id());
  return CUDA_SUCCESS;
}
