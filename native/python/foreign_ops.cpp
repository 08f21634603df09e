// Operations of functions that put work on a stream: see foreign_ops.hpp.
#include "foreign_ops.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "process.hpp"
#include "spare_objects.hpp"

namespace aiocuda {
namespace nb = nanobind;
namespace {
using namespace nb::literals;
using dataflow::ForeignOp;

// What of Python's is asked where native code does not go on.
struct Askers {
  nb::object op_class;        // of the operations
  nb::object check_function;  // (function): raises if it cannot be called, or has to be awaited
  nb::object named;           // (what reads= or writes= was given, its name) -> a sequence
  nb::object array_named;     // (what stands there, the name) -> an array, or an operation that yields one
};
std::optional<Askers>& askers() {
  static auto* made = new std::optional<Askers>;  // never released: the interpreter may have gone first
  return *made;
}

void take_access(ForeignOp& op, nb::object array, bool is_write, const char* name) {
  if (!dataflow::as_array(array) && !dataflow::as_op(array)) array = askers()->array_named(array, name);
  op.note_tensors(array);
  op.accesses.push_back({std::move(array), is_write});
}

void take_accesses_of(ForeignOp& op, nb::handle given, bool is_write, const char* name) {
  if (PyTuple_CheckExact(given.ptr()) || PyList_CheckExact(given.ptr())) {
    // A reader of tensors is Python code, which may change a list.
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given.ptr()); ++i)
      take_access(op, nb::borrow(PySequence_Fast_GET_ITEM(given.ptr(), i)), is_write, name);
    return;
  }
  for (nb::handle each : askers()->named(given, name)) take_access(op, nb::borrow(each), is_write, name);
}

bool is_async(nb::handle function) {
  constexpr int async = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
  return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.ptr()))->co_flags & async;
}

// See `aiocuda.call`. `workspace`: see `ForeignOp`.
nb::object call(nb::object function, const nb::tuple& arguments, nb::handle reads, nb::handle writes,
                const std::pair<std::uint64_t, dataflow::DType>& workspace) {
  if (!is_plain_function(function) && !is_in_c(function)) askers()->check_function(function);
  ForeignOp* op = nullptr;
  nb::object object = new_foreign_op(op);
  op->function = std::move(function);
  op->arguments.reserve(nb::len(arguments));
  for (nb::handle argument : arguments) {
    op->note_tensors(argument);
    op->arguments.push_back(nb::borrow(argument));
  }
  op->workspace = {workspace.first, workspace.second};
  take_accesses(*op, reads, writes);
  return object;
}

// The same of a collective. Its arrays may be on several devices, and it may fail after it was submitted.
nb::object collective(nb::object function, const nb::tuple& arguments, nb::handle reads, nb::handle writes,
                      const dataflow::DoubtRef& doubt) {
  nb::object object = call(std::move(function), arguments, reads, writes, {});
  nb::inst_ptr<ForeignOp>(object)->doubt = doubt;
  return object;
}

}  // namespace

nb::object new_foreign_op(ForeignOp*& op) {
  nb::object object = SpareObjects<ForeignOp>::make(askers()->op_class, op);
  op->origin.capture();
  return object;
}

void take_accesses(ForeignOp& op, nb::handle reads, nb::handle writes) {
  take_accesses_of(op, writes, true, "writes");
  take_accesses_of(op, reads, false, "reads");
}

bool is_plain_function(nb::handle function) {
  if (PyFunction_Check(function.ptr())) return !is_async(function);
  if (!PyMethod_Check(function.ptr())) return false;
  const nb::handle of_class = PyMethod_GET_FUNCTION(function.ptr());
  return PyFunction_Check(of_class.ptr()) && !is_async(of_class);
}

bool is_in_c(nb::handle function) {
  return PyCFunction_CheckExact(function.ptr()) || Py_IS_TYPE(function.ptr(), &PyMethodDescr_Type);
}

void bind_foreign_ops(nb::module_& module) {
  module.def(
      "set_foreign_ops",
      [](nb::object op_class, nb::object check_function, nb::object named, nb::object array_named) {
        askers() = Askers{std::move(op_class), std::move(check_function), std::move(named), std::move(array_named)};
      },
      nb::kw_only(), "op_class"_a, "check_function"_a, "named"_a, "array_named"_a);
  module.def("call_op", call, "function"_a.none(), "arguments"_a, "reads"_a.none(), "writes"_a.none(),
             "workspace"_a = std::pair<std::uint64_t, dataflow::DType>());
  module.def("collective_op", collective, "function"_a, "arguments"_a, "reads"_a, "writes"_a, "doubt"_a);
  module.def(
      "make_token",
      [](const dataflow::Array& array, nb::object launching) {
        array.buffer->token = std::make_shared<const dataflow::Token>(std::move(launching));
      },
      "array"_a, "launching"_a);
  module.def(
      "refuse_use",
      [](const dataflow::Array& array, nb::object error) {
        process_engine().outcomes.refuse_use({array.buffer.get(), array.span(), true}, std::move(error));
      },
      "array"_a, "error"_a);
  module.def("asked", [](const dataflow::Op& op) { return process_engine().outcomes.asked(op); }, "op"_a);
  nb::class_<dataflow::Doubt>(module, "Doubt")
      .def(nb::new_([](nb::object asked) {
             const auto doubt = std::make_shared<dataflow::Doubt>();
             if (!asked.is_none()) doubt->asked = std::move(asked);
             return doubt;
           }),
           "asked"_a = nb::none())
      .def_prop_ro("is_open", [](const dataflow::Doubt& doubt) { return doubt.state == dataflow::Doubt::State::open; })
      .def("end", [](dataflow::Doubt& doubt) { process_engine().outcomes.end(doubt); })
      .def("fail",
           [](dataflow::Doubt& doubt, nb::object error) { process_engine().outcomes.fail(doubt, std::move(error)); });
}

}  // namespace aiocuda
