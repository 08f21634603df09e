// The walk: visits an operation and what it needs, decides stream, waits and order, and tells a sink.
//
// Always true: producers come before consumers, arguments from left to right; an operation that has
// run is a constant; what waits for the host stalls, and everything that does not wait for it goes on.
// A sink performs (driver/submit.hpp) or writes down (record.hpp): what is decided here is decided once.
//
// A sink has
//   Value                          a result, cheap to copy, valid as long as the sink's walk
//   Timeline& timeline()
//   RangeHazards& hazards(Buffer&) the hazards it may change
//   bool is_done(op), is_failed(op), Value result(op), Value constant(object)
//   const Array* array(value)      null where it is none (or not known yet: is_unknown(value))
//   Value item(value, index), Value tuple(values)
//   default_stream(device), device_of(stream), is_open(stream)
//   void wait(stream, other)       order later work of `stream` after what `other` holds so far
//   void launch(op, stream, device), void copy(op, to, from, stream), Value create(op, stream, device)
//   optional<Value> call(op, value)  run a callback at submission; none: it returned an operation
//   optional<Value> map(op, value)   a function of a complete value; none: it is run after the walk
//   bool is_complete(tick)
//   void finish(op, value), void fail(op, error)
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "launch.hpp"

namespace aiocuda::dataflow {

// Where operations without a stream of their own go.
struct Placement {
  std::int32_t device = 0;      // for an operation that touches no array
  StreamId stream = no_stream;  // all that this device's operations are put on
  std::int32_t stream_device = unknown_ordinal;
};

enum class Step : std::uint8_t { finished, stalled, again };

// What a walk works with; kept between walks, so that a short one allocates nothing.
template <class Value>
struct Scratch {
  struct Use {
    Buffer* buffer;
    Span span;
    bool writes;
  };
  std::vector<nb::object> stack;  // owns: a callback may drop anything
  std::vector<Tick> waits;
  std::vector<Use> uses;
  std::vector<Value> outputs;
};

[[noreturn]] inline void raise_stream_closed(StreamId stream) {
  raise(error_types.closed, "stream " + std::to_string(slot_of(stream)) + " was closed before this use of it");
}

template <class Sink>
class Walk {
  using Value = typename Sink::Value;
  using Use = typename Scratch<Value>::Use;

 public:
  Walk(Sink& sink, const Placement& placement, Scratch<Value>& scratch)
      : sink_(sink), placement_(placement), stack_(scratch.stack), waits_(scratch.waits), uses_(scratch.uses), outputs_(scratch.outputs) {
    waits_.clear();
  }

  // True: the root has its result. False: the host must wait for `waits()` first; walk again then.
  bool run(nb::handle root) {
    round_ = ++rounds();
    if (sink_.is_done(*as_op(root))) return true;
    if (as_op(root)->on_stack) raise_waits_for_itself();
    try {
      stack_.push_back(nb::borrow(root));
      while (!stack_.empty()) visit();
    } catch (nb::python_error& error) {
      unwind(error.value());
      throw;
    } catch (...) {
      unwind(nb::handle());
      throw;
    }
    return sink_.is_done(*as_op(root));
  }

  const std::vector<Tick>& waits() const { return waits_; }

 private:
  void visit() {
    Op& op = *as_op(stack_.back());
    if (is_settled(op)) return pop();
    if (sink_.is_failed(op)) sink_.raise_again(op);
    op.on_stack = true;
    bool stalls = false;
    if (push_children(op, stalls)) return;
    const Step step = stalls ? Step::stalled : perform(op);
    if (step == Step::again) return;
    if (step == Step::stalled) op.stalled_round = round_;
    pop();
  }

  // A failure is the failure of all that depends on it here: of the ancestors, which the stack marks.
  void unwind(nb::handle error) {
    for (nb::object& entry : stack_) {
      Op& op = *as_op(entry);
      if (!op.on_stack) continue;
      op.on_stack = false;
      if (error.is_valid()) sink_.fail(op, error);
    }
    stack_.clear();
  }

  // Rounds are counted for the process, so that no round's marks are taken for another's.
  static std::uint32_t& rounds() {
    static std::uint32_t count = 0;
    return count;
  }

  bool is_settled(const Op& op) { return sink_.is_done(op) || op.stalled_round == round_; }

  void pop() {
    as_op(stack_.back())->on_stack = false;
    let_go(std::move(stack_.back()));
    stack_.pop_back();
  }

  template <class F>
  static void each_argument(Op& op, F&& f) {
    switch (op.kind) {
      case Kind::launch: {
        auto& launch = static_cast<LaunchOp&>(op);
        if (launch.consumes)
          for (std::uint32_t i = 0; i < launch.bound; ++i)
            if (launch.is_operation(i)) f(nb::handle(launch.arguments[i].object));
        return;
      }
      case Kind::create: f(nb::handle(static_cast<CreateOp&>(op).like)); return;
      case Kind::copy:
        f(nb::handle(static_cast<CopyOp&>(op).destination));
        f(nb::handle(static_cast<CopyOp&>(op).source));
        return;
      case Kind::call:
        if (static_cast<CallOp&>(op).inner.is_valid()) {
          f(nb::handle(static_cast<CallOp&>(op).inner));
        } else {
          f(nb::handle(static_cast<CallOp&>(op).input));
        }
        return;
      case Kind::gather:
        for (const nb::object& item : static_cast<GatherOp&>(op).items) f(nb::handle(item));
        return;
      case Kind::pick: f(nb::handle(static_cast<PickOp&>(op).source)); return;
    }
  }

  // True: what the operation needs comes first. Else `stalls` says whether some of it waits for the host.
  bool push_children(Op& op, bool& stalls) {
    const std::size_t before = stack_.size();
    each_argument(op, [&](nb::handle argument) {
      Op* child = as_op(argument);
      if (!child || sink_.is_done(*child)) return;
      if (child->stalled_round == round_) {
        stalls = true;
        return;
      }
      if (child->on_stack) raise_waits_for_itself();
      stack_.push_back(nb::borrow(argument));
    });
    if (stack_.size() == before) return false;
    std::reverse(stack_.begin() + static_cast<std::ptrdiff_t>(before), stack_.end());  // the first argument on top
    return true;
  }

  [[noreturn]] static void raise_waits_for_itself() {
    raise(error_types.argument_value, "an operation waits for itself: a callback runs, or returns, an operation that "
                                      "needs the result of the callback's own");
  }

  Value value_of(nb::handle object) {
    if (Op* op = as_op(object)) return sink_.result(*op);
    return sink_.constant(object);
  }

  StreamIndex choose_stream(const Op& op, std::int32_t device) {
    if (op.target_stream != no_stream) return open(op.target_stream);
    if (placement_.stream != no_stream && placement_.stream_device == device) return open(placement_.stream);
    return sink_.default_stream(device);
  }

  StreamIndex open(StreamId stream) {
    if (!sink_.is_open(stream)) raise_stream_closed(stream);
    return slot_of(stream);
  }

  void order(StreamIndex stream, const Use& use) {
    sink_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard) {
      sink_.timeline().order(stream, hazard, use.writes, [&](StreamIndex other) { sink_.wait(stream, other); });
    });
  }

  static Use use_of(const Array& array, bool writes) { return {array.buffer.get(), array.span(), writes}; }

  Step perform(Op& op) {
    switch (op.kind) {
      case Kind::launch: return perform(static_cast<LaunchOp&>(op));
      case Kind::create: return perform(static_cast<CreateOp&>(op));
      case Kind::copy: return perform(static_cast<CopyOp&>(op));
      case Kind::call: return perform(static_cast<CallOp&>(op));
      case Kind::gather: return perform(static_cast<GatherOp&>(op));
      default: return perform(static_cast<PickOp&>(op));
    }
  }

  Step perform(LaunchOp& op) {
    const Signature& signature = op.signature;
    std::int32_t device = unknown_ordinal;
    uses_.clear();
    outputs_.clear();
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      Argument& argument = op.arguments[i];
      const Param& param = signature.params[i];
      const bool is_constant = !op.is_operation(i);
      if (is_constant && param.kind != ParamKind::array) continue;  // packed when it was built
      const Value value = is_constant ? sink_.constant(argument.object) : value_of(argument.object);
      if (sink_.is_unknown(value)) {
        if (param.writes) outputs_.push_back(value);
        continue;
      }
      if (param.kind != ParamKind::array) {
        argument.word = pack_scalar(sink_.object(value), param.kind, [&] { return signature.where(i); });
        continue;
      }
      const Array* array = sink_.array(value);
      if (!array)
        raise(error_types.argument_type, signature.where(i) + ": " + expected_array(param) + " is expected, the operation yielded " +
                                             nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(sink_.object(value).ptr())).attr("__name__"))));
      check_array(signature, i, *array, device);
      argument.word = array->address;
      uses_.push_back(use_of(*array, param.writes));
      if (param.writes) outputs_.push_back(value);
    }
    if (device == unknown_ordinal) device = op.target_device != unknown_ordinal ? op.target_device : placement_.device;
    const StreamIndex stream = choose_stream(op, device);
    check_stream(op, stream, device);
    for (const Use& use : uses_) order(stream, use);
    sink_.launch(op, stream, device);
    commit(op, stream);
    sink_.finish(op, outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    return Step::finished;
  }

  Step perform(CreateOp& op) {
    if (op.like.is_valid()) {
      const Value model = value_of(op.like);
      if (sink_.is_unknown(model)) {
        sink_.finish(op, model);
        return Step::finished;
      }
      take_shape(op, model);
    }
    const std::int32_t device = op.spec.device;
    const std::int32_t lane = device == host_ordinal ? placement_.device : device;
    const StreamIndex stream = choose_stream(op, lane);
    if (device != host_ordinal) check_stream(op, stream, device);
    const Value value = sink_.create(op, stream, device);
    if (device != host_ordinal) {  // page-locked memory is there at once, device memory from here on in the stream
      uses_.assign(1, use_of(*sink_.array(value), true));
      commit(op, stream);
    }
    sink_.finish(op, value);
    return Step::finished;
  }

  void take_shape(CreateOp& op, Value model) {
    const Array* array = sink_.array(model);
    if (!array)
      raise(error_types.argument_type, "an array is expected; the operation yielded " + nb::cast<std::string>(nb::repr(sink_.object(model))));
    op.shape = array->shape;
    op.size_bytes = array->size_bytes();
    op.spec.dtype = array->dtype;
    if (op.spec.device == unknown_ordinal) op.spec.device = array->device;
  }

  Step perform(CopyOp& op) {
    const Value to = value_of(op.destination), from = value_of(op.source);
    if (sink_.is_unknown(to) || sink_.is_unknown(from)) {
      sink_.copy_of_unknown(op);
      sink_.finish(op, to);
      return Step::finished;
    }
    const Array* destination = sink_.array(to);
    const Array* source = sink_.array(from);
    if (!destination || !source)
      raise(error_types.argument_type, std::string("copy: the ") + (destination ? "source" : "destination") +
                                           " is not an array but " +
                                           nb::cast<std::string>(nb::repr(sink_.object(destination ? from : to))));
    check_copy(*destination, *source);
    std::int32_t device = destination->device != host_ordinal ? destination->device : source->device;
    if (device == host_ordinal) device = placement_.device;
    const StreamIndex stream = choose_stream(op, device);
    uses_.clear();
    uses_.push_back(use_of(*destination, true));
    uses_.push_back(use_of(*source, false));
    for (const Use& use : uses_) order(stream, use);
    sink_.copy(op, *destination, *source, stream);
    commit(op, stream);
    sink_.finish(op, to);
    return Step::finished;
  }

  Step perform(CallOp& op) {
    if (op.inner.is_valid()) {
      inherit(op, op.inner);
      sink_.finish(op, value_of(op.inner));
      return Step::finished;
    }
    inherit(op, op.input);
    if (op.mode == CallMode::map) {
      bool complete = true;
      for (const Tick tick : op.ready) {
        if (sink_.is_complete(tick)) continue;
        complete = false;
        waits_.push_back(tick);
      }
      if (!complete) return Step::stalled;
      if (op.runner == PyThread_get_thread_ident()) raise_waits_for_itself();
      const std::optional<Value> mapped = sink_.map(op, value_of(op.input));
      if (!mapped) return Step::stalled;
      sink_.finish(op, *mapped);
      return Step::finished;
    }
    const std::optional<Value> value = sink_.call(op, value_of(op.input));
    if (!value) return Step::again;  // it returned an operation: that comes first
    sink_.finish(op, *value);
    return Step::finished;
  }

  Step perform(GatherOp& op) {
    std::vector<Value> values;
    values.reserve(op.items.size());
    for (const nb::object& item : op.items) {
      inherit(op, item);
      values.push_back(value_of(item));
    }
    sink_.finish(op, sink_.gather(op, values));
    return Step::finished;
  }

  Step perform(PickOp& op) {
    inherit(op, op.source);
    sink_.finish(op, sink_.item(op, value_of(op.source)));
    return Step::finished;
  }

  void commit(Op& op, StreamIndex stream) {
    const Tick now = sink_.timeline().advance(stream);
    for (const Use& use : uses_) sink_.hazards(*use.buffer).commit(use.span, use.writes, now);
    sink_.ran(op, now);
  }

  // A result is there when what it was made of is.
  void inherit(Op& op, nb::handle from) {
    if (const Op* producer = as_op(from)) {
      for (const Tick tick : sink_.ready(*producer)) sink_.add_ready(op, tick);
    } else if (const Array* array = as_array(from); array && array->buffer) {
      sink_.hazards(*array->buffer).each(array->span(), [&](const Hazard& hazard) { sink_.add_ready(op, hazard.written); });
    }
  }

  void check_stream(const Op& op, StreamIndex stream, std::int32_t device) {
    const std::int32_t actual = sink_.device_of(stream);
    if (op.target_stream != no_stream && actual != device)
      raise(error_types.device_mismatch, "an operation on device " + std::to_string(device) + " was put on a stream of device " +
                                             std::to_string(actual) + "; choose a stream of device " + std::to_string(device));
  }

  static void check_copy(const Array& destination, const Array& source) {
    for (const Array* array : {&destination, &source})
      if (!array->buffer)
        raise(error_types.closed, std::string("copy: the ") + (array == &destination ? "destination" : "source") +
                                      " was closed before this use of it");
    if (destination.dtype != source.dtype || destination.shape != source.shape)
      raise(error_types.argument_value, "copy: destination and source differ: " + describe(destination) + " and " +
                                            describe(source) + "; give both the same shape and dtype");
    const Span to = destination.span(), from = source.span();
    if (destination.buffer.get() == source.buffer.get() && to.begin != from.begin && to.begin < from.end && from.begin < to.end)
      raise(error_types.argument_value, "copy: destination and source are parts of one array and overlap, which has no defined "
                                        "result; copy the source with dup() first");
  }

  Sink& sink_;
  const Placement& placement_;
  std::uint32_t round_ = 0;
  std::vector<nb::object>& stack_;
  std::vector<Tick>& waits_;
  std::vector<Use>& uses_;
  std::vector<Value>& outputs_;
};

}  // namespace aiocuda::dataflow
