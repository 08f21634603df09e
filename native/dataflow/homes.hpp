// On which device something works that nothing ties to one: the order of precedence is in docs/design.md, "Placement".
//
// Always true: only what is known now decides, so what is asked again after more has run may be answered otherwise; the
// walk asks once for each operation.
#pragma once
#include "launch.hpp"
#include "path.hpp"

namespace aiocuda::dataflow {

template <class Sink>
class Homes {
 protected:
  using Value = Sink::Value;

  Homes(Sink& sink, const Placement& placement) : sink_(sink), placement_(&placement) {}

  Value value_of(nb::handle object) {
    if (Op* op = as_op(object)) return sink_.result(*op);
    return sink_.constant(object);
  }

  // The device that its consumers name, from the nearest on: where `on` put them, or the device of their arrays.
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
    if (op.kind == Kind::foreign) {
      const auto& foreign = static_cast<ForeignOp&>(op);
      for (const ForeignOp::Access& access : foreign.accesses) look(access.array);
      if (foreign.state.is_valid())
        for (const nb::object& argument : foreign.arguments) look(argument);
    }
    return device;
  }
  // It yields what its function returned.
  static bool moves_its_input(const CallOp& op) { return op.moves && !op.inner.is_valid(); }
  // Its result may be on another device than its input, so the consumers of the result decide nothing.
  static bool may_be_elsewhere(const Op& op) {
    switch (op.kind) {
      case Kind::call: {
        const auto& call = static_cast<const CallOp&>(op);
        // A step on the host that is known to yield an array looks at the one that it gets, as at the end of a read.
        const bool is_host_value = call.mode == CallMode::map && call.spec.yields != Yields::device_array;
        return is_host_value || moves_its_input(call);
      }
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
  // Makes a new array whose shape is known. `else_where()`: the device, if the creation names none.
  template <class F>
  std::int32_t device_of(const CreateOp& op, F&& else_where) {
    if (op.is_beside) return sink_.array(value_of(op.like))->device;
    if (op.spec.device != unknown_ordinal) return op.spec.device;
    return op.device_put() != unknown_ordinal ? op.device_put() : else_where();
  }
  std::int32_t device_of(const CreateOp& op) {
    return device_of(op, [&] { return device_for(op); });
  }

  Sink& sink_;
  const Placement* placement_;  // in force for what is visited now
  Frame* consumer_ = nullptr;   // for whom that is done
};

}  // namespace aiocuda::dataflow
