// The walk along the steps; see replay.hpp.
#include "graph/replay.hpp"

#include <utility>

#include "graph/executable.hpp"

namespace aiocuda::emulator::graph {

namespace {

std::atomic<bool> device_may_launch{false};

}  // namespace

void ReplayWork::expect_launches_by_device() { device_may_launch.store(true); }

ReplayWork::ReplayWork(std::shared_ptr<const Plan> plan, Stream& stream, EventBindings bindings, CUgraphExec executable,
                       std::shared_ptr<Executable> launched_by_device, std::shared_ptr<Environment> parent)
    : plan_(std::move(plan)),
      stream_(stream),
      bindings_(std::move(bindings)),
      executable_(executable),
      launched_by_device_(std::move(launched_by_device)),
      parent_(std::move(parent)) {
  for (const auto& each : plan_->allocates) each->begin_use();
  for (const auto& each : plan_->frees) each->begin_use();
}

ReplayWork::~ReplayWork() {
  for (const auto& each : plan_->allocates) each->end_use();
  for (const auto& each : plan_->frees) each->end_use();
}

void ReplayWork::run() {
  if (!device_may_launch.load()) return run_nodes();
  Context& context = stream_.context();
  const auto outermost = parent_ ? nullptr : std::make_shared<Environment>(context, nullptr, nullptr);
  const std::shared_ptr<Environment>& parent = parent_ ? parent_ : outermost;
  Tails behind = run_environment(parent);
  while (!behind.empty() && !context.lost()) {
    const std::shared_ptr<Executable> next = std::move(behind.front());
    behind.pop_front();
    // What one of them launches behind itself comes before the rest.
    Tails first = next->make_tail(stream_)->run_environment(parent);
    behind.insert(behind.begin(), first.begin(), first.end());
  }
  if (outermost) outermost->wait_for_children();
}

ReplayWork::Tails ReplayWork::run_environment(const std::shared_ptr<Environment>& parent) {
  const auto environment = std::make_shared<Environment>(stream_.context(), executable_, parent);
  Environment::set_current(environment.get());
  run_nodes();
  Environment::set_current(nullptr);
  environment->wait_for_children();
  if (launched_by_device_) launched_by_device_->end_on_device();
  return environment->take_tails();
}

void ReplayWork::run_nodes() {
  set_priorities();
  assign_default_values();
  order_ = NodeOrder::of_next_replay();
  if (is_plain()) {
    run_plainly(0);
    return;
  }
  Points operations;
  run_with_care(0, nullptr, operations);
  if (!plan_->branches) return;
  for (const auto& lanes : plan_->branches->lanes) {
    for (const auto& lane : lanes) lane->join_into(*point());
  }
}

// The streams of an executable have the default priority, until a launch gives them that of its own stream.
void ReplayWork::set_priorities() {
  const int priority = stream_.priority();
  if (plan_->uses_node_priority || (priority == least_stream_priority && !plan_->had_priority->load())) return;
  plan_->had_priority->store(true);
  for (const auto& sequence : plan_->sequences) {
    for (const Step& step : sequence) {
      if (step.work) step.work->set_priority(priority);
    }
  }
}

void ReplayWork::assign_default_values() {
  for (const Index node : plan_->conditionals) {
    ConditionalValue& value = *dynamic_cast<const ConditionalParameters&>(*plan_->parameters[node]).value();
    if (value.has_default) value.value.store(value.default_value);
  }
}

ReplayWork::Then ReplayWork::run_plainly(std::size_t sequence) {
  const std::vector<Step>& steps = plan_->sequences[sequence];
  for (Index each = 0; each < steps.size(); ++each) {
    const Then then = steps[each].kind == Step::Kind::work ? run_work(steps[each]) : run_step({sequence, each});
    if (then == Then::stop) return Then::stop;
  }
  return Then::go_on;
}

ReplayWork::Then ReplayWork::run_with_care(std::size_t sequence, const checking::Point& behind, Points& operations) {
  const SequenceLayout& layout = plan_->layout->sequences[sequence];
  const auto count = static_cast<Index>(layout.after.size());
  operations.resize(count);
  std::vector<std::size_t> missing;
  std::vector<Index> ready;
  for (Index step = 0; step < count; ++step) {
    missing.push_back(layout.after[step].size());
    if (missing.back() == 0) ready.push_back(step);
  }
  for (Index done = 0; done < count; ++done) {
    const Index step = order_ ? choose(sequence, ready) : done;
    Points after;
    if (layout.after[step].empty()) after.push_back(behind);
    for (const Index each : layout.after[step]) after.push_back(operations[each]);
    const Then then =
        plan_->branches ? run_checked({sequence, step}, after, operations[step]) : run_step({sequence, step});
    if (then == Then::stop) return Then::stop;
    for (const Index each : layout.before[step]) {
      if (--missing[each] == 0) ready.push_back(each);
    }
  }
  return Then::go_on;
}

// One of those that may come next. A step that waits for others goes only if it need not wait, or if there is nothing
// else: the others may be waiting for one of the rest.
Index ReplayWork::choose(std::size_t sequence, std::vector<Index>& ready) {
  std::vector<std::size_t> unhindered;
  for (std::size_t each = 0; each < ready.size(); ++each) {
    const Step& step = step_at({sequence, ready[each]});
    const bool has_passed = step.kind == Step::Kind::wait_event && bindings_.waits[step.number].ticket.passed();
    if (!step.waits || has_passed) unhindered.push_back(each);
  }
  const std::size_t chosen =
      unhindered.empty() ? order_->choose(ready.size()) : unhindered[order_->choose(unhindered.size())];
  const Index step = ready[chosen];
  ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(chosen));
  return step;
}

ReplayWork::Then ReplayWork::run_checked(Place place, const Points& after, checking::Point& operation) {
  const Step& step = step_at(place);
  const bool is_work = step.kind == Step::Kind::work && step.is_enabled;
  const bool is_record = step.kind == Step::Kind::record_event;
  operation = is_record ? bindings_.records[step.number].point : std::make_shared<checking::Operation>();
  Points behind;
  for (const checking::Point& each : after) {
    if (each) behind.push_back(each);
  }
  if (step.kind == Step::Kind::wait_event) {
    const Points& points = bindings_.waits[step.number].points;
    behind.insert(behind.end(), points.begin(), points.end());
  }
  if (is_work) {
    const std::string text = step.work->text();
    const Index node = plan_->layout->sequences[place.sequence].node[place.step];
    if (!text.empty()) operation->text = text + " (" + plan_->layout->nodes[node].place + ")";
  }
  const checking::Ordering ordering = is_work ? step.work->ordering() : checking::Ordering{};
  lane_at(place).begin_node(operation, *point(), ++steps_begun_, behind, ordering);
  const bool is_later = is_record || step.kind == Step::Kind::conditional;
  Then then = is_later ? Then::go_on : run_step(place);
  // Nothing is remembered of what ends with the context.
  const bool has_ended = is_work && then == Then::go_on;
  const checking::Accesses accesses = has_ended ? step.work->accesses() : checking::Accesses{};
  checking::note_writes(accesses);
  lane_at(place).end(operation, ordering, accesses);
  // If a caller sees that an event has passed, its operation must have ended.
  if (is_record) pass(bindings_.records[step.number]);
  if (step.kind == Step::Kind::conditional) then = run_conditional(place, operation);
  return then;
}

ReplayWork::Then ReplayWork::run_step(Place place) {
  const Step& step = step_at(place);
  switch (step.kind) {
    case Step::Kind::nothing:
      return Then::go_on;
    case Step::Kind::work:
      return run_work(step);
    case Step::Kind::record_event:
      pass(bindings_.records[step.number]);
      return Then::go_on;
    case Step::Kind::wait_event:
      bindings_.waits[step.number].ticket.wait_in_stream(stream_.context());
      return stream_.context().lost() ? Then::stop : Then::go_on;
    case Step::Kind::conditional: {
      checking::Point unchecked;
      return run_conditional(place, unchecked);
    }
  }
  return Then::go_on;
}

ReplayWork::Then ReplayWork::run_work(const Step& step) {
  if (!step.is_enabled) return Then::go_on;
  step.work->run();
  if (!plan_->branches && checking::list_in_force()) checking::note_writes(step.work->accesses());
  if (step.context == nullptr || !step.context->lost()) return Then::go_on;
  // A waiter for the launch must learn that it did not get to its end.
  if (step.context != &stream_.context()) {
    stream_.context().fail(step.context->error(), "a graph that was launched here has lost device " +
                                                      std::to_string(step.context->device()) + " in one of its nodes");
  }
  return Then::stop;
}

ReplayWork::Then ReplayWork::run_conditional(Place place, checking::Point& operation) {
  const Index node = plan_->layout->sequences[place.sequence].node[place.step];
  const auto& conditional = dynamic_cast<const ConditionalParameters&>(*plan_->parameters[node]);
  const std::size_t bodies = conditional.bodies().size();
  const auto value = [&] { return conditional.value()->value.load(); };
  switch (conditional.kind()) {
    case CU_GRAPH_COND_TYPE_WHILE:
      while (value() != 0) {
        if (stream_.context().lost() || run_body(place, 0, operation) == Then::stop) return Then::stop;
      }
      return Then::go_on;
    case CU_GRAPH_COND_TYPE_SWITCH: {
      const unsigned body = value();
      return body < bodies ? run_body(place, body, operation) : Then::go_on;
    }
    default:  // IF
      if (value() != 0) return run_body(place, 0, operation);
      return bodies > 1 ? run_body(place, 1, operation) : Then::go_on;
  }
}

ReplayWork::Then ReplayWork::run_body(Place place, std::size_t body, checking::Point& operation) {
  const std::size_t sequence = step_at(place).number + body;
  if (is_plain()) return run_plainly(sequence);
  Points operations;
  if (run_with_care(sequence, operation, operations) == Then::stop) return Then::stop;
  if (!plan_->branches) return Then::go_on;
  operations.push_back(operation);
  operation = std::make_shared<checking::Operation>();
  lane_at(place).begin_node(operation, *point(), ++steps_begun_, operations, {});
  lane_at(place).end(operation, {}, {});
  return Then::go_on;
}

void ReplayWork::pass(const EventBindings::Record& record) {
  record.record->passed_at_ns.store(now_ns(), std::memory_order_release);
  record.has_passed->store(true);
  if (record.shared) record.shared->pass();
  stream_.tell_progress();
}

checking::Checker::Lane& ReplayWork::lane_at(Place place) const {
  return *plan_->branches->lanes[place.sequence][plan_->layout->sequences[place.sequence].line[place.step]];
}

}  // namespace aiocuda::emulator::graph
