// From a graph to a plan; see plan.hpp.
#include "graph/plan.hpp"

#include <algorithm>
#include <queue>
#include <utility>

#include "checking/checking.hpp"

namespace aiocuda::emulator::graph {
namespace {

bool is_wait(const Node& node) {
  if (node.type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) return true;
  if (const auto* const batch = node.parameters_as<BatchParameters>()) return batch->waits();
  const auto* const child = node.parameters_as<ChildParameters>();
  if (child == nullptr) return false;
  const auto& inner = child->graph()->nodes();
  return std::any_of(inner.begin(), inner.end(), [](const auto& each) { return is_wait(*each); });
}

// The nodes of a graph, each behind all that it depends on, else as they were added; but what waits for others comes
// as late as it can, so that it holds up only what must come after it. Fewer nodes where edges form a circle.
std::vector<const Node*> in_order(const Graph& graph) {
  struct Next {
    bool is_wait;
    Index place;
    const Node* node;
    bool operator<(const Next& other) const {
      return std::pair(is_wait, place) > std::pair(other.is_wait, other.place);
    }
  };
  std::priority_queue<Next> ready;
  std::unordered_map<const Node*, Next> entries;
  std::unordered_map<const Node*, std::size_t> missing;
  Index place = 0;
  for (const auto& node : graph.nodes()) {
    const Next entry{is_wait(*node), place++, node.get()};
    entries.emplace(node.get(), entry);
    missing[node.get()] = node->dependencies().size();
    if (node->dependencies().empty()) ready.push(entry);
  }
  std::vector<const Node*> ordered;
  while (!ready.empty()) {
    const Node* const node = ready.top().node;
    ready.pop();
    ordered.push_back(node);
    for (const Edge& edge : node->dependents()) {
      if (--missing[edge.node] == 0) ready.push(entries.at(edge.node));
    }
  }
  return ordered;
}

const Node* any_but(const Graph& graph, const std::vector<const Node*>& ordered) {
  for (const auto& node : graph.nodes()) {
    if (std::find(ordered.begin(), ordered.end(), node.get()) == ordered.end()) return node.get();
  }
  return nullptr;
}

std::shared_ptr<const Branches> make_branches(const Layout& layout) {
  auto* const checker = checking::checker();
  if (checker == nullptr) return nullptr;
  const auto branches = std::make_shared<Branches>();
  for (const SequenceLayout& sequence : layout.sequences) {
    auto& lanes = branches->lanes.emplace_back();
    for (Index line = 0; line < sequence.lines; ++line) lanes.push_back(checker->open_branch());
  }
  return branches;
}

class Planner {
 public:
  Planner(Plan& plan, PlanFailure& failure) : plan_(plan), failure_(failure) {}

  bool plan(const Graph& graph) {
    if (has_unused_handle(graph)) {
      failure_ = {CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, nullptr};
      return false;
    }
    add_sequence();
    std::vector<Index> exits;
    if (!add_graph(graph, 0, {}, exits)) return false;
    for (SequenceLayout& sequence : layout_->sequences) draw_lines(sequence);
    collect_contexts();
    plan_.branches = make_branches(*layout_);
    plan_.layout = std::move(layout_);
    plan_.references = references_of(graph);
    return true;
  }

 private:
  Index add_sequence() {
    layout_->sequences.emplace_back();
    plan_.sequences.emplace_back();
    return static_cast<Index>(plan_.sequences.size() - 1);
  }

  Index add_step(Index sequence, Index node, Step step, const std::vector<Index>& after) {
    SequenceLayout& layout = layout_->sequences[sequence];
    const auto index = static_cast<Index>(layout.after.size());
    for (const Index each : after) layout.before[each].push_back(index);
    layout.after.push_back(after);
    layout.before.emplace_back();
    layout.node.push_back(node);
    step.context = plan_.parameters[node]->context().get();
    plan_.sequences[sequence].push_back(std::move(step));
    return index;
  }

  // A node and its edges; its steps come later.
  Index add_layout(const Node& node, const std::unordered_map<const Node*, Index>& known) {
    NodeLayout layout;
    layout.id = node.id();
    layout.place = "node " + std::to_string(node.number()) + " of graph " + std::to_string(node.graph().id());
    layout.type = node.type();
    layout.is_exit = node.dependents().empty();
    for (const Edge& edge : node.dependencies()) layout.dependencies.push_back(known.at(edge.node));
    const auto index = static_cast<Index>(layout_->nodes.size());
    layout_->nodes.push_back(std::move(layout));
    layout_->node_of_id.emplace(node.id(), index);
    plan_.parameters.push_back(node.parameters());
    return index;
  }

  // Adds the nodes of a graph behind some steps; answers the steps that its end is behind.
  bool add_graph(const Graph& graph, Index sequence, const std::vector<Index>& behind, std::vector<Index>& exits) {
    const std::vector<const Node*> ordered = in_order(graph);
    if (ordered.size() != graph.nodes().size()) {
      failure_ = {CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, any_but(graph, ordered)};
      return false;
    }
    const std::size_t place = layout_->graphs.size();
    layout_->graphs.emplace_back();
    std::unordered_map<const Node*, Index> known;
    for (const Node* const node : ordered) known.emplace(node, add_layout(*node, known));
    for (const auto& node : graph.nodes()) layout_->graphs[place].push_back(known.at(node.get()));
    std::unordered_map<const Node*, Index> last_steps;
    for (const Node* const node : ordered) {
      std::vector<Index> after;
      for (const Edge& edge : node->dependencies()) after.push_back(last_steps.at(edge.node));
      Index last = 0;
      if (!add_steps(*node, known.at(node), sequence, after.empty() ? behind : after, last)) return false;
      last_steps.emplace(node, last);
      if (node->dependents().empty()) exits.push_back(last);
    }
    if (ordered.empty()) exits = behind;
    return true;
  }

  bool add_steps(const Node& node, Index index, Index sequence, const std::vector<Index>& after, Index& last) {
    if (const auto* const child = node.parameters_as<ChildParameters>()) {
      return add_child(*child->graph(), index, sequence, after, last);
    }
    if (const auto* const conditional = node.parameters_as<ConditionalParameters>()) {
      return add_conditional(*conditional, index, sequence, after, last);
    }
    if (sequence != 0 && !may_be_in_a_body(node.type())) {
      failure_ = {CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, &node};
      return false;
    }
    if (plan_.parameters[index]->check() != CUDA_SUCCESS) {
      failure_ = {CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
      return false;
    }
    Works works;
    plan_.parameters[index]->append_work(works);
    std::vector<Step> steps;
    for (auto& work : works) {
      if (!plan_.uses_node_priority) work->set_priority(0);
      steps.push_back({.kind = Step::Kind::work, .waits = is_wait(node), .work = std::move(work)});
    }
    if (node.type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      steps.push_back({.kind = Step::Kind::record_event, .number = records_++});
      plan_.events.push_back(index);
    }
    if (node.type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
      steps.push_back({.kind = Step::Kind::wait_event, .waits = true, .number = waits_++});
      plan_.events.push_back(index);
    }
    const auto* const allocate = node.parameters_as<AllocateParameters>();
    const auto* const free = node.parameters_as<FreeParameters>();
    if (allocate != nullptr) plan_.allocates.push_back(allocate->allocation());
    if (free != nullptr) plan_.frees.push_back(free->allocation());
    if (steps.empty()) steps.emplace_back();
    last = add_step(sequence, index, std::move(steps.front()), after);
    set_steps(index, sequence, last, static_cast<Index>(steps.size()));
    for (std::size_t each = 1; each < steps.size(); ++each) {
      last = add_step(sequence, index, std::move(steps[each]), {last});
    }
    return true;
  }

  // Between a step that is behind all that the node is behind, and one that is behind all of the child.
  bool add_child(const Graph& child, Index index, Index sequence, const std::vector<Index>& after, Index& last) {
    const Index begin = add_step(sequence, index, {}, after);
    set_steps(index, sequence, begin, 0);
    layout_->nodes[index].graphs.push_back(static_cast<Index>(layout_->graphs.size()));
    std::vector<Index> exits;
    if (!add_graph(child, sequence, {begin}, exits)) return false;
    last = add_step(sequence, index, {}, exits);
    return true;
  }

  bool add_conditional(const ConditionalParameters& conditional, Index index, Index sequence,
                       const std::vector<Index>& after, Index& last) {
    const auto first_body = static_cast<Index>(plan_.sequences.size());
    for (std::size_t each = 0; each < conditional.bodies().size(); ++each) add_sequence();
    last = add_step(sequence, index, {.kind = Step::Kind::conditional, .number = first_body}, after);
    set_steps(index, sequence, last, 0);
    plan_.conditionals.push_back(index);
    for (std::size_t each = 0; each < conditional.bodies().size(); ++each) {
      layout_->nodes[index].graphs.push_back(static_cast<Index>(layout_->graphs.size()));
      std::vector<Index> exits;
      if (!add_graph(*conditional.bodies()[each], first_body + static_cast<Index>(each), {}, exits)) return false;
    }
    return true;
  }

  void set_steps(Index node, Index sequence, Index first, Index count) {
    NodeLayout& layout = layout_->nodes[node];
    layout.sequence = sequence;
    layout.first_step = first;
    layout.steps = count;
  }

  // A step goes on with the line of one that it is after, if nobody else has.
  static void draw_lines(SequenceLayout& sequence) {
    std::vector<Index> ends;  // of each line, its last step
    for (const std::vector<Index>& after : sequence.after) {
      const auto step = static_cast<Index>(sequence.line.size());
      const auto open =
          std::find_if(after.begin(), after.end(), [&](Index each) { return ends[sequence.line[each]] == each; });
      if (open == after.end()) {
        sequence.line.push_back(static_cast<Index>(ends.size()));
        ends.push_back(step);
      } else {
        sequence.line.push_back(sequence.line[*open]);
        ends[sequence.line[*open]] = step;
      }
    }
    sequence.lines = static_cast<Index>(ends.size());
  }

  void collect_contexts() {
    for (const auto& parameters : plan_.parameters) {
      auto context = parameters->type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? nullptr : parameters->context();
      const auto found = std::find(plan_.contexts.begin(), plan_.contexts.end(), context);
      if (context && found == plan_.contexts.end()) plan_.contexts.push_back(std::move(context));
    }
  }

  Plan& plan_;
  PlanFailure& failure_;
  Index records_ = 0, waits_ = 0;
  std::shared_ptr<Layout> layout_ = std::make_shared<Layout>();
};

}  // namespace

bool Plan::is_enabled(Index node) const {
  const NodeLayout& of_node = layout->nodes[node];
  return sequences[of_node.sequence][of_node.first_step].is_enabled;
}

void Plan::set_enabled(Index node, bool enabled) {
  const NodeLayout& of_node = layout->nodes[node];
  sequences[of_node.sequence][of_node.first_step].is_enabled = enabled;
}

bool Plan::copies_within_host() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const ParametersPointer& each) {
    const auto* const copy = dynamic_cast<const CopyParameters*>(each.get());
    return copy != nullptr && copy->is_within_host();
  });
}

void Plan::set_parameters(Index node, ParametersPointer next) {
  const NodeLayout& of_node = layout->nodes[node];
  Works works;
  next->append_work(works);
  Index step = of_node.first_step;
  for (auto& work : works) {
    if (!uses_node_priority) work->set_priority(0);
    sequences[of_node.sequence][step++].work = std::move(work);
  }
  sequences[of_node.sequence][of_node.first_step].context = next->context().get();
  parameters[node] = std::move(next);
}

std::shared_ptr<const UserObjectReferences> references_of(const Graph& graph) {
  const auto references = std::make_shared<UserObjectReferences>();
  graph.add_references_to(*references);
  return references;
}

CUresult make_plan(const Graph& graph, bool uses_node_priority, Plan& plan, PlanFailure& failure) {
  plan.uses_node_priority = uses_node_priority;
  return Planner(plan, failure).plan(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace aiocuda::emulator::graph
