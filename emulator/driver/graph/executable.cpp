// Launches, and changes for launches to come; see executable.hpp.
#include "graph/executable.hpp"

#include <algorithm>
#include <utility>

#include "checking/checking.hpp"
#include "injection.hpp"

namespace aiocuda::emulator::graph {
namespace {

using Allocations = std::vector<std::shared_ptr<GraphAllocation>>;

bool contains(const Allocations& allocations, const std::shared_ptr<GraphAllocation>& allocation) {
  return std::find(allocations.begin(), allocations.end(), allocation) != allocations.end();
}

bool can_be_disabled(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY;
}

// The lines of steps that have a step of the context.
std::size_t branches_on(const Plan& plan, const Context& context) {
  std::size_t found = 0;
  for (std::size_t sequence = 0; sequence < plan.sequences.size(); ++sequence) {
    const SequenceLayout& layout = plan.layout->sequences[sequence];
    std::vector<bool> is_found(layout.lines, false);
    for (std::size_t step = 0; step < plan.sequences[sequence].size(); ++step)
      if (plan.sequences[sequence][step].context == &context) is_found[layout.line[step]] = true;
    found += static_cast<std::size_t>(std::count(is_found.begin(), is_found.end(), true));
  }
  return found;
}

}  // namespace

ExecutableTable& executables() {
  static auto* const table = new ExecutableTable;
  return *table;
}

CUresult Executable::make(const Graph& graph, std::uint64_t flags, std::shared_ptr<Executable>& made,
                          PlanFailure& failure) {
  const bool is_one_of_a_kind = graph.has_memory_nodes() || graph.has_conditional_nodes();
  if (is_one_of_a_kind && graph.executables()->load() > 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 || !fits_device(graph, failure))
      return CUDA_ERROR_INVALID_VALUE;
    ReplayWork::expect_launches_by_device();
  }
  Plan plan;
  const bool uses_node_priority = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  if (const CUresult error = make_plan(graph, uses_node_priority, plan, failure)) return error;
  made = std::make_shared<Executable>(std::move(plan), flags, graph.executables());
  return CUDA_SUCCESS;
}

Executable::Executable(Plan plan, std::uint64_t flags, std::shared_ptr<std::atomic<int>> executables)
    : flags_(flags), executables_(std::move(executables)), plan_(std::make_shared<Plan>(std::move(plan))) {
  executables_->fetch_add(1);
}

Executable::~Executable() {
  for (const auto& each : plan_->allocates) each->unback();
  executables_->fetch_sub(1);
  for (const auto& [context, places] : places_) context->executable_store.give_back(places);
}

void Executable::take_places() {
  for (const auto& context : plan_->contexts) {
    const std::size_t places = branches_on(*plan_, *context);
    if (places == 0) continue;
    while (!context->executable_store.take(places)) {
      context->synchronise_behind_gate();  // a context that is lost has no work left, which is as good
      context->executable_store.enlarge();
    }
    places_.emplace_back(context, places);
  }
}

// A plan that a launch may still hold stays as it is.
Plan& Executable::changeable() {
  if (plan_was_launched_ && !last_launch_.passed()) plan_ = std::make_shared<Plan>(*plan_);
  plan_was_launched_ = false;
  return *plan_;
}

CUresult Executable::check_contexts() const {
  for (const auto& context : plan_->contexts) {
    if (context->ended()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->lost()) return context->error();
  }
  return CUDA_SUCCESS;
}

CUresult Executable::check_memory() const {
  const bool frees_itself = (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& each : plan_->allocates) {
    if (each->is_allocated() && !frees_itself) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& each : plan_->frees) {
    if (!contains(plan_->allocates, each) && !each->is_allocated()) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Executable::back_memory() {
  const Allocations& wanted = plan_->allocates;
  const bool all = std::all_of(wanted.begin(), wanted.end(), [](const auto& each) { return each->back(); });
  return all ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Frees what a former launch has left, and notes what this one does.
void Executable::change_memory(Stream& stream) {
  for (const auto& each : plan_->allocates) {
    if (each->is_allocated()) stream.enqueue(make_free_work(each));
    each->set_allocated(!contains(plan_->frees, each));
  }
  for (const auto& each : plan_->frees) {
    if (!contains(plan_->allocates, each)) each->set_allocated(false);
  }
}

EventBindings Executable::bind_events() const {
  EventBindings bindings;
  std::vector<std::pair<const Event*, checking::Point>> recorded;  // by this launch itself, so far
  for (const Index node : plan_->events) {
    const auto& parameters = dynamic_cast<const EventParameters&>(*plan_->parameters[node]);
    const Event* const event = parameters.event().get();
    if (parameters.type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      auto point = checking::checker() != nullptr ? std::make_shared<checking::Operation>() : nullptr;
      recorded.emplace_back(event, point);
      auto record = std::make_shared<EventRecord>();
      auto shared = event->begin_shared(*record);
      bindings.records.push_back(
          {std::move(record), std::make_shared<std::atomic<bool>>(false), std::move(point), std::move(shared)});
      continue;
    }
    const auto is_of_event = [&](const auto& each) { return each.first == event; };
    const auto own = std::find_if(recorded.rbegin(), recorded.rend(), is_of_event);
    if (own != recorded.rend()) {
      bindings.waits.push_back({Ticket(), own->second ? std::vector{own->second} : std::vector<checking::Point>{}});
    } else {
      const auto record = parameters.event()->last_record();
      const Ticket ticket = record ? record->ticket : Ticket();
      bindings.waits.push_back({ticket, ticket.points()});
    }
  }
  return bindings;
}

CUresult Executable::launch(const std::shared_ptr<Stream>& stream) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    if (const CUresult error = start(stream)) return error;
    if (!plan_->copies_within_host()) return CUDA_SUCCESS;
    ticket = last_launch_;
  }
  // A GPU's driver makes such copies itself, on the caller's thread, as in a stream: seen on an H200.
  return ticket.wait();
}

CUresult Executable::start(const std::shared_ptr<Stream>& stream) {
  if (const CUresult error = check_contexts()) return error;
  if (const CUresult error = check_memory()) return error;
  if (injection::strikes(injection::Kind::launch, stream->context().device()))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (const CUresult error = back_memory()) return error;
  stream->wait_for(last_launch_);
  change_memory(*stream);
  EventBindings bindings = bind_events();
  const std::vector<EventBindings::Record> records = bindings.records;
  last_launch_ = stream->enqueue_with_ticket(
      std::make_unique<ReplayWork>(plan_, *stream, std::move(bindings), handle_for_device()));
  plan_was_launched_ = uploaded_ = true;
  auto record = records.begin();
  for (const Index node : plan_->events) {
    const auto& parameters = dynamic_cast<const EventParameters&>(*plan_->parameters[node]);
    if (parameters.type() != CU_GRAPH_NODE_TYPE_EVENT_RECORD) continue;
    const auto points = record->point ? std::vector{record->point} : std::vector<checking::Point>{};
    record->record->ticket = last_launch_.earlier(record->has_passed, points);
    parameters.event()->set_record(record->record);
    ++record;
  }
  return CUDA_SUCCESS;
}

CUresult Executable::upload() {
  const std::lock_guard lock(mutex_);
  if (const CUresult error = check_contexts()) return error;
  if (const CUresult error = back_memory()) return error;
  uploaded_ = true;
  return CUDA_SUCCESS;
}

CUgraphExec Executable::handle_for_device() const noexcept {
  return (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 ? ExecutableTable::handle_of(*this) : nullptr;
}

bool Executable::is_ready_for_device(const Context& context) const {
  const std::lock_guard lock(mutex_);
  const auto is_of_context = [&](const auto& each) { return each.get() == &context; };
  return handle_for_device() != nullptr && uploaded_ &&
         std::all_of(plan_->contexts.begin(), plan_->contexts.end(), is_of_context);
}

bool Executable::begin_on_device() {
  const std::lock_guard lock(mutex_);
  if (runs_on_device_ || awaits_turn_on_device_) return false;
  return runs_on_device_ = true;
}

void Executable::end_on_device() {
  const std::lock_guard lock(mutex_);
  runs_on_device_ = false;
}

bool Executable::await_turn_on_device(bool by_itself) {
  const std::lock_guard lock(mutex_);
  if (awaits_turn_on_device_ || (runs_on_device_ && !by_itself)) return false;
  return awaits_turn_on_device_ = true;
}

// In a stream of its own, which ends with it.
Ticket Executable::launch_beside(Context& context, std::shared_ptr<Environment> parent) {
  const auto stream = std::make_shared<Stream>(context.shared_from_this(), CU_STREAM_NON_BLOCKING,
                                               least_stream_priority, Stream::Kind::ordinary);
  context.add_stream(stream);
  const std::lock_guard lock(mutex_);
  Ticket ticket = stream->enqueue_with_ticket(std::make_unique<ReplayWork>(
      plan_, *stream, EventBindings{}, handle_for_device(), shared_from_this(), std::move(parent)));
  stream->enqueue([stream = stream.get()] { stream->context().remove_stream(*stream); });
  stream->close();
  return ticket;
}

std::unique_ptr<ReplayWork> Executable::make_tail(Stream& stream) {
  const std::lock_guard lock(mutex_);
  awaits_turn_on_device_ = false;
  runs_on_device_ = true;
  return std::make_unique<ReplayWork>(plan_, stream, EventBindings{}, handle_for_device(), shared_from_this());
}

std::optional<Index> Executable::find(const Node& node) const {
  const auto found = plan_->layout->node_of_id.find(node.id());
  return found == plan_->layout->node_of_id.end() ? std::nullopt : std::optional(found->second);
}

ParametersPointer Executable::parameters(const Node& node) const {
  const std::lock_guard lock(mutex_);
  const auto index = find(node);
  return index ? plan_->parameters[*index] : nullptr;
}

CUresult Executable::set_parameters(const Node& node, ParametersPointer parameters) {
  const std::lock_guard lock(mutex_);
  const auto index = find(node);
  if (!index || plan_->parameters[*index]->type() != parameters->type()) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphExecUpdateResult may_be = plan_->parameters[*index]->check_update(*parameters);
  if (may_be != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  changeable().set_parameters(*index, std::move(parameters));
  return CUDA_SUCCESS;
}

CUresult Executable::set_child(const Node& node, const Graph& child) {
  const std::lock_guard lock(mutex_);
  const auto index = find(node);
  if (!index || node.type() != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  Pairs pairs;
  const UpdateResult result = pair_nodes(*plan_, plan_->layout->nodes[*index].graphs.front(), child, pairs);
  if (!result.is_success()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  Plan& plan = changeable();
  replace_parameters(plan, pairs);
  // Beside those that it has: which of them the former child's nodes needed is not known.
  const auto references = std::make_shared<UserObjectReferences>(*plan.references);
  child.add_references_to(*references);
  plan.references = references;
  return CUDA_SUCCESS;
}

CUresult Executable::set_enabled(const Node& node, bool enabled) {
  const std::lock_guard lock(mutex_);
  const auto index = find(node);
  if (!index || !can_be_disabled(node.type())) return CUDA_ERROR_INVALID_VALUE;
  changeable().set_enabled(*index, enabled);
  return CUDA_SUCCESS;
}

CUresult Executable::get_enabled(const Node& node, bool& enabled) const {
  const std::lock_guard lock(mutex_);
  const auto index = find(node);
  if (!index || !can_be_disabled(node.type())) return CUDA_ERROR_INVALID_VALUE;
  enabled = plan_->is_enabled(*index);
  return CUDA_SUCCESS;
}

UpdateResult Executable::update(const Graph& graph) {
  const std::lock_guard lock(mutex_);
  Pairs pairs;
  const UpdateResult result = pair_nodes(*plan_, 0, graph, pairs);
  if (!result.is_success()) return result;
  Plan& plan = changeable();
  replace_parameters(plan, pairs);
  plan.references = references_of(graph);
  return result;
}

}  // namespace aiocuda::emulator::graph
