// The nodes of a graph's plan in the making: each stands behind those whose bytes it touches.
//
// Always true: an operation of several nodes is one to all others: what comes after it comes after all of its nodes. A
// body lies between its conditional node and a join. Earlier nodes come before the conditional node, later ones after
// the join. Both use all memory from outside that a body uses, so nothing of that is used for another array while a
// body may run once more.
#pragma once
#include <algorithm>
#include <map>
#include <string>
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
    const Level& level = levels_.back();
    if (node.inside == no_node) node.inside = level.inside, node.body = level.body;
    if (level.floor.count) {
      behind_.assign(needs.begin(), needs.end());
      behind_.push_back(level.floor);
    }
    if (is_in_body() && node.device != plan_.nodes[level.inside].device) refuse_device(node);
    last_ = order_.add(level.floor.count ? behind_ : needs, after_);
    for (const NodeIndex other : after_) node.after.push_back(other);
    slots_.note_lifetimes(node, last_);
    if (plan_.device == unknown_ordinal) plan_.device = node.device;
    plan_.nodes.push_back(std::move(node));
    ticks_.push_back(last_);
  }
  // One node behind several that are one operation.
  void join(std::int32_t device) {
    if (parts_.size() < 2) return;
    append({device, nb::object(), JoinNode()}, parts_);
  }

  // From here on nodes are in the first body of a conditional one.
  void open_body(ConditionalNode conditional, std::int32_t device) {
    const auto index = static_cast<NodeIndex>(plan_.nodes.size());
    const auto first = ticks_.begin() + static_cast<std::ptrdiff_t>(levels_.back().first);
    append({device, nb::object(), conditional}, std::vector<Tick>(first, ticks_.end()));
    levels_.push_back({index + std::size_t{1}, plan_.memory.size(), last_, index});
  }
  void open_next_body() {
    Level& level = levels_.back();
    ++level.body;
    level.floor = ticks_[level.inside];
  }
  void close_body() {
    const Level level = levels_.back();
    levels_.pop_back();
    std::map<std::pair<SlotIndex, bool>, Footprint> found;
    for (std::size_t index = level.first; index < plan_.nodes.size(); ++index)
      for (const NodeUse& use : plan_.nodes[index].uses)
        if (use.slot < level.slots || plan_.memory[use.slot].role != MemoryRole::own)
          found[{use.slot, use.writes}].add(use.span);
    GraphNode& begin = plan_.nodes[level.inside];
    for (const auto& [at, footprint] : found)
      for (const Span span : footprint.spans()) begin.uses.push_back({span, at.first, at.second});
    slots_.note_lifetimes(begin, ticks_[level.inside]);
    GraphNode end{begin.device, nb::object(), JoinNode()};
    end.uses = begin.uses;
    append(std::move(end), std::vector<Tick>(ticks_.begin() + level.inside, ticks_.end()));
    levels_.back().floor = last_;
  }
  bool is_in_body() const { return levels_.size() > 1; }

  // The workspace that was made last of those whose users all come before the operation that is looked at now,
  // whatever else it will use; none if there is none. So the operation waits for nobody else if it gets that.
  BufferRef free_workspace(std::uint64_t size_bytes, std::int32_t device) {
    const auto is_free = [&](const BufferRef& buffer) {
      bool is_passed = buffer->device == device && buffer->size_bytes >= size_bytes;
      hazards(*buffer).each([&](const Hazard& hazard, Span) {
        hazard.each_before(true, [&](Tick tick) { is_passed = is_passed && comes_after(tick); });
      });
      return is_passed;
    };
    const auto found = std::find_if(workspaces_.rbegin(), workspaces_.rend(), is_free);
    return found == workspaces_.rend() ? BufferRef() : *found;
  }

  RangeHazards& hazards(Buffer& buffer) { return hazards_.try_emplace(&buffer, buffer.size_bytes).first->second; }

  GraphPlan plan_;
  Slots slots_{plan_};
  PartialOrder order_;

  // Of the operation that is looked at now.
  std::vector<Use> uses_;
  std::vector<Tick> needs_, parts_;
  Tick last_;  // of its last node; none where it is nothing to do

  std::vector<BufferRef> workspaces_;  // of captured work

 private:
  bool comes_after(Tick tick) const {
    const auto is_behind = [&](Tick need) {
      return need.stream == tick.stream ? need.count >= tick.count : need.count && order_.precedes(tick, need);
    };
    return is_behind(levels_.back().floor) || std::any_of(needs_.begin(), needs_.end(), is_behind);
  }

  // The nodes that are recorded now: those outside of all bodies, or those of one body.
  struct Level {
    std::size_t first = 0;  // node
    std::size_t slots = 0;  // that there were before it
    Tick floor{};           // which all that is added comes after
    NodeIndex inside = no_node;
    std::uint8_t body = 0;
  };

  [[noreturn, gnu::cold]] void refuse_device(const GraphNode& node) const {
    const std::string title = node.op.is_valid() ? nb::cast<std::string>(node.op.attr("_title")) : node.name();
    raise(error_types.device_mismatch,
          plan_.loop + ": " + title + " works on device " + std::to_string(node.device) + ", and the loop on device " +
              std::to_string(plan_.nodes[levels_.back().inside].device) +
              "; a loop on a device works on that device alone: bring what it needs over with .to(device) before");
  }

  std::unordered_map<Buffer*, RangeHazards> hazards_;
  std::vector<NodeIndex> after_;  // the node that is added last
  std::vector<Level> levels_{Level{}};
  std::vector<Tick> ticks_;   // of the nodes
  std::vector<Tick> behind_;  // the node that is added now
};

}  // namespace aiocuda::dataflow
