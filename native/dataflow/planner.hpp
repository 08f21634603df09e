// The sink that makes a graph's plan of the walk: each operation becomes a node behind those whose bytes it touches,
// and nothing is submitted. What the driver must do for it meanwhile, it asks the house for.
//
// Always true: arrays that are made in the walk have no address until the plan is finished, unless somebody has asked for
// it; until then, and but for the results for ever, only this graph's operations use them.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "copies.hpp"
#include "fills.hpp"
#include "graph_plan.hpp"
#include "record.hpp"
#include "replay.hpp"
#include "reuse.hpp"
#include "walk.hpp"

namespace aiocuda::dataflow {

// What a `map` makes of a value that each launch completes anew: called then.
struct Late {
  nb::object function, input;
};
inline TypeTest is_late;
inline Late* as_late(nb::handle object) { return object.ptr() && is_late(object.ptr()) ? nb::inst_ptr<Late>(object) : nullptr; }

class Planner {
 public:
  using Value = nb::handle;

  // What only who knows the driver can do.
  struct House {
    std::function<void(Buffer&, Op*)> allocate;  // gives a buffer its memory, for an operation or the graph itself
    std::function<nb::object(Array&&)> object_of;
    std::function<bool(std::int32_t, std::int32_t)> is_peer;
    std::function<std::shared_ptr<void>(ForeignOp&, const std::vector<nb::handle>&, std::int32_t device, nb::object& kept, nb::object& returned)> capture;
    std::function<nb::object(nb::handle)> lift;
  };

  Planner(House house, std::string place) : house_(std::move(house)), enclosure_(std::make_shared<Inside>(house_)) {
    enclosure_->place = plan_.place = std::move(place);
  }
  ~Planner() { enclosure_->is_open = false; }
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // Before anything is recorded: an array, or an operation that yields a number.
  void add_input(std::string name, nb::object object) {
    Input input{std::move(name), object};
    if (const Array* array = as_array(object)) {
      const Enclosure::Entered entered(enclosure_.get());
      check_usable(*array, false, [&] { return "graph: " + input.name; });
      input.is_array = true;
      input.memory = static_cast<SlotIndex>(plan_.memory.size());
      const Span span = array->span();
      for (const Input& other : plan_.inputs) {
        if (!other.is_array || plan_.memory[other.memory].buffer.get() != array->buffer.get()) continue;
        if (overlap(as_array(other.object)->region(), array->region()))
          raise(error_types.argument_value, "graph: the inputs " + other.name + " and " + input.name + " lie upon one another; each input needs memory of its own");
      }
      plan_.memory.push_back({MemoryRole::input, array->buffer, span.begin, span.end - span.begin, array->device});
      slots_[array->buffer.get()].push_back(input.memory);
    }
    plan_.inputs.push_back(std::move(input));
  }

  // The same for an array that is not there yet, and that every launch gives: in the place of one like it.
  nb::object add_placeholder(std::string name, const Array& like) {
    const Span span = like.span();
    auto buffer = std::make_unique<Buffer>(span.end - span.begin, like.device);
    buffer->enclosure = enclosure_;
    Array array{BufferRef(std::move(buffer)), 0, like.device, like.dtype, like.shape, like.strides};
    array.tile = like.tile;
    nb::object object = house_.object_of(std::move(array));
    add_input(std::move(name), object);
    return object;
  }

  // Takes in an operation and all that it needs; they belong to the graph afterwards. Gives back the handle of its
  // result.
  nb::object record(nb::handle root, const Placement& placement);

  // Lays out the memory. `results`: all that somebody may look at when the graph has run.
  GraphPlan finish(const std::vector<const Array*>& results, nb::object result) {
    plan_.result = std::move(result);
    for (const Array* array : results) {
      const auto found = slots_.find(array->buffer.get());
      if (found == slots_.end()) continue;
      for (const SlotIndex slot : found->second)
        if (plan_.memory[slot].role == MemoryRole::own) make_output(plan_.memory[slot]);
    }
    lodge_own();
    for (Memory& memory : plan_.memory)  // a placeholder with an address is copied to
      if (memory.role == MemoryRole::input && memory.is_captured) memory.buffer->enclosure.reset();
    if (plan_.device == unknown_ordinal) plan_.device = default_device_;
    for (std::size_t node = 0; node < plan_.nodes.size(); ++node) note_users(static_cast<NodeIndex>(node));
    enclosure_->is_open = false;
    return std::move(plan_);
  }

  const GraphPlan& plan() const { return plan_; }
  // Has something seen the address of an input, so that a launch cannot replace it everywhere?
  bool is_captured(std::size_t input) const {
    const Memory& memory = plan_.memory[plan_.inputs[input].memory];
    return memory.is_captured || (memory.buffer->enclosure && memory.buffer->address);
  }
  // The memory that an array lies in, as bytes, where it was made in the graph; else nothing.
  std::optional<Array> whole_of(const Array& array, DType byte) const {
    const auto found = slots_.find(array.buffer.get());
    if (found == slots_.end() || plan_.memory[found->second.front()].role != MemoryRole::own) return std::nullopt;
    return Array{array.buffer, 0, array.device, byte, {static_cast<std::int64_t>(array.buffer->size_bytes)}};
  }
  bool is_captured(const Array& array) const {
    const auto found = slots_.find(array.buffer.get());
    return found != slots_.end() && std::any_of(found->second.begin(), found->second.end(), [this](SlotIndex slot) { return plan_.memory[slot].is_captured; });
  }
  bool is_observed(std::size_t input) const { return observed_.contains(plan_.inputs[input].object.ptr()); }

  // --- the walk's questions and orders

  bool is_done(const Op& op) const { return op.is_done() || results_.contains(&op); }
  bool is_failed(const Op& op) const { return op.state == State::failed; }
  [[noreturn]] void raise_again(const Op& op) const { Record::raise_stored(op); }
  void fail(Op&, nb::handle) {}

  Value result(const Op& op) const {
    const auto found = results_.find(&op);
    return found != results_.end() ? nb::handle(found->second) : nb::handle(op.outcome);
  }
  Value constant(nb::handle object) const { return object; }
  const Array* array(Value value) const {
    require_now(value);
    return as_array(value);
  }
  nb::handle object(Value value) const {
    require_now(value);
    return value;
  }
  bool is_unknown(Value) const { return false; }
  void hold_back() {}
  void make_held_calls() {}
  void make_held_calls_now() {}
  bool is_complete(Tick) const { return true; }
  bool is_peer(std::int32_t device, std::int32_t other) const { return house_.is_peer(device, other); }

  void launch(LaunchOp& op, StreamIndex, std::int32_t device) {
    if (op.shape.empty) return;
    GraphNode node{NodeKind::kernel, device, nb::find(static_cast<Op&>(op)), op.signature.kernel};
    KernelNode& kernel = node.kernel;
    kernel.shape = op.shape;
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      const Param& param = op.signature.params[i];
      const nb::handle argument = op.arguments[i].object;
      const auto start = static_cast<std::uint32_t>(kernel.words.size());
      kernel.starts.push_back(start);
      const auto* words = static_cast<const std::uint64_t*>(op.word_of(i));
      kernel.words.insert(kernel.words.end(), words, words + std::max(param.words(), 1u));
      if (param.kind == ParamKind::structure) {
        refuse_input(argument, op.signature.where(i));
        continue;
      }
      if (is_scalar(param.kind)) {
        if (op.is_operation(i)) note_number(kernel, start, argument, param.kind, op.signature.where(i), words[0]);
        continue;
      }
      const nb::handle value = op.is_operation(i) ? result(*as_op(argument)) : argument;
      kernel.patches.push_back({start, pointer_to(value, param.writes)});
    }
    add(std::move(node));
  }

  Value create(CreateOp& op, StreamIndex, std::int32_t device) {
    if (op.memory != MemoryKind::ordinary)
      raise(error_types.capture, std::string(op.memory == MemoryKind::managed ? "an array in managed memory" : "an array that other processes may open") +
                                     " cannot be made inside a graph, which lays out the memory of its arrays itself; make it before, and give it to the "
                                     "graph as an input");
    const Value value = make_array(op.size_bytes, device, op.spec.dtype, op.shape);
    const Array& array = *as_array(value);
    begin();
    add_fills(op, op.pattern, array, device, {Use{array.buffer.get(), array.span(), true}});
    join(device);
    return value;
  }

  // By way of memory in one piece: the copies come behind its fills.
  void fill(FillOp& op, const Array& array, const Array* way, StreamIndex stream) {
    if (array.size_bytes() == 0) return;
    const Pointer to_at = pointer_to(array, op.destination, true);
    const auto device = static_cast<std::int32_t>(stream);
    std::vector<Use> uses;
    add_uses(array, true, uses);
    begin();
    if (!way) {
      add_fills(op, op.pattern, array, device, uses);
      return join(device);
    }
    add_fills(op, op.pattern, *way, device, {Use{way->buffer.get(), way->span(), true}});
    needs_.insert(needs_.end(), parts_.begin(), parts_.end());
    begin();
    uses.push_back({way->buffer.get(), way->span(), false});
    add_copies(op, array, to_at, *way, {slot_of(*way->buffer, way->span()), 0}, device, uses);
    join(device);
  }
  void fill_of_unknown(FillOp&) {}

  Value create_host(CreateOp& op, std::int32_t) {
    const Value value = make_array(op.size_bytes, host_ordinal, op.spec.dtype, op.shape);
    Buffer& buffer = *as_array(value)->buffer;
    if (op.size_bytes) house_.allocate(buffer, &op);
    return value;
  }
  // Pageable memory is read now, and what it held stays as it is.
  static constexpr bool stages_copies = false;
  Value page_locked(CopyOp& op, const Pageable& memory, std::int32_t) {
    const std::uint64_t size_bytes = memory.layout.size_bytes();
    const Value value = make_array(size_bytes, host_ordinal, memory.dtype, memory.shape);
    Buffer& buffer = *as_array(value)->buffer;
    if (size_bytes) house_.allocate(buffer, &op);
    memory.layout.pack(0, size_bytes, reinterpret_cast<std::byte*>(buffer.address));
    plan_.memory[slot_of(buffer, {})].role = MemoryRole::constant;
    buffer.enclosure.reset();
    return value;
  }
  Value staging(Op& op, const Array& source, std::int32_t device, StreamIndex) {
    const Value value = make_array(source.size_bytes(), device, source.dtype, source.shape);
    if (device == host_ordinal && source.size_bytes()) house_.allocate(*as_array(value)->buffer, &op);
    return value;
  }

  void copy(CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    if (to.size_bytes() == 0 || is_same_place(to, from)) return;
    const Pointer to_at = pointer_to(to, op.destination, true), from_at = pointer_to(from, op.source, false);
    const auto device = static_cast<std::int32_t>(stream);
    begin();
    add_copies(op, to, to_at, from, from_at, device, std::vector<Use>(uses_));
    join(device);
  }
  void copy_of_unknown(CopyOp&) {}

  std::optional<Value> foreign(ForeignOp& op, const std::vector<Value>& values, StreamIndex, std::int32_t device) {
    for (const nb::object& argument : op.arguments) observe(argument);
    for (const Value value : values) require_now(value);
    GraphNode node{NodeKind::captured, device, nb::find(static_cast<Op&>(op)), nb::cast<std::string>(nb::str(nb::handle(nb::find(static_cast<Op&>(op))).attr("_title")))};
    // Its work has the addresses of all that it may touch.
    for (const Use& use : uses_) {
      if (!use.buffer->address && use.buffer->size_bytes) enclosure_->pin(*use.buffer);
      plan_.memory[slot_of(*use.buffer, use.span)].is_captured = true;
    }
    for (const ForeignOp::Access& access : op.accesses) {
      const nb::handle value = as_op(access.array) ? result(*as_op(access.array)) : nb::handle(access.array);
      pointer_to(value, access.writes);
    }
    called_.push_back(node.op);
    nb::object returned;
    node.captured.graph = house_.capture(op, values, device, node.captured.kept, returned);
    add(std::move(node));
    if (returned.is_none()) return std::nullopt;
    return keep(std::move(returned));
  }

  // A graph inside a graph: its nodes, behind all that any of them must come after, as one operation.
  void replay(ReplayOp& op, const Replay& replay, StreamIndex, std::int32_t device) {
    const GraphPlan& inner = *op.plan;
    std::vector<Pointer> places;
    for (std::size_t slot = 0; slot < inner.memory.size(); ++slot) places.push_back(place_of_inner(inner, replay, static_cast<SlotIndex>(slot)));
    for (const Constant& constant : inner.constants) note_constant(constant.array, places[constant.memory].slot, constant.writes);
    for (const ReplayOp::Binding& binding : op.bindings) {
      if (!binding.is_output && !inner.inputs[binding.index].is_array) continue;
      const SlotIndex slot = binding.is_output ? binding.index : inner.inputs[binding.index].memory;
      note_constant(binding.value, places[slot].slot, !inner.memory[slot].writes.empty());
    }
    std::vector<Tick> ticks;
    std::vector<bool> is_last(inner.nodes.size(), true);
    parts_.clear();
    for (const GraphNode& model : inner.nodes) {
      GraphNode node = model;
      std::vector<Tick> needs;
      for (const NodeIndex other : model.after) {
        needs.push_back(ticks[other]);
        is_last[other] = false;
      }
      auto move = [&](Pointer& pointer) { pointer = {places[pointer.slot].slot, places[pointer.slot].offset + pointer.offset}; };
      for (KernelNode::Patch& patch : node.kernel.patches) move(patch.at);
      move_numbers(node.kernel, inner, op);
      if (node.kind == NodeKind::fill) move(node.fill.to);
      if (node.kind == NodeKind::copy) move(node.copy.to), move(node.copy.from);
      node.uses.clear();
      for (const NodeUse& use : model.uses) {
        const Pointer at = places[use.slot];
        note_use(node, at.slot, {at.offset + use.span.begin, at.offset + use.span.end}, use.writes);
      }
      append(std::move(node), model.after.empty() ? needs_ : needs);
      ticks.push_back(last_);
    }
    for (std::size_t i = 0; i < ticks.size(); ++i)
      if (is_last[i]) parts_.push_back(ticks[i]);
    join(device);
  }

  std::optional<Value> call(CallOp& op, Value input) {
    observe(op.input);
    require_now(input);
    const nb::object self = nb::find(static_cast<Op&>(op)), value = nb::borrow(input), function = op.function;
    called_.push_back(self);
    nb::object returned = function(value);
    if (op.mode == CallMode::inspect) return input;
    if (!as_op(returned)) returned = house_.lift(returned);
    if (as_op(returned)) {
      op.go_on_with(std::move(returned));
      return std::nullopt;
    }
    return keep(std::move(returned));
  }
  std::optional<Value> map(CallOp& op, Value input) {
    observe(op.input);
    const Value late = keep(nb::cast(Late{op.function, nb::borrow(input)}));
    late_.insert(late.ptr());
    return late;
  }

  Value tuple(const std::vector<Value>& values) {
    if (values.empty()) return Py_None;
    nb::object whole = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i) PyTuple_SET_ITEM(whole.ptr(), static_cast<Py_ssize_t>(i), values[i].inc_ref().ptr());
    return keep(std::move(whole));
  }
  Value gather(GatherOp& op, const std::vector<Value>& values) {
    if (op.items.size() != 1)  // of which value() is made
      for (const nb::object& item : op.items) observe(item);
    const bool holds_late = std::any_of(values.begin(), values.end(), [this](Value value) { return late_.contains(value.ptr()); });
    Value whole = tuple(values);
    if (op.rebuild.is_valid()) whole = keep(op.rebuild(whole));
    if (holds_late) late_.insert(whole.ptr());
    return whole;
  }
  Value item(PickOp& op, Value from) {
    if (!PyTuple_CheckExact(from.ptr())) {
      require_now(from);
      PyObject* picked = PySequence_GetItem(from.ptr(), op.index);
      if (!picked) throw nb::python_error();
      return keep(nb::steal(picked));
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(from.ptr());
    const Py_ssize_t index = op.index < 0 ? op.index + n : op.index;
    if (index < 0 || index >= n) Record::raise_no_item(op.index, static_cast<std::size_t>(n));
    return PyTuple_GET_ITEM(from.ptr(), index);
  }

  void finish(Op& op, Value value) {
    nb::object self = nb::find(op);
    results_[&op] = nb::borrow(value);
    recorded_.push_back(std::move(self));
  }

 private:
  friend class Placing<Planner>;

  class Inside final : public Enclosure {
   public:
    explicit Inside(const House& house) : allocate_(house.allocate) {}
    void pin(Buffer& buffer) override {
      if (is_open && !buffer.address) allocate_(buffer, nullptr);
    }

   private:
    std::function<void(Buffer&, Op*)> allocate_;
  };

  Value keep(nb::object object) {
    kept_.push_back(std::move(object));
    return kept_.back();
  }

  Value make_array(std::uint64_t size_bytes, std::int32_t device, DType dtype, const std::vector<std::int64_t>& shape) {
    auto buffer = std::make_unique<Buffer>(size_bytes, device);
    buffer->enclosure = enclosure_;
    BufferRef ref(std::move(buffer));
    slots_[ref.get()].push_back(static_cast<SlotIndex>(plan_.memory.size()));
    plan_.memory.push_back({MemoryRole::own, ref, 0, size_bytes, device});
    lifetimes_.resize(plan_.memory.size());
    if (device != host_ordinal) plan_.asked_bytes += size_bytes;
    return keep(house_.object_of(Array{std::move(ref), 0, device, dtype, shape}));
  }

  // The memory that bytes of a buffer are a part of.
  SlotIndex slot_of(Buffer& buffer, Span span) {
    std::vector<SlotIndex>& slots = slots_[&buffer];
    for (const SlotIndex slot : slots) {
      const Memory& memory = plan_.memory[slot];
      if (memory.role != MemoryRole::input) return slot;
      const std::uint64_t end = memory.offset + memory.size_bytes;
      if (memory.offset <= span.begin && span.end <= end) return slot;
      if (span.begin < end && memory.offset < span.end)
        raise(error_types.capture, "graph: an operation uses memory that lies partly in the input " + name_of(slot) + " and partly beside it, so that the input "
                                   "could not be replaced; give the whole array as the input");
    }
    const auto slot = static_cast<SlotIndex>(plan_.memory.size());
    plan_.memory.push_back({MemoryRole::constant, BufferRef::another(buffer), 0, buffer.size_bytes, buffer.device});
    slots.push_back(slot);
    return slot;
  }
  std::string name_of(SlotIndex slot) const {
    for (const Input& input : plan_.inputs)
      if (input.is_array && input.memory == slot) return input.name;
    return {};
  }

  Pointer pointer_to(nb::handle value, bool writes) { return pointer_to(*as_array(value), value, writes); }
  Pointer pointer_to(const Array& array, nb::handle given, bool writes) {
    const SlotIndex slot = slot_of(*array.buffer, array.span());
    Memory& memory = plan_.memory[slot];
    if (memory.role == MemoryRole::input && !as_array(input_of(slot).object)->is_contiguous() && array.region() != as_array(input_of(slot).object)->region() &&
        array.size_bytes())
      raise(error_types.capture, "graph: an operation uses a part of the input " + name_of(slot) + ", which does not lie in one piece; give the part as the input, or dup() it");
    note_constant(given, slot, writes);
    return {slot, array.offset - memory.offset};
  }
  Input& input_of(SlotIndex slot) {
    return *std::find_if(plan_.inputs.begin(), plan_.inputs.end(), [slot](const Input& input) { return input.is_array && input.memory == slot; });
  }

  // An array that was there before: each launch asks whether it may still be used so.
  void note_constant(nb::handle given, SlotIndex slot, bool writes) {
    if (plan_.memory[slot].role != MemoryRole::constant && plan_.memory[slot].role != MemoryRole::input) return;
    if (!as_array(given)) {
      const Op* op = as_op(given);
      if (!op) return;
      given = result(*op);
      if (!as_array(given)) return;
    }
    const auto [at, is_new] = constants_.try_emplace(given.ptr(), plan_.constants.size());
    if (is_new) {
      plan_.constants.push_back({nb::borrow(given), writes, slot});
    } else if (writes) {
      plan_.constants[at->second].writes = true;
    }
  }

  void note_number(KernelNode& kernel, std::uint32_t word, nb::handle argument, ParamKind kind, std::string where, std::uint64_t value) {
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].object.ptr() != argument.ptr()) continue;
      auto slot = std::find_if(plan_.numbers.begin(), plan_.numbers.end(), [&](const Number& number) { return number.input == i && number.kind == kind; });
      if (slot == plan_.numbers.end()) slot = plan_.numbers.insert(slot, {static_cast<std::uint32_t>(i), kind, value, {}, std::move(where)});
      kernel.numbers.push_back({word, static_cast<SlotIndex>(slot - plan_.numbers.begin())});
      return;
    }
  }

  void refuse_input(nb::handle argument, const std::string& where) const {
    for (const Input& input : plan_.inputs)
      if (input.object.ptr() == argument.ptr())
        raise(error_types.capture, where + ": the input " + input.name + " is a struct, and launches of a graph replace arrays and numbers; pass its members one by one, "
                                           "or an array of it");
  }

  // Something other than a kernel's parameter gets to see a number that launches may replace.
  void observe(nb::handle object) {
    for (const Input& input : plan_.inputs)
      if (!input.is_array && input.object.ptr() == object.ptr()) observed_.insert(object.ptr());
  }

  // What is known only when a launch is complete is no argument of anything inside.
  void require_now(Value value) const {
    if (late_.contains(value.ptr()))
      raise(error_types.capture, "the function of a map() runs on the host, so what it returns cannot be used inside a graph: end the graph there, and go on "
                                 "with what graph.launch() yields; or use then(), whose function runs once, when the graph is made");
  }

  // --- nodes

  // An operation may be several nodes.
  void begin() { parts_.clear(); }
  void add(GraphNode node) {
    begin();
    add(std::move(node), uses_);
  }
  void add(GraphNode node, const std::vector<Use>& uses) {
    for (const Use& use : uses) {
      const SlotIndex slot = slot_of(*use.buffer, use.span);
      const std::uint64_t begin = plan_.memory[slot].offset;
      note_use(node, slot, {use.span.begin - begin, use.span.end - begin}, use.writes);
    }
    append(std::move(node), needs_);
    parts_.push_back(last_);
  }
  void add_fills(Op& op, const Pattern& pattern, const Array& array, std::int32_t device, const std::vector<Use>& uses) {
    const SlotIndex slot = slot_of(*array.buffer, array.span());
    each_fill(pattern, array.region(), array.buffer->address, [&](const FillBlock& block) {
      GraphNode node{NodeKind::fill, device, nb::find(op), "fill"};
      node.fill = {{slot, block.offset - plan_.memory[slot].offset}, block.value, block.item_bytes, block.width, block.rows, block.pitch};
      add(std::move(node), uses);
    });
  }
  void add_copies(Op& op, const Array& to, Pointer to_at, const Array& from, Pointer from_at, std::int32_t device, const std::vector<Use>& uses) {
    each_block(to, from, [&](const CopyBlock& block) {
      auto add_rows = [&](const CopyBlock& rows) {
        GraphNode node{NodeKind::copy, device, nb::find(op), "copy"};
        node.copy = {{to_at.slot, to_at.offset + rows.to - to.address()}, {from_at.slot, from_at.offset + rows.from - from.address()},
                     rows.width, rows.rows, rows.to_pitch, rows.from_pitch};
        add(std::move(node), uses);
      };
      if (block.rows == 1 || (block.to_pitch >= block.width && block.from_pitch >= block.width)) return add_rows(block);
      for (std::uint64_t row = 0; row < block.rows; ++row)  // rows that lie upon one another
        add_rows({block.to + row * block.to_pitch, block.from + row * block.from_pitch, block.width, 1, 0, 0});
    });
  }
  void note_use(GraphNode& node, SlotIndex slot, Span span, bool writes) {
    node.uses.push_back({slot, span, writes});
    (writes ? plan_.memory[slot].writes : plan_.memory[slot].reads).add(span);
  }
  void append(GraphNode node, const std::vector<Tick>& needs) {
    last_ = order_.add(needs, node.after);
    lifetimes_.resize(plan_.memory.size());
    for (const NodeUse& use : node.uses) lifetimes_[use.slot].add(last_);
    if (plan_.device == unknown_ordinal) plan_.device = node.device;
    plan_.nodes.push_back(std::move(node));
  }
  // One node behind several that are one operation.
  void join(std::int32_t device) {
    if (parts_.size() < 2) return;
    append({NodeKind::join, device, nb::object(), "join"}, parts_);
  }

  Pointer place_of_inner(const GraphPlan& inner, const Replay& replay, SlotIndex slot) {
    const Memory& memory = inner.memory[slot];
    const Replay::Bound at = replay.place_of(slot);
    if (memory.size_bytes == 0) return {slot_of(*at.buffer, {at.offset, at.offset}), 0};
    const SlotIndex here = slot_of(*at.buffer, {at.offset, at.offset + memory.size_bytes});
    plan_.memory[here].is_captured = plan_.memory[here].is_captured || memory.is_captured;
    return {here, at.offset - plan_.memory[here].offset};
  }
  // What an inner launch replaces is fixed here, unless it is an input of this graph too.
  void move_numbers(KernelNode& kernel, const GraphPlan& inner, const ReplayOp& op) {
    for (const KernelNode::Number& number : std::exchange(kernel.numbers, {})) {
      const Number& slot = inner.numbers[number.slot];
      std::uint64_t& word = kernel.words[number.word] = slot.word;
      for (const ReplayOp::Word& bound : op.numbers)
        if (bound.slot == number.slot) word = bound.word;
      for (const ReplayOp::Binding& binding : op.bindings)
        if (!binding.is_output && binding.index == slot.input) note_number(kernel, number.word, binding.value, slot.kind, slot.where, word);
    }
  }

  RangeHazards& hazards(Buffer& buffer) { return hazards_.try_emplace(&buffer, buffer.size_bytes).first->second; }

  // --- the end

  // What was recorded belongs to the graph.
  void hand_over() {
    if (recorded_.empty()) return;
    const nb::object error = nb::borrow(error_types.capture)("this operation was recorded into the graph made at " + plan_.place +
                                                             ", and does not run by itself: launch the graph, or build the operation again");
    for (const nb::object& object : std::exchange(recorded_, {})) {
      Op& op = *as_op(object);
      if (op.state == State::pending) op.fail(error);
      kept_.push_back(object);  // its address is its name in `results_`
    }
    called_.clear();
  }

  void make_output(Memory& memory) {
    if (memory.size_bytes && !memory.buffer->address) house_.allocate(*memory.buffer, nullptr);
    memory.buffer->enclosure.reset();
    memory.role = MemoryRole::output;
    plan_.output_bytes += memory.size_bytes;
  }

  void lodge_own() {
    std::map<std::int32_t, std::vector<SlotIndex>> by_device;
    lifetimes_.resize(plan_.memory.size());
    for (std::size_t slot = 0; slot < plan_.memory.size(); ++slot) {
      const Memory& memory = plan_.memory[slot];
      if (memory.role == MemoryRole::own && memory.size_bytes && !memory.buffer->address) by_device[memory.device].push_back(static_cast<SlotIndex>(slot));
    }
    for (const auto& [device, slots] : by_device) {
      std::vector<Tenant> tenants;
      for (const SlotIndex slot : slots) tenants.push_back({plan_.memory[slot].size_bytes, lifetimes_[slot]});
      constexpr std::uint64_t alignment = 256;  // what the driver gives
      const Lodging lodging = lodge(tenants, order_, alignment);
      BufferRef shared(std::make_unique<Buffer>(lodging.size_bytes, device));
      if (lodging.size_bytes) house_.allocate(*shared, nullptr);
      plan_.shared_bytes += lodging.size_bytes;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        Memory& memory = plan_.memory[slots[i]];
        memory.buffer = shared;
        memory.offset = lodging.offsets[i];
        memory.is_lodged = true;
      }
      if (lodging.size_bytes) plan_.lodgings.push_back(std::move(shared));
    }
  }

  void note_users(NodeIndex index) {
    const GraphNode& node = plan_.nodes[index];
    auto note = [index](std::vector<NodeIndex>& users) {
      if (users.empty() || users.back() != index) users.push_back(index);
    };
    node.each_pointer([&](const Pointer& pointer) { note(plan_.memory[pointer.slot].users); });
    for (const KernelNode::Number& number : node.kernel.numbers) note(plan_.numbers[number.slot].users);
  }

  House house_;
  std::shared_ptr<Inside> enclosure_;
  GraphPlan plan_;
  PartialOrder order_;
  Scratch<Value> scratch_;
  std::int32_t default_device_ = 0;  // of what touches no array
  bool is_spoilt_ = false;
  std::vector<Lifetime> lifetimes_;  // by memory
  std::unordered_map<Buffer*, std::vector<SlotIndex>> slots_;
  std::unordered_map<Buffer*, RangeHazards> hazards_;
  std::unordered_map<const Op*, nb::object> results_;
  std::unordered_map<PyObject*, std::size_t> constants_;
  std::unordered_set<PyObject*> late_, observed_;
  std::vector<nb::object> recorded_, called_, kept_;

  // Of the operation that is looked at now.
  std::vector<Use> uses_;
  std::vector<Tick> needs_, parts_;
  Tick last_;  // of its last node; none where it is nothing to do
};

// In a graph an operation comes after those whose bytes it touches, and after nobody else: it has no stream. What the
// walk takes for a stream's number is the device's.
template <>
class Placing<Planner> {
 public:
  Placing(Planner& planner, const Placement&, std::vector<Use>&, std::vector<Tick>&) : uses(planner.uses_), planner_(planner) {}

  std::vector<Use>& uses;

  void add(const Array& array, bool writes) { add_uses(array, writes, uses); }
  StreamIndex choose(Op&, std::int32_t device) { return static_cast<StreamIndex>(device); }
  std::int32_t device_put(const Op& op) { return op.target_device; }
  StreamIndex open(StreamId, std::int32_t device) { return static_cast<StreamIndex>(device); }

  void order(Op&, StreamIndex) {
    std::vector<Tick>& needs = planner_.needs_;
    needs.clear();
    planner_.last_ = {};
    for (const Use& use : uses)
      planner_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span) {
        if (hazard.written.count) needs.push_back(hazard.written);
        if (use.writes) needs.insert(needs.end(), hazard.reads.begin(), hazard.reads.end());
      });
  }
  void commit(Op&, StreamIndex, bool) {
    if (planner_.last_.count == 0) return;
    for (const Use& use : uses) planner_.hazards(*use.buffer).commit(use.span, use.writes, planner_.last_);
  }
  void mark(Op&, StreamIndex) {
    planner_.needs_.clear();
    planner_.last_ = {};
  }
  void commit_new(Op&, const Array& array, StreamIndex, bool) {
    if (planner_.last_.count) planner_.hazards(*array.buffer).commit(array.span(), true, planner_.last_);
  }
  void inherit(Op&, nb::handle) {}

 private:
  Planner& planner_;
};

inline nb::object Planner::record(nb::handle root, const Placement& placement) {
  if (is_spoilt_) raise(error_types.capture, "an earlier operation could not be recorded into the graph made at " + plan_.place + "; make another graph");
  Enclosure::Entered entered(enclosure_.get());
  default_device_ = placement.device;
  try {
    Walk<Planner> walk(*this, placement, scratch_);
    walk.run(root);
  } catch (nb::python_error& error) {
    is_spoilt_ = true;
    for (const nb::object& op : called_) as_op(op)->fail(error.value());  // its function is called once
    throw;
  }
  const nb::object value = nb::borrow(result(*as_op(root)));
  hand_over();
  return value;
}

}  // namespace aiocuda::dataflow
