// The walk that records operations into a graph's plan.
//
// Always true: what a recording could not take in spoils the plan, so that nothing half recorded is launched.
#pragma once
#include "graph_sink.hpp"

namespace aiocuda::dataflow {

// In a graph an operation comes after those whose bytes it touches, and after nobody else: it has no stream. The walk
// gets the device's number in place of a stream's.
template <>
class Placing<GraphSink> {
 public:
  Placing(GraphSink& planner, const Placement&, std::vector<Use>&, std::vector<Tick>&)
      : uses(planner.uses_), planner_(planner) {}

  std::vector<Use>& uses;

  void add(const Array& array, bool writes) { add_uses(array, writes, uses); }
  void put_in_force(const Placement&) {}
  StreamIndex choose(Op& op, std::int32_t device) {
    if (const Placement* put = op.where_put(); put && put->stream == no_stream) require_put(op, device);
    return choose_on_way(op, device);
  }
  StreamIndex choose_first(Op& op, std::int32_t device) { return choose(op, device); }
  StreamIndex choose_on_way(Op&, std::int32_t device) { return static_cast<StreamIndex>(device); }
  StreamIndex open(StreamId, std::int32_t device) { return static_cast<StreamIndex>(device); }

  void order(Op&, StreamIndex, bool = false) {
    std::vector<Tick>& needs = planner_.needs_;
    needs.clear();
    planner_.last_ = {};
    for (const Use& use : uses)
      planner_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span) {
        hazard.each_before(use.writes, [&](Tick tick) { needs.push_back(tick); });
      });
  }
  void commit(Op&, StreamIndex, bool) {
    if (planner_.last_.count == 0) return;
    for (const Use& use : uses) planner_.hazards(*use.buffer).commit(use.span, use.writes, planner_.last_);
  }
  void occupy(StreamIndex, bool) {}  // a plan that was refused a part is given up
  void mark(Op&, StreamIndex) {
    planner_.needs_.clear();
    planner_.last_ = {};
  }
  void commit_new(Op&, const Array& array, StreamIndex, bool) {
    if (planner_.last_.count) planner_.hazards(*array.buffer).commit(array.span(), true, planner_.last_);
  }
  void inherit(Op&, nb::handle) {}

 private:
  GraphSink& planner_;
};

inline nb::object GraphSink::record(nb::handle root, const Placement& placement) {
  if (is_spoilt_)
    raise(error_types.capture,
          "an earlier operation could not be recorded into the graph made at " + plan_.place + "; make another graph");
  Enclosure::Entered entered(enclosure_.get());
  default_device_ = placement.device_or_default();
  try {
    Path path;
    Walk<GraphSink> walk(*this, placement, scratch_, path);
    walk.run(root);
  } catch (nb::python_error& error) {
    is_spoilt_ = true;
    const nb::object failure =
        called_.empty() ? nb::borrow(error.value()) : as_op(called_.back())->failure_of(error.value());
    for (const nb::object& op : called_) as_op(op)->fail(failure);  // its function is called once
    throw;
  }
  const nb::object value = nb::borrow(result(*as_op(root)));
  hand_over();
  return value;
}

}  // namespace aiocuda::dataflow
