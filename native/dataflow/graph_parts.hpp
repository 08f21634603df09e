// Graphs that are parts of others: what the function of a loop on the device may do, and how its graph, or another
// one, comes into the graph that is being made.
//
// Always true: a body of a conditional node has work of the device alone. Numbers from outside of a part are inputs of
// the graph that the part comes into.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "arrays_in.hpp"
#include "plan_nodes.hpp"

namespace aiocuda::dataflow {

class GraphParts : protected PlanNodes {
 protected:
  // `loop`: the function whose whole work the plan is, if it is a part. `refused_in_body` names a node of captured work
  // that no body may have; null if there is none.
  GraphParts(std::function<const char*(void*)> refused_in_body, std::string loop)
      : refused_in_body_(std::move(refused_in_body)) {
    plan_.loop = std::move(loop);
  }

  // It may become a part of a graph that is being made.
  bool is_part() const { return !plan_.loop.empty(); }

  // Something other than a kernel's parameter gets to see a number that launches may replace.
  void observe(nb::handle object) {
    for (const Input& input : plan_.inputs)
      if (!input.is_array && input.object.ptr() == object.ptr()) observed_.insert(object.ptr());
    if (const Op* const op = as_op(object); op && is_part() && is_value(*op))
      plan_.observed.push_back(nb::borrow(object));
  }
  bool is_observed(std::size_t input) const { return observed_.contains(plan_.inputs[input].object.ptr()); }

  // A number from outside of a part may be an input of the graph that the part comes into.
  void adopt_number(nb::handle object) {
    const Op* const op = is_part() ? as_op(object) : nullptr;
    if (!op || !is_value(*op)) return;
    const bool is_known = std::any_of(plan_.inputs.begin(), plan_.inputs.end(),
                                      [&](const Input& input) { return input.object.ptr() == object.ptr(); });
    if (!is_known) plan_.inputs.push_back({"a number", nb::borrow(object)});
  }

  // Appends the nodes of a graph inside, whose memory is at these places. `parts_` are the last of them.
  void append_part(ReplayOp& op, const std::vector<Pointer>& places) {
    const GraphPlan& inner = *op.plan;
    std::vector<Tick> ticks;
    std::vector<bool> is_last(inner.nodes.size(), true);
    const auto first = static_cast<NodeIndex>(plan_.nodes.size());
    const ConditionIndex conditions = std::exchange(plan_.conditions, plan_.conditions + inner.conditions);
    begin();
    for (const GraphNode& model : inner.nodes) {
      GraphNode node = model;
      std::vector<Tick> needs;
      for (const NodeIndex other : model.after) {
        needs.push_back(ticks[other]);
        is_last[other] = false;
      }
      node.move_pointers([&](const Pointer& pointer) {
        return Pointer{places[pointer.slot].slot, places[pointer.slot].offset + pointer.offset};
      });
      if (auto* const kernel = node.as<KernelNode>()) {
        slots_.move_numbers(*kernel, inner, op);
        if (kernel->sets != no_condition) kernel->sets += conditions;
      }
      if (auto* const conditional = node.as<ConditionalNode>()) conditional->condition += conditions;
      if (node.inside != no_node) node.inside += first;
      require_possible(node);
      node.after.clear();
      node.uses.clear();
      for (const NodeUse& use : model.uses) {
        const Pointer at = places[use.slot];
        slots_.note_use(node, at.slot, {at.offset + use.span.begin, at.offset + use.span.end}, use.writes);
      }
      append(std::move(node), model.after.empty() ? needs_ : needs);
      ticks.push_back(last_);
    }
    for (std::size_t i = 0; i < ticks.size(); ++i)
      if (is_last[i]) parts_.push_back(ticks[i]);
  }

  void refuse_in_body(const Op& op, const char* does, const char* instead) const {
    if (!is_in_body()) [[likely]]
      return;
    const nb::object self = nb::find(op);
    raise(error_types.capture, plan_.loop + ": " + nb::cast<std::string>(self.attr("_title")) + " " + does +
                                   "; a body on the device cannot do that: " + instead);
  }
  void require_possible(const GraphNode& node) const {
    const auto* const captured = node.as<CapturedNode>();
    if (!is_in_body() || !captured || !captured->graph) return;
    if (const char* const refused = refused_in_body_(captured->graph.get()))
      raise(error_types.capture,
            plan_.loop + ": " + captured->name + " puts " + refused +
                " on its stream; a body on the device has kernels, copies and fills alone: call it before");
  }
  [[noreturn, gnu::cold]] void raise_from_outside(const Op& op) const {
    const std::string place = op.origin.text();
    raise(error_types.capture,
          plan_.loop + ": " + nb::cast<std::string>(nb::find(op).attr("_title")) +
              (place.empty() ? "" : " (" + place + ")") +
              " was built outside of the function that uses it, and has not run; put it into the state, run it before, "
              "or build it inside of the function");
  }

 private:
  std::function<const char*(void*)> refused_in_body_;
  std::unordered_set<PyObject*> observed_;
};

}  // namespace aiocuda::dataflow
