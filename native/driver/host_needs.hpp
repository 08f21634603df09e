// What executions need of a thread of the host before they can go on: kernels that it loads, graphs that it makes,
// devices and files that it opens.
#pragma once
#include <vector>

#include "../dataflow/pageable.hpp"
#include "../dataflow/uses_ahead.hpp"
#include "calls.hpp"
#include "graph.hpp"
#include "outstanding.hpp"

namespace aiocuda::driver {

// The file that a copy reads or writes.
inline const dataflow::Pageable& file_of(const dataflow::CopyOp& copy) {
  const dataflow::Pageable* const to = dataflow::as_pageable(copy.destination);
  return to && to->host.file() ? *to : *dataflow::as_pageable(copy.source);
}

// The kernel, the graph or the file; none: it is the device.
inline nb::object subject_of(const HostNeed& need) {
  dataflow::Op& op = *dataflow::as_op(need.op);
  switch (need.kind) {
    case HostNeed::Kind::kernel:
      return nb::borrow(static_cast<dataflow::LaunchOp&>(op).kernel());
    case HostNeed::Kind::graph:
      return static_cast<dataflow::ReplayOp&>(op).graph;
    case HostNeed::Kind::file:
      return file_of(static_cast<dataflow::CopyOp&>(op)).owner;
    case HostNeed::Kind::device:
      break;
  }
  return {};
}

// Has another thread do it, if none is at it. The work is None where it has been done just now.
inline Loading begin(const Hooks& hooks, const HostNeed& need) {
  Loading begun{{}, subject_of(need), need.device};
  switch (need.kind) {
    case HostNeed::Kind::kernel:
      begun.work = begun.subject.attr("_loading")(need.device);
      break;
    case HostNeed::Kind::graph: {
      const auto& replay = static_cast<dataflow::ReplayOp&>(*dataflow::as_op(need.op));
      if (const auto& graph = graph_of(replay); !graph->is_being_made()) graph->take(replay);
      begun.work = hooks.making(begun.subject);
      break;
    }
    case HostNeed::Kind::device:
      begun.work = hooks.opening(need.device);
      break;
    case HostNeed::Kind::file:
      begun.work = hooks.opening_file(begun.subject, need.device);
      break;
  }
  return begun;
}

// What an operation, and all that it needs, will have to have loaded or made. It is known before anything is submitted;
// a launch whose device will be known only then is left out.
inline std::vector<HostNeed> needs_ahead(dataflow::Op& root) {
  std::vector<HostNeed> needs;
  dataflow::each_ahead(root, [&](dataflow::Op& op) {
    if (op.kind == dataflow::Kind::launch) {
      const auto& launch = static_cast<dataflow::LaunchOp&>(op);
      const std::int32_t known = op.known_device();
      const std::int32_t device = known == dataflow::unknown_ordinal ? op.device_put() : known;
      if (launch.shape.empty || device == dataflow::unknown_ordinal || is_there(launch, device)) return;
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
