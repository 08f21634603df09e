// How the walk performs an operation whose arguments are all there: it checks them, chooses device and stream, orders
// the work after what touches the same bytes, and tells the sink.
//
// Always true: what a function here throws before the work was ordered has changed nothing but new arrays. Work that
// was submitted is in the hazards, also where the rest of it was refused.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arrays_in.hpp"
#include "copying.hpp"
#include "declared.hpp"
#include "homes.hpp"
#include "placing.hpp"
#include "replay.hpp"
#include "scratch.hpp"
#include "shape.hpp"

namespace aiocuda::dataflow {

enum class Step : std::uint8_t { finished, stalled, again };

template <class Sink>
class Performing : protected Homes<Sink> {
  friend class Copying<Performing>;

 public:
  using Sinks = Sink;

 protected:
  using Value = Sink::Value;
  using Homes<Sink>::sink_, Homes<Sink>::placement_, Homes<Sink>::value_of, Homes<Sink>::device_for,
      Homes<Sink>::device_of;

  Performing(Sink& sink, const Placement& placement, Scratch<Value>& scratch)
      : Homes<Sink>(sink, placement),
        placing_(sink, placement, scratch.uses, scratch.needs),
        outputs_(scratch.outputs),
        deferred_(scratch.deferred) {}

  // The first user of a new array on a device makes it, on its own stream. Making it is no work that could overlap with
  // anything, and others would only wait for it.
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

  [[noreturn, gnu::cold]] static void raise_waits_for_itself() {
    raise(error_types.argument_value,
          "an operation waits for itself: a callback runs, or returns, an operation that "
          "needs the result of the callback's own");
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
      const bool is_constant = !op.consumes || !op.is_operation(i);
      if (is_constant && is_scalar(param.kind)) continue;  // packed when it was built
      if (!is_constant) {
        if (CreateOp* create = as_deferred(op, argument.object)) {
          defer(signature, i, *create, home);
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
    if (!deferred_.empty()) make_deferred(op, stream, device, home);
    placing_.order(op, stream);
    sink_.launch(op, stream, device);
    placing_.commit(op, stream, is_shared_);
    sink_.finish(op, outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    return Step::finished;
  }

  // A new array that the launch is the first to use.
  [[gnu::noinline]] void defer(const Signature& signature, std::uint32_t i, CreateOp& create, Home& home) {
    const bool writes = signature.params[i].writes;
    if (!take_shape(create)) {
      if (writes) outputs_.push_back(sink_.result(create));
      return;
    }
    Spec spec = create.spec;
    spec.device = device_of(create, [] { return unknown_ordinal; });
    check_spec(signature, i, spec, home);
    deferred_.push_back({i, outputs_.size()});
    if (writes) outputs_.emplace_back();
  }
  [[gnu::noinline]] void make_deferred(LaunchOp& op, StreamIndex stream, std::int32_t device, Home& home) {
    for (const auto& deferred : deferred_) {
      auto& create = static_cast<CreateOp&>(*as_op(op.arguments[deferred.argument].object));
      const bool is_made = sink_.is_done(create);  // as another argument
      const Value value = is_made ? sink_.result(create)
                                  : make(create, stream, device_of(create, [&] { return device; }),
                                         Py_REFCNT(op.arguments[deferred.argument].object) > 1);
      take_array(op, deferred.argument, value, home);
      if (op.signature.params[deferred.argument].writes) outputs_[deferred.output] = value;
    }
  }

  [[gnu::noinline]] void take_array(LaunchOp& op, std::uint32_t i, Value value, Home& home) {
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

  // An argument that was an array when the launch was built, and was found to fit then.
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
    Copying<Performing>(*this, op).perform(create);
    return Step::finished;
  }

  Step perform(ForeignOp& op) {
    std::vector<Value> values;
    std::int32_t device = unknown_ordinal, read_device = unknown_ordinal, managed_device = unknown_ordinal;
    bool is_known = true;
    placing_.uses.clear();
    outputs_.clear();
    auto role_of = [](bool writes) { return writes ? "call: what is written" : "call: what is read"; };
    auto use = [&](const Array& array, bool writes) {
      check_usable(array, writes, [&] { return std::string(role_of(writes)); });
      placing_.add(array, writes);
      if (array.is_host()) return;
      if (array.is_managed()) {
        if (managed_device == unknown_ordinal) managed_device = array.device;
        return;
      }
      std::int32_t& found = writes ? device : read_device;
      if (found == unknown_ordinal) found = array.device;
      const std::int32_t other = device != unknown_ordinal ? device : read_device;
      if (array.device != other && !op.doubt)
        raise(error_types.device_mismatch, std::string(role_of(writes)) + " is on device " +
                                               std::to_string(array.device) + ", other arrays of the call on device " +
                                               std::to_string(other) + "; bring one over with .to(device)");
    };
    for (const ForeignOp::Access& access : op.accesses) {
      const Value value = value_of(access.array);
      if (access.writes) outputs_.push_back(value);
      if (sink_.is_unknown(value)) {
        is_known = false;
        continue;
      }
      const Array* array = sink_.array(value);
      if (!array)
        raise(error_types.argument_type, std::string(role_of(access.writes)) + " is an array, not " +
                                             nb::cast<std::string>(nb::repr(sink_.object(value))));
      use(*array, access.writes);
    }
    for (const nb::object& argument : op.arguments) {
      values.push_back(value_of(argument));
      if (!op.state.is_valid() || sink_.is_unknown(values.back())) continue;
      auto read = [&](const Array& array, nb::handle) {
        if (!is_declared(array)) use(array, false);
      };
      if (const Array* array = sink_.array(values.back()))
        read(*array, {});
      else
        each_array_in(sink_.object(values.back()), read);
    }
    if (op.state.is_valid()) placing_.add(*as_array(op.state), op.keeps_state);
    if (op.doubt) {  // it has a stream, that of its group
      require_well();
      device = op.device_put();
    }
    if (device == unknown_ordinal) device = read_device;
    if (device == unknown_ordinal) device = op.device_put();
    if (device == unknown_ordinal) device = managed_device != unknown_ordinal ? managed_device : device_for(op);
    if (is_known && !op.state.is_valid()) check_declared(values);
    // A framework's allocator gives memory that one function lets go of to the next one on its stream. If functions
    // replace what they keep, that is safe on one stream alone.
    const StreamIndex stream = op.keeps_state ? placing_.choose_first(op, device) : placing_.choose(op, device);
    placing_.order(op, stream);
    if (op.doubt) sink_.put_in_doubt(op, placing_.uses);
    if (const auto& [size_bytes, dtype] = op.workspace; size_bytes) {
      const Array like{{}, 0, device, dtype, {static_cast<std::int64_t>(size_bytes)}};
      values.push_back(make_way(op, like, device, stream));
    }
    std::optional<Value> returned;
    submit(op, stream, [&] {
      const InForce in_force(placement_of(op, *placement_));
      returned = sink_.foreign(op, values, stream, device);
    });
    sink_.finish(op, returned ? *returned : outputs_.size() == 1 ? outputs_.front() : sink_.tuple(outputs_));
    return Step::finished;
  }

  // A group that has ended has closed its streams, too, so what it says comes first.
  void require_well() const {
    for (const Use& use : placing_.uses) {
      if (!use.buffer->is_in_doubt) continue;
      if (const Doubt* const failed = use.buffer->doubts->find_failed(use.span)) failed->raise();
    }
  }
  void check_declared(const std::vector<Value>& values) {
    constexpr std::size_t few = 32;  // of which each is looked at, without memory for their order
    std::optional<DeclaredBytes> declared;
    if (placing_.uses.size() > few) declared.emplace(placing_.uses);
    for (const Value value : values) {
      const Array* const array = sink_.is_unknown(value) ? nullptr : sink_.array(value);
      if (!array || !array->buffer || (declared ? declared->contain(*array) : is_declared(*array))) continue;
      raise(error_types.argument_value, "call: " + describe(*array) +
                                            " is passed to the function, and stands neither in reads= nor in writes=; "
                                            "name it in one of them");
    }
  }
  // Does it lie within what the operation is known to use?
  bool is_declared(const Array& array) const {
    bool is_all = array.buffer.get() != nullptr;
    array.each_piece([&](Span piece) {
      is_all = is_all && std::any_of(placing_.uses.begin(), placing_.uses.end(), [&](const Use& use) {
                 return use.buffer == array.buffer.get() && use.span.begin <= piece.begin && piece.end <= use.span.end;
               });
    });
    return is_all;
  }

  Step perform(ReplayOp& op) {
    const GraphPlan& plan = *op.plan;
    Replay replay(plan, op);
    outputs_.clear();
    for (ReplayOp::Binding& binding : op.bindings) {
      if (!binding.is_operation && !binding.is_memory) continue;  // packed when it was built
      const Value value = binding.is_operation ? value_of(binding.value) : sink_.constant(binding.value);
      if (binding.is_output) outputs_.push_back(value);
      if (sink_.is_unknown(value)) continue;
      const Array* const array = sink_.array(value);
      if (!binding.is_operation)
        replay.bind_again(binding, *array);
      else if (array)
        replay.bind(binding, *array);
      else
        replay.bind(binding, sink_.object(value));
    }
    replay.check();
    sink_.require_made(op);
    placing_.uses.clear();
    replay.each_use([&](const Use& use) { placing_.uses.push_back(use); });
    const StreamIndex stream = placing_.choose(op, plan.device);
    placing_.order(op, stream);
    if (plan.has_collectives) [[unlikely]] {  // Python is asked behind the launch, too
      submit(op, stream, [&] { sink_.replay(op, replay, stream, plan.device); });
    } else {
      sink_.replay(op, replay, stream, plan.device);
      placing_.commit(op, stream, is_shared_);
    }
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

  Placing<Sink> placing_;
  bool is_shared_ = false;  // the operation that is performed may have more than one consumer
  bool is_due_ = false;     // a map stalled for its function alone

 private:
  std::vector<Value>& outputs_;
  std::vector<typename Scratch<Value>::Deferred>& deferred_;
};

}  // namespace aiocuda::dataflow
