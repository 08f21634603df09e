#include "operations.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <unordered_map>

#include "../dataflow/asked.hpp"
#include "../dataflow/launch.hpp"
#include "../dataflow/launched_as.hpp"
#include "../dataflow/pageable.hpp"
#include "../dataflow/policies.hpp"
#include "../dataflow/replay.hpp"
#include "../dataflow/shape.hpp"
#include "../driver/graph.hpp"
#include "arrays.hpp"
#include "execution_awaits.hpp"
#include "placements.hpp"
#include "process.hpp"
#include "replaying.hpp"
#include "spare_objects.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using namespace nb::literals;

// An operation may hold, through Python, what holds it: the collector must see through it.
int op_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  auto* op = nb::inst_ptr<Op>(self);
  Py_VISIT(op->outcome.ptr());
  Py_VISIT(op->traceback.ptr());
  Py_VISIT(op->put.ptr());
  if (const int stop = op->origin.traverse(visit, arg)) return stop;
  return op->visit_arguments(visit, arg);
}

int op_clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* op = nb::inst_ptr<Op>(self);
  op->outcome.reset();
  op->traceback.reset();
  op->put.reset();
  op->release_arguments();
  return 0;
}

PyType_Slot op_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(op_traverse)},
                          {Py_tp_clear, reinterpret_cast<void*>(op_clear)},
                          {Py_am_await, reinterpret_cast<void*>(await_op)},
                          {0, nullptr}};

const char* name_of(Yields yields) {
  switch (yields) {
    case Yields::device_array:
      return "device_array";
    case Yields::host_array:
      return "host_array";
    case Yields::host_value:
      return "host_value";
    default:
      return "unknown";
  }
}

// The spec of `source[index]`, as far as it is known.
Spec spec_of_item(nb::handle source, std::int64_t index) {
  Op* op = as_op(source);
  if (!op || op->is_done() || op->state == State::failed) return {};
  auto at = [index](std::size_t n) { return index < 0 ? index + static_cast<std::int64_t>(n) : index; };
  if (op->kind == Kind::gather && !static_cast<GatherOp*>(op)->rebuild.is_valid()) {
    const auto& items = static_cast<GatherOp*>(op)->items;
    const std::int64_t i = at(items.size());
    return i >= 0 && i < static_cast<std::int64_t>(items.size()) ? spec_of(items[static_cast<std::size_t>(i)]) : Spec{};
  }
  if (op->kind == Kind::launch) {
    auto* launch = static_cast<LaunchOp*>(op);
    const auto& outputs = launch->signature.outputs;
    const std::int64_t i = at(outputs.size());
    if (outputs.size() > 1 && i >= 0 && i < static_cast<std::int64_t>(outputs.size()))
      return spec_of(launch->arguments[outputs[static_cast<std::size_t>(i)]].object);
  }
  return {};
}

// The functions that `await` of a class' objects calls; they raise. Only the slot is set: with an __await__ the class
// would be one of awaitables, for inspect.isawaitable() and its callers.
std::unordered_map<PyTypeObject*, nb::object>& refusals_of_await() {
  static auto& functions = *new std::unordered_map<PyTypeObject*, nb::object>;
  return functions;
}

PyObject* refuse_await(PyObject* self) {
  const auto found = refusals_of_await().find(Py_TYPE(self));
  if (found == refusals_of_await().end()) {
    PyErr_Format(PyExc_TypeError, "object %s can't be used in 'await' expression", Py_TYPE(self)->tp_name);
    return nullptr;
  }
  return PyObject_CallOneArg(found->second.ptr(), self);
}

Op& to_be_put(Op& op) {
  Op& put = at_work_in(op);
  if (put.state != State::pending)
    raise(error_types.argument_value,
          "on() came too late: the operation has been submitted; call on() before it is executed");
  return put;
}

std::string name_of_function(const nb::object& function) {
  if (!function.is_valid()) return "a function";
  const nb::object name = nb::steal(PyObject_GetAttrString(function.ptr(), "__qualname__"));
  if (name.is_valid() && PyUnicode_Check(name.ptr())) return nb::cast<std::string>(name);
  PyErr_Clear();
  return nb::cast<std::string>(nb::repr(function));
}

Pattern pattern_of(const nb::bytes& bytes) {
  Pattern pattern;
  pattern.size = static_cast<std::uint8_t>(std::min(bytes.size(), pattern.bytes.size()));
  std::memcpy(pattern.bytes.data(), bytes.data(), pattern.size);
  return pattern;
}

void bind_op(nb::module_& module) {
  module.attr("HOST") = host_ordinal;  // in place of a device's ordinal
  auto op = nb::class_<Op>(module, "Op", nb::is_weak_referenceable(), nb::type_slots(op_slots));
  is_op.set(reinterpret_cast<PyTypeObject*>(op.ptr()));
  op.def_prop_ro(
        "_state",
        [](const Op& self) {
          return self.state == State::pending ? "pending" : self.state == State::submitted ? "submitted" : "failed";
        })
      .def_prop_ro("_outcome", [](const Op& self) { return self.outcome.is_valid() ? self.outcome : nb::none(); })
      .def_prop_ro("_origin", [](const Op& self) { return self.origin.location(); })
      .def_prop_ro("_spec",
                   [](const Op& self) {
                     return nb::make_tuple(name_of(self.spec.yields), self.spec.dtype,
                                           ordinal_or_none(self.spec.device));
                   })
      .def_prop_ro("_ready",
                   [](const Op& self) {
                     nb::list ticks;
                     for (const Tick tick : self.ready)
                       ticks.append(nb::make_tuple(process_engine().id_of(tick.stream), tick.count));
                     return ticks;
                   })
      // Its name in messages.
      .def_prop_ro("_title",
                   [](Op& self) -> std::string {
                     switch (self.kind) {
                       case Kind::launch:
                         return "the launch of " + static_cast<LaunchOp&>(self).signature.kernel;
                       case Kind::create:
                         return "the creation of an array";
                       case Kind::fill:
                         return "a fill";
                       case Kind::copy:
                         return "a copy";
                       case Kind::call: {
                         const auto mode = static_cast<CallOp&>(self).mode;
                         if (!static_cast<CallOp&>(self).title.empty()) return static_cast<CallOp&>(self).title;
                         return mode == CallMode::then  ? "a then() callback"
                                : mode == CallMode::map ? "a map() callback"
                                                        : "an inspect() callback";
                       }
                       case Kind::gather:
                         return "a zip";
                       case Kind::replay:
                         return static_cast<ReplayOp&>(self).is_loop ? "a loop or a branch on the device"
                                                                     : "a launch of a graph";
                       case Kind::foreign:
                         return "a call of " + name_of_function(static_cast<ForeignOp&>(self).function);
                       default: {
                         const Op* const whole = as_op(static_cast<PickOp&>(self).source.ptr());
                         const bool is_value = whole && whole->kind == Kind::gather &&
                                               static_cast<const GatherOp*>(whole)->items.size() == 1;
                         return is_value ? "a value" : "an item of a result";
                       }
                     }
                   })
      // How threads= became blocks: a launch's own, or those of the launches that it waited for.
      .def_prop_ro("_blocks", describe_launches)
      // The operations that it consumes; none once it has been submitted.
      .def("_consumed",
           [](Op& self) {
             nb::list found;
             each_argument(self, [&](nb::handle argument) {
               if (as_op(argument.ptr())) found.append(argument);
             });
             return found;
           })
      .def("_arity",
           [](Op& self) -> std::int64_t {  // of its result, or -1
             if (self.is_done()) return PyTuple_Check(self.outcome.ptr()) ? PyTuple_GET_SIZE(self.outcome.ptr()) : -1;
             if (self.state == State::failed) return -1;
             if (self.kind == Kind::gather && !static_cast<GatherOp&>(self).rebuild.is_valid())
               return static_cast<std::int64_t>(static_cast<GatherOp&>(self).items.size());
             if (self.kind == Kind::launch && static_cast<LaunchOp&>(self).signature.outputs.size() > 1)
               return static_cast<std::int64_t>(static_cast<LaunchOp&>(self).signature.outputs.size());
             return -1;
           })
      .def_rw("_is_asked", &Op::is_asked)
      // The device it works on, or HOST; None if that is not known.
      .def_prop_ro("_device", [](Op& self) { return ordinal_or_none(at_work_in(self).known_device()); })
      // A placement that names a device, a stream or a policy; what an earlier one named beside that stays.
      .def("_put_on", [](Op& self, nb::handle_t<Placement> placement) {
        Op& put_here = to_be_put(self);
        const Placement& named = *nb::inst_ptr<Placement>(placement);
        put_here.put =
            put_here.put.is_valid() ? nb::cast(put_here.where_put()->with_place_of(named)) : nb::borrow(placement);
      });

  nb::class_<LaunchOp, Op>(module, "LaunchOp", nb::type_slots(op_slots));

  nb::class_<CreateOp, Op>(module, "CreateOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](CreateOp* self, const nb::sequence& extents, DType dtype, std::optional<std::int32_t> place,
             nb::bytes pattern, nb::object fill, const std::string& memory) {
            std::uint64_t size_bytes = 0;
            auto shape = read_shape(extents, dtype, size_bytes);
            const std::int32_t device = place.value_or(unknown_ordinal);
            new (self) CreateOp();
            self->origin.capture();
            self->shape = std::move(shape);
            self->size_bytes = size_bytes;
            self->spec = {device == host_ordinal ? Yields::host_array : Yields::device_array, dtype, device,
                          memory == "managed"};
            self->memory = memory == "managed"        ? MemoryKind::managed
                           : memory == "interprocess" ? MemoryKind::interprocess
                                                      : MemoryKind::ordinary;
            self->pattern = pattern_of(pattern);
            self->fill = std::move(fill);
          },
          "shape"_a, "dtype"_a, "device"_a.none(), "pattern"_a = nb::bytes(""), "fill"_a.none() = nb::none(),
          "memory"_a = "ordinary")
      // Of the shape and dtype of an array, or of what an operation yields. `device` as above; or beside that.
      .def(
          "__init__",
          [](CreateOp* self, nb::object like, std::optional<std::int32_t> device, bool is_beside) {
            new (self) CreateOp();
            self->origin.capture();
            self->spec = spec_of(like);
            self->spec.is_managed = false;
            self->is_beside = is_beside;
            if (!is_beside)
              self->spec = {device == host_ordinal ? Yields::host_array : Yields::device_array, self->spec.dtype,
                            device.value_or(unknown_ordinal)};
            self->note_tensors(like);
            self->like = std::move(like);
          },
          "like"_a, "device"_a.none() = nb::none(), "is_beside"_a = false);

  nb::class_<FillOp, Op>(module, "FillOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](FillOp* self, nb::object destination, nb::bytes pattern, nb::object fill) {
            new (self) FillOp();
            self->origin.capture();
            self->spec = spec_of(destination);
            self->note_tensors(destination);
            self->destination = std::move(destination);
            self->pattern = pattern_of(pattern);
            self->fill = std::move(fill);
          },
          "destination"_a, "pattern"_a, "fill"_a.none());

  nb::class_<CopyOp, Op>(module, "CopyOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](CopyOp* self, nb::object destination, nb::object source, bool moves) {
            new (self) CopyOp();
            self->origin.capture();
            self->spec = spec_of(destination);
            self->note_tensors(destination);
            self->note_tensors(source);
            self->destination = std::move(destination);
            self->source = std::move(source);
            self->moves = moves;
          },
          "destination"_a, "source"_a, "moves"_a = false);

  nb::class_<CallOp, Op>(module, "CallOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](CallOp* self, const std::string& mode, nb::object function, nb::object input, const std::string& yields,
             DType dtype, std::optional<std::int32_t> device, std::string title, bool moves) {
            new (self) CallOp();
            self->moves = moves;
            self->title = std::move(title);
            self->origin.capture();
            self->mode = mode == "then" ? CallMode::then : mode == "map" ? CallMode::map : CallMode::inspect;
            self->spec = {yields == "device_array" ? Yields::device_array
                          : yields == "host_array" ? Yields::host_array
                                                   : Yields::unknown,
                          dtype, device.value_or(unknown_ordinal)};
            if (self->mode == CallMode::inspect) self->spec = spec_of(input);
            if (self->mode == CallMode::map && self->spec.yields == Yields::unknown)
              self->spec = {Yields::host_value, any_dtype, unknown_ordinal};
            self->function = std::move(function);
            self->note_tensors(input);
            self->input = std::move(input);
          },
          "mode"_a, "function"_a, "input"_a.none() = nb::none(), "yields"_a = "unknown", "dtype"_a = any_dtype,
          "device"_a.none() = nb::none(), "title"_a = "", "moves"_a = false);

  nb::class_<GatherOp, Op>(module, "GatherOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](GatherOp* self, const nb::sequence& items, nb::object rebuild) {
            new (self) GatherOp();
            self->origin.capture();
            for (nb::handle item : items) {
              self->note_tensors(item);
              self->items.push_back(nb::borrow(item));
            }
            if (!rebuild.is_none()) self->rebuild = std::move(rebuild);
            self->spec = {Yields::unknown, any_dtype, unknown_ordinal};
          },
          "items"_a, "rebuild"_a.none() = nb::none());

  nb::class_<ForeignOp, Op>(module, "ForeignOp", nb::type_slots(op_slots));

  // `targets`: the input that each of `values` replaces, by number; or the output, by ~(its memory's slot). `result`:
  // its result, if that is neither the graph's nor the outputs that were given.
  nb::class_<ReplayOp, Op>(module, "ReplayOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](ReplayOp* self, nb::handle_t<driver::GraphObject> graph, const nb::tuple& targets, const nb::list& values,
             nb::object result) {
            new (self) ReplayOp();
            self->origin.capture();
            try {
              make_replay(*self, nb::borrow(graph), targets, values, std::move(result));
            } catch (...) {
              self->~ReplayOp();  // which nobody does for an object whose __init__ throws
              throw;
            }
          },
          "graph"_a, "targets"_a, "values"_a, "result"_a.none() = nb::none());

  nb::class_<PickOp, Op>(module, "PickOp", nb::type_slots(op_slots))
      .def(
          "__init__",
          [](PickOp* self, nb::object source, std::int64_t index) {
            new (self) PickOp();
            self->origin.capture();
            self->index = index;
            self->spec = spec_of_item(source, index);
            self->note_tensors(source);
            self->source = std::move(source);
          },
          "source"_a, "index"_a);
}

void bind_policies(nb::module_& module) {
  // Whether the native part of an object is there: a derived class may have forgotten super().__init__().
  module.def("is_made", [](nb::handle object) { return nb::inst_ready(object); });
  nb::class_<Policy>(module, "Policy", nb::is_weak_referenceable())
      .def_prop_ro("_streams", [](const Policy& self) { return self.streams; })
      .def_prop_ro("_priority", [](const Policy& self) { return self.priority; })
      .def("_uses_default_stream", &Policy::uses_default_stream, "stream_priority"_a);
  nb::class_<Dataflow, Policy>(module, "Dataflow").def(nb::init<std::uint32_t, int>(), "streams"_a, "priority"_a);
  nb::class_<RoundRobin, Policy>(module, "RoundRobin").def(nb::init<std::uint32_t, int>(), "streams"_a, "priority"_a);
  nb::class_<LeastLoaded, Policy>(module, "LeastLoaded").def(nb::init<std::uint32_t, int>(), "streams"_a, "priority"_a);
  nb::class_<SingleStream, Policy>(module, "SingleStream").def(nb::init<>());
  nb::class_<AskedPolicy, Policy>(module, "AskedPolicy")
      .def(nb::init<nb::object, std::uint32_t, int>(), "function"_a, "streams"_a, "priority"_a);
}

void set_graph(ReplayOp& op, nb::object graph) {
  op.plan = &nb::inst_ptr<driver::GraphObject>(graph)->graph->plan;
  op.generation = op.plan->generation;
  op.graph = std::move(graph);
  op.tied_device = op.plan->device;
  op.has_tensors = op.plan->has_tensors;
  op.is_loop = !op.plan->loop.empty();
}

}  // namespace

nb::object begin_replay(nb::handle op_class, nb::object graph) {
  ReplayOp* made;
  nb::object object = SpareObjects<ReplayOp>::make(op_class, made);
  ReplayOp& op = *made;
  op.is_asked = true;
  op.origin.capture();
  set_graph(op, std::move(graph));
  return object;
}

void check_replay(ReplayOp& op) {
  Replay replay(*op.plan, op);
  for (ReplayOp::Binding& binding : op.bindings) {
    if (binding.is_operation) continue;
    if (const Array* array = as_array(binding.value)) {
      replay.bind(binding, *array);
    } else {
      replay.bind(binding, nb::handle(binding.value));
    }
  }
}

void make_replay(ReplayOp& op, nb::object graph, const nb::tuple& targets, const nb::list& values, nb::object result) {
  set_graph(op, std::move(graph));
  bool has_outputs = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const long target = PyLong_AsLong(nb::handle(targets[i]).ptr());
    has_outputs = has_outputs || target < 0;
    op.bind(target < 0, static_cast<std::uint32_t>(target < 0 ? ~target : target), values[i]);
  }
  const bool has_result = !result.is_none();
  if (has_result) {
    op.spec = spec_of(result);
    op.result = std::move(result);
  }
  check_replay(op);
  if (!has_outputs && !has_result) op.spec = op.plan->spec;
}

void bind_operations(nb::module_& module) {
  module.def(
      "refuse_await",
      [](nb::type_object type, nb::object function) {
        auto* const object = reinterpret_cast<PyTypeObject*>(type.ptr());
        refusals_of_await()[object] = std::move(function);
        object->tp_as_async->am_await = refuse_await;  // of a class that Python code defines, which has its own slots
      },
      "type"_a, "function"_a);
  bind_arrays(module);
  bind_policies(module);
  bind_op(module);
}

}  // namespace aiocuda
