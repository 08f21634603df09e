// What an operation, and all that it needs, will have to have loaded or made by a thread of the host.
//
// Always true: it is known before anything is submitted. A launch whose device will be known only then is left out.
#pragma once
#include <vector>

#include "../dataflow/uses_ahead.hpp"
#include "calls.hpp"
#include "graph.hpp"
#include "outstanding.hpp"

namespace aiocuda::driver {

inline bool is_there(dataflow::LaunchOp& op, std::int32_t device) {
  return op.shape.empty || is_loaded(op, device) || nb::cast<bool>(op.kernel().attr("_is_loaded")(device));
}

inline std::vector<HostNeed> needs_ahead(dataflow::Op& root) {
  std::vector<HostNeed> needs;
  dataflow::each_ahead(root, [&](dataflow::Op& op) {
    if (op.kind == dataflow::Kind::launch) {
      const std::int32_t known = op.known_device();
      const std::int32_t device = known == dataflow::unknown_ordinal ? op.device_put() : known;
      if (device == dataflow::unknown_ordinal || is_there(static_cast<dataflow::LaunchOp&>(op), device)) return;
      needs.push_back({.op = object_of(op), .device = device});
    } else if (op.kind == dataflow::Kind::replay) {
      const auto& replay = static_cast<dataflow::ReplayOp&>(op);
      if (graph_of(replay)->is_made()) return;
      needs.push_back({.op = object_of(op), .device = replay.plan->device, .kind = HostNeed::Kind::graph});
    }
  });
  return needs;
}

}  // namespace aiocuda::driver
