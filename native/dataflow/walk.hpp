// The walk: visits an operation and what it needs, decides stream, waits and order, and tells a sink.
//
// Always true: producers come before consumers, arguments from left to right; an operation that has
// run is a constant; what waits for the host is parked on the walk's path, and everything that does not wait for it
// goes on. A walk that stops goes on where it stopped: no operation is looked at more often than something happens to
// it (path.hpp). A sink performs (driver/submit.hpp) or writes down (record.hpp): what is decided here is decided once.
//
// clang-format off
// A sink has
//   Value                            a result, cheap to copy, valid as long as the sink's walk
//   Timeline& timeline()
//   RangeHazards& hazards(Buffer&)   the hazards it may change
//   bool is_done(op), is_failed(op), Value result(op), Value constant(object)
//   const Array* array(value)        null where it is none (or not known yet: is_unknown(value))
//   Value item(value, index), Value tuple(values)
//   Lanes& lanes(op, policy, device), device_of(stream), is_open(stream)
//   StreamId ask(policy, op, device, needs, lanes), look(stream)
//                                    for policies that want it
//   void mark(op, stream, slot), wait(op, stream, other, slot)
//                                    for an operation; see Timeline::order
//   void launch(op, stream, device), copy(op, to, from, stream)
//   fill(op, array, way, stream)     `way`: memory that is filled and copied from, or null
//   Value create(op, stream, device), create_host(op, device)
//   bool is_peer(device, device)
//   Value staging(op, array, device, stream)
//                                    memory on a copy's way, page-locked for no device
//   Value page_locked(op, pageable, device)
//                                    page-locked memory with those contents, read now
//   bool stages_copies               else it has none of these, for copies between arrays and pageable memory:
//   Buffer& pageable(), stages(pageable, array), staging_full(device, bytes)
//   upload(op, to, stream), download(op, from, stream)
//   Value foreign(op, values, stream, device)
//   replay(op, replay, stream, device)
//                                    launch a graph
//   optional<Value> call(op, value)  run a callback at submission; none: it returned an operation
//   optional<Value> map(op, value)   a function of a complete value; none: it is called after the walk
//   bool is_complete(tick), is_full(stream, most)
//   hold_back(), make_held_calls(), make_held_calls_now()
//                                    there are branches; what was held back is to be done, at the end or in the middle
//   require_loaded(op, device), require_unclaimed(uses)
//                                    throw HostWait where work on the host must end first
//   void finish(op, value), fail(op, error)
// clang-format on
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "copying.hpp"
#include "path.hpp"
#include "placing.hpp"
#include "replay.hpp"
#include "scratch.hpp"
#include "shape.hpp"

namespace aiocuda::dataflow {

enum class Step : std::uint8_t { finished, stalled, again };

// The walks that are going on: each but the first was begun by a function that the one before it called. Guarded by the
// right to submit.
class Walkers {
 public:
  class Active {
   public:
    explicit Active(std::uint64_t number) { numbers().push_back(number); }
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;
    ~Active() { numbers().pop_back(); }
  };
  static bool is_active(std::uint64_t number) {
    return std::find(numbers().begin(), numbers().end(), number) != numbers().end();
  }

 private:
  static std::vector<std::uint64_t>& numbers() {
    static auto& active = *new std::vector<std::uint64_t>;
    return active;
  }
};

template <class Sink>
class Walk {
  using Value = typename Sink::Value;
  friend class Copying<Walk>;

 public:
  using Sinks = Sink;

  // `path`: of the same root and placement at each walk. It is empty at the first one.
  Walk(Sink& sink, const Placement& placement, Scratch<Value>& scratch, Path& path)
      : sink_(sink),
        root_placement_(&placement),
        placement_(&placement),
        placing_(sink, placement, scratch.uses, scratch.needs),
        path_(path),
        stack_(path.stack),
        waits_(scratch.waits),
        outputs_(scratch.outputs),
        deferred_(scratch.deferred) {
    waits_.clear();
  }

  // True: the root has its result. False: the host must wait for `waits()`, or call the functions that are due on the
  // path; another walk then goes on where this one stopped.
  bool run(nb::handle root) {
    root_ = as_op(root);
    root_->is_asked = true;
    if (sink_.is_done(*root_)) {
      path_.clear();
      return true;
    }
    if (Walkers::is_active(path_.number) || is_on_path(*root_)) raise_waits_for_itself();
    const Walkers::Active active(path_.number);
    try {
      if (path_.is_begun()) {
        go_on();
      } else {
        stack_.push_back({Held(root)});
      }
      do {
        while (!stack_.empty()) visit();
      } while (path_.go_on());
      sink_.make_held_calls();
      if (sink_.is_failed(*root_)) sink_.raise_again(*root_);
      if (!sink_.is_done(*root_)) {
        is_stuck_ = !path_.is_waiting();
        if (is_stuck_) raise_waits_for_itself();
        path_.add_waits(waits_);
      }
    } catch (const Full& full) {
      sink_.make_held_calls();
      (full.is_room ? is_full_ : is_queue_full_) = true;
      waits_.assign(1, full.until);  // what comes later must not come first: nothing goes on meanwhile
      return false;
    } catch (const FullMemory& full) {
      sink_.make_held_calls();
      full_memory_ = full;
      return false;
    } catch (const HostWait&) {
      sink_.make_held_calls();
      return false;
    } catch (nb::python_error& error) {
      fail(failing_ || stack_.empty() ? nb::borrow(error.value()) : stack_.back().held.op().failure_of(error.value()));
      sink_.make_held_calls();
      throw;
    } catch (...) {
      path_.clear();
      sink_.make_held_calls();
      throw;
    }
    if (!sink_.is_done(*root_)) return false;
    path_.clear();
    return true;
  }

  const std::vector<Tick>& waits() const { return waits_; }
  bool is_full() const { return is_full_ || is_queue_full_; }  // it stopped because a stream holds as much as it may
  bool is_queue_full() const {
    return is_queue_full_;
  }  // or the driver as much as it can, for which nobody stands in line
  const std::optional<FullMemory>& full_memory() const { return full_memory_; }  // or arrays as much as they may

 private:
  // What the host had to do for parked operations may have been done, by whomever.
  void go_on() {
    if (path_.has_branches) sink_.hold_back();
    for (const Path::Due& each : std::exchange(path_.due, {})) {
      const auto& op = static_cast<const CallOp&>(*each.frame->op);
      if (sink_.is_done(op)) {
        path_.end(each.frame);
        continue;
      }
      path_.due.push_back(each);
      failing_ = each.frame;
      if (sink_.is_failed(op)) sink_.raise_again(op);
      if (op.runner == PyThread_get_thread_ident()) raise_waits_for_itself();
      failing_ = nullptr;
    }
    path_.look([this](const Op& op, Tick tick) {
      return sink_.is_done(op) || sink_.is_failed(op) || sink_.is_complete(tick);
    });
  }

  void visit() {
    ++Path::visits();
    Path::Entry& entry = stack_.back();
    Op& op = entry.held.op();
    if (sink_.is_done(op)) return pop();
    if (sink_.is_failed(op)) sink_.raise_again(op);
    const bool is_parked_by_another = path_.find_parked(&op) != nullptr && !(entry.frame && entry.frame->order);
    if (is_parked_by_another) return stack_.pop_back();
    consumer_ = entry.consumer;
    put_in_force(consumer_ ? consumer_->placement : root_placement_);
    op.walker = path_.number;
    entry.is_begun = true;
    bool stalls = false;
    if (push_children(op, stalls)) return;
    if (stalls) return park(op);
    // Beside walks, who holds it may consume it: one that does, and others that may come.
    is_shared_ = &op == root_ || Py_REFCNT(stack_.back().held.object().ptr()) > static_cast<Py_ssize_t>(op.held) + 1;
    const Step step = perform(op);
    if (step == Step::finished) pop();
    if (step == Step::stalled) park_for_host(op);
  }

  // A failure is the failure of all that depends on it here.
  void fail(nb::handle error) {
    const auto fail_one = [&](Op& op) { sink_.fail(op, error); };
    if (failing_) {
      path_.fail_parked(failing_, fail_one);
      fail_one(*root_);
    } else {
      path_.fail(fail_one);
    }
    if (is_stuck_) path_.fail_all_parked(fail_one);
    path_.clear();
  }

  void pop() {
    Op& op = stack_.back().held.op();
    if (op.walker == path_.number) op.walker = 0;
    path_.end_top();
  }

  // Some of what it needs is parked: it is visited again when all of that has ended.
  void park(Op& op) {
    op.walker = 0;
    Frame* const frame = path_.park();
    each_needed(op, [&](nb::handle, Op& child) {
      if (Frame* const parked = path_.find_parked(&child)) path_.wait_for(frame, parked);
    });
  }
  // It waits for work on the device; or for its function, which is called outside of walks.
  void park_for_host(Op& op) {
    op.walker = 0;
    Frame* const frame = path_.park();
    for (const Tick tick : op.ready)
      if (!is_due_ && !sink_.is_complete(tick)) path_.wait_until(frame, tick);
    if (is_due_ || frame->missing == 0) path_.due.push_back({frame, placement_of(op, *placement_)});
  }

  static bool is_on_path(const Op& op) { return op.walker && Walkers::is_active(op.walker); }

  // The frame of what is on top, as those see it that are done for it.
  Frame* as_consumer(std::size_t at, Op& op) {
    Path::Entry& entry = stack_[at];
    const bool is_call = op.kind == Kind::call, is_structure = op.kind == Kind::gather || op.kind == Kind::pick;
    const bool is_plain =
        is_call && static_cast<CallOp&>(op).mode != CallMode::map && static_cast<CallOp&>(op).title.empty();
    if ((is_structure || is_plain) && !op.put.is_valid()) return entry.consumer;
    Frame* const frame = path_.frame_of(entry);
    if (!frame->placement) frame->placement = placement_;
    // What a function of `then` returned is under the placement of that.
    if (is_call && static_cast<CallOp&>(op).inner.is_valid() && op.put.is_valid() && !frame->own.is_valid()) {
      frame->own = placement_of(op, *placement_);
      frame->placement = nb::inst_ptr<Placement>(frame->own);
    }
    return frame;
  }

  void put_in_force(const Placement* placement) {
    if (placement_ == placement) return;
    placement_ = placement;
    placing_.put_in_force(*placement);
  }

  // A new array on a device is made by who uses it first, on that one's stream: making it is no work that could
  // overlap with anything, and would only be waited for.
  CreateOp* as_deferred(const Op& consumer, nb::handle argument) {
    if (consumer.kind == Kind::copy) {
      const auto& copy = static_cast<const CopyOp&>(consumer);
      if (argument.ptr() != copy.destination.ptr() || argument.ptr() == copy.source.ptr()) return nullptr;
    } else if (consumer.kind != Kind::launch) {
      return nullptr;
    }
    Op* op = as_op(argument);
    if (!op || op->kind != Kind::create || sink_.is_done(*op) || sink_.is_failed(*op)) return nullptr;
    auto* create = static_cast<CreateOp*>(op);
    return create->spec.device == host_ordinal ? nullptr : create;
  }

  // --- where work goes that nothing ties to a device: the order of precedence is in docs/design.md, "Placement"

  // What those say for whom it is done, from the nearest on: where they were put, or what their arrays are on.
  std::int32_t device_of_consumers() {
    for (const Frame* frame = consumer_; frame; frame = frame->consumer) {
      Op& consumer = *frame->op;
      std::int32_t device = consumer.device_put();
      if (device == unknown_ordinal) device = device_of_arrays(consumer);
      if (device != unknown_ordinal) return device;
      if (may_be_elsewhere(consumer)) break;
    }
    return unknown_ordinal;
  }
  // Of what is known now of an operation that works on one device.
  std::int32_t device_of_arrays(Op& op) {
    if (op.tied_device != unknown_ordinal) return op.tied_device;
    if (op.kind == Kind::call) {
      const auto& call = static_cast<const CallOp&>(op);
      return call.mode == CallMode::then && !moves_its_input(call) ? call.spec.device : unknown_ordinal;
    }
    std::int32_t device = unknown_ordinal;
    auto look = [&](nb::handle argument) {
      if (device != unknown_ordinal) return;
      const Op* producer = as_op(argument);
      if (producer && !sink_.is_done(*producer)) {
        if (producer->spec.yields != Yields::device_array || producer->spec.is_managed) return;
        device = producer->spec.device;
        if (device == unknown_ordinal && producer->kind == Kind::create) device = producer->device_put();
        return;
      }
      const Value value = value_of(argument);
      const Array* array = sink_.is_unknown(value) ? nullptr : sink_.array(value);
      if (array && !array->is_host() && !array->is_managed()) device = array->device;
    };
    if (op.kind == Kind::launch) each_argument(op, look);
    if (op.kind == Kind::foreign)
      for (const ForeignOp::Access& access : static_cast<ForeignOp&>(op).accesses) look(access.array);
    return device;
  }
  // What its function returned is what it yields.
  static bool moves_its_input(const CallOp& op) { return op.moves && !op.inner.is_valid(); }
  // Its result may be on another device than what it takes, so whoever takes that says nothing of this.
  static bool may_be_elsewhere(const Op& op) {
    switch (op.kind) {
      case Kind::call:
        return static_cast<const CallOp&>(op).mode == CallMode::map || moves_its_input(static_cast<const CallOp&>(op));
      case Kind::create:
        return !static_cast<const CreateOp&>(op).is_beside;
      case Kind::copy: {
        const Op* into = as_op(static_cast<const CopyOp&>(op).destination);
        return !into || into->kind != Kind::create || !static_cast<const CreateOp*>(into)->is_beside;
      }
      default:
        return false;
    }
  }
  // `at_least`: better than the process's default.
  std::int32_t device_for(const Op& op, std::int32_t at_least = unknown_ordinal) {
    if (const std::int32_t put = op.device_put(); put != unknown_ordinal) return put;
    if (const std::int32_t consumers = device_of_consumers(); consumers != unknown_ordinal) return consumers;
    return placement_->device == unknown_ordinal && at_least != unknown_ordinal ? at_least
                                                                                : placement_->device_or_default();
  }
  // Where a new array is made, its shape known. `else_where()`: on which device, where it says nothing itself.
  template <class F>
  std::int32_t device_of(const CreateOp& op, F&& else_where) {
    if (op.is_beside) return sink_.array(value_of(op.like))->device;
    if (op.spec.device != unknown_ordinal) return op.spec.device;
    return op.device_put() != unknown_ordinal ? op.device_put() : else_where();
  }
  std::int32_t device_of(const CreateOp& op) {
    return device_of(op, [&] { return device_for(op); });
  }

  // Calls `f(argument, op)` for all that comes before an operation and has no result yet.
  template <class F>
  void each_needed(Op& op, F&& f) {
    each_argument(op, [&](nb::handle argument) {
      if (CreateOp* create = as_deferred(op, argument)) argument = create->like;
      Op* child = as_op(argument);
      if (child && !sink_.is_done(*child)) f(argument, *child);
    });
  }

  // True: what the operation needs comes first. Else `stalls` says whether some of it waits for the host.
  bool push_children(Op& op, bool& stalls) {
    const std::size_t before = stack_.size();
    Frame* consumer = nullptr;
    each_needed(op, [&](nb::handle argument, Op& child) {
      if (is_on_path(child)) raise_waits_for_itself();
      if (path_.find_parked(&child)) {
        stalls = true;
        return;
      }
      if (stack_.size() == before) consumer = as_consumer(before - 1, op);
      stack_.push_back({Held(argument), consumer});
    });
    if (stack_.size() == before) return false;
    if (stack_.size() - before > 1) {
      sink_.hold_back();
      path_.has_branches = true;
    }
    std::reverse(stack_.begin() + static_cast<std::ptrdiff_t>(before), stack_.end());  // the first argument on top
    return true;
  }

  [[noreturn, gnu::cold]] static void raise_waits_for_itself() {
    raise(error_types.argument_value,
          "an operation waits for itself: a callback runs, or returns, an operation that "
          "needs the result of the callback's own");
  }

  Value value_of(nb::handle object) {
    if (Op* op = as_op(object)) return sink_.result(*op);
    return sink_.constant(object);
  }

  Step perform(Op& op) {
    switch (op.kind) {
      case Kind::launch:
        return perform(static_cast<LaunchOp&>(op));
      case Kind::create:
        return perform(static_cast<CreateOp&>(op));
      case Kind::fill:
        return perform(static_cast<FillOp&>(op));
      case Kind::copy:
        return perform(static_cast<CopyOp&>(op));
      case Kind::call:
        return perform(static_cast<CallOp&>(op));
      case Kind::gather:
        return perform(static_cast<GatherOp&>(op));
      case Kind::pick:
        return perform(static_cast<PickOp&>(op));
      case Kind::foreign:
        return perform(static_cast<ForeignOp&>(op));
      case Kind::replay:
        return perform(static_cast<ReplayOp&>(op));
    }
    return Step::finished;
  }

  Step perform(LaunchOp& op) {
    const Signature& signature = op.signature;
    Home home;
    placing_.uses.clear();
    outputs_.clear();
    deferred_.clear();
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      Argument& argument = op.arguments[i];
      const Param& param = signature.params[i];
      const bool is_constant = !op.is_operation(i);
      if (is_constant && is_scalar(param.kind)) continue;  // packed when it was built
      if (!is_constant) {
        if (CreateOp* create = as_deferred(op, argument.object)) {
          if (!take_shape(*create)) {
            if (param.writes) outputs_.push_back(sink_.result(*create));
            continue;
          }
          Spec spec = create->spec;
          spec.device = device_of(*create, [] { return unknown_ordinal; });
          check_spec(signature, i, spec, home);
          deferred_.push_back({i, outputs_.size()});
          if (param.writes) outputs_.emplace_back();
          continue;
        }
      }
      const Value value = is_constant ? sink_.constant(argument.object) : value_of(argument.object);
      if (sink_.is_unknown(value)) {
        if (param.writes) outputs_.push_back(value);
        continue;
      }
      if (is_scalar(param.kind)) {
        op.pack_value(i, sink_.object(value));
        continue;
      }
      if (is_constant)
        take_bound(op, i, value, home);
      else
        take_array(op, i, value, home);
      if (param.writes) outputs_.push_back(value);
    }
    std::int32_t device = home.or_where_put(op.device_put());
    if (device == unknown_ordinal) device = device_for(op);
    sink_.require_loaded(op, device);
    signature.memory->each(device, [&](const ModuleMemory::Variable& each) {
      placing_.uses.push_back({each.buffer.get(), {0, each.buffer->size_bytes}, each.writes});
    });
    const StreamIndex stream = placing_.choose(op, device);
    for (const auto& deferred : deferred_) {
      auto& create = static_cast<CreateOp&>(*as_op(op.arguments[deferred.argument].object));
      const bool is_made = sink_.is_done(create);  // as another argument
      const Value value = is_made ? sink_.result(create)
                                  : make(create, stream, device_of(create, [&] { return device; }),
                                         Py_REFCNT(op.arguments[deferred.argument].object) > 1);
      take_array(op, deferred.argument, value, home);
      if (signature.params[deferred.argument].writes) outputs_[deferred.output] = value;
    }
    placing_.order(op, stream);
    sink_.launch(op, stream, device);
    placing_.commit(op, stream, is_shared_);
    sink_.finish(op, outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    return Step::finished;
  }

  void take_array(LaunchOp& op, std::uint32_t i, Value value, Home& home) {
    const Signature& signature = op.signature;
    const Param& param = signature.params[i];
    const Array* array = sink_.array(value);
    if (!array)
      raise(error_types.argument_type,
            signature.where(i) + ": " + expected_array(param) + " is expected, the operation yielded " +
                nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(sink_.object(value).ptr())).attr("__name__"))));
    check_array(signature, i, *array, home);
    if (param.kind == ParamKind::partition) fit_partition(signature, i, *array, op.shape);
    op.pack(i, *array);
    placing_.add(*array, param.writes);
  }

  // What was an array when the launch was built: it was found to fit then.
  void take_bound(LaunchOp& op, std::uint32_t i, Value value, Home& home) {
    const Array& array = *sink_.array(value);
    check_array_again(op.signature, i, array, home);
    op.pack(i, array);
    placing_.add(array, op.signature.params[i].writes);
  }

  Step perform(CreateOp& op) {
    if (!take_shape(op)) return Step::finished;
    const std::int32_t device = device_of(op);
    if (device == host_ordinal) {  // page-locked memory is there at once
      // Any device's context will do: that of what it is made for is as well as the copy will need it to be.
      const Array* model = op.like.is_valid() ? sink_.array(value_of(op.like)) : nullptr;
      sink_.finish(op, sink_.create_host(op, model && !model->is_host() ? model->device : device_for(op)));
      return Step::finished;
    }
    placing_.uses.clear();
    make(op, placing_.choose(op, device), device, is_shared_);
    return Step::finished;
  }

  // Allocates on a device; the memory is there from here on in the stream. `uses` stays as it is.
  Value make(CreateOp& op, StreamIndex stream, std::int32_t device, bool is_shared) {
    try {
      if (const Placement* put = op.where_put(); put && put->stream != no_stream)
        stream = placing_.open(put->stream, device);
      else
        require_put(op, device);
      placing_.mark(op, stream);
      const Value value = sink_.create(op, stream, device);
      placing_.commit_new(op, *sink_.array(value), stream, is_shared);
      sink_.finish(op, value);
      return value;
    } catch (nb::python_error& error) {
      sink_.fail(op, error.value());
      throw;
    }
  }

  // Memory on an operation's way, which only it uses. It is ordered before: where its stream is full, the walk ends
  // without.
  Value make_way(Op& op, const Array& like, std::int32_t device, StreamIndex stream) {
    const Value value = sink_.staging(op, like, device, stream);
    const Array& way = *sink_.array(value);
    if (!way.is_host())
      placing_.commit_new(op, way, stream, false);  // whatever comes of the operation, it is freed behind that
    placing_.add(way, true);
    return value;
  }

  // Work of several calls, which is ordered already: what was submitted before one of them failed is there all the
  // same.
  template <class F>
  void submit(Op& op, StreamIndex stream, F&& f) {
    try {
      f();
    } catch (nb::python_error&) {
      placing_.occupy(stream, is_shared_);
      throw;
    }
    placing_.commit(op, stream, is_shared_);
  }

  // False: its shape is known only when it runs, and it has its result, which is not known either.
  bool take_shape(CreateOp& op) {
    if (!op.like.is_valid()) return true;
    const Value model = value_of(op.like);
    if (sink_.is_unknown(model)) {
      sink_.finish(op, model);
      return false;
    }
    const Array* array = sink_.array(model);
    if (!array)
      raise(error_types.argument_type,
            "an array is expected; the operation yielded " + nb::cast<std::string>(nb::repr(sink_.object(model))));
    op.shape = array->shape;
    op.size_bytes = array->size_bytes();
    op.spec.dtype = array->dtype;
    if (op.is_beside) op.spec.yields = array->is_host() ? Yields::host_array : Yields::device_array;
    return true;
  }

  Step perform(FillOp& op) {
    const Value value = value_of(op.destination);
    if (sink_.is_unknown(value)) {
      sink_.fill_of_unknown(op);
      sink_.finish(op, value);
      return Step::finished;
    }
    const Array* array = sink_.array(value);
    if (!array)
      raise(error_types.argument_type,
            "fill: the destination is not an array but " + nb::cast<std::string>(nb::repr(sink_.object(value))));
    check_fill(*array, op.pattern);
    std::int32_t device = array->device;
    if (array->is_host()) device = device_for(op);
    placing_.uses.clear();
    placing_.add(*array, true);
    const StreamIndex stream = placing_.choose(op, device);
    placing_.order(op, stream);
    // Rows of a long pattern would be a call each: memory in one piece is filled, and copied from there.
    const Array* way = nullptr;
    if (is_fill_of_rows(op.pattern, array->region())) way = sink_.array(make_way(op, *array, device, stream));
    submit(op, stream, [&] { sink_.fill(op, *array, way, stream); });
    sink_.finish(op, value);
    return Step::finished;
  }

  Step perform(CopyOp& op) {
    CreateOp* create = as_deferred(op, op.destination);
    if (create && !take_shape(*create)) create = nullptr;
    if (create && create->is_beside && sink_.array(value_of(create->like))->is_host()) {
      sink_.finish(*create, sink_.create_host(*create, device_for(op)));
      create = nullptr;
    }
    Copying<Walk>(*this, op).perform(create);
    return Step::finished;
  }

  Step perform(ForeignOp& op) {
    std::vector<Value> values;
    std::int32_t device = unknown_ordinal, read_device = unknown_ordinal, managed_device = unknown_ordinal;
    bool is_known = true;
    placing_.uses.clear();
    outputs_.clear();
    for (const ForeignOp::Access& access : op.accesses) {
      const Value value = value_of(access.array);
      if (access.writes) outputs_.push_back(value);
      if (sink_.is_unknown(value)) {
        is_known = false;
        continue;
      }
      const Array* array = sink_.array(value);
      const char* role = access.writes ? "call: what is written" : "call: what is read";
      if (!array)
        raise(error_types.argument_type,
              std::string(role) + " is an array, not " + nb::cast<std::string>(nb::repr(sink_.object(value))));
      check_usable(*array, access.writes, [&] { return std::string(role); });
      placing_.add(*array, access.writes);
      if (array->is_host()) continue;
      if (array->is_managed()) {
        if (managed_device == unknown_ordinal) managed_device = array->device;
        continue;
      }
      std::int32_t& found = access.writes ? device : read_device;
      if (found == unknown_ordinal) found = array->device;
      const std::int32_t other = device != unknown_ordinal ? device : read_device;
      if (array->device != other)
        raise(error_types.device_mismatch, std::string(role) + " is on device " + std::to_string(array->device) +
                                               ", other arrays of the call on device " + std::to_string(other) +
                                               "; bring one over with .to(device)");
    }
    if (device == unknown_ordinal) device = read_device;
    if (device == unknown_ordinal) device = op.device_put();
    if (device == unknown_ordinal) device = managed_device != unknown_ordinal ? managed_device : device_for(op);
    for (const nb::object& argument : op.arguments) {
      values.push_back(value_of(argument));
      if (is_known && !sink_.is_unknown(values.back())) check_declared(sink_.array(values.back()));
    }
    const StreamIndex stream = placing_.choose(op, device);
    placing_.order(op, stream);
    std::optional<Value> returned;
    submit(op, stream, [&] {
      const InForce in_force(placement_of(op, *placement_));
      returned = sink_.foreign(op, values, stream, device);
    });
    sink_.finish(op, returned ? *returned : outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    return Step::finished;
  }

  void check_declared(const Array* array) {
    if (!array || !array->buffer) return;
    array->each_piece([&](Span piece) {
      for (const Use& use : placing_.uses)
        if (use.buffer == array->buffer.get() && use.span.begin <= piece.begin && piece.end <= use.span.end) return;
      raise(error_types.argument_value, "call: " + describe(*array) +
                                            " is passed to the function, and stands neither in reads= nor in writes=; "
                                            "name it in one of them");
    });
  }

  Step perform(ReplayOp& op) {
    const GraphPlan& plan = *op.plan;
    Replay replay(plan, op);
    outputs_.clear();
    for (const ReplayOp::Binding& binding : op.bindings) {
      const Value value = value_of(binding.value);
      if (binding.is_output) outputs_.push_back(value);
      if (sink_.is_unknown(value)) continue;
      if (const Array* array = sink_.array(value)) {
        replay.bind(binding, *array);
      } else {
        replay.bind(binding, sink_.object(value));
      }
    }
    replay.check();
    placing_.uses.clear();
    replay.each_use([&](const Use& use) { placing_.uses.push_back(use); });
    const StreamIndex stream = placing_.choose(op, plan.device);
    placing_.order(op, stream);
    sink_.replay(op, replay, stream, plan.device);
    placing_.commit(op, stream, is_shared_);
    if (op.result.is_valid() || outputs_.empty()) {
      sink_.finish(op, sink_.constant(op.result.is_valid() ? op.result : plan.result));
    } else {
      sink_.finish(op, outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    }
    return Step::finished;
  }

  Step perform(CallOp& op) {
    if (op.inner.is_valid()) {
      placing_.inherit(op, op.inner);
      sink_.finish(op, value_of(op.inner));
      return Step::finished;
    }
    placing_.inherit(op, op.input);
    if (op.mode == CallMode::map) {
      is_due_ = false;
      for (const Tick tick : op.ready)
        if (!sink_.is_complete(tick)) return Step::stalled;
      is_due_ = true;
      if (op.runner == PyThread_get_thread_ident()) raise_waits_for_itself();
      const std::optional<Value> mapped = sink_.map(op, value_of(op.input));
      if (!mapped) return Step::stalled;
      sink_.finish(op, *mapped);
      return Step::finished;
    }
    sink_.make_held_calls_now();  // the callback may submit
    const std::optional<Value> value = [&] {
      const InForce in_force(placement_of(op, *placement_));
      return sink_.call(op, value_of(op.input));
    }();
    if (!value) return Step::again;  // it returned an operation: that comes first
    sink_.finish(op, *value);
    return Step::finished;
  }

  Step perform(GatherOp& op) {
    std::vector<Value> values;
    values.reserve(op.items.size());
    for (const nb::object& item : op.items) {
      placing_.inherit(op, item);
      values.push_back(value_of(item));
    }
    sink_.finish(op, sink_.gather(op, values));
    return Step::finished;
  }

  Step perform(PickOp& op) {
    placing_.inherit(op, op.source);
    sink_.finish(op, sink_.item(op, value_of(op.source)));
    return Step::finished;
  }

  Sink& sink_;
  const Placement* const root_placement_;
  const Placement* placement_;  // in force for what is visited now
  Op* root_ = nullptr;
  Frame* consumer_ = nullptr;  // for whom that is done
  Frame* failing_ = nullptr;   // a parked operation that has failed
  bool is_stuck_ = false;      // what is parked waits for itself
  bool is_full_ = false, is_queue_full_ = false;
  std::optional<FullMemory> full_memory_;
  bool is_shared_ = false;  // the operation that is performed may have more than one consumer
  bool is_due_ = false;     // a map stalled for its function alone
  Placing<Sink> placing_;
  Path& path_;
  std::vector<Path::Entry>& stack_;
  std::vector<Tick>& waits_;
  std::vector<Value>& outputs_;
  std::vector<typename Scratch<Value>::Deferred>& deferred_;
};

}  // namespace aiocuda::dataflow
