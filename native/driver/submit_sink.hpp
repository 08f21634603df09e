// The sink that performs the walk on the driver: memory, functions of the program's, results, and what must be waited
// for before something can be submitted. The driver's calls are made in issuing.hpp.
//
// Always true: what the driver refuses ends the operation with an error that names it. A launch that is refused at once
// leaves no trace in the hazards. Work that was held back, or is several calls, keeps its place in the stream, with the
// calls that the stream has got of it.
#pragma once
#include <algorithm>
#include <optional>

#include "../dataflow/explain_sink.hpp"
#include "../dataflow/story.hpp"
#include "../dataflow/walk.hpp"
#include "foreign_call.hpp"
#include "issuing.hpp"
#include "launch_in_doubt.hpp"
#include "memory_makers.hpp"
#include "tensors.hpp"

namespace aiocuda::driver {
using dataflow::Array;

class SubmitSink : public Issuing {
 public:
  using Value = nb::handle;

  // `stands_in_line`: it lets those go first who wait for room and came before `turn`, if it has one.
  // `on_host`: what it waited for there, and its place among those that do; null: nothing.
  // `uses`: of the operation that is placed now.
  SubmitSink(Engine& engine, const dataflow::Placement& placement, const std::vector<dataflow::Use>& uses,
             bool stands_in_line, const completion::Turn* turn, const OnHost* on_host, Tensors& tensors)
      : Issuing(engine, uses),
        placement_(placement),
        stands_in_line_(stands_in_line),
        turn_(turn),
        on_host_(on_host),
        tensors_(tensors) {}
  dataflow::Timeline& timeline() { return engine_.timeline; }
  dataflow::RangeHazards& hazards(dataflow::Buffer& buffer) { return buffer.hazards; }
  dataflow::PolicyStreams& policy_streams(Op& op, const dataflow::Policy& policy, std::int32_t device, int priority) {
    require_open(op, device);
    return engine_.policy_streams(policy, device, priority, op);
  }
  // How far is it?
  void look(StreamIndex stream) { is_complete({stream, engine_.timeline.submitted(stream)}); }
  dataflow::StreamId ask(const dataflow::Policy& policy, Op& op, std::int32_t device, const std::vector<Tick>& needs,
                         const dataflow::PolicyStreams& policy_streams) {
    make_held_calls_now();
    return static_cast<const dataflow::AskedPolicy&>(policy).ask(
        op, device, needs, policy_streams, engine_.timeline,
        [this](StreamIndex stream) { return engine_.id_of(stream); });
  }
  bool is_peer(std::int32_t device, std::int32_t other) { return engine_.is_peer(device, other); }
  std::int32_t device_of(StreamIndex stream) { return engine_.stream(stream).device; }
  bool is_open(dataflow::StreamId stream) { return engine_.streams.is_open(stream); }

  bool is_done(const Op& op) const { return op.is_done(); }
  bool is_failed(const Op& op) const { return op.state == dataflow::State::failed; }
  [[noreturn, gnu::cold]] void raise_again(const Op& op) const { dataflow::ExplainSink::raise_stored(op); }
  void fail(Op& op, nb::handle error) {
    drop_turn(op);
    if (op.state == dataflow::State::pending) dataflow::story.note(dataflow::Decided::failed, op, {});
    op.fail(error);
  }

  Value result(const Op& op) const { return op.outcome; }
  Value constant(nb::handle object) const { return object; }
  const Array* array(Value value) const { return dataflow::as_array(value); }
  nb::handle object(Value value) const { return value; }
  bool is_unknown(Value) const { return false; }

  bool is_full(StreamIndex stream, std::uint64_t most) {
    engine_.streams.require_not_captured(stream);
    if (engine_.timeline.backlog(stream) < most && engine_.lines.is_empty()) [[likely]]
      return false;
    return is_full_now(stream, most);
  }
  // A Refusal ends the walk, and whoever began it names what it was for.
  bool is_complete(Tick tick) {
    make_held_calls_now();
    return engine_.is_complete(tick);
  }

  // Why the walk stopped with HostWait, once.
  HostNeed take_host_need() { return std::exchange(host_need_, {}); }

  // Nothing of an operation has been done yet: where its device is not open, others may submit until it is.
  void require_open(Op& op, std::int32_t device) {
    if (!engine_.devices.is_open(device)) [[unlikely]]
      require_open_slowly(op, device);
  }
  // The same, where its kernel is not there.
  void require_loaded(dataflow::LaunchOp& op, std::int32_t device) {
    if (!op.shape.empty && !is_loaded(op, device)) require_loaded_slowly(op, device);
  }
  // The same, where the graph that it launches is not made.
  void require_made(dataflow::ReplayOp& op) {
    if (!graph_of(op)->is_made()) [[unlikely]]
      require_made_slowly(op);
  }
  // The same, where a file is to be opened first: a disk may be slow. `uses`: all of the operation's.
  void require_file(dataflow::CopyOp& op, const dataflow::Pageable& file, std::int32_t device, const Array& array,
                    const std::vector<dataflow::Use>& uses) {
    if (!file.host.file()->needs_opening()) [[likely]]
      return;
    if (!Staging::can_be_direct(array)) return file.host.leave_to_threads();
    require_unclaimed(uses);
    require_file_slowly(op, file, device);
  }
  // While the driver takes long to give memory, others may submit. That is not so in the middle of another submission.
  void require_memory(const AheadMemory& needed) {
    if (!stands_in_line_ || engine_.memory.has_block(needed.kind, needed.device, needed.size_bytes)) return;
    if (ahead() && ahead()->is_for(needed.kind, needed.device, needed.size_bytes)) return;
    host_need_.memory = needed.unfilled();
    throw dataflow::HostWait{};
  }
  // The memory that a thread got for it; nothing if there is none.
  dataflow::BufferRef take_ahead(dataflow::MemoryKind kind, std::int32_t device, std::uint64_t size_bytes) {
    if (!ahead() || !ahead()->is_for(kind, device, size_bytes)) return {};
    ahead()->size_bytes = 0;
    return std::move(ahead()->buffer);
  }

  void put_in_doubt(const dataflow::ForeignOp& op, const std::vector<dataflow::Use>& uses) {
    for (const dataflow::Use& use : uses)
      if (use.writes) engine_.outcomes.put(use, op.doubt);
  }

  // Those go first that wait for work on the host, and will touch the same memory. Not in the middle of another
  // submission, which goes on.
  void require_unclaimed(const std::vector<dataflow::Use>& uses) {
    if (engine_.claims.is_empty() || !stands_in_line_) return;
    host_need_.behind = engine_.claims.find(uses, on_host_ ? on_host_->claim : 0);
    if (host_need_.behind) throw dataflow::HostWait{};
  }

  // What other libraries do with the bytes comes before.
  [[gnu::cold]] void admit_others(const Op& op, const dataflow::Use& use) {
    if (use.buffer->is_in_doubt)
      if (const dataflow::Doubt* const failed = use.buffer->doubts->find_failed(use.span)) failed->raise();
    if (!use.tensor && !use.buffer->is_lent) return;
    make_held_calls_now();
    tensors_.enter(op, use);
  }
  [[gnu::cold]] void note_use(const dataflow::Use& use, Tick now) {
    if (use.buffer->is_in_doubt) engine_.outcomes.note(use, giving_.uses(), now);
    if (use.tensor || use.buffer->is_lent) tensors_.note(use, now);
  }

  void launch(dataflow::LaunchOp& op, StreamIndex stream, std::int32_t device) {
    if (op.shape.empty) return;
    function_of(engine_, scope_, op, device);
    engine_.images.note_use(*op.signature.loaded[static_cast<std::size_t>(device)].image, stream);
    const Touched touched = giving_.touched();
    if (holds_back_) return hold(stream, {.kind = HeldWork::Kind::launch, .op = object_of(op)}, touched);
    launch_now(op, {stream, next_count(stream)}, device, touched);
  }

  Value create(dataflow::CreateOp& op, StreamIndex stream, std::int32_t device) {
    require_open(op, device);  // of managed memory another device may be the first user
    dataflow::BufferRef buffer = op.memory == dataflow::MemoryKind::ordinary
                                     ? allocate_device(op.size_bytes, stream, device, [&] { return object_of(op); })
                                     : allocate_block(op, device);
    buffer->maker = op.origin.maker();
    if (describe_memory != nullptr) [[unlikely]]
      tell_maker(*buffer);
    scope_.bind(engine_.stream(stream).device);  // another one, where another device uses managed memory first
    try {
      doing(engine_, op, device, [&] {
        const MemoryRange all{buffer->address, buffer->address + op.size_bytes, true};
        if (op.pattern.size)
          put_fill(object_of(op), op.pattern, dataflow::Region{0, static_cast<std::int64_t>(op.size_bytes)},
                   buffer->address, stream, {&all, 1});
      });
    } catch (nb::python_error&) {  // it is freed behind what the stream has got of it
      buffer->hazards.commit({0, buffer->size_bytes}, true, engine_.timeline.advance(stream));
      throw;
    }
    scratch_ = make_array(engine_.hooks.device_array, Array{std::move(buffer), 0, device, op.spec.dtype, op.shape});
    return scratch_;
  }

  // In page-locked memory.
  Value create_host(dataflow::CreateOp& op, std::int32_t device) {
    require_open(op, device);
    require_memory({.device = dataflow::host_ordinal, .size_bytes = op.size_bytes, .asking = device});
    scratch_ = make_host_array(op.size_bytes, op.spec.dtype, op.shape, device, object_of(op));
    dataflow::as_array(scratch_)->buffer->maker = op.origin.maker();
    if (describe_memory != nullptr) [[unlikely]]
      tell_maker(*dataflow::as_array(scratch_)->buffer);
    return scratch_;
  }

  Value staging(Op& op, const Array& source, std::int32_t device, StreamIndex stream) {
    if (device == dataflow::host_ordinal) {
      require_memory({.device = dataflow::host_ordinal, .size_bytes = source.size_bytes(), .asking = source.device});
      staged_ = make_host_array(source.size_bytes(), source.dtype, source.shape, source.device, object_of(op));
    } else {
      dataflow::BufferRef buffer = allocate_device(source.size_bytes(), stream, device, [&] { return object_of(op); });
      staged_ = make_array(engine_.hooks.device_array, Array{std::move(buffer), 0, device, source.dtype, source.shape});
    }
    return staged_;
  }

  void copy(dataflow::CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    if (to.size_bytes() == 0 || dataflow::is_same_place(to, from)) return;
    scope_.bind(engine_.stream(stream).device);
    doing(engine_, op, engine_.stream(stream).device,
          [&] { put_copy(object_of(op), to, from, stream, giving_.touched()); });
  }
  void copy_of_unknown(dataflow::CopyOp&) {}

  void fill(dataflow::FillOp& op, const Array& array, const Array* way, StreamIndex stream) {
    if (array.size_bytes() == 0) return;
    scope_.bind(engine_.stream(stream).device);
    const Array& first = way ? *way : array;
    doing(engine_, op, engine_.stream(stream).device, [&] {
      const Touched touched = giving_.touched();
      put_fill(object_of(op), op.pattern, first.region(), first.buffer->address, stream, touched);
      if (way) put_copy(object_of(op), array, *way, stream, touched);
    });
  }
  void fill_of_unknown(dataflow::FillOp&) {}

  // Pageable memory: small arrays are read at once, threads carry the others.
  static constexpr bool stages_copies = true;
  dataflow::Buffer& pageable() { return engine_.staging.pageable(); }
  bool stages(const dataflow::Pageable& memory, const Array& array) { return stages(engine_, memory, array); }
  static bool stages(Engine& engine, const dataflow::Pageable& memory, const Array& array) {
    if (memory.host.file()) return true;
    if (!array.is_contiguous()) return false;
    return array.is_host() || memory.host.size_bytes() > Staging::short_bytes ||
           engine.staging.is_being_written(memory);
  }
  std::optional<Tick> staging_full(std::int32_t device, const dataflow::Pageable& memory) {
    make_held_calls_now();
    return engine_.staging.full(device, memory.host);
  }
  Value page_locked(dataflow::CopyOp& op, const dataflow::Pageable& memory, std::int32_t device) {
    require_open(op, device);
    read_ = make_host_array(memory.host.size_bytes(), memory.dtype, memory.shape, device, object_of(op));
    memory.host.pack(0, memory.host.size_bytes(), reinterpret_cast<std::byte*>(dataflow::as_array(read_)->address()));
    return read_;
  }
  void upload(dataflow::CopyOp& op, const Array& to, StreamIndex stream) {
    stage(op, to, op.source, HeldWork::Kind::upload, stream);
  }
  void download(dataflow::CopyOp& op, const Array& from, StreamIndex stream) {
    stage(op, from, op.destination, HeldWork::Kind::download, stream);
  }

  void replay(dataflow::ReplayOp& op, const dataflow::Replay&, StreamIndex stream, std::int32_t device) {
    const std::shared_ptr<Graph>& graph = graph_of(op);
    if (op.plan->has_collectives) [[unlikely]]
      return replay_in_doubt(op, *graph, stream, device);
    graph->note_launch(stream);
    const Touched touched = giving_.touched();
    if (holds_back_)
      return hold(stream, {.kind = HeldWork::Kind::replay, .op = object_of(op), .graph = graph}, touched);
    replay_now(op, *graph, {stream, next_count(stream)}, device, touched);
  }
  // The function puts what it likes on the stream. Its objects stay until that has passed.
  std::optional<Value> foreign(dataflow::ForeignOp& op, const std::vector<Value>& values, StreamIndex stream,
                               std::int32_t device) {
    make_held_calls_now();
    scope_.bind(device);
    doing(engine_, op, device, [&] {
      engine_.streams.enter(stream);
      giving_.make_way({stream, next_count(stream)}, giving_.touched());
    });
    tensors_.leave_for_function();
    if (!op.state.is_valid() || op.keeps_state) followed_.clear();  // it may go on with streams of frameworks
    const nb::object function = op.function;
    const nb::object arguments = arguments_of(engine_, op, values, stream, device);
    PyObject* returned = nullptr;
    {
      const ProgramsCaptures programs(engine_.table);
      const InCall in_call(stream, device, &followed_);
      returned = PyObject_Call(function.ptr(), arguments.ptr(), nullptr);
    }
    scope_.bind(device);                                              // it may have left another context
    const Tick next{stream, engine_.timeline.submitted(stream) + 1};  // it may have submitted more there
    engine_.retain(next, function);
    engine_.retain(next, arguments);
    if (!returned) {
      const nb::python_error error;
      if (op.state.is_valid()) note_place(error, op);
      raise_named(error, op);
    }
    scratch_ = nb::steal(returned);
    if (scratch_.is_none()) return std::nullopt;
    engine_.retain(next, scratch_);
    return scratch_;
  }

  std::optional<Value> call(dataflow::CallOp& op, Value input) {
    nb::object value = nb::borrow(input);  // the callback may drop anything
    nb::object function = op.function;
    if (op.title.empty()) {  // the program's own may go on with them
      tensors_.leave_for_function();
      followed_.clear();
    }
    const dataflow::Enclosure::Entered building(dataflow::Enclosure::anywhere());
    nb::object returned;
    try {
      const ProgramsCaptures programs(engine_.table);
      returned = function(value);
    } catch (nb::python_error& error) {
      if (op.title.empty()) throw;  // the program's own, which says what it likes
      raise_named(error, op);
    }
    if (op.mode == dataflow::CallMode::inspect) {
      scratch_ = std::move(value);
      return scratch_;
    }
    if (op.mode == dataflow::CallMode::then && !dataflow::as_op(returned)) returned = engine_.hooks.lift(returned);
    if (op.mode == dataflow::CallMode::then && dataflow::as_op(returned)) {
      op.go_on_with(std::move(returned));
      return std::nullopt;
    }
    scratch_ = std::move(returned);
    return scratch_;
  }

  // A function of a complete value may take its time, and may need other threads: it runs when nobody is
  // kept from submitting.
  std::optional<Value> map(dataflow::CallOp&, Value) { return std::nullopt; }

  Value tuple(const std::vector<Value>& values) {
    if (values.empty()) return nb::handle(Py_None);
    return make_tuple(values);
  }
  Value gather(dataflow::GatherOp& op, const std::vector<Value>& values) {
    Value whole = make_tuple(values);
    if (!op.rebuild.is_valid()) return whole;
    scratch_ = op.rebuild(whole);
    return scratch_;
  }
  Value item(dataflow::PickOp& op, Value from) {
    if (PyTuple_CheckExact(from.ptr())) {
      const Py_ssize_t n = PyTuple_GET_SIZE(from.ptr());
      const Py_ssize_t index = op.index < 0 ? op.index + n : op.index;
      if (index < 0 || index >= n) dataflow::ExplainSink::raise_no_item(op.index, static_cast<std::size_t>(n));
      return PyTuple_GET_ITEM(from.ptr(), index);
    }
    scratch_ = dataflow::ExplainSink::item_of(from, op.index);
    return scratch_;
  }

  void ran(Op& op, Tick now) {
    dataflow::story.note_pending(dataflow::Decided::submitted, op, now);
    op.ready.clear();
    op.ready.push_back(now);
    if (!holds_back_) note_progress(op, now.stream);
  }
  const Few<Tick>& ready(const Op& op) const { return op.ready; }
  void add_ready(Op& op, Tick tick) {
    if (giving_.is_used() || engine_.outcomes.has_any()) [[unlikely]] {
      if (remembers_all()) keep_all(op, tick);
    }
    op.add_ready(tick);
  }
  // The submissions that a result depends on, where its own operation remembers each.
  void inherit_all(Op& op, const Op& producer) {
    if (!producer.all_ready || !remembers_all()) return;
    if (!op.all_ready && op.ready.empty()) {
      op.all_ready = producer.all_ready;
    } else {
      for (const Tick tick : *producer.all_ready) keep_all(op, tick);
    }
  }
  void finish(Op& op, Value value) {
    if (holds_back_)
      note_finished(op);
    else
      engine_.given.note_finished(op);
    drop_turn(op);
    op.finish(nb::borrow(value));
  }

 private:
  [[gnu::noinline]] bool is_full_now(StreamIndex stream, std::uint64_t most) {
    if (engine_.timeline.backlog(stream) >= most) {
      make_held_calls_now();
      if (engine_.waits.is_full(stream, most)) return true;
    }
    return stands_in_line_ && !engine_.lines.is_empty() &&
           !engine_.lines.may_pass(stream, engine_.level(stream), most, turn_);
  }
  [[gnu::cold]] void replay_in_doubt(dataflow::ReplayOp& op, Graph& graph, StreamIndex stream, std::int32_t device) {
    make_held_calls_now();  // Python is asked
    LaunchInDoubt launch(engine_.outcomes);
    launch.ask(giving_.uses(), device, op.plan->place);
    graph.note_launch(stream);
    replay_now(op, graph, {stream, next_count(stream)}, device, giving_.touched());
    launch.tell(reinterpret_cast<std::uintptr_t>(engine_.stream(stream).handle));
  }
  AheadMemory* ahead() const { return on_host_ ? on_host_->ahead.get() : nullptr; }
  bool is_loading(nb::handle object, std::int32_t device) const {
    return on_host_ && on_host_->loading.is_of(object, device);
  }
  // May a result still turn out to be lost, or wrong, by any of the submissions that it depends on?
  bool remembers_all() const { return engine_.outcomes.has_any() || giving_.may_lose(holds_back_); }
  // `ready` is to get a submission: it forgets all but the last of each stream.
  [[gnu::noinline]] static void keep_all(Op& op, Tick tick) {
    if (tick.count == 0) return;
    auto is_other = [tick](Tick each) { return each.stream == tick.stream && each.count != tick.count; };
    if (op.all_ready ? op.all_ready->contains(tick) : std::none_of(op.ready.begin(), op.ready.end(), is_other)) return;
    if (!op.all_ready)
      op.all_ready = std::make_shared<dataflow::TickSet>(op.ready.begin(), op.ready.end());
    else if (op.all_ready.use_count() > 1)  // others have the same so far
      op.all_ready = std::make_shared<dataflow::TickSet>(*op.all_ready);
    op.all_ready->insert(tick);
  }

  Value make_tuple(const std::vector<Value>& values) {
    nb::object whole = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
      PyTuple_SET_ITEM(whole.ptr(), static_cast<Py_ssize_t>(i), values[i].inc_ref().ptr());
    scratch_ = std::move(whole);
    return scratch_;
  }

  // A refusal of the driver in a function that does an operation's work is the operation's error, whatever the call was
  // for.
  [[noreturn, gnu::cold]] void raise_named(const nb::python_error& error, Op& op) {
    const nb::object named = engine_.hooks.named(error.value(), object_of(op));
    if (named.is(error.value())) throw nb::python_error(error);
    raise_exception(named);
  }

  [[gnu::cold]] void require_open_slowly(Op& op, std::int32_t device) {
    make_held_calls_now();  // Python is asked
    if (is_loading({}, device)) engine_.hooks.not_done(on_host_->loading.work, object_of(op), device);
    host_need_ = {.op = object_of(op), .device = device, .kind = HostNeed::Kind::device};
    throw dataflow::HostWait{};
  }

  // In the middle of another submission the launch makes it: another thread would need the right to submit.
  [[gnu::cold]] void require_made_slowly(dataflow::ReplayOp& op) {
    const std::shared_ptr<Graph> graph = graph_of(op);
    if (!stands_in_line_ && !graph->is_being_made()) return;
    make_held_calls_now();  // Python is asked
    const std::int32_t device = op.plan->device;
    if (is_loading(op.graph, device)) engine_.hooks.not_done(on_host_->loading.work, object_of(op), device);
    host_need_ = {.op = object_of(op), .device = device, .kind = HostNeed::Kind::graph};
    throw dataflow::HostWait{};
  }

  // An opening looks how long the file is, or makes it. If the file is in use, that is too early: threads open it and
  // carry it, in the order of the streams.
  [[gnu::cold]] void require_file_slowly(dataflow::CopyOp& op, const dataflow::Pageable& file, std::int32_t device) {
    const bool writes = dataflow::as_pageable(op.destination) == &file;
    bool is_in_use = false;
    hazards(*file.file).each(file.span(), [&](const dataflow::Hazard& hazard, dataflow::Span) {
      hazard.each_before(writes, [&](Tick tick) { is_in_use = is_in_use || !is_complete(tick); });
    });
    if (is_in_use) return file.host.leave_to_threads();
    make_held_calls_now();  // Python is asked
    if (is_loading(file.owner, device)) engine_.hooks.not_done(on_host_->loading.work, object_of(op), device);
    host_need_ = {.op = object_of(op), .device = device, .kind = HostNeed::Kind::file};
    throw dataflow::HostWait{};
  }

  [[gnu::cold]] void require_loaded_slowly(dataflow::LaunchOp& op, std::int32_t device) {
    require_open(op, device);
    make_held_calls_now();  // Python is asked
    if (is_there(op, device)) return;
    const nb::object kernel = nb::borrow(op.kernel());
    if (is_loading(kernel, device)) kernel.attr("_raise_failure")(on_host_->loading.work, object_of(op), device);
    host_need_ = {.op = object_of(op), .device = device};
    throw dataflow::HostWait{};
  }

  // Not more than the limit in force; where it lets wait, those go first who wait already.
  void require_room(const dataflow::MemoryLimit& limit, std::uint64_t size_bytes) {
    if (!engine_.memory.has_room(limit.device, limit.most_bytes, size_bytes)) {
      make_held_calls_now();  // what is held back holds its operations, and their results
      engine_.now.drain();    // and so does what is on its way
      engine_.collect();
    }
    const bool has_room = engine_.memory.has_room(limit.device, limit.most_bytes, size_bytes);
    const bool may_wait = limit.waits && stands_in_line_ && size_bytes <= limit.most_bytes;
    if (!has_room && !may_wait) engine_.raise_over_limit(limit, size_bytes);
    if (!may_wait) return;
    const completion::LineId line = engine_.memory_line(limit.device);
    const bool may_pass = engine_.lines.is_empty() ||
                          engine_.lines.may_pass(line, engine_.level(line), limit.most_bytes, turn_, size_bytes);
    if (!has_room || !may_pass) throw dataflow::FullMemory{limit.device, size_bytes, limit.most_bytes};
  }

  // The line may have been unknown to the operation, too.
  [[gnu::cold]] static void tell_maker(const dataflow::Buffer& buffer) {
    const std::string place = dataflow::Origin::place(buffer.maker).text();
    if (buffer.address != 0 && !place.empty()) describe_memory(buffer.address, place.c_str());
  }

  template <class F>
  dataflow::BufferRef allocate_device(std::uint64_t size_bytes, StreamIndex stream, std::int32_t device, F&& asked) {
    if (const dataflow::MemoryLimit* limit = placement_.limit_of(device); limit && size_bytes)
      require_room(*limit, size_bytes);
    auto allocate = [&] {
      scope_.bind(device);
      return engine_.memory.allocate_device(device, size_bytes, stream, [this] { make_held_calls_now(); });
    };
    return doing(engine_, asked, device, allocate, size_bytes);
  }

  // Managed memory is none of a device's: no limit bounds it.
  dataflow::BufferRef allocate_block(dataflow::CreateOp& op, std::int32_t device) {
    const bool is_managed = op.memory == dataflow::MemoryKind::managed;
    // Memory that the other thread got counts already. If it was refused, this asks for it.
    const bool is_tried = ahead() && ahead()->is_for(op.memory, device, op.size_bytes);
    if (dataflow::BufferRef got = take_ahead(op.memory, device, op.size_bytes)) return got;
    if (const dataflow::MemoryLimit* limit = placement_.limit_of(device); limit && op.size_bytes && !is_managed)
      require_room(*limit, op.size_bytes);
    if (!is_tried) require_memory({.kind = op.memory, .device = device, .size_bytes = op.size_bytes, .asking = device});
    make_held_calls_now();  // the GIL is given up
    auto allocate = [&] {
      scope_.bind(device);
      return is_managed ? engine_.memory.allocate_managed(device, op.size_bytes)
                        : engine_.memory.allocate_interprocess(device, op.size_bytes);
    };
    return doing(engine_, op, device, allocate, op.size_bytes);
  }

  nb::object make_host_array(std::uint64_t size_bytes, dataflow::DType dtype, const std::vector<std::int64_t>& shape,
                             std::int32_t device, const nb::object& asked) {
    return doing(engine_, asked, device, [&] {
      scope_.bind(device);
      dataflow::BufferRef buffer = take_ahead(dataflow::MemoryKind::ordinary, dataflow::host_ordinal, size_bytes);
      if (!buffer) {
        if (!engine_.memory.page_locked().has(size_bytes)) make_held_calls_now();  // the GIL is given up
        buffer = engine_.memory.allocate_host(size_bytes, [this] { make_held_calls_now(); });
      }
      return make_array(engine_.hooks.host_array, Array{std::move(buffer), 0, dataflow::host_ordinal, dtype, shape});
    });
  }

  void stage(dataflow::CopyOp& op, const Array& array, const nb::object& pageable, HeldWork::Kind kind,
             StreamIndex stream) {
    const dataflow::Pageable& memory = *dataflow::as_pageable(pageable);
    if (memory.is_nothing()) return;
    if (const std::uint64_t ring_bytes = engine_.staging.missing_ring_bytes(stream, memory))
      require_memory({.device = dataflow::host_ordinal,
                      .size_bytes = ring_bytes,
                      .asking = engine_.stream(stream).device,
                      .is_for_pool = true});
    HeldWork work{.kind = kind, .op = object_of(op), .array = array, .pageable = pageable};
    const Touched touched = giving_.touched();
    if (holds_back_) return hold(stream, std::move(work), touched);
    scope_.bind(engine_.stream(stream).device);
    doing(engine_, op, engine_.stream(stream).device, [&] { stage_now(work, {stream, next_count(stream)}, touched); });
  }
  const dataflow::Placement& placement_;
  const bool stands_in_line_;
  const completion::Turn* const turn_;
  const OnHost* const on_host_;
  Tensors& tensors_;
  Followed followed_;
  HostNeed host_need_;
  nb::object scratch_;        // keeps a value that nothing else holds until it is finished
  nb::object staged_, read_;  // likewise
};

}  // namespace aiocuda::driver
