// Conditional handles and the parameters of conditional nodes; see conditional.hpp.
#include "graph/conditional.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "graph/graph.hpp"

namespace aiocuda::emulator::graph {
namespace {

// By the value's address, which is the handle.
using Handle = std::atomic<unsigned>*;
HandleTable<ConditionalValue, Handle>& conditional_values() {
  static auto* const table = new HandleTable<ConditionalValue, Handle>;
  return *table;
}

constexpr std::array names{"IF", "WHILE", "SWITCH"};

bool is_size(CUgraphConditionalNodeType kind, unsigned size) noexcept {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size > 0;
    default:
      return false;
  }
}

}  // namespace

bool may_be_in_a_body(CUgraphNodeType type) noexcept {
  constexpr std::array allowed{CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
                               CU_GRAPH_NODE_TYPE_GRAPH,  CU_GRAPH_NODE_TYPE_EMPTY,  CU_GRAPH_NODE_TYPE_CONDITIONAL};
  return std::find(allowed.begin(), allowed.end(), type) != allowed.end();
}

bool has_unused_handle(const Graph& graph) {
  const auto unused = conditional_values().find_if(
      [&](const ConditionalValue& value) { return value.graph_id == graph.id() && !value.has_node; });
  return !unused.empty();
}

ConditionalParameters::ConditionalParameters(CUgraphConditionalNodeType kind, std::shared_ptr<ConditionalValue> value,
                                             unsigned bodies)
    : kind_(kind), value_(std::move(value)), handles_(std::make_unique<CUgraph[]>(bodies)) {
  value_->has_node = true;
  for (unsigned each = 0; each < bodies; ++each) {
    bodies_.push_back(Graph::create());
    handles_[each] = bodies_.back()->handle();
  }
}

ConditionalParameters::~ConditionalParameters() { value_->has_node = false; }

CUresult ConditionalParameters::make(const CUDA_CONDITIONAL_NODE_PARAMS& given, const Graph& graph,
                                     std::shared_ptr<const ConditionalParameters>& made) {
  const auto value = conditional_values().find(reinterpret_cast<Handle>(given.handle));
  if (!value || value->has_node || !is_size(given.type, given.size)) return CUDA_ERROR_INVALID_VALUE;
  if (value->graph_id != graph.root().id()) return CUDA_ERROR_INVALID_VALUE;
  if (given.ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<Context> context;
  if (const CUresult error = resolve_context(given.ctx, context)) return error;
  if (context != value->context) return CUDA_ERROR_INVALID_CONTEXT;
  made.reset(new ConditionalParameters(given.type, value, given.size));
  return CUDA_SUCCESS;
}

CUgraphExecUpdateResult ConditionalParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const ConditionalParameters&>(next);
  const bool is_same =
      other.kind_ == kind_ && other.bodies_.size() == bodies_.size() && other.value_->context == value_->context;
  return is_same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

std::string ConditionalParameters::title() const {
  return std::string("CONDITIONAL (") + names[static_cast<std::size_t>(kind_)] + ")";
}

void ConditionalParameters::describe(unsigned flags, Details& details) const {
  for (const auto& body : bodies_) details.push_back({"body", "graph_" + std::to_string(body->id())});
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS) == 0) return;
  details.push_back({"defaultLaunchValue", std::to_string(value_->default_value)});
  details.push_back({"assignDefault", std::to_string(value_->has_default ? 1 : 0)});
}

}  // namespace aiocuda::emulator::graph

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph_handle, CUcontext context,
                                        unsigned default_value, unsigned flags) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = check_may_wait()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  if (handle == nullptr || !graph || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const auto value = std::make_shared<ConditionalValue>();
  if (const CUresult error = resolve_context(context, value->context)) return error;
  value->default_value = default_value;
  value->has_default = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  value->graph_id = graph->root().id();
  *handle = reinterpret_cast<CUgraphConditionalHandle>(conditional_values().add(&value->value, value));
  return CUDA_SUCCESS;
}
