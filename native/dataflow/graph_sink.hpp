// The sink that makes a graph's plan from the walk. Each operation becomes a node behind those whose bytes it touches,
// and nothing is submitted. The sink asks its services for the few calls of the driver that it needs.
//
// Always true: arrays that are made in the walk have no address until the plan is finished, unless somebody has asked
// for it. Until then only this graph's operations use them; except for the results, that holds for ever.
#pragma once
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "arrays_in.hpp"
#include "explain_sink.hpp"
#include "graph_parts.hpp"
#include "launched_as.hpp"
#include "replay.hpp"
#include "walk.hpp"

namespace aiocuda::dataflow {

// A `map` of a value that each launch completes anew. Its function is called then.
struct Late {
  nb::object function, input;
};
inline TypeTest is_late;
inline Late* as_late(nb::handle object) {
  return object.ptr() && is_late(object.ptr()) ? nb::inst_ptr<Late>(object) : nullptr;
}

class GraphSink : private GraphParts {
 public:
  using Value = nb::handle;

  // Services that need the driver.
  struct Services {
    std::function<void(Buffer&, Op*)> allocate;  // gives a buffer its memory, for an operation or the graph itself
    std::function<nb::object(Array&&)> object_of;
    std::function<bool(std::int32_t, std::int32_t)> is_peer;
    std::function<std::shared_ptr<void>(ForeignOp&, const std::vector<nb::handle>&, std::int32_t device,
                                        nb::object& kept, nb::object& returned)>
        capture;
    // Names a node of captured work that no body of a conditional node may have; null if there is none.
    std::function<const char*(void*)> refused_in_body;
    std::function<nb::object(nb::handle)> lift;
  };

  // `loop`: the function whose whole work the plan is, and which may become a part of another graph; else empty.
  GraphSink(Services services, std::string place, std::string loop = {})
      : GraphParts(std::move(services.refused_in_body), std::move(loop)),
        services_(std::move(services)),
        enclosure_(std::make_shared<Inside>(services_)) {
    enclosure_->place = plan_.place = std::move(place);
    enclosure_->is_part = is_part();
    enclosure_->sink = this;
    if (const auto* const around = static_cast<const Inside*>(Enclosure::around()); around && enclosure_->is_part)
      around_ = around->sink;
  }
  ~GraphSink() { enclosure_->is_open = false; }
  GraphSink(const GraphSink&) = delete;
  GraphSink& operator=(const GraphSink&) = delete;

  // Before anything is recorded: an array, or an operation that yields a number.
  void add_input(std::string name, nb::object object) {
    Input input{std::move(name), object};
    if (const Array* array = as_array(object)) {
      const Enclosure::Entered entered(enclosure_.get());
      check_usable(*array, false, [&] { return "graph: " + input.name; });
      input.is_array = true;
      input.memory = slots_.add_input(input.name, *array);
    }
    plan_.inputs.push_back(std::move(input));
  }

  // The same for an array that is not there yet, and that every launch gives: in the place of one like it.
  nb::object add_placeholder(std::string name, const Array& like) {
    const Span span = like.span();
    auto buffer = std::make_unique<Buffer>(span.end - span.begin, like.device);
    buffer->enclosure = enclosure_;
    if (like.buffer) buffer->residue = static_cast<std::uint8_t>(like.address());
    Array array{BufferRef(std::move(buffer)), 0, like.device, like.dtype, like.shape, like.strides};
    array.tile = like.tile;
    nb::object object = services_.object_of(std::move(array));
    add_input(std::move(name), object);
    return object;
  }

  // Takes in an operation and all that it needs; they belong to the graph afterwards. Gives back the handle of its
  // result.
  nb::object record(nb::handle root, const Placement& placement);

  // A condition that kernels set, and a conditional node decides by.
  ConditionIndex add_condition() { return plan_.conditions++; }
  // The kernel that was recorded last sets it.
  void note_setter(ConditionIndex condition) { plan_.nodes.back().as<KernelNode>()->sets = condition; }
  // Opens a body of a conditional node: later operations are in it until `close_body`.
  void open_body(ConditionIndex condition, bool repeats, std::uint8_t bodies, std::int32_t device) {
    PlanNodes::open_body({condition, repeats, bodies}, device);
    begun_.push_back(of_bodies_.size());
  }
  void open_next_body() {
    forget_bodys();
    PlanNodes::open_next_body();
  }
  void close_body() {
    forget_bodys();
    begun_.pop_back();
    PlanNodes::close_body();
  }
  // From here on operations that were built before are refused, unless they have been done.
  void begin_function() { function_ = ++Op::functions(); }

  // Lays out the memory. `results`: all that somebody may look at when the graph has run.
  GraphPlan finish(const std::vector<const Array*>& results, nb::object result) {
    plan_.result = std::move(result);
    plan_.spec = spec_of(plan_.result);
    slots_.lay_out(results, order_, [this](Buffer& buffer) { services_.allocate(buffer, nullptr); });
    if (plan_.device == unknown_ordinal) plan_.device = default_device_;
    enclosure_->is_open = false;
    plan_.launches = launches_of(plan_);
    plan_.nodes.shrink_to_fit();
    plan_.memory.shrink_to_fit();
    for (Memory& memory : plan_.memory) memory.users.shrink_to_fit();
    return std::move(plan_);
  }

  const GraphPlan& plan() const { return plan_; }
  using GraphParts::is_part;
  // Has something seen the address of an input, so that a launch cannot replace it everywhere?
  bool is_captured(std::size_t input) const {
    const Memory& memory = plan_.memory[plan_.inputs[input].memory];
    return memory.is_captured || (memory.buffer->enclosure && memory.buffer->address);
  }
  // The memory that an array lies in, as bytes, where it was made in the graph; else nothing.
  std::optional<Array> whole_of(const Array& array, DType byte) const {
    if (!slots_.is_own(array)) return std::nullopt;
    return Array{array.buffer, 0, array.device, byte, {static_cast<std::int64_t>(array.buffer->size_bytes)}};
  }
  bool is_written_constant(const Array& array) const { return slots_.is_written_constant(array); }
  bool is_captured(const Array& array) const { return slots_.is_captured(array); }
  // Is it memory of another library's that a captured function has made? Each launch writes it anew.
  bool is_adopted(const Array& array) const {
    return std::any_of(adopted_.begin(), adopted_.end(), [&](const Use& use) {
      return use.buffer == array.buffer.get() && use.span.begin <= array.offset && array.span().end <= use.span.end;
    });
  }
  using GraphParts::is_observed;

  // --- the walk's questions and orders

  // The graph around runs before its part, so its results count as done here.
  bool is_done(const Op& op) const {
    return op.is_done() || results_.contains(&op) || (around_ && around_->is_done(op));
  }
  // A body runs again and again, or perhaps not at all: what was built outside of it would, too.
  bool is_failed(const Op& op) const { return op.state == State::failed || is_from_outside(op); }
  [[noreturn, gnu::cold]] void raise_again(const Op& op) const {
    if (op.state == State::failed) ExplainSink::raise_stored(op);
    raise_from_outside(op);
  }
  void fail(Op&, nb::handle) {}

  Value result(const Op& op) const {
    const auto found = results_.find(&op);
    if (found != results_.end()) return found->second;
    return op.is_done() || !around_ ? nb::handle(op.outcome) : around_->result(op);
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
  void require_open(Op&, std::int32_t) const {}          // it is opened at once
  void require_loaded(LaunchOp&, std::int32_t) const {}  // when the graph is made
  void require_made(ReplayOp&) const {}                  // its plan is enough
  bool is_peer(std::int32_t device, std::int32_t other) const { return services_.is_peer(device, other); }

  void launch(LaunchOp& op, StreamIndex, std::int32_t device) {
    if (op.shape.empty) return;
    KernelNode kernel;
    kernel.parameters = op.bound;
    words_.clear();
    addresses_.clear();
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      const Param& param = op.signature.params[i];
      const nb::handle argument = op.arguments[i].object;
      const auto start = static_cast<std::uint32_t>(words_.size());
      const auto* words = static_cast<const std::uint64_t*>(op.word_of(i));
      words_.insert(words_.end(), words, words + words_of(param));
      if (param.kind == ParamKind::structure) {
        slots_.refuse_input(argument, op.signature.where(i));
        observe(argument);
        continue;
      }
      if (is_scalar(param.kind)) {
        adopt_number(argument);
        if (op.is_operation(i))
          slots_.note_number(kernel, start, argument, param.kind, op.signature.where(i), words[0]);
        continue;
      }
      const Pointer at = pointer_to(handle_of(argument), param.writes);
      slots_.note_alignment(at, param.alignment);
      addresses_.push_back({start, at.slot});
      words_[start] = at.offset;
    }
    kernel.words.assign(words_.begin(), words_.end());
    kernel.addresses.assign(addresses_.begin(), addresses_.end());
    add({device, nb::find(static_cast<Op&>(op)), std::move(kernel)});
  }

  Value create(CreateOp& op, StreamIndex, std::int32_t device) {
    if (op.memory != MemoryKind::ordinary)
      raise(error_types.capture,
            std::string(op.memory == MemoryKind::managed ? "an array in managed memory"
                                                         : "an array that other processes may open") +
                " cannot be made inside a graph, which lays out the memory of its arrays itself; make it before, and "
                "give it to the "
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
    const Pointer to_at = slots_.pointer_to(array, handle_of(op.destination), true);
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
    add_copies(op, array, to_at, *way, {slots_.of(*way->buffer, way->span()), 0}, device, uses);
    join(device);
  }
  void fill_of_unknown(FillOp&) {}

  Value create_host(CreateOp& op, std::int32_t) {
    refuse_in_body(op, "makes an array in the host's memory", "make the array before, and give it to the loop");
    const Value value = make_array(op.size_bytes, host_ordinal, op.spec.dtype, op.shape);
    Buffer& buffer = *as_array(value)->buffer;
    if (op.size_bytes) services_.allocate(buffer, &op);
    return value;
  }
  // Pageable memory is read now, and what it held stays as it is.
  static constexpr bool stages_copies = false;
  Value page_locked(CopyOp& op, const Pageable& memory, std::int32_t) {
    refuse_in_body(op, "reads the host's memory", "bring the data to the device before, with to_device()");
    const std::uint64_t size_bytes = memory.host.size_bytes();
    const Value value = make_array(size_bytes, host_ordinal, memory.dtype, memory.shape);
    Buffer& buffer = *as_array(value)->buffer;
    if (size_bytes) services_.allocate(buffer, &op);
    memory.host.pack(0, size_bytes, reinterpret_cast<std::byte*>(buffer.address));
    plan_.memory[slots_.of(buffer, {})].role = MemoryRole::constant;
    buffer.enclosure.reset();
    return value;
  }
  Value staging(Op& op, const Array& source, std::int32_t device, StreamIndex) {
    if (op.kind == Kind::foreign) {
      const BufferRef free = free_workspace(source.size_bytes(), device);
      if (free) return keep(services_.object_of(Array{free, 0, device, source.dtype, source.shape}));
    }
    const Value value = make_array(source.size_bytes(), device, source.dtype, source.shape);
    if (device == host_ordinal && source.size_bytes()) services_.allocate(*as_array(value)->buffer, &op);
    if (op.kind == Kind::foreign) workspaces_.push_back(as_array(value)->buffer);
    return value;
  }

  void copy(CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    if (to.size_bytes() == 0 || is_same_place(to, from)) return;
    const Pointer to_at = slots_.pointer_to(to, handle_of(op.destination), true),
                  from_at = slots_.pointer_to(from, handle_of(op.source), false);
    const auto device = static_cast<std::int32_t>(stream);
    begin();
    add_copies(op, to, to_at, from, from_at, device, std::vector<Use>(uses_));
    join(device);
  }
  void copy_of_unknown(CopyOp&) {}
  // Not now, but at each launch.
  void put_in_doubt(const ForeignOp&, const std::vector<Use>&) { plan_.has_collectives = true; }

  std::optional<Value> foreign(ForeignOp& op, const std::vector<Value>& values, StreamIndex, std::int32_t device) {
    for (const nb::object& argument : op.arguments) observe(argument);
    for (const Value value : values) require_now(value);
    GraphNode node{device, nb::find(static_cast<Op&>(op)), CapturedNode()};
    auto& captured = *node.as<CapturedNode>();
    captured.name = nb::cast<std::string>(nb::str(node.op.attr("_title")));
    // Its work has the addresses of all that it may touch.
    for (const Use& use : uses_) {
      if (!use.buffer->address && use.buffer->size_bytes && !use.buffer->is_address_space())
        enclosure_->pin(*use.buffer);
      plan_.memory[slots_.of(*use.buffer, use.span)].is_captured = true;
    }
    for (const ForeignOp::Access& access : op.accesses) pointer_to(handle_of(access.array), access.writes);
    if (op.state.is_valid()) {
      for (const Value value : values)
        each_array_in(value, [&](const Array& array, nb::handle given) { slots_.pointer_to(array, given, false); });
      pointer_to(op.state, op.keeps_state);
    }
    called_.push_back(node.op);
    nb::object returned;
    captured.graph = services_.capture(op, values, device, captured.kept, returned);
    require_possible(node);
    each_array_in(returned, [this](const Array& array, nb::handle given) { adopt(array, given); });
    add(std::move(node));
    if (returned.is_none()) return std::nullopt;
    return keep(std::move(returned));
  }

  // A graph inside a graph: its nodes, behind all that any of them must come after, as one operation.
  void replay(ReplayOp& op, const Replay& replay, StreamIndex, std::int32_t device) {
    const GraphPlan& inner = *op.plan;
    keep(op.graph);  // the hazards here name its memory
    std::vector<Pointer> places;
    for (std::size_t slot = 0; slot < inner.memory.size(); ++slot) {
      const Memory& memory = inner.memory[slot];
      // A part's temporaries are this graph's, which has the memory for all of its own.
      places.push_back(!inner.loop.empty() && memory.shares_memory
                           ? Pointer{add_own(memory.size_bytes, memory.device), 0}
                           : slots_.place_of_inner(inner, replay, static_cast<SlotIndex>(slot)));
    }
    for (const Constant& constant : inner.constants)
      slots_.note_constant(constant.array, places[constant.memory].slot, constant.writes);
    for (const ReplayOp::Binding& binding : op.bindings) {
      if (!binding.is_memory) continue;
      const SlotIndex slot = binding.slot;
      slots_.note_constant(handle_of(binding.value), places[slot].slot, !inner.memory[slot].writes.empty());
    }
    for (const ReplayOp::Binding& binding : op.bindings)
      if (!binding.is_memory) adopt_number(binding.value);
    for (const nb::object& value : inner.observed) observe(value);
    plan_.has_collectives = plan_.has_collectives || inner.has_collectives;
    append_part(op, places);
    join(device);
  }

  std::optional<Value> call(CallOp& op, Value input) {
    observe(op.input);
    require_now(input);
    const nb::object self = nb::find(static_cast<Op&>(op)), value = nb::borrow(input), function = op.function;
    called_.push_back(self);
    nb::object returned = function(value);
    if (op.mode == CallMode::inspect) return input;
    if (!as_op(returned)) returned = services_.lift(returned);
    if (as_op(returned)) {
      op.go_on_with(std::move(returned));
      return std::nullopt;
    }
    return keep(std::move(returned));
  }
  std::optional<Value> map(CallOp& op, Value input) {
    refuse_in_body(op, "calls a function on the host", "map() the result of the loop instead");
    observe(op.input);
    const Value late = keep(nb::cast(Late{op.function, nb::borrow(input)}));
    late_.insert(late.ptr());
    return late;
  }

  Value tuple(const std::vector<Value>& values) {
    if (values.empty()) return Py_None;
    nb::object whole = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
      PyTuple_SET_ITEM(whole.ptr(), static_cast<Py_ssize_t>(i), values[i].inc_ref().ptr());
    return keep(std::move(whole));
  }
  Value gather(GatherOp& op, const std::vector<Value>& values) {
    if (op.items.size() != 1)  // of which value() is made
      for (const nb::object& item : op.items) observe(item);
    const bool holds_late =
        std::any_of(values.begin(), values.end(), [this](Value value) { return late_.contains(value.ptr()); });
    Value whole = tuple(values);
    if (op.rebuild.is_valid()) whole = keep(op.rebuild(whole));
    if (holds_late) late_.insert(whole.ptr());
    return whole;
  }
  Value item(PickOp& op, Value from) {
    if (!PyTuple_CheckExact(from.ptr())) {
      require_now(from);
      return keep(ExplainSink::item_of(from, op.index));
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(from.ptr());
    const Py_ssize_t index = op.index < 0 ? op.index + n : op.index;
    if (index < 0 || index >= n) ExplainSink::raise_no_item(op.index, static_cast<std::size_t>(n));
    return PyTuple_GET_ITEM(from.ptr(), index);
  }

  void finish(Op& op, Value value) {
    nb::object self = nb::find(op);
    results_[&op] = nb::borrow(value);
    if (is_in_body()) of_bodies_.push_back(&op);
    recorded_.push_back(std::move(self));
  }

 private:
  friend class Placing<GraphSink>;

  class Inside final : public Enclosure {
   public:
    explicit Inside(const Services& services) : allocate_(services.allocate) {}
    const GraphSink* sink = nullptr;
    void pin(Buffer& buffer) override {
      if (is_open && !buffer.address) allocate_(buffer, nullptr);
    }

   private:
    std::function<void(Buffer&, Op*)> allocate_;
  };

  bool is_from_outside(const Op& op) const { return op.built_after < function_ && !is_value(op); }
  // Results of a body do not exist outside of it.
  void forget_bodys() {
    for (; of_bodies_.size() > begun_.back(); of_bodies_.pop_back()) results_.erase(of_bodies_.back());
  }
  bool is_of_map(Value value) const { return late_.contains(value.ptr()) || (around_ && around_->is_of_map(value)); }

  Value keep(nb::object object) {
    kept_.push_back(std::move(object));
    return kept_.back();
  }

  SlotIndex add_own(std::uint64_t size_bytes, std::int32_t device) {
    auto buffer = std::make_unique<Buffer>(size_bytes, device);
    buffer->enclosure = enclosure_;
    const auto slot = static_cast<SlotIndex>(plan_.memory.size());
    slots_.add_own(BufferRef(std::move(buffer)), size_bytes, device);
    return slot;
  }

  Value make_array(std::uint64_t size_bytes, std::int32_t device, DType dtype, const std::vector<std::int64_t>& shape) {
    const BufferRef buffer = plan_.memory[add_own(size_bytes, device)].buffer;
    return keep(services_.object_of(Array{buffer, 0, device, dtype, shape}));
  }

  // The value of an argument, if it has one: itself, or the result of the operation that it is.
  nb::handle handle_of(nb::handle argument) const {
    const Op* op = as_op(argument);
    return op ? result(*op) : argument;
  }
  Pointer pointer_to(nb::handle value, bool writes) { return slots_.pointer_to(*as_array(value), value, writes); }

  // Another library's memory that a captured function returns: the node has written it. Nodes that used such memory
  // before come first, as another function may have returned it too.
  void adopt(const Array& array, nb::handle given) {
    if (!array.buffer->is_address_space() || array.size_bytes() == 0) return;
    const Use use{array.buffer.get(), array.span(), true};
    hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span) {
      hazard.each_before(true, [&](Tick tick) { needs_.push_back(tick); });
    });
    uses_.push_back(use);
    adopted_.push_back(use);
    slots_.pointer_to(array, given, true);
    plan_.memory[slots_.of(*use.buffer, use.span)].is_captured = true;
  }

  // A value that is known only when a launch is complete cannot be an argument of anything inside.
  void require_now(Value value) const {
    if (is_of_map(value))
      raise(error_types.capture,
            "the function of a map() runs on the host, so what it returns cannot be used inside a graph: end the graph "
            "there, and go on "
            "with what graph.launch() yields; or use then(), whose function runs once, when the graph is made");
  }

  // --- the end

  // Recorded operations belong to the graph.
  void hand_over() {
    if (recorded_.empty()) return;
    const nb::object error =
        nb::borrow(error_types.capture)("this operation was recorded into the graph made at " + plan_.place +
                                        ", and does not run by itself: launch the graph, or build the operation again");
    for (const nb::object& object : std::exchange(recorded_, {})) {
      Op& op = *as_op(object);
      const bool is_shared = is_part() && is_value(op);  // others may have it too, as it is no work
      if (op.state == State::pending && !is_shared) op.fail(error);
      kept_.push_back(object);  // its address is its name in `results_`
    }
    called_.clear();
  }

  Services services_;
  std::shared_ptr<Inside> enclosure_;
  Scratch<Value> scratch_;
  std::int32_t default_device_ = 0;  // of what touches no array
  bool is_spoilt_ = false;
  const GraphSink* around_ = nullptr;  // what is recorded on this thread meanwhile
  std::uint32_t function_ = 0;         // the function whose operations are recorded; 0: none
  std::unordered_map<const Op*, nb::object> results_;
  std::vector<const Op*> of_bodies_;  // what was done in bodies that are open
  std::vector<std::size_t> begun_;    // where each of these begins in that
  std::unordered_set<PyObject*> late_;
  std::vector<Use> adopted_;
  std::vector<nb::object> recorded_, called_, kept_;
  // Of the launch that is recorded now.
  std::vector<std::uint64_t> words_;
  std::vector<KernelNode::Patch> addresses_;
};

}  // namespace aiocuda::dataflow
