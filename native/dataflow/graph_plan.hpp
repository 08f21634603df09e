// The plan of a graph, before the driver knows of it: nodes, their order, the memory that they use, and the parts of it
// that a launch may replace. No CUDA in it.
//
// Always true: a node names memory by slot and offset, never by address, so an address is in one place only: in the
// slot's word. A node comes after the nodes that it names in `after`, which stand before it. The nodes of a conditional
// node's bodies stand behind it, and name it as the node that they are inside of.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "compact.hpp"
#include "footprint.hpp"
#include "launch.hpp"
#include "partial_order.hpp"

namespace aiocuda::dataflow {

// A word that a launch fills in: an address, or a number. Arrays come first, in `GraphPlan::memory`; a number's slot
// is its index in `GraphPlan::numbers`.
using SlotIndex = std::uint32_t;

struct Pointer {
  SlotIndex slot = 0;
  std::uint64_t offset = 0;
};

// A value on the device that decides whether a conditional node's body runs. One kernel or several set it.
using ConditionIndex = std::uint32_t;
inline constexpr ConditionIndex no_condition = 0xffffffff;

// Bytes that a node reads or writes.
struct NodeUse {
  Span span;  // from the slot's first byte on
  SlotIndex slot;
  bool writes;
};

// Graphs have very many nodes. So what the operation of a launch knows, such as its shape, is not here.
struct KernelNode {
  // A word that comes from a slot.
  struct Patch {
    std::uint32_t word;
    SlotIndex slot;
  };
  Compact<std::uint64_t> words;  // all parameters, one after another; in the place of an address, its offset
  Compact<Patch> addresses;
  Compact<Patch> numbers;  // that a launch may replace
  std::uint32_t parameters = 0;
  ConditionIndex sets = no_condition;  // its first parameter is the driver's handle of that

  Pointer pointer(const Patch& address) const { return {address.slot, words[address.word]}; }
};

struct FillNode {
  Pointer to;
  std::uint32_t value = 0;
  std::uint32_t item_bytes = 1;  // 1, 2 or 4
  std::uint64_t width = 0;       // items in a row
  std::uint64_t rows = 1;
  std::uint64_t pitch = 0;  // from row to row, in bytes
};

struct CopyNode {
  SlotIndex to_slot = 0, from_slot = 0;
  std::uint64_t to_offset = 0, from_offset = 0;
  std::uint64_t width = 0, rows = 1, to_pitch = 0, from_pitch = 0;

  Pointer to() const { return {to_slot, to_offset}; }
  Pointer from() const { return {from_slot, from_offset}; }
};

// The work that a function put on a stream while the stream was captured.
struct CapturedNode {
  std::shared_ptr<void> graph;  // the driver floor's
  nb::object kept;              // what the function was given, and gave back
  std::string name;
};

// Stands behind several nodes that are one operation.
struct JoinNode {};

// Runs the nodes that are inside of it: again and again as long as its condition is not zero, or once if it is not. A
// branch may have a second body, which runs if the condition is zero.
struct ConditionalNode {
  ConditionIndex condition = no_condition;
  bool repeats = false;
  std::uint8_t bodies = 1;
};

enum class NodeKind : std::uint8_t { kernel, fill, copy, captured, join, conditional };

inline const char* name_of(NodeKind kind) {
  static constexpr const char* names[] = {"kernel", "fill", "copy", "captured", "join", "conditional"};
  return names[static_cast<std::size_t>(kind)];
}

inline constexpr NodeIndex no_node = 0xffffffff;

struct GraphNode {
  std::int32_t device;
  nb::object op;  // whose work it is: its kernel, and its place in the program; none of a join or a conditional
  // In the order of their kinds.
  std::variant<KernelNode, FillNode, CopyNode, CapturedNode, JoinNode, ConditionalNode> work;
  Several<NodeIndex, 2> after{};
  Compact<NodeUse> uses{};
  NodeIndex inside = no_node;  // the conditional node that it is in a body of
  std::uint8_t body = 0;       // which body

  NodeKind kind() const { return static_cast<NodeKind>(work.index()); }
  // Null where it is of another kind.
  template <class Work>
  Work* as() {
    return std::get_if<Work>(&work);
  }
  template <class Work>
  const Work* as() const {
    return std::get_if<Work>(&work);
  }
  // The operation of a kernel's node.
  LaunchOp& launch() const { return static_cast<LaunchOp&>(*as_op(op)); }

  std::string name() const {
    if (as<KernelNode>()) return launch().signature.kernel;
    if (const auto* const captured = as<CapturedNode>()) return captured->name;
    const auto* const conditional = as<ConditionalNode>();
    return conditional ? conditional->repeats ? "while" : "if" : name_of(kind());
  }

  // Calls `f(pointer)` for all memory that it names.
  template <class F>
  void each_pointer(F&& f) const {
    if (const auto* const kernel = as<KernelNode>()) {
      for (const KernelNode::Patch& address : kernel->addresses) f(kernel->pointer(address));
    } else if (const auto* const fill = as<FillNode>()) {
      f(fill->to);
    } else if (const auto* const copy = as<CopyNode>()) {
      f(copy->to());
      f(copy->from());
    }
  }
  // Puts other memory in the place of all that it names: `f(pointer)`.
  template <class F>
  void move_pointers(F&& f) {
    if (auto* const kernel = as<KernelNode>()) {
      for (KernelNode::Patch& address : kernel->addresses) {
        const Pointer at = f(kernel->pointer(address));
        address.slot = at.slot;
        kernel->words[address.word] = at.offset;
      }
    } else if (auto* const fill = as<FillNode>()) {
      fill->to = f(fill->to);
    } else if (auto* const copy = as<CopyNode>()) {
      const Pointer to = f(copy->to()), from = f(copy->from());
      copy->to_slot = to.slot, copy->to_offset = to.offset;
      copy->from_slot = from.slot, copy->from_offset = from.offset;
    }
  }
};

static_assert(std::is_nothrow_move_constructible_v<GraphNode>);  // else a list that grows would copy all of them

enum class MemoryRole : std::uint8_t {
  constant,  // was there before
  input,     // likewise, and a launch may put another array in its place
  own,       // the graph's, between its nodes
  output     // the graph's, and its result: a launch may put another in its place
};

struct Memory {
  MemoryRole role;
  BufferRef buffer;
  std::uint64_t offset = 0;  // of its first byte in the buffer
  std::uint64_t size_bytes = 0;
  std::int32_t device = host_ordinal;
  Footprint reads{}, writes{};     // by all nodes
  std::vector<NodeIndex> users{};  // the nodes that name it
  bool shares_memory = false;      // with other temporaries of the graph
  bool is_captured = false;        // its address is inside what was captured, where nobody can replace it
  std::uint32_t alignment = 1;     // nodes rely on its address modulo this, a power of two

  // Can it be at another address, as far as alignment goes? How far that is beyond one where it can; 0: it can.
  std::uint64_t misalignment(std::uint64_t other) const { return (other - buffer->place() - offset) & (alignment - 1); }

  std::uint64_t address() const { return buffer->address + offset; }
};

// A number that a kernel takes straight from an input.
struct Number {
  std::uint32_t input;
  ParamKind kind;
  std::uint64_t word;  // as it was when the graph was made
  std::vector<NodeIndex> users{};
  std::string where;  // which argument of which kernel, for errors
};

// An input that a launch may replace, by name.
struct Input {
  std::string name;
  nb::object object;  // as it was given: an array, or an operation that yields a number
  bool is_array = false;
  SlotIndex memory = 0;  // of an array
};

// An array that was there before, as it was used: it is checked again at each launch.
struct Constant {
  nb::object array;
  bool writes;
  SlotIndex memory;
};

struct GraphPlan {
  std::string place;                      // where it was made, as "file:line"
  std::string loop;                       // the function that it is the whole work of, such as while_; or empty
  std::int32_t device = unknown_ordinal;  // on whose streams it is launched
  std::vector<GraphNode> nodes;
  std::vector<Memory> memory;
  std::vector<Number> numbers;
  std::vector<Input> inputs;
  std::vector<Constant> constants;
  std::vector<nb::object> observed;      // values that something saw once, so that no launch replaces them
  ConditionIndex conditions = 0;         // how many there are
  nb::object result;                     // what a launch yields, where it replaces no output
  Spec spec;                             // of that
  std::vector<BufferRef> shared_memory;  // of temporaries whose uses cannot overlap in time
  std::uint64_t asked_bytes = 0;         // by the arrays that are its own
  std::uint64_t shared_bytes = 0;        // what they need, one in the place of another
  std::uint64_t output_bytes = 0;
  std::shared_ptr<const Launches> launches;  // its nodes' with `threads=`
  bool has_tensors = false;                  // of other libraries, which each launch uses
  bool has_collectives = false;              // of groups, which each launch asks
  bool is_closed = false;
  std::uint64_t generation = 0;  // how often the graph was updated
};

// Finds the node of the same body that is `other`, or has it inside: the driver's graph gets an edge to that one. None
// if `other` is outside of the body, for its conditional node comes after that already. None, too, if it is in another
// body of the same node, for only one of them runs.
inline std::optional<NodeIndex> edge_to(const GraphPlan& plan, const GraphNode& node, NodeIndex other) {
  NodeIndex at = other;
  while (at != no_node && plan.nodes[at].inside != node.inside) at = plan.nodes[at].inside;
  if (at == no_node || plan.nodes[at].body != node.body) return std::nullopt;
  return at;
}

// How many branches the plan has on each device, by ordinal. A node goes on with the branch of one that it comes
// after, if that branch is on its device and nobody else goes on with it. Each body has branches of its own.
inline std::vector<std::uint64_t> branches_by_device(const GraphPlan& plan) {
  std::vector<std::uint64_t> found;
  std::vector<bool> is_end(plan.nodes.size(), true);
  for (const GraphNode& node : plan.nodes) {
    std::optional<NodeIndex> open;
    for (const NodeIndex other : node.after) {
      const std::optional<NodeIndex> edge = edge_to(plan, node, other);
      if (!open && edge && is_end[*edge] && plan.nodes[*edge].device == node.device) open = edge;
    }
    if (open) {
      is_end[*open] = false;
      continue;
    }
    const auto device = static_cast<std::size_t>(node.device);
    if (found.size() <= device) found.resize(device + 1);
    ++found[device];
  }
  return found;
}

// The same plan with memory of its own in the place of the graph's; none where an address is inside what was captured.
template <class Allocate>
std::optional<GraphPlan> with_own_memory(const GraphPlan& plan, Allocate&& allocate) {
  for (const GraphNode& node : plan.nodes)
    if (node.as<CapturedNode>()) return std::nullopt;
  GraphPlan copy = plan;
  auto renewed = [&](const BufferRef& before) {
    BufferRef buffer(std::make_unique<Buffer>(before->size_bytes, before->device));
    if (before->size_bytes) allocate(*buffer);
    return buffer;
  };
  std::map<const Buffer*, BufferRef> buffers;
  for (BufferRef& memory : copy.shared_memory) memory = buffers[memory.get()] = renewed(memory);
  for (Memory& memory : copy.memory) {
    if (memory.role != MemoryRole::own) continue;
    const auto known = buffers.find(memory.buffer.get());
    memory.buffer = known != buffers.end() ? known->second : buffers[memory.buffer.get()] = renewed(memory.buffer);
  }
  return copy;
}

}  // namespace aiocuda::dataflow
