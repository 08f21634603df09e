#include "graph.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <set>

#include "../dataflow/graph_sink.hpp"
#include "../driver/captured_work.hpp"
#include "../driver/drive.hpp"
#include "../driver/graph.hpp"
#include "../driver/submit_sink.hpp"
#include "places.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
namespace nb = nanobind;
using namespace nb::literals;
using namespace dataflow;
using driver::Engine;
using driver::GraphObject;

// Turns what the driver refuses about a graph, outside an operation, into Python's error; `place`: where the graph was
// made.
template <class F>
auto refusals_raised(const std::string& place, std::int32_t device, F&& f) {
  return driver::doing(process_engine(), [&] { return "working on the graph made at " + place; }, device, f);
}

// Gives a buffer its memory, in the order of its device's default stream. The line of the program that runs now has
// made it, and the limit in force there holds; nothing waits.
void allocate_now(Engine& engine, Buffer& buffer) {
  Origin origin;
  origin.capture();
  buffer.maker = origin.maker();
  if (buffer.device == host_ordinal) return engine.memory.allocate(buffer, 0);
  const driver::StreamIndex stream = engine.devices.at(buffer.device).default_stream;
  const nb::object in_force = placement_in_force();
  if (const MemoryLimit* limit = nb::cast<const Placement&>(in_force).limit_of(buffer.device)) {
    auto has_room = [&] { return engine.memory.has_room(limit->device, limit->most_bytes, buffer.size_bytes); };
    if (!has_room()) engine.collect();
    if (!has_room()) engine.raise_over_limit(*limit, buffer.size_bytes);
  }
  engine.memory.allocate(buffer, stream);
  buffer.hazards.commit({0, buffer.size_bytes}, true, engine.timeline.advance(stream, 1, true));
}

// Gives a buffer its memory; `asked()`: the operation that it is for, or, in words, what is being done.
template <class F>
void allocate(Buffer& buffer, F&& asked) {
  Engine& engine = process_engine();
  const std::int32_t device = buffer.device == host_ordinal ? engine.stream(0).device : buffer.device;
  driver::doing(engine, asked, device, [&] { allocate_now(engine, buffer); }, buffer.size_bytes);
}

CUstreamCaptureMode mode_of(const std::string& name) {
  if (name == "global") return CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (name == "thread_local") return CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  return CU_STREAM_CAPTURE_MODE_RELAXED;
}

GraphSink::Services house_of(CUstreamCaptureMode mode, const std::string& place) {
  GraphSink::Services services;
  services.allocate = [place](Buffer& buffer, Op* op) {
    allocate(buffer, [&] {
      return op ? nb::find(*op) : nb::object(nb::str(("making an array of the graph made at " + place).c_str()));
    });
  };
  services.object_of = [](Array&& array) {
    const auto& hooks = process_engine().hooks;
    return dataflow::make_array(array.is_host() ? hooks.host_array : hooks.device_array, std::move(array));
  };
  services.is_peer = [](std::int32_t device, std::int32_t other) { return process_engine().is_peer(device, other); };
  services.capture = [mode](ForeignOp& op, const std::vector<nb::handle>& values, std::int32_t device, nb::object& kept,
                            nb::object& returned) {
    return driver::capture(process_engine(), op, values, device, mode, kept, returned);
  };
  services.refused_in_body = [](void* graph) {
    return driver::refused_in_body(process_engine(), static_cast<CUgraph>(graph));
  };
  services.lift = [](nb::handle returned) { return process_engine().hooks.lift(returned); };
  return services;
}

// Opens the devices of a plan, and has its kernels loaded by another thread. A thread that did this while it holds the
// right to submit would hold up everybody.
std::vector<std::int32_t> missing_devices(const GraphPlan& plan) {
  std::set<std::int32_t> found;
  auto look = [&](std::int32_t device) {
    if (device >= 0 && !process_engine().devices.is_open(device)) found.insert(device);
  };
  for (const GraphNode& node : plan.nodes) look(node.device);
  for (const Memory& memory : plan.memory) look(memory.device);
  return {found.begin(), found.end()};
}
void open_devices(const GraphPlan& plan) {
  for (const std::int32_t device : missing_devices(plan)) process_engine().open(device);
}
void prepare(const GraphPlan& plan) {
  open_devices(plan);
  std::vector<std::pair<nb::object, std::int32_t>> missing;  // apart: another thread may add to the plan meanwhile
  for (const GraphNode& node : plan.nodes)
    if (node.kind() == NodeKind::kernel && !driver::is_loaded(node.launch(), node.device))
      missing.emplace_back(node.op, node.device);
  // All compilations begin before the first is waited for.
  for (const auto& [op, device] : missing) static_cast<LaunchOp&>(*as_op(op)).kernel().attr("_loading")(device);
  for (const auto& [op, device] : missing) static_cast<LaunchOp&>(*as_op(op)).kernel().attr("_on")(device, op);
}

// Makes a graph that is not made yet. Waits for compilers and the driver; other threads go on, and may submit.
void make(const GraphObject& object) {
  interpreter::guard_thread();
  const std::shared_ptr<driver::Graph> graph = object.graph;
  prepare(graph->plan);
  refusals_raised(graph->plan.place, graph->plan.device, [&] { graph->make(); });
}

// A plan in the making.
struct Recorder {
  Recorder(const std::string& mode, const std::string& loop) : Recorder(mode, loop, place_of_caller()) {}
  Recorder(const std::string& mode, const std::string& loop, const std::string& place)
      : planner(std::make_unique<GraphSink>(house_of(mode_of(mode), place), place, loop)) {}
  std::unique_ptr<GraphSink> planner;  // none once it is finished

  GraphSink& open() {
    if (!planner)
      raise(error_types.capture, "the graph has been made; what is recorded now cannot come into it any more");
    return *planner;
  }
  GraphPlan finish(const nb::sequence& results, nb::object result) {
    std::vector<const Array*> arrays;
    for (nb::handle each : results) arrays.push_back(as_array(each));
    std::unique_ptr<GraphSink> finished = std::move(planner);
    return finished->finish(arrays, std::move(result));
  }
};

void bind_recorder(nb::module_& module) {
  auto late = nb::class_<Late>(module, "Late")
                  .def("__init__", [](Late* self, nb::object function,
                                      nb::object input) { new (self) Late{std::move(function), std::move(input)}; })
                  .def_ro("function", &Late::function)
                  .def_ro("input", &Late::input);
  is_late.set(reinterpret_cast<PyTypeObject*>(late.ptr()));
  nb::class_<Recorder>(module, "Recorder")
      // `loop`: the function of aiocuda whose work is recorded, such as while_: a part of another graph, perhaps.
      .def(nb::init<const std::string&, const std::string&>(), "mode"_a, "loop"_a = "")
      .def_prop_ro("place", [](Recorder& self) { return self.open().plan().place; })
      .def("add_input",
           [](Recorder& self, std::string name, nb::object object) {
             if (Op* op = as_op(object)) {
               op->is_asked = true;
               // The collector may end what value() is made of before what holds it.
               if (Op* whole = op->kind == Kind::pick ? as_op(static_cast<PickOp*>(op)->source) : nullptr)
                 whole->is_asked = true;
             }
             self.open().add_input(std::move(name), std::move(object));
           })
      .def("add_placeholder", [](Recorder& self, std::string name,
                                 const Array& like) { return self.open().add_placeholder(std::move(name), like); })
      // Is an input's memory inside of what was captured? Is it written?
      .def("input_access",
           [](Recorder& self, std::size_t input) {
             const GraphPlan& plan = self.open().plan();
             const Memory& memory = plan.memory.at(plan.inputs.at(input).memory);
             return nb::make_tuple(self.open().is_captured(input), !memory.writes.empty());
           })
      .def("whole_of",
           [](Recorder& self, const Array& array, DType byte) -> nb::object {
             std::optional<Array> whole = self.open().whole_of(array, byte);
             if (!whole) return nb::none();
             const auto& hooks = process_engine().hooks;
             return dataflow::make_array(whole->is_host() ? hooks.host_array : hooks.device_array, std::move(*whole));
           })
      .def("is_captured", [](Recorder& self, const Array& array) { return self.open().is_captured(array); })
      // Do its nodes write an array that was there before, by that name?
      .def("is_written_constant",
           [](Recorder& self, const Array& array) { return self.open().is_written_constant(array); })
      // A function is called now: what it returns must be made of operations that it builds.
      .def("begin_function", [](Recorder& self) { self.open().begin_function(); })
      .def("is_adopted", [](Recorder& self, const Array& array) { return self.open().is_adopted(array); })
      .def("record",
           [](Recorder& self, nb::handle_t<Op> op, const Placement& placement) {
             return driver::record_into(process_engine(), self.open(), op, to_record(placement));
           })
      // The inputs that are no arrays: (index, operation), also those that came with what was recorded.
      .def("numbers",
           [](Recorder& self) {
             nb::list found;
             const std::vector<Input>& inputs = self.open().plan().inputs;
             for (std::size_t i = 0; i < inputs.size(); ++i)
               if (!inputs[i].is_array) found.append(nb::make_tuple(i, inputs[i].object));
             return found;
           })
      .def("add_condition", [](Recorder& self) { return self.open().add_condition(); })
      // The kernel that was recorded last sets a condition, whose handle its first parameter gets.
      .def("note_setter", [](Recorder& self, ConditionIndex condition) { self.open().note_setter(condition); })
      // Opens the first body of a conditional node: later operations are in it until `close_body`.
      .def(
          "open_body",
          [](Recorder& self, ConditionIndex condition, bool repeats, std::uint8_t bodies, std::int32_t device) {
            self.open().open_body(condition, repeats, bodies, device);
          },
          "condition"_a, "repeats"_a, "bodies"_a, "device"_a)
      .def("open_next_body", [](Recorder& self) { self.open().open_next_body(); })
      .def("close_body", [](Recorder& self) { self.open().close_body(); })
      // The inputs, by number, that something other than a kernel's parameter saw.
      .def("observed",
           [](Recorder& self) {
             std::vector<std::size_t> found;
             for (std::size_t i = 0; i < self.open().plan().inputs.size(); ++i)
               if (self.open().is_observed(i)) found.push_back(i);
             return found;
           })
      // The devices of what has been recorded that are not open yet.
      .def("missing_devices", [](Recorder& self) { return missing_devices(self.open().plan()); })
      // The arrays among what a launch yields, and all of it. The graph is to be made yet.
      .def(
          "finish",
          [](Recorder& self, const nb::sequence& results, nb::object result) {
            Engine& engine = process_engine();
            open_devices(self.open().plan());
            Engine::Submission submission(engine);
            return GraphObject{std::make_shared<driver::Graph>(engine, self.finish(results, std::move(result)))};
          },
          "results"_a, "result"_a.none())
      .def(
          "finish_into",
          [](Recorder& self, const GraphObject& graph, const nb::sequence& results, nb::object result) {
            prepare(self.open().plan());
            Engine::Submission submission(process_engine());
            refusals_raised(graph.graph->plan.place, graph.graph->plan.device,
                            [&] { graph.graph->update(self.finish(results, std::move(result))); });
          },
          "graph"_a, "results"_a, "result"_a.none());
}

nb::object location(const GraphNode& node) {
  return node.op.is_valid() ? as_op(node.op)->origin.location() : nb::none();
}

nb::tuple describe_node(const GraphNode& node) {
  nb::list after, accesses;
  for (const NodeIndex other : node.after) after.append(other);
  for (const NodeUse& use : node.uses)
    accesses.append(nb::make_tuple(use.slot, use.span.end - use.span.begin, use.writes));
  nb::object shape = nb::none();
  if (node.kind() == NodeKind::kernel) {
    const Dim3 g = node.launch().shape.grid, b = node.launch().shape.block;
    shape = nb::make_tuple(nb::make_tuple(g.x, g.y, g.z), nb::make_tuple(b.x, b.y, b.z));
  }
  const nb::object inside = node.inside == no_node ? nb::none() : nb::object(nb::int_(node.inside));
  return nb::make_tuple(name_of(node.kind()), node.name(), node.device, after, accesses, shape, location(node), inside);
}

int graph_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& graph = nb::inst_ptr<GraphObject>(self)->graph;
  if (graph.use_count() > 1) return 0;  // a launch that is held back has it too
  for (const GraphNode& node : graph->plan.nodes) {
    Py_VISIT(node.op.ptr());
    if (const auto* const captured = node.as<dataflow::CapturedNode>()) Py_VISIT(captured->kept.ptr());
  }
  for (const Constant& constant : graph->plan.constants) Py_VISIT(constant.array.ptr());
  Py_VISIT(graph->plan.result.ptr());
  for (const Input& input : graph->plan.inputs) Py_VISIT(input.object.ptr());
  for (const nb::object& value : graph->plan.observed) Py_VISIT(value.ptr());
  return 0;
}

int graph_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<GraphObject>(self)->graph->close();
  return 0;
}

PyType_Slot graph_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(graph_traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(graph_clear)},
                             {0, nullptr}};

void bind_graph(nb::module_& module) {
  nb::class_<GraphObject>(module, "Graph", nb::is_weak_referenceable(), nb::type_slots(graph_slots))
      .def_prop_ro("place", [](const GraphObject& self) { return self.graph->plan.place; })
      .def_prop_ro("device", [](const GraphObject& self) { return self.graph->plan.device; })
      .def_prop_ro("is_closed", [](const GraphObject& self) { return self.graph->plan.is_closed; })
      .def_prop_ro("is_made", [](const GraphObject& self) { return self.graph->is_made(); })
      // Blocks.
      .def("make", make)
      .def_prop_ro("handle",
                   [](const GraphObject& self) { return reinterpret_cast<std::uintptr_t>(self.graph->handle()); })
      .def_prop_ro("executable",
                   [](const GraphObject& self) { return reinterpret_cast<std::uintptr_t>(self.graph->executable()); })
      .def("nodes",
           [](const GraphObject& self) {
             nb::list nodes;
             for (const GraphNode& node : self.graph->plan.nodes) nodes.append(describe_node(node));
             return nodes;
           })
      // Of each memory: (role, bytes, device, the name of its input or None).
      .def("memory",
           [](const GraphObject& self) {
             static constexpr const char* roles[] = {"constant", "input", "own", "output"};
             const GraphPlan& plan = self.graph->plan;
             nb::list found;
             for (std::size_t slot = 0; slot < plan.memory.size(); ++slot) {
               nb::object name = nb::none();
               for (const Input& input : plan.inputs)
                 if (input.is_array && input.memory == slot) name = nb::cast(input.name);
               const Memory& memory = plan.memory[slot];
               found.append(nb::make_tuple(roles[static_cast<std::size_t>(memory.role)], memory.size_bytes,
                                           memory.device, name));
             }
             return found;
           })
      .def("counts",
           [](const GraphObject& self) {
             const driver::Graph& graph = *self.graph;
             nb::dict counts;
             std::size_t edges = 0;
             for (const GraphNode& node : graph.plan.nodes) edges += node.after.size();
             counts["nodes"] = graph.plan.nodes.size();
             counts["edges"] = edges;
             counts["asked_bytes"] = graph.plan.asked_bytes;
             counts["shared_bytes"] = graph.plan.shared_bytes;
             counts["output_bytes"] = graph.plan.output_bytes;
             counts["launches"] = graph.launches();
             counts["parameter_sets"] = graph.parameter_sets();
             counts["instantiations"] = graph.instantiations();
             return counts;
           })
      // The output whose memory an array lies in: (slot, where in it), or None.
      .def("output_of",
           [](const GraphObject& self, const Array& array) -> nb::object {
             const GraphPlan& plan = self.graph->plan;
             for (std::size_t slot = 0; slot < plan.memory.size(); ++slot)
               if (plan.memory[slot].role == MemoryRole::output && plan.memory[slot].buffer.get() == array.buffer.get())
                 return nb::make_tuple(slot, array.offset);
             return nb::none();
           })
      // Does a launch see an input? Is its memory inside of what was captured, where nothing can replace it? Is it
      // written?
      .def("input_access",
           [](const GraphObject& self, std::size_t input) {
             const GraphPlan& plan = self.graph->plan;
             if (!plan.inputs.at(input).is_array) {
               const bool is_used = std::any_of(plan.numbers.begin(), plan.numbers.end(),
                                                [input](const Number& number) { return number.input == input; });
               return nb::make_tuple(is_used, false, false);
             }
             const Memory& memory = plan.memory.at(plan.inputs[input].memory);
             const bool is_used = memory.size_bytes == 0 || !memory.reads.empty() || !memory.writes.empty();
             return nb::make_tuple(is_used, memory.is_captured, !memory.writes.empty());
           })
      // Can arrays be put in the place of the first inputs, as far as their addresses go?
      .def("is_aligned",
           [](const GraphObject& self, const nb::list& arrays) {
             const GraphPlan& plan = self.graph->plan;
             for (std::size_t i = 0; i < std::min(arrays.size(), plan.inputs.size()); ++i) {
               const Array& array = *as_array(arrays[i]);
               const Memory& memory = plan.memory[plan.inputs[i].memory];
               if (!array.buffer || !memory.size_bytes) continue;
               if (memory.misalignment(array.buffer->place() + array.offset)) return false;
             }
             return true;
           })
      // An output's memory as bytes.
      .def(
          "output_bytes",
          [](const GraphObject& self, std::size_t slot, DType byte) {
            const Memory& memory = self.graph->plan.memory.at(slot);
            const auto& hooks = process_engine().hooks;
            return dataflow::make_array(
                memory.device == host_ordinal ? hooks.host_array : hooks.device_array,
                Array{
                    memory.buffer, memory.offset, memory.device, byte, {static_cast<std::int64_t>(memory.size_bytes)}});
          })
      .def("upload",
           [](const GraphObject& self, StreamId stream) {
             Engine& engine = process_engine();
             Engine::Submission submission(engine);
             driver::ContextScope scope(engine);
             const driver::StreamIndex slot = index_of(stream);
             scope.bind(engine.stream(slot).device);
             refusals_raised(self.graph->plan.place, self.graph->plan.device, [&] {
               engine.streams.enter(slot);
               self.graph->upload(engine.stream(slot).handle);
             });
           })
      // Another executable with memory of its own, so that launches of the two overlap; None where a function's
      // captured work has the addresses.
      .def("clone",
           [](const GraphObject& self) -> nb::object {
             Engine& engine = process_engine();
             Engine::Submission submission(engine);
             return refusals_raised(self.graph->plan.place, self.graph->plan.device, [&]() -> nb::object {
               std::optional<GraphPlan> plan =
                   with_own_memory(self.graph->plan, [&engine](Buffer& buffer) { allocate_now(engine, buffer); });
               if (!plan) return nb::none();
               return nb::cast(GraphObject{std::make_shared<driver::Graph>(engine, std::move(*plan))});
             });
           })
      // How far is the last launch?
      .def("is_idle",
           [](const GraphObject& self) {
             return refusals_raised(self.graph->plan.place, self.graph->plan.device,
                                    [&] { return process_engine().is_complete(self.graph->last()); });
           })
      .def("close", [](const GraphObject& self) { self.graph->close(); });
}

// New memory of an array's class and layout, in the order of its device's default stream; `asked` says what for, in
// words.
void bind_allocation(nb::module_& module) {
  module.def("is_recording", [] { return Enclosure::recording() != nullptr; });
  // Calls a function that builds and records apart from the graph that is recorded now on this thread, if there is one.
  module.def("apart", [](nb::handle function, const nb::args& arguments) {
    const Enclosure::Apart building;
    return function(*arguments);
  });
  // Does what is put on a stream become a part of a graph now?
  module.def("is_capturing", [](StreamId stream) {
    Engine& engine = process_engine();
    CUstreamCaptureStatus status{};
    const driver::StreamIndex slot = index_of(stream);
    const driver::StreamState& state = engine.stream(slot);
    auto words = [&] { return "asking whether " + engine.streams.title_of(slot) + " is captured"; };
    driver::doing(engine, words, state.device, [&] {
      driver::check(engine.table.cuStreamIsCapturing(state.handle, &status), "cuStreamIsCapturing");
    });
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  });
  module.def(
      "allocate_like",
      [](nb::handle_t<Array> object, const nb::str& asked) {
        const Array& model = *nb::inst_ptr<Array>(object);
        Engine& engine = process_engine();
        Engine::Submission submission(engine);
        auto buffer = std::make_unique<Buffer>(model.size_bytes(), model.device);
        if (buffer->size_bytes) allocate(*buffer, [&] { return asked; });
        return dataflow::make_array(object.type(),
                                    Array{BufferRef(std::move(buffer)), 0, model.device, model.dtype, model.shape});
      },
      "model"_a, "asked"_a);
}

}  // namespace

void bind_graphs(nb::module_& module) {
  // The steps that executing an operation would take.
  module.def("record", [](nb::handle_t<Op> op, const Placement& placement) {
    return driver::record(process_engine(), op, to_record(placement));
  });
  bind_recorder(module);
  bind_graph(module);
  bind_allocation(module);
}

}  // namespace aiocuda
