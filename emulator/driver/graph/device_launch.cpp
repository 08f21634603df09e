// See device_launch.hpp.
#include "graph/device_launch.hpp"

#include <utility>

#include "checking/checking.hpp"
#include "graph/executable.hpp"
#include "graph/node_parameters.hpp"

namespace aiocuda::emulator::graph {
namespace {

// The streams that stand for the ways to launch (driver_types.h).
constexpr std::uint64_t tail_launch = 0x0100000000000000;
constexpr std::uint64_t fire_and_forget = 0x0200000000000000;
constexpr std::uint64_t fire_and_forget_as_sibling = 0x0300000000000000;

// CUDA C++ programming guide, "Device Graph Launch".
constexpr int most_launches_beside = 120;
constexpr std::size_t most_launches_behind = 255;

thread_local Environment* current_environment = nullptr;

bool fits_device(const Node& node, const Context*& context, PlanFailure& failure) {
  if (const auto* const child = node.parameters_as<ChildParameters>()) {
    for (const auto& each : child->graph()->nodes()) {
      if (!fits_device(*each, context, failure)) return false;
    }
    return true;
  }
  const auto* const copy = node.parameters_as<CopyParameters>();
  const bool is_known = node.type() == CU_GRAPH_NODE_TYPE_KERNEL || node.type() == CU_GRAPH_NODE_TYPE_MEMSET ||
                        (copy != nullptr && copy->fits_device());
  if (!is_known) {
    failure = {CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, &node};
    return false;
  }
  const auto own = node.parameters()->context();
  if (context != nullptr && own.get() != context) {
    failure = {CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED, &node};
    return false;
  }
  context = own.get();
  return true;
}

}  // namespace

bool fits_device(const Graph& graph, PlanFailure& failure) {
  const Context* context = nullptr;
  for (const auto& each : graph.nodes()) {
    if (!fits_device(*each, context, failure)) return false;
  }
  return true;
}

Environment* Environment::current() noexcept { return current_environment; }
void Environment::set_current(Environment* environment) noexcept { current_environment = environment; }

CUresult Environment::launch(CUgraphExec handle, std::uint64_t how) {
  // The check of races does not know how these launches are ordered.
  if (checking::checker() != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto executable = executables().find(handle);
  if (!executable || !executable->is_ready_for_device(context_)) return CUDA_ERROR_INVALID_VALUE;
  if (how == fire_and_forget) return launch_beside(executable, *this);
  if (how == fire_and_forget_as_sibling) return launch_beside(executable, *parent_);
  return how == tail_launch ? launch_behind(executable) : CUDA_ERROR_INVALID_VALUE;
}

CUresult Environment::launch_beside(const std::shared_ptr<Executable>& executable, Environment& owner) {
  {
    const std::lock_guard lock(mutex_);
    if (launches_ == most_launches_beside) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    ++launches_;
  }
  if (!executable->begin_on_device()) return CUDA_ERROR_INVALID_VALUE;
  owner.add_child(executable->launch_beside(context_, owner.shared_from_this()));
  return CUDA_SUCCESS;
}

CUresult Environment::launch_behind(const std::shared_ptr<Executable>& executable) {
  const std::lock_guard lock(mutex_);
  if (tails_.size() == most_launches_behind) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (!executable->await_turn_on_device(ExecutableTable::handle_of(*executable) == running_))
    return CUDA_ERROR_INVALID_VALUE;
  tails_.push_back(executable);
  return CUDA_SUCCESS;
}

void Environment::add_child(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  children_.push_back(std::move(ticket));
}

void Environment::wait_for_children() {
  for (;;) {
    std::vector<Ticket> children;
    {
      const std::lock_guard lock(mutex_);
      children.swap(children_);
    }
    if (children.empty()) return;
    for (const Ticket& each : children) each.wait_in_stream(context_);
  }
}

std::deque<std::shared_ptr<Executable>> Environment::take_tails() {
  const std::lock_guard lock(mutex_);
  return std::exchange(tails_, {});
}

std::int32_t launch_graph(void* executable, std::uint64_t how) {
  Environment* const environment = Environment::current();
  return environment != nullptr ? environment->launch(static_cast<CUgraphExec>(executable), how)
                                : CUDA_ERROR_INVALID_VALUE;
}

void* current_graph() {
  const Environment* const environment = Environment::current();
  return environment != nullptr ? environment->running() : nullptr;
}

}  // namespace aiocuda::emulator::graph
