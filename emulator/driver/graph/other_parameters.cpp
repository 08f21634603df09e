// Host, event, batch and child nodes; see node_parameters.hpp. Memory and conditional nodes have files of their own.
#include <algorithm>

#include "graph/graph.hpp"
#include "hexadecimal.hpp"
#include "host_function.hpp"
#include "stream_memory_ops.hpp"

namespace aiocuda::emulator::graph {
namespace {

bool is_wait(const CUstreamBatchMemOpParams& operation) noexcept {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

}  // namespace

void HostParameters::append_work(Works& works) const {
  works.push_back(make_host_function_work(given_.fn, given_.userData));
}

void HostParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS) == 0) return;
  details.push_back({"fn", hexadecimal(reinterpret_cast<std::uintptr_t>(given_.fn))});
  details.push_back({"userData", hexadecimal(reinterpret_cast<std::uintptr_t>(given_.userData))});
}

CUgraphExecUpdateResult EventParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const EventParameters&>(next);
  const bool may_change = type_ == CU_GRAPH_NODE_TYPE_WAIT_EVENT || &other.event_->context() == &event_->context();
  return may_change ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

void EventParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS) == 0) return;
  details.push_back({"event", hexadecimal(reinterpret_cast<std::uintptr_t>(event_.get()))});
}

CUresult BatchParameters::make(const CUDA_BATCH_MEM_OP_NODE_PARAMS& given,
                               std::shared_ptr<const BatchParameters>& made) {
  if (given.flags != 0 || given.count > most_operations_of_batch || (given.paramArray == nullptr && given.count > 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (given.ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  if (const CUresult error = resolve_context(given.ctx, context)) return error;
  for (unsigned each = 0; each < given.count; ++each) {
    if (const CUresult error = check_operation(given.paramArray[each])) return error;
  }
  made.reset(new BatchParameters(std::move(context), {given.paramArray, given.paramArray + given.count}));
  return CUDA_SUCCESS;
}

void BatchParameters::append_work(Works& works) const {
  for (const CUstreamBatchMemOpParams& operation : operations_) {
    if (auto work = make_operation(*context_, operation)) works.push_back(std::move(work));
  }
}

CUgraphExecUpdateResult BatchParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const BatchParameters&>(next);
  const auto may_be = [](const auto& one, const auto& two) {
    return one.operation == two.operation || (is_wait(one) && is_wait(two));
  };
  const bool is_same =
      other.context_ == context_ &&
      std::equal(operations_.begin(), operations_.end(), other.operations_.begin(), other.operations_.end(), may_be);
  return is_same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

void BatchParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS) == 0) return;
  details.push_back({"count", std::to_string(operations_.size())});
}

bool BatchParameters::waits() const noexcept { return std::any_of(operations_.begin(), operations_.end(), is_wait); }

CUDA_BATCH_MEM_OP_NODE_PARAMS BatchParameters::given() const {
  CUDA_BATCH_MEM_OP_NODE_PARAMS given{};
  given.ctx = context_->handle();
  given.count = static_cast<unsigned>(operations_.size());
  given.paramArray = const_cast<CUstreamBatchMemOpParams*>(operations_.data());  // the API only reads it
  return given;
}

void ChildParameters::describe(unsigned, Details& details) const {
  details.push_back({"graph", "graph_" + std::to_string(graph_->id())});
}

}  // namespace aiocuda::emulator::graph
