// The bytes that an operation, and all that it needs, will read and write, as far as that is known before they run.
//
// Always true: each operation that has not run is looked at once, its consumers first. Arrays that a function of the
// program's names are not known before it is called.
#pragma once
#include <unordered_set>
#include <vector>

#include "arrays_in.hpp"
#include "graph_plan.hpp"
#include "launch.hpp"
#include "pageable.hpp"
#include "placing.hpp"

namespace aiocuda::dataflow {

// Calls `look(op)` for an operation and all that it needs, of those that have not run.
template <class F>
void each_ahead(Op& root, F&& look) {
  if (root.state != State::pending) return;
  std::vector<Op*> left;
  std::unordered_set<const Op*> seen;  // without the root, which needs none that needs it
  for (Op* op = &root; op;) {
    look(*op);
    each_argument(*op, [&](nb::handle argument) {
      Op* const child = as_op(argument);
      if (child && child->state == State::pending && seen.insert(child).second) left.push_back(child);
    });
    op = left.empty() ? nullptr : left.back();
    if (op) left.pop_back();
  }
}

class UsesAhead {
 public:
  // `pageable`: the buffer that stands for all pageable memory.
  explicit UsesAhead(Buffer& pageable) : pageable_(pageable) {}

  std::vector<Use> of(Op& root) {
    each_ahead(root, [&](Op& op) { look(op); });
    return std::move(uses_);
  }
  // Those of files alone.
  static std::vector<Use> of_files(Op& root) {
    std::vector<Use> uses;
    each_ahead(root, [&](Op& op) {
      if (op.kind != Kind::copy) return;
      const auto& copy = static_cast<CopyOp&>(op);
      if (const Pageable* to = as_pageable(copy.destination); to && to->file)
        uses.push_back({&*to->file, to->span(), true});
      if (const Pageable* from = as_pageable(copy.source); from && from->file)
        uses.push_back({&*from->file, from->span(), false});
    });
    return uses;
  }

 private:
  void look(Op& op) {
    switch (op.kind) {
      case Kind::launch: {
        auto& launch = static_cast<LaunchOp&>(op);
        for (std::uint32_t i = 0; i < launch.bound; ++i)
          if (const Param& param = launch.signature.params[i]; !is_scalar(param.kind))
            add(launch.arguments[i].object, param.writes);
        launch.signature.memory->each(op.known_device(), [&](const ModuleMemory::Variable& each) {
          uses_.push_back({each.buffer.get(), {0, each.buffer->size_bytes}, each.writes});
        });
        return;
      }
      case Kind::fill:
        return add(static_cast<FillOp&>(op).destination, true);
      case Kind::copy:
        add(static_cast<CopyOp&>(op).destination, true);
        return add(static_cast<CopyOp&>(op).source, false);
      case Kind::foreign:
        for (const ForeignOp::Access& each : static_cast<ForeignOp&>(op).accesses) add(each.array, each.writes);
        if (const nb::object& state = static_cast<ForeignOp&>(op).state; state.is_valid()) {
          for (const nb::object& each : static_cast<ForeignOp&>(op).arguments) add(each, false);
          add(state, static_cast<ForeignOp&>(op).keeps_state);
        }
        return;
      case Kind::replay: {
        const auto& replay = static_cast<ReplayOp&>(op);
        for (const ReplayOp::Binding& each : replay.bindings) add(each.value, true);
        for (const Constant& each : replay.plan->constants)
          if (as_array(each.array)->tensor()) add(each.array, each.writes);
        for (const Memory& each : replay.plan->memory)
          if (each.buffer)
            uses_.push_back({each.buffer.get(), {each.offset, each.offset + each.size_bytes}, !each.writes.empty()});
        return;
      }
      default:
        return;
    }
  }

  // If an operation that has not run yields it, that operation is visited as well.
  void add(nb::handle object, bool writes) {
    if (const Op* op = as_op(object)) {
      if (!op->is_done()) return;
      object = op->outcome;
    }
    const Pageable* memory = as_pageable(object);
    if (memory && !memory->locked.is_valid()) {
      uses_.push_back({&memory->hazards_in(pageable_), memory->span(), writes});
    } else {
      each_array_in(memory ? nb::handle(memory->locked) : object, [&](const Array& array, nb::handle) {
        if (array.buffer) add_uses(array, writes, uses_);
      });
    }
  }

  Buffer& pageable_;
  std::vector<Use> uses_;
};

}  // namespace aiocuda::dataflow
