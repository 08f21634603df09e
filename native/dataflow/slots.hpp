// The slots of a graph in the making: which memory and which numbers its nodes name, what of it launches may replace,
// and where in the end the arrays lie that are the graph's own.
//
// Always true: a buffer has one slot, unless inputs are parts of it, which have one each, or it stands for memory that
// is somebody else's, where each part has one; what an operation touches lies in one slot as a whole. A buffer's place
// is decided once, at the end, unless somebody has asked for its address before.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "access.hpp"
#include "graph_plan.hpp"
#include "replay.hpp"
#include "reuse.hpp"

namespace aiocuda::dataflow {

class Slots {
 public:
  explicit Slots(GraphPlan& plan) : plan_(plan) {}

  // Memory of an input, before anything else is there.
  SlotIndex add_input(const std::string& name, const Array& array) {
    const auto slot = static_cast<SlotIndex>(plan_.memory.size());
    const Span span = array.span();
    for (const Input& other : plan_.inputs) {
      if (!other.is_array || plan_.memory[other.memory].buffer.get() != array.buffer.get()) continue;
      if (overlap(as_array(other.object)->region(), array.region()))
        raise(error_types.argument_value, "graph: the inputs " + other.name + " and " + name +
                                              " lie upon one another; each input needs memory of its own");
    }
    plan_.memory.push_back({MemoryRole::input, array.buffer, span.begin, span.end - span.begin, array.device});
    slots_[array.buffer.get()].push_back(slot);
    return slot;
  }

  // Memory of an array that is made in the graph.
  void add_own(const BufferRef& buffer, std::uint64_t size_bytes, std::int32_t device) {
    slots_[buffer.get()].push_back(static_cast<SlotIndex>(plan_.memory.size()));
    plan_.memory.push_back({MemoryRole::own, buffer, 0, size_bytes, device});
    if (device != host_ordinal) plan_.asked_bytes += size_bytes;
  }

  // The memory that bytes of a buffer are a part of.
  SlotIndex of(Buffer& buffer, Span span) {
    std::vector<SlotIndex>& slots = slots_[&buffer];
    for (const SlotIndex slot : slots) {
      const Memory& memory = plan_.memory[slot];
      if (memory.role != MemoryRole::input && !buffer.is_address_space()) return slot;
      const std::uint64_t end = memory.offset + memory.size_bytes;
      if (memory.offset <= span.begin && span.end <= end) return slot;
      if (memory.role == MemoryRole::input && span.begin < end && memory.offset < span.end)
        raise(error_types.capture, "graph: an operation uses memory that lies partly in the input " + name_of(slot) +
                                       " and partly beside it, so that the input "
                                       "could not be replaced; give the whole array as the input");
    }
    const auto slot = static_cast<SlotIndex>(plan_.memory.size());
    const Span whole = buffer.is_address_space() ? span : Span{0, buffer.size_bytes};
    plan_.memory.push_back(
        {MemoryRole::constant, BufferRef::another(buffer), whole.begin, whole.end - whole.begin, buffer.device});
    slots.push_back(slot);
    return slot;
  }

  // Is it made in the graph?
  bool is_own(const Array& array) const {
    const auto found = slots_.find(array.buffer.get());
    return found != slots_.end() && plan_.memory[found->second.front()].role == MemoryRole::own;
  }
  // Do nodes write bytes of an array that was there before, by that name?
  bool is_written_constant(const Array& array) const {
    const auto found = slots_.find(array.buffer.get());
    if (found == slots_.end()) return false;
    const Span sought = array.span();
    for (const SlotIndex slot : found->second) {
      const Memory& memory = plan_.memory[slot];
      if (memory.role != MemoryRole::constant) continue;
      for (const Span span : memory.writes.spans())
        if (memory.offset + span.begin < sought.end && sought.begin < memory.offset + span.end) return true;
    }
    return false;
  }
  bool is_captured(const Array& array) const {
    const auto found = slots_.find(array.buffer.get());
    return found != slots_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                [this](SlotIndex slot) { return plan_.memory[slot].is_captured; });
  }

  // `given`: the array's handle, where it is one.
  Pointer pointer_to(const Array& array, nb::handle given, bool writes) {
    const SlotIndex slot = of(*array.buffer, array.span());
    Memory& memory = plan_.memory[slot];
    if (memory.role == MemoryRole::input && !as_array(input_of(slot).object)->is_contiguous() &&
        array.region() != as_array(input_of(slot).object)->region() && array.size_bytes())
      raise(error_types.capture, "graph: an operation uses a part of the input " + name_of(slot) +
                                     ", which does not lie in one piece; give the part as the input, or dup() it");
    note_constant(given, slot, writes);
    return {slot, array.offset - memory.offset};
  }

  // A node relies on how a pointer is aligned, so what a launch puts there must be aligned as well.
  void note_alignment(Pointer at, std::uint32_t alignment) {
    Memory& memory = plan_.memory[at.slot];
    memory.alignment = std::max(memory.alignment, alignment);
  }

  // An array that was there before: each launch asks whether it may still be used so.
  void note_constant(nb::handle given, SlotIndex slot, bool writes) {
    if (plan_.memory[slot].role != MemoryRole::constant && plan_.memory[slot].role != MemoryRole::input) return;
    if (!as_array(given)) return;
    plan_.has_tensors = plan_.has_tensors || as_array(given)->tensor();
    const auto [at, is_new] = constants_.try_emplace(given.ptr(), plan_.constants.size());
    if (is_new) {
      plan_.constants.push_back({nb::borrow(given), writes, slot});
    } else if (writes) {
      plan_.constants[at->second].writes = true;
    }
  }

  void note_number(KernelNode& kernel, std::uint32_t word, nb::handle argument, ParamKind kind, std::string where,
                   std::uint64_t value) {
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].object.ptr() != argument.ptr()) continue;
      auto slot = std::find_if(plan_.numbers.begin(), plan_.numbers.end(),
                               [&](const Number& number) { return number.input == i && number.kind == kind; });
      if (slot == plan_.numbers.end())
        slot = plan_.numbers.insert(slot, {static_cast<std::uint32_t>(i), kind, value, {}, std::move(where)});
      kernel.numbers.push_back({word, static_cast<SlotIndex>(slot - plan_.numbers.begin())});
      return;
    }
  }

  void refuse_input(nb::handle argument, const std::string& where) const {
    for (const Input& input : plan_.inputs)
      if (input.object.ptr() == argument.ptr())
        raise(error_types.capture,
              where + ": the input " + input.name +
                  " is a struct, and launches of a graph replace arrays and numbers; pass its members one by one, "
                  "or an array of it");
  }

  // The places of the memory of a graph within this one.
  Pointer place_of_inner(const GraphPlan& inner, const Replay& replay, SlotIndex slot) {
    const Memory& memory = inner.memory[slot];
    const Replay::Bound at = replay.place_of(slot);
    if (memory.size_bytes == 0) return {of(*at.buffer, {at.offset, at.offset}), 0};
    const SlotIndex here = of(*at.buffer, {at.offset, at.offset + memory.size_bytes});
    note_alignment({here, 0}, memory.alignment);
    plan_.memory[here].is_captured = plan_.memory[here].is_captured || memory.is_captured;
    return {here, at.offset - plan_.memory[here].offset};
  }
  // The replacements of an inner launch are fixed here, unless they are inputs of this graph too.
  void move_numbers(KernelNode& kernel, const GraphPlan& inner, const ReplayOp& op) {
    for (const KernelNode::Patch& number : std::exchange(kernel.numbers, {})) {
      const Number& slot = inner.numbers[number.slot];
      std::uint64_t& word = kernel.words[number.word] = slot.word;
      for (const ReplayOp::Word& bound : op.numbers)
        if (bound.slot == number.slot) word = bound.word;
      for (const ReplayOp::Binding& binding : op.bindings)
        if (!binding.is_output && binding.index == slot.input)
          note_number(kernel, number.word, binding.value, slot.kind, slot.where, word);
    }
  }

  void note_use(GraphNode& node, SlotIndex slot, Span span, bool writes) {
    node.uses.push_back({span, slot, writes});
    (writes ? plan_.memory[slot].writes : plan_.memory[slot].reads).add(span);
  }
  // A node has its place in the order: what it uses lives then.
  void note_lifetimes(const GraphNode& node, Tick at) {
    lifetimes_.resize(plan_.memory.size());
    for (const NodeUse& use : node.uses) lifetimes_[use.slot].add(at);
  }

  // The end: memory for the results, and one for all else that is the graph's own, in which arrays lie upon one another
  // where they can. `allocate(buffer)` gives a buffer its memory.
  template <class Allocate>
  void lay_out(const std::vector<const Array*>& results, const PartialOrder& order, Allocate&& allocate) {
    for (const Array* array : results) {
      const auto found = slots_.find(array->buffer.get());
      if (found == slots_.end()) continue;
      for (const SlotIndex slot : found->second)
        if (plan_.memory[slot].role == MemoryRole::own) make_output(plan_.memory[slot], allocate);
    }
    place_own(order, allocate);
    for (Memory& memory : plan_.memory) {
      if (memory.role != MemoryRole::input || !memory.buffer->enclosure) continue;
      // Somebody has the placeholder's address: it is copied to.
      memory.is_captured = memory.is_captured || memory.buffer->address;
      if (memory.is_captured) memory.buffer->enclosure.reset();
    }
    for (std::size_t node = 0; node < plan_.nodes.size(); ++node) note_users(static_cast<NodeIndex>(node));
  }

 private:
  std::string name_of(SlotIndex slot) const {
    for (const Input& input : plan_.inputs)
      if (input.is_array && input.memory == slot) return input.name;
    return {};
  }
  Input& input_of(SlotIndex slot) {
    return *std::find_if(plan_.inputs.begin(), plan_.inputs.end(),
                         [slot](const Input& input) { return input.is_array && input.memory == slot; });
  }

  template <class Allocate>
  void make_output(Memory& memory, Allocate& allocate) {
    if (memory.size_bytes && !memory.buffer->address) allocate(*memory.buffer);
    memory.buffer->enclosure.reset();
    memory.role = MemoryRole::output;
    plan_.output_bytes += memory.size_bytes;
  }

  template <class Allocate>
  void place_own(const PartialOrder& order, Allocate& allocate) {
    std::map<std::int32_t, std::vector<SlotIndex>> by_device;
    lifetimes_.resize(plan_.memory.size());
    for (std::size_t slot = 0; slot < plan_.memory.size(); ++slot) {
      const Memory& memory = plan_.memory[slot];
      if (memory.role != MemoryRole::own || memory.size_bytes == 0) continue;
      if (!memory.buffer->address)
        by_device[memory.device].push_back(static_cast<SlotIndex>(slot));
      else if (memory.device != host_ordinal)
        plan_.shared_bytes += memory.size_bytes;  // somebody has its address, so nothing else lies there
    }
    for (const auto& [device, slots] : by_device) {
      std::vector<Temporary> temporaries;
      for (const SlotIndex slot : slots) temporaries.push_back({plan_.memory[slot].size_bytes, lifetimes_[slot]});
      constexpr std::uint64_t alignment = 256;  // what the driver gives
      const SharedLayout layout = place_temporaries(temporaries, order, alignment);
      BufferRef shared(std::make_unique<Buffer>(layout.size_bytes, device));
      if (layout.size_bytes) allocate(*shared);
      plan_.shared_bytes += layout.size_bytes;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        Memory& memory = plan_.memory[slots[i]];
        memory.buffer = shared;
        memory.offset = layout.offsets[i];
        memory.shares_memory = true;
      }
      if (layout.size_bytes) plan_.shared_memory.push_back(std::move(shared));
    }
  }

  void note_users(NodeIndex index) {
    const GraphNode& node = plan_.nodes[index];
    auto note = [index](std::vector<NodeIndex>& users) {
      if (users.empty() || users.back() != index) users.push_back(index);
    };
    node.each_pointer([&](const Pointer& pointer) { note(plan_.memory[pointer.slot].users); });
    if (const auto* const kernel = node.as<KernelNode>())
      for (const KernelNode::Patch& number : kernel->numbers) note(plan_.numbers[number.slot].users);
  }

  GraphPlan& plan_;
  std::vector<Lifetime> lifetimes_;  // by memory
  std::unordered_map<Buffer*, std::vector<SlotIndex>> slots_;
  std::unordered_map<PyObject*, std::size_t> constants_;
};

}  // namespace aiocuda::dataflow
