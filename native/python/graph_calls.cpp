// Launches of graphs and calls of compiled functions: see graph_calls.hpp.
#include "graph_calls.hpp"

#include <optional>
#include <string_view>
#include <vector>

#include "../dataflow/replay.hpp"
#include "../driver/graph.hpp"
#include "direct.hpp"
#include "known_calls.hpp"
#include "member_types.hpp"
#include "native_method.hpp"
#include "process.hpp"
#include "replaying.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using driver::GraphObject;

// The native part of a graph as Python shows it (CudaGraph).
struct GraphFace {
  PyObject_HEAD PyObject* native;  // the Graph
  PyObject* put;                   // a Placement: where its launches go; none: as the policy says
  char is_plain;                   // native code may make its launches
};

// The native part of a compiled function (Compiled).
struct CompiledFace {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* known;  // the KnownCall of the latest graph, or None
};

PyTypeObject* graph_type;
PyTypeObject* compiled_type;

// The input of a name, or none.
std::size_t find_input(const GraphPlan& plan, PyObject* name) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) {  // half of a surrogate pair, which no name has
    PyErr_Clear();
    return plan.inputs.size();
  }
  const std::string_view asked(text, static_cast<std::size_t>(size));
  std::size_t index = 0;
  while (index < plan.inputs.size() && plan.inputs[index].name != asked) ++index;
  return index;
}

// The operation that launches a graph; none where that is for Python.
nb::object launch(nb::handle op_class, const GraphFace& face, PyObject* const* values, PyObject* names) {
  if (!face.is_plain || !face.native) return {};
  const nb::object graph = nb::borrow(face.native);
  const nb::object put = nb::borrow(face.put && face.put != Py_None ? face.put : nullptr);
  if (put.is_valid() && !process_engine().streams.is_open(nb::inst_ptr<Placement>(put)->stream)) return {};
  const GraphPlan& plan = nb::inst_ptr<GraphObject>(graph)->graph->plan;

  nb::object object = begin_replay(op_class, graph);
  auto& op = *nb::inst_ptr<ReplayOp>(object);
  for (Py_ssize_t i = 0, count = names ? PyTuple_GET_SIZE(names) : 0; i < count; ++i) {
    const std::size_t index = plan.is_closed ? 0 : find_input(plan, PyTuple_GET_ITEM(names, i));
    if (!plan.is_closed && index == plan.inputs.size()) return {};
    op.bind(false, static_cast<std::uint32_t>(index), values[i]);
  }
  check_replay(op);
  op.spec = plan.spec;
  op.put = put;
  op.is_asked = false;
  return object;
}

PyObject* launch_called(PyObject* self, PyObject* const* args, std::size_t flagged, PyObject* names) noexcept {
  const auto& method = *reinterpret_cast<NativeMethod*>(self);
  if (PyVectorcall_NARGS(flagged) == 1 && PyObject_TypeCheck(args[0], graph_type)) {
    PyObject* const op =
        raising([&] { return launch(method.known, *reinterpret_cast<GraphFace*>(args[0]), args + 1, names); });
    if (op || PyErr_Occurred()) return op;
  }
  return PyObject_Vectorcall(method.function, args, flagged, names);
}

// Arguments with arrays of other libraries as ours.
class WithTensors {
 public:
  WithTensors(PyObject* const* args, std::size_t count) : args_(args) {
    for (std::size_t i = 0; i < count; ++i) {
      const nb::handle given = args[i];
      const bool may_be_one = !as_array(given) && !PyLong_Check(given.ptr()) && !PyFloat_Check(given.ptr());
      if (!may_be_one || as_op(given)) continue;
      std::string problem;  // which Python's method tells
      nb::object tensor = take_tensor(given, problem);
      if (!tensor.is_valid()) continue;
      if (replaced_.empty()) replaced_.assign(args, args + count);
      replaced_[i] = tensor.ptr();
      tensors_.push_back(std::move(tensor));
    }
  }
  PyObject* const* args() const { return replaced_.empty() ? args_ : replaced_.data(); }

 private:
  PyObject* const* args_;
  std::vector<PyObject*> replaced_;
  std::vector<nb::object> tensors_;
};

PyObject* compiled_called(PyObject* self, PyObject* const* given, std::size_t flagged, PyObject* names) noexcept {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
  const std::size_t all = count + (names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0);
  std::optional<WithTensors> with_tensors;
  const nb::object is_read = nb::steal(raising([&] {
    with_tensors.emplace(given, all);
    return nb::none();
  }));
  if (!is_read.is_valid()) return nullptr;
  PyObject* const* const args = with_tensors->args();
  if (const nb::object known = nb::borrow(reinterpret_cast<CompiledFace*>(self)->known);
      known.is_valid() && !known.is_none()) {
    PyObject* const op = raising([&] { return launch_known(known, args, all, names); });
    if (op || PyErr_Occurred()) return op;
  }
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  return raising([&] {
    std::vector<PyObject*> with_self{self};
    with_self.insert(with_self.end(), args, args + all);
    nb::object made = nb::steal(PyObject_VectorcallMethod(name, with_self.data(), count + 1, names));
    if (!made.is_valid()) throw nb::python_error();
    return made;
  });
}

// --- the types

template <class... Members>
int visited(PyObject* self, visitproc visit, void* arg, Members... members) {
  Py_VISIT(Py_TYPE(self));
  for (PyObject* each : {members...}) Py_VISIT(each);
  return 0;
}

int calls_traverse(PyObject* self, visitproc visit, void* arg) {
  const auto* face = reinterpret_cast<GraphFace*>(self);
  return visited(self, visit, arg, face->native, face->put);
}
int calls_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<GraphFace*>(self)->native);
  Py_CLEAR(reinterpret_cast<GraphFace*>(self)->put);
  return 0;
}
int compiled_traverse(PyObject* self, visitproc visit, void* arg) {
  return visited(self, visit, arg, reinterpret_cast<CompiledFace*>(self)->known);
}
int compiled_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<CompiledFace*>(self)->known);
  return 0;
}

PyObject* graph_new(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }
PyObject* compiled_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* const self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<CompiledFace*>(self)->vectorcall = compiled_called;
  return self;
}
PyTypeObject* made(PyType_Spec& spec) {
  auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!type) throw nb::python_error();
  return type;
}

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* make_graph_type() {
  static PyMemberDef members[] = {{"_native", Py_T_OBJECT_EX, offsetof(GraphFace, native), 0, nullptr},
                                  {"_put", _Py_T_OBJECT, offsetof(GraphFace, put), 0, nullptr},
                                  {"_is_plain", Py_T_BOOL, offsetof(GraphFace, is_plain), 0, nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, slot(graph_new)},
                                {Py_tp_dealloc, slot(deallocate<calls_clear>)},
                                {Py_tp_traverse, slot(calls_traverse)},
                                {Py_tp_clear, slot(calls_clear)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"aiocuda._native.GraphFace", sizeof(GraphFace), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  return made(spec);
}

PyTypeObject* make_compiled_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(CompiledFace, vectorcall), Py_READONLY, nullptr},
      {"_known", _Py_T_OBJECT, offsetof(CompiledFace, known), 0, nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, slot(compiled_new)},
                                {Py_tp_dealloc, slot(deallocate<compiled_clear>)},
                                {Py_tp_traverse, slot(compiled_traverse)},
                                {Py_tp_clear, slot(compiled_clear)},
                                {Py_tp_call, slot(PyVectorcall_Call)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"aiocuda._native.CompiledFace", sizeof(CompiledFace), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                             slots};
  return made(spec);
}

}  // namespace

void bind_graph_calls(nb::module_& module) {
  graph_type = make_graph_type();
  compiled_type = make_compiled_type();
  module.attr("GraphFace") = nb::borrow(reinterpret_cast<PyObject*>(graph_type));
  module.attr("CompiledFace") = nb::borrow(reinterpret_cast<PyObject*>(compiled_type));
  // Decorates CudaGraph.launch. `op_class`: of the operations that it makes.
  module.def("launched_natively", [](nb::object op_class) {
    return nb::cpp_function([op_class = std::move(op_class)](const nb::object& function) {
      return make_native_method(launch_called, function, op_class);
    });
  });
  // Decorates a class of compiled functions, which has a `__call__` of Python's: calls of its objects ask native code
  // first.
  module.def("called_natively", [](nb::type_object type) {
    auto* const object = reinterpret_cast<PyTypeObject*>(type.ptr());
    if (!PyType_IsSubtype(object, compiled_type)) throw nb::type_error("the class derives from CompiledFace");
    object->tp_call = compiled_type->tp_call;
    object->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    PyType_Modified(object);
    return type;
  });
}

}  // namespace aiocuda
