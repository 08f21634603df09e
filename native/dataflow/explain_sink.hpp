// The sink that writes the walk down: nothing is submitted, no callback runs, nothing is changed.
// Hazards and streams are copies, results that do not exist yet are stood in for.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "arrays_in.hpp"
#include "asked.hpp"
#include "walk.hpp"

namespace aiocuda::dataflow {

struct Recorded {
  nb::handle object;                   // what exists already
  std::optional<Array> planned;        // an array that will
  std::vector<const Recorded*> items;  // a tuple
  bool is_tuple = false;
  bool unknown = false;  // decided only when it runs
};

class ExplainSink {
 public:
  using Value = const Recorded*;

  // The streams, as the driver floor knows them.
  struct Services {
    std::vector<std::int32_t> stream_devices;
    std::vector<StreamId> stream_ids;  // of those that are open, by slot
    std::function<const PolicyStreams&(Op&, const Policy&, std::int32_t, int)>
        policy_streams;                   // may open more streams, for an operation
    std::function<void(Services&)> look;  // fills the first two
    std::function<bool(std::int32_t, std::int32_t)> is_peer;
    std::function<bool(const Pageable&, const Array&)> stages;
    Buffer* pageable = nullptr;
  };

  ExplainSink(const Timeline& timeline, Services services) : timeline_(timeline), services_(std::move(services)) {
    services_.look(services_);
  }

  nb::list steps;                          // (step, its operation, what it touches)
  const std::vector<Use>* uses = nullptr;  // of the operation that is placed now

  Timeline& timeline() { return timeline_; }
  RangeHazards& hazards(Buffer& buffer) { return hazards_.try_emplace(&buffer, buffer.hazards).first->second; }
  PolicyStreams& policy_streams(Op& op, const Policy& policy, std::int32_t device, int priority) {
    const PolicyStreams& now = services_.policy_streams(op, policy, device, priority);
    const auto [found, is_new] = policy_streams_.try_emplace({&policy, now.streams.front()}, now);
    if (is_new) {
      services_.look(services_);
      while (timeline_.size() < services_.stream_ids.size()) timeline_.add_stream();
    }
    return found->second;
  }
  void look(StreamIndex) {}
  StreamId ask(const Policy& policy, Op& op, std::int32_t device, const std::vector<Tick>& needs,
               const PolicyStreams& policy_streams) {
    return static_cast<const AskedPolicy&>(policy).ask(
        op, device, needs, policy_streams, timeline_,
        [this](StreamIndex stream) { return services_.stream_ids.at(stream); });
  }
  bool is_peer(std::int32_t device, std::int32_t other) const { return services_.is_peer(device, other); }
  std::int32_t device_of(StreamIndex stream) const { return services_.stream_devices.at(stream); }
  bool is_open(StreamId stream) const { return services_.stream_ids.at(slot_of(stream)) == stream; }

  bool is_done(const Op& op) const { return op.is_done() || results_.contains(&op); }
  bool is_failed(const Op& op) const { return op.state == State::failed; }
  [[noreturn, gnu::cold]] void raise_again(const Op& op) const { raise_stored(op); }
  void fail(Op&, nb::handle) {}

  Value result(const Op& op) {
    if (op.is_done()) return constant(op.outcome);
    return results_.at(&op);
  }
  Value constant(nb::handle object) {
    Recorded value;
    value.object = object;
    value.is_tuple = PyTuple_Check(object.ptr());
    if (value.is_tuple)
      for (nb::handle item : nb::borrow<nb::tuple>(object)) value.items.push_back(constant(item));
    return keep(std::move(value));
  }
  const Array* array(Value value) const {
    if (value->planned) return &*value->planned;
    return as_array(value->object);
  }
  nb::handle object(Value value) const { return value->object.is_valid() ? value->object : nb::handle(Py_None); }
  bool is_unknown(Value value) const { return value->unknown; }
  void hold_back() {}
  void make_held_calls() {}
  void make_held_calls_now() {}
  bool is_full(StreamIndex, std::uint64_t) const { return false; }
  void require_open(Op&, std::int32_t) const {}
  void require_file(CopyOp&, const Pageable&, std::int32_t, const Array&, const std::vector<Use>&) const {}
  void require_loaded(LaunchOp&, std::int32_t) const {}
  void require_made(ReplayOp&) const {}
  void require_unclaimed(const std::vector<Use>&) const {}
  void admit_others(const Op&, const Use&) const {}
  void note_use(const Use&, Tick) const {}
  void put_in_doubt(const ForeignOp&, const std::vector<Use>&) const {}
  bool is_complete(Tick) const { return true; }  // a host step is written down, not waited for

  void mark(Op&, StreamIndex stream, std::uint32_t slot) { marked_[{stream, slot}] = timeline_.submitted(stream); }
  // How much of the other stream it waits for: all that it holds, or up to its n-th submission from its end.
  void wait(Op& op, StreamIndex stream, StreamIndex other, std::uint32_t slot) {
    const auto mark = marked_.find({other, slot});
    const std::uint64_t behind = mark == marked_.end() ? 0 : timeline_.submitted(other) - mark->second;
    note(op, nb::list(), "wait", stream, other, behind);
  }

  void launch(LaunchOp& op, StreamIndex stream, std::int32_t device) {
    const Dim3 g = op.shape.grid, b = op.shape.block;
    nb::list accesses;
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      const Param& param = op.signature.params[i];
      if (!is_scalar(param.kind)) accesses.append(nb::make_tuple(param.name, param.writes));
    }
    nb::object shape = nb::none();  // no launch
    if (op.shape.by_partition || (b.x == 0 && !op.shape.empty)) {
      shape = nb::make_tuple();  // it is a partition's, which is not known yet
    } else if (!op.shape.empty) {
      shape = nb::make_tuple(nb::make_tuple(g.x, g.y, g.z), nb::make_tuple(b.x, b.y, b.z));
    }
    note(op, touched(), "launch", stream, device, op.signature.kernel, shape, accesses, op.origin.location());
  }
  Value create(CreateOp& op, StreamIndex stream, std::int32_t device) {
    Recorded value;
    auto buffer = std::make_unique<Buffer>(op.size_bytes, device, op.memory);
    value.planned = Array{BufferRef(std::move(buffer)), 0, device, op.spec.dtype, op.shape};
    note(op, whole(*value.planned), "create", stream, device, describe(*value.planned), op.size_bytes,
         op.pattern.size ? op.fill : nb::none(), op.origin.location());
    return keep(std::move(value));
  }
  Value create_host(CreateOp& op, std::int32_t) {
    Recorded value;
    value.planned = Array{BufferRef(std::make_unique<Buffer>(op.size_bytes)), 0, host_ordinal, op.spec.dtype, op.shape};
    note(op, whole(*value.planned), "create", nb::none(), host_ordinal, describe(*value.planned), op.size_bytes,
         op.pattern.size ? op.fill : nb::none(), op.origin.location());
    return keep(std::move(value));
  }
  Value staging(Op&, const Array& source, std::int32_t device, StreamIndex) {
    Recorded value;
    value.planned =
        Array{BufferRef(std::make_unique<Buffer>(source.size_bytes(), device)), 0, device, source.dtype, source.shape};
    return keep(std::move(value));
  }
  std::optional<Value> foreign(ForeignOp& op, const std::vector<Value>&, StreamIndex stream, std::int32_t device) {
    nb::list accesses;
    for (const ForeignOp::Access& access : op.accesses) {
      const Array* array = as_array(access.array);
      accesses.append(nb::make_tuple(array ? describe(*array) : "a result", access.writes));
    }
    if (op.state.is_valid())
      for (const nb::object& argument : op.arguments)
        each_array_in(argument, [&](const Array& array, nb::handle given) {
          const bool is_named = std::any_of(op.accesses.begin(), op.accesses.end(),
                                            [&](const auto& access) { return access.array.ptr() == given.ptr(); });
          if (!is_named) accesses.append(nb::make_tuple(describe(array), false));
        });
    note(op, touched(), "call", stream, device, op.function, accesses, op.origin.location());
    return std::nullopt;  // it gives back what it writes, unless its function returns something
  }
  void copy(CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    note_copy(op, stream, describe_place(from), describe_place(to), from.device, to.device, to.size_bytes());
  }
  void fill(FillOp& op, const Array& array, const Array*, StreamIndex stream) {
    note(op, touched(), "fill", stream, array.device, describe(array), array.size_bytes(), op.fill,
         op.origin.location());
  }
  void fill_of_unknown(FillOp& op) {
    note(op, nb::list(), "fill", nb::none(), host_ordinal, "?", nb::none(), op.fill, op.origin.location());
  }
  static constexpr bool stages_copies = true;
  Buffer& pageable() { return *services_.pageable; }
  bool stages(const Pageable& memory, const Array& array) const { return services_.stages(memory, array); }
  std::optional<Tick> staging_full(std::int32_t, const Pageable&) const { return std::nullopt; }
  Value page_locked(CopyOp&, const Pageable& memory, std::int32_t) {
    Recorded value;
    value.planned = Array{BufferRef(std::make_unique<Buffer>(memory.host.size_bytes())), 0, host_ordinal, memory.dtype,
                          memory.shape};
    return keep(std::move(value));
  }
  void upload(CopyOp& op, const Array& to, StreamIndex stream) {
    note_copy(op, stream, describe_place(*as_pageable(op.source)), describe_place(to), host_ordinal, to.device,
              to.size_bytes());
  }
  void download(CopyOp& op, const Array& from, StreamIndex stream) {
    note_copy(op, stream, describe_place(from), describe_place(*as_pageable(op.destination)), from.device, host_ordinal,
              from.size_bytes());
  }
  void replay(ReplayOp& op, const Replay&, StreamIndex stream, std::int32_t device) {
    note(op, touched(), "replay", stream, device, op.plan->nodes.size(), op.bindings.size(), op.plan->place,
         op.plan->loop, op.origin.location());
  }
  void copy_of_unknown(CopyOp& op) {
    note(op, nb::list(), "copy", nb::none(), "?", "?", host_ordinal, host_ordinal, nb::none(), op.origin.location());
  }
  std::optional<Value> call(CallOp& op, Value input) {
    note(op, nb::list(), op.mode == CallMode::then ? "then" : "inspect", op.function, op.origin.location());
    if (op.mode == CallMode::inspect) return input;
    return unknown();
  }
  std::optional<Value> map(CallOp& op, Value) {
    note(op, nb::list(), "map", op.function, op.origin.location());
    return unknown();
  }

  Value tuple(const std::vector<Value>& values) { return values.empty() ? constant(Py_None) : tuple_of(values); }
  Value gather(GatherOp& op, const std::vector<Value>& values) {
    return op.rebuild.is_valid() ? unknown() : tuple_of(values);
  }
  Value item(PickOp& op, Value from) {
    if (!from->is_tuple) return unknown();
    const auto n = static_cast<std::int64_t>(from->items.size());
    const std::int64_t index = op.index < 0 ? op.index + n : op.index;
    if (index < 0 || index >= n) raise_no_item(op.index, static_cast<std::size_t>(n));
    return from->items[static_cast<std::size_t>(index)];
  }

  void ran(Op& op, Tick now) {
    ready_[&op].clear();
    ready_[&op].push_back(now);
  }
  const Few<Tick>& ready(const Op& op) { return op.is_done() ? op.ready : ready_[&op]; }
  void add_ready(Op& op, Tick tick) { ready_[&op].push_back(tick); }
  void finish(Op& op, Value value) { results_[&op] = value; }

  [[noreturn, gnu::cold]] static void raise_stored(const Op& op) {
    PyException_SetTraceback(op.outcome.ptr(), op.traceback.is_valid() ? op.traceback.ptr() : Py_None);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(op.outcome.ptr())), op.outcome.ptr());
    throw nb::python_error();
  }
  [[noreturn, gnu::cold]] static void raise_no_item(std::int64_t index, std::size_t n) {
    raise(error_types.argument_index, "item " + std::to_string(index) + " was asked of a result that has " +
                                          std::to_string(n) + (n == 1 ? " item" : " items"));
  }
  // An item of what is no tuple: of whatever Python takes for a sequence.
  static nb::object item_of(nb::handle from, std::int64_t index) {
    auto raise_no_sequence = [&] {
      raise(error_types.argument_type, "item " + std::to_string(index) +
                                           " was asked of a result that is no sequence, but " +
                                           nb::cast<std::string>(nb::repr(from)));
    };
    if (!PySequence_Check(from.ptr())) raise_no_sequence();
    PyObject* picked = PySequence_GetItem(from.ptr(), index);
    if (picked) return nb::steal(picked);
    const bool is_index_error = PyErr_ExceptionMatches(PyExc_IndexError);
    if (!is_index_error && !PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    nb::python_error why;
    const Py_ssize_t length = PySequence_Size(from.ptr());
    if (length < 0) {  // such as NumPy's arrays without axes
      PyErr_Clear();
      raise_no_sequence();
    }
    if (!is_index_error) throw nb::python_error(why);
    raise_no_item(index, static_cast<std::size_t>(length));
  }

 private:
  template <class... Parts>
  void note(Op& op, nb::list touched, Parts&&... parts) {
    steps.append(nb::make_tuple(nb::make_tuple(std::forward<Parts>(parts)...), nb::find(op), std::move(touched)));
  }
  // (number of the buffer, its first byte, the byte behind its last, whether it is written) of each.
  nb::list touched() {
    nb::list found;
    for (const Use& use : *uses)
      found.append(nb::make_tuple(number_of(use.buffer), use.span.begin, use.span.end, use.writes));
    return found;
  }
  nb::list whole(const Array& made) {
    nb::list found;
    found.append(nb::make_tuple(number_of(made.buffer.get()), made.span().begin, made.span().end, true));
    return found;
  }
  std::size_t number_of(const Buffer* buffer) { return numbers_.try_emplace(buffer, numbers_.size()).first->second; }
  void note_copy(CopyOp& op, StreamIndex stream, const std::string& from, const std::string& to, std::int32_t source,
                 std::int32_t destination, std::uint64_t size_bytes) {
    note(op, touched(), "copy", stream, from, to, source, destination, size_bytes, op.origin.location());
  }
  Value keep(Recorded value) {
    values_.push_back(std::move(value));
    return &values_.back();
  }
  Value tuple_of(const std::vector<Value>& values) {
    Recorded value;
    value.is_tuple = true;
    value.items = values;
    return keep(std::move(value));
  }
  Value unknown() {  // what only running it can tell
    Recorded value;
    value.unknown = true;
    return keep(std::move(value));
  }

  Timeline timeline_;
  Services services_;
  std::map<std::pair<const Policy*, StreamIndex>, PolicyStreams> policy_streams_;  // by the first of the streams
  std::map<std::pair<StreamIndex, std::uint32_t>, std::uint64_t> marked_;          // the marks made here
  std::unordered_map<Buffer*, RangeHazards> hazards_;
  std::unordered_map<const Buffer*, std::size_t> numbers_;
  std::unordered_map<const Op*, Value> results_;
  std::unordered_map<const Op*, Few<Tick>> ready_;
  std::deque<Recorded> values_;
};

}  // namespace aiocuda::dataflow
