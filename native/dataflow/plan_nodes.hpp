// The nodes of a graph's plan in the making: each stands behind those whose bytes it touches.
//
// Always true: an operation of several nodes is one to all others: what comes after it comes after all of its nodes.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "copies.hpp"
#include "fills.hpp"
#include "graph_plan.hpp"
#include "placing.hpp"
#include "slots.hpp"

namespace aiocuda::dataflow {

class PlanNodes {
 protected:
  // An operation may be several nodes.
  void begin() { parts_.clear(); }
  void add(GraphNode node) {
    begin();
    add(std::move(node), uses_);
  }
  void add(GraphNode node, const std::vector<Use>& uses) {
    node.uses.reserve(uses.size());
    for (const Use& use : uses) {
      const SlotIndex slot = slots_.of(*use.buffer, use.span);
      const std::uint64_t begin = plan_.memory[slot].offset;
      slots_.note_use(node, slot, {use.span.begin - begin, use.span.end - begin}, use.writes);
    }
    append(std::move(node), needs_);
    parts_.push_back(last_);
  }
  void add_fills(Op& op, const Pattern& pattern, const Array& array, std::int32_t device,
                 const std::vector<Use>& uses) {
    const SlotIndex slot = slots_.of(*array.buffer, array.span());
    each_fill(pattern, array.region(), array.buffer->place(), [&](const FillBlock& block) {
      const FillNode fill{{slot, block.offset - plan_.memory[slot].offset},
                          block.value,
                          block.item_bytes,
                          block.width,
                          block.rows,
                          block.pitch};
      slots_.note_alignment(fill.to, block.item_bytes);
      add({device, nb::find(op), fill}, uses);
    });
  }
  void add_copies(Op& op, const Array& to, Pointer to_at, const Array& from, Pointer from_at, std::int32_t device,
                  const std::vector<Use>& uses) {
    each_block(to, from, [&](const CopyBlock& block) {
      auto add_rows = [&](const CopyBlock& rows) {
        const CopyNode copy{to_at.slot,
                            from_at.slot,
                            to_at.offset + rows.to - to.address(),
                            from_at.offset + rows.from - from.address(),
                            rows.width,
                            rows.rows,
                            rows.to_pitch,
                            rows.from_pitch};
        add({device, nb::find(op), copy}, uses);
      };
      if (block.rows == 1 || (block.to_pitch >= block.width && block.from_pitch >= block.width)) return add_rows(block);
      for (std::uint64_t row = 0; row < block.rows; ++row)  // rows that lie upon one another
        add_rows({block.to + row * block.to_pitch, block.from + row * block.from_pitch, block.width, 1, 0, 0});
    });
  }
  void append(GraphNode node, const std::vector<Tick>& needs) {
    last_ = order_.add(needs, after_);
    for (const NodeIndex other : after_) node.after.push_back(other);
    slots_.note_lifetimes(node, last_);
    if (plan_.device == unknown_ordinal) plan_.device = node.device;
    plan_.nodes.push_back(std::move(node));
  }
  // One node behind several that are one operation.
  void join(std::int32_t device) {
    if (parts_.size() < 2) return;
    append({device, nb::object(), JoinNode()}, parts_);
  }

  RangeHazards& hazards(Buffer& buffer) { return hazards_.try_emplace(&buffer, buffer.size_bytes).first->second; }

  GraphPlan plan_;
  Slots slots_{plan_};
  PartialOrder order_;

  // Of the operation that is looked at now.
  std::vector<Use> uses_;
  std::vector<Tick> needs_, parts_;
  Tick last_;  // of its last node; none where it is nothing to do

 private:
  std::unordered_map<Buffer*, RangeHazards> hazards_;
  std::vector<NodeIndex> after_;  // the node that is added last
};

}  // namespace aiocuda::dataflow
