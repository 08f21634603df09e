// A launch of a graph: are what it replaces fitting, and which bytes does the whole touch?
//
// Always true: what a launch puts in the place of an input meets no other memory of the graph where one of the two is
// written: the graph's nodes are ordered for the memory that it was made with, and would race.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "graph_plan.hpp"
#include "placing.hpp"

namespace aiocuda::dataflow {

inline std::string described_like(const Array& array) {
  std::string text = describe(array);
  if (!array.is_contiguous()) {
    std::vector<std::int64_t> strides;
    for (std::size_t axis = 0; axis < array.shape.size(); ++axis) strides.push_back(array.stride(axis));
    text += " with strides of " + describe_shape(strides) + " bytes";
  }
  return text;
}

inline bool is_alike(const Array& a, const Array& b) {
  if (a.dtype != b.dtype || a.device != b.device || a.shape != b.shape || a.tile != b.tile) return false;
  for (std::size_t axis = 0; axis < a.shape.size(); ++axis)
    if (a.shape[axis] > 1 && a.stride(axis) != b.stride(axis)) return false;
  return true;
}

class Replay {
 public:
  Replay(const GraphPlan& plan, ReplayOp& op) : plan_(plan), op_(op) {
    if (plan.is_closed) [[unlikely]]
      raise_closed();
    if (op.generation != plan.generation) [[unlikely]]
      raise_updated();
  }

  // Puts an array where an input's or an output's memory is.
  void bind(ReplayOp::Binding& binding, const Array& array) {
    if (!binding.is_output && !plan_.inputs[binding.index].is_array)
      raise(error_types.argument_type, "launch: " + plan_.inputs[binding.index].name + ": a number is expected, " +
                                           describe(array) + " was given");
    binding.take_slot(binding.is_output ? binding.index : plan_.inputs[binding.index].memory);
    const Memory& memory = plan_.memory[binding.slot];
    auto where = [&] { return name_of(binding); };
    check_usable(array, !memory.writes.empty(), where);
    if (binding.is_output) {
      if (!array.is_contiguous() || array.size_bytes() != memory.size_bytes || array.device != memory.device)
        raise(error_types.argument_value, where() + ": " + std::to_string(memory.size_bytes) +
                                              " bytes in one piece in " + describe_place(memory.device) +
                                              " are expected, " + described_like(array) + " was given");
    } else if (const Array& like = *as_array(plan_.inputs[binding.index].object); !is_alike(array, like)) {
      raise(error_types.argument_value,
            where() + ": the graph was made with " + described_like(like) + ", " + described_like(array) +
                " was given; give one of the same dtype, shape, strides and device, or make another graph");
    }
    if (memory.is_captured)
      raise(error_types.capture,
            where() +
                " is used by a function of call(), whose captured work has its address; copy() into the array that the "
                "graph was made with instead");
    if (const std::uint64_t beyond = memory.size_bytes ? memory.misalignment(array.buffer->place() + array.offset) : 0)
      raise(error_types.argument_value,
            where() + ": what was given begins " + std::to_string(beyond) +
                " bytes beyond where the graph needs it: "
                "its kernels and fills rely on an address that is a multiple of " +
                std::to_string(memory.alignment) +
                ", or as far from one as that of the array that the graph was made with; give a copy of it, with "
                "dup(), or make another graph");
    put(binding, array, memory);
  }

  // The same for an array that was found to fit when the launch was built. One thing may have changed since: whether it
  // may be used.
  void bind_again(ReplayOp::Binding& binding, const Array& array) {
    const Memory& memory = plan_.memory[binding.slot];
    check_usable(array, !memory.writes.empty(), [&] { return name_of(binding); });
    put(binding, array, memory);
  }

  void bind(ReplayOp::Binding& binding, nb::handle value) {
    const Input& input = plan_.inputs[binding.index];
    if (input.is_array)
      raise(error_types.argument_type, "launch: " + input.name + ": an array is expected, not " +
                                           nb::cast<std::string>(nb::repr(value)) +
                                           "; bring host data to the device with to_device()");
    binding.is_memory = false;
    for (std::size_t slot = 0; slot < plan_.numbers.size(); ++slot) {
      const Number& number = plan_.numbers[slot];
      if (number.input != binding.index) continue;
      op_.set_number(static_cast<SlotIndex>(slot), pack_scalar(value, number.kind, [&] {
                       return "launch: " + input.name + ", for " + number.where;
                     }));
    }
  }

  // After all of them: the arrays that stay must still be usable, and what was put in must be apart from all else.
  void check() const {
    for (const Constant& constant : plan_.constants)
      if (!find(constant.memory))
        check_usable(*as_array(constant.array), constant.writes,
                     [&] { return "launch of the graph made at " + plan_.place; });
    if (!bound_.empty() && are_near()) check_apart();
  }

  template <class F>
  void each_use(F&& f) const {
    each_place([&](const Memory& memory, const Bound& at) {
      if (!at.buffer) return;
      Loan* const tensor = at.buffer->is_address_space() ? tensor_at(at.slot) : nullptr;
      for (const Span span : memory.reads.spans())
        f(Use{at.buffer, Span{at.offset + span.begin, at.offset + span.end}, false, tensor});
      for (const Span span : memory.writes.spans())
        f(Use{at.buffer, Span{at.offset + span.begin, at.offset + span.end}, true, tensor});
    });
    for (const BufferRef& memory : plan_.shared_memory) f(Use{memory.get(), Span{0, memory->size_bytes}, true});
  }

  // The place of a memory in this launch.
  struct Bound {
    SlotIndex slot;
    Buffer* buffer;
    std::uint64_t offset;
  };
  Bound place_of(SlotIndex slot) const {
    if (const Bound* bound = find(slot)) return *bound;
    const Memory& memory = plan_.memory[slot];
    return {slot, memory.buffer.get(), memory.offset};
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] void raise_closed() const {
    raise(error_types.closed, "launch: the graph made at " + plan_.place + " was closed before this launch of it");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void raise_updated() const {
    raise(error_types.capture, "launch: the graph made at " + plan_.place +
                                   " was updated after this launch of it was built; build the launch again");
  }

  std::string name_of(const ReplayOp::Binding& binding) const {
    return binding.is_output ? "launch: what an output is written to" : "launch: " + plan_.inputs[binding.index].name;
  }

  void put(ReplayOp::Binding& binding, const Array& array, const Memory& memory) {
    binding.address = memory.size_bytes ? array.address() : 0;
    std::size_t at = bound_.size();
    while (at > 0 && bound_[at - 1].slot > binding.slot) --at;
    bound_.insert(at, {binding.slot, array.buffer.get(), array.offset});
  }

  // The loan of what is in the place of a memory, if it is a framework's.
  [[gnu::noinline]] Loan* tensor_at(SlotIndex slot) const {
    for (const ReplayOp::Binding& binding : op_.bindings)
      if (binding.is_memory && binding.slot == slot) {
        const Op* const producer = as_op(binding.value);
        const Array* const array = as_array(producer ? nb::handle(producer->outcome) : nb::handle(binding.value));
        return array ? array->tensor() : nullptr;
      }
    for (const Constant& constant : plan_.constants)
      if (constant.memory == slot) return as_array(constant.array)->tensor();
    return nullptr;
  }

  const Bound* find(SlotIndex slot) const {
    const Bound* const found = std::lower_bound(bound_.begin(), bound_.end(), slot,
                                                [](const Bound& each, SlotIndex sought) { return each.slot < sought; });
    return found != bound_.end() && found->slot == slot ? found : nullptr;
  }

  // Calls `f(memory, place)` for all memory of the graph that shares none, by slot.
  template <class F>
  void each_place(F&& f) const {
    const Bound* next = bound_.begin();
    for (std::size_t slot = 0; slot < plan_.memory.size(); ++slot) {
      const Memory& memory = plan_.memory[slot];
      const bool is_bound = next != bound_.end() && next->slot == slot;
      if (!memory.shares_memory)
        f(memory, is_bound ? *next : Bound{static_cast<SlotIndex>(slot), memory.buffer.get(), memory.offset});
      while (next != bound_.end() && next->slot <= slot) ++next;
    }
  }

  // Is something that was put in in one buffer with other memory of the graph?
  bool are_near() const {
    bool found = false;
    each_place([&](const Memory&, const Bound& at) {
      for (const Bound& each : bound_) found = found || (each.buffer == at.buffer && each.slot != at.slot);
    });
    return found;
  }
  [[gnu::noinline]] void check_apart() const {
    for (const Bound& each : bound_)
      for (std::size_t slot = 0; slot < plan_.memory.size(); ++slot) check_apart(each, static_cast<SlotIndex>(slot));
  }
  void check_apart(const Bound& mine, SlotIndex slot) const {
    if (slot == mine.slot || plan_.memory[slot].shares_memory) return;
    const Bound theirs = place_of(slot);
    if (theirs.buffer != mine.buffer) return;
    const Memory &a = plan_.memory[mine.slot], &b = plan_.memory[slot];
    if (meet(a.writes, mine.offset, b.writes, theirs.offset) || meet(a.writes, mine.offset, b.reads, theirs.offset) ||
        meet(a.reads, mine.offset, b.writes, theirs.offset))
      raise(error_types.argument_value,
            "launch: " + name_of(mine.slot) + " lies upon " + name_of(slot) +
                ", and the graph writes one of them; it was made with "
                "memory apart, and its nodes are ordered for that. Give memory apart, or make another graph");
  }
  static bool meet(const Footprint& a, std::uint64_t a_offset, const Footprint& b, std::uint64_t b_offset) {
    for (const Span x : a.spans())
      for (const Span y : b.spans())
        if (a_offset + x.begin < b_offset + y.end && b_offset + y.begin < a_offset + x.end) return true;
    return false;
  }
  std::string name_of(SlotIndex slot) const {
    for (const Input& input : plan_.inputs)
      if (input.is_array && input.memory == slot) return "the array given for " + input.name;
    return plan_.memory[slot].role == MemoryRole::output ? "an output of the graph"
                                                         : "an array that the graph was made with";
  }

  const GraphPlan& plan_;
  ReplayOp& op_;
  Several<Bound, 8> bound_;  // by slot
};

}  // namespace aiocuda::dataflow
