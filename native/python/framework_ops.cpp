// Operations of frameworks' functions: see framework_ops.hpp.
#include "framework_ops.hpp"

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../dataflow/operation.hpp"
#include "../driver/lending.hpp"
#include "dlpack.hpp"
#include "foreign_ops.hpp"
#include "foreign_work.hpp"
#include "ownership.hpp"
#include "process.hpp"
#include "their_arrays.hpp"
#include "weak.hpp"

namespace aiocuda {
namespace nb = nanobind;
namespace {
using namespace nb::literals;
using dataflow::Array;
using dataflow::ForeignOp;
using driver::InCall;

// What Python calls by name.
struct Names {
  static PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

  PyObject* const enter = interned("enter");
  PyObject* const leave = interned("leave");
  PyObject* const lend = interned("lend");
  PyObject* const was_written = interned("was_written");
  PyObject* const stream_of = interned("stream_of");
  PyObject* const adopted = interned("adopted");
  PyObject* const refuse = interned("refuse");
  PyObject* const require_written = interned("require_written");
  PyObject* const version = interned("_version");
  PyObject* const qualname = interned("__qualname__");
  PyObject* const wrapped = interned("__wrapped__");
};
const Names& names() {
  static const Names all;
  return all;
}

template <class... Arguments>
nb::object call_method(nb::handle self, PyObject* name, const Arguments&... arguments) {
  PyObject* const given[] = {self.ptr(), nb::handle(arguments).ptr()...};
  const nb::object result = nb::steal(
      PyObject_VectorcallMethod(name, given, (1 + sizeof...(arguments)) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

nb::object called(nb::handle function, nb::handle argument = {}) {
  nb::object result = nb::steal(argument.is_valid() ? PyObject_CallOneArg(function.ptr(), argument.ptr())
                                                    : PyObject_CallNoArgs(function.ptr()));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

// What is PyTorch's own in these functions.
struct PyTorch {
  nb::object tensor;  // the class
  nb::object get_device, set_device, get_stream, set_stream;
  nb::dict streams;  // what set_stream takes, by the number that aiocuda gives a stream once
};

// The native part of a framework.
struct Framework {
  std::optional<PyTorch> pytorch{};
  const dlpack::ExchangeApi* exchange = nullptr;  // null: all is done in Python
};

// An array, and the framework's array over its memory.
struct LentToFramework {
  nb::handle array;
  nb::object theirs;
};

// A function as ForeignOp calls it.
class Run {
 public:
  Run(nb::object framework, nb::object function, nb::object state, std::size_t written)
      : framework_(std::move(framework)), function_(std::move(function)), state_(std::move(state)), written_(written) {}

  const nb::object& function() const { return function_; }

  // `values`: the function's arguments, and behind them what it writes.
  nb::object operator()(const nb::tuple& values) {
    const InCall& call = *InCall::current();
    const std::size_t count = nb::len(values) - written_;
    // What is behind the program's Python calls must outlive them, whatever they let go of.
    const nb::object framework = framework_, function = function_, state = state_;
    std::vector<LentToFramework> lent;
    std::vector<nb::object> given;
    for (std::size_t i = 0; i < count; ++i)
      given.push_back(
          mapped(PyTuple_GET_ITEM(values.ptr(), i), [&](nb::handle value) { return lend_to_it(value, lent); }));
    if (call.is_captured) kept_ = nb::list();
    Inside inside(*this, call);
    come_after(inside.before(), *dataflow::as_array(state));
    const nb::object returned = inside.call(function, given);
    for (const LentToFramework& each : lent)
      if (was_written(each.theirs))
        call_method(framework, names().require_written, function, each.array, tail(values, count));
    nb::object result = nb::none();
    if (!returned.is_none())
      result = mapped(returned, [&](nb::handle value) { return adopted(value, lent, call.device); });
    inside.leave();
    return result;
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(framework_.ptr());
    Py_VISIT(function_.ptr());
    Py_VISIT(state_.ptr());
    Py_VISIT(kept_.ptr());
    return 0;
  }
  void clear() {
    const nb::object framework = std::move(framework_), function = std::move(function_), kept = std::move(kept_);
  }

 private:
  // The framework's current stream is ours, until `leave`.
  class Inside {
   public:
    Inside(const Run& run, const InCall& call) : run_(run), framework_(run.framework_) {
      if (run.native().exchange && !call.is_captured)
        enter_pytorch(*run.native().pytorch, call);
      else
        enter_by_python(call);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    // An error is on its way, which is told.
    ~Inside() {
      if (has_left_) return;
      try {
        leave();
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(framework_);
      }
    }

    std::uintptr_t before() const { return before_; }

    nb::object call(const nb::object& function, const std::vector<nb::object>& given) const {
      std::vector<PyObject*> all(1);  // a place in front, which a method may need for its object
      const Py_ssize_t leading = entered_.is_valid() ? PyTuple_GET_SIZE(leading_.ptr()) : 0;
      for (Py_ssize_t i = 0; i < leading; ++i) all.push_back(PyTuple_GET_ITEM(leading_.ptr(), i));
      for (const nb::object& each : given) all.push_back(each.ptr());
      const nb::object returned = nb::steal(PyObject_Vectorcall(
          function.ptr(), all.data() + 1, (all.size() - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      if (!returned.is_valid()) throw nb::python_error();
      return returned;
    }

    void leave() {
      has_left_ = true;
      if (entered_.is_valid()) {
        call_method(framework_, names().leave, entered_);
        return;
      }
      const PyTorch& pytorch = *run_.native().pytorch;
      set_stream(pytorch, there_);
      if (!device_.equal(nb::handle(PyTuple_GET_ITEM(there_.ptr(), 1)))) called(pytorch.set_device, device_);
    }

   private:
    void enter_by_python(const InCall& call) {
      driver::Engine& engine = process_engine();
      const nb::object stream = engine.hooks.stream(engine.id_of(call.stream), call.device);
      entered_ = call_method(framework_, names().enter, stream, run_.kept_.is_valid() ? run_.kept_ : nb::none());
      before_ = nb::cast<std::uintptr_t>(entered_.attr("before"));
      leading_ = nb::cast<nb::tuple>(entered_.attr("leading"));
    }

    // As `_PyTorch.enter` does it outside of a capture.
    void enter_pytorch(const PyTorch& pytorch, const InCall& call) {
      const nb::object ours = stream_of(pytorch, call);
      const nb::int_ ordinal(call.device);
      device_ = called(pytorch.get_device);
      there_ = called(pytorch.get_stream, ordinal);
      const auto before = work_stream_of(*run_.native().exchange, call.device);
      if (!before) throw nb::python_error();
      before_ = *before;
      set_stream(pytorch, ours);
    }

    nb::object stream_of(const PyTorch& pytorch, const InCall& call) const {
      driver::Engine& engine = process_engine();
      const nb::int_ id(engine.id_of(call.stream));
      PyObject* const known = PyDict_GetItemWithError(pytorch.streams.ptr(), id.ptr());
      if (known) return nb::borrow(known);
      if (PyErr_Occurred()) throw nb::python_error();
      return call_method(framework_, names().stream_of, engine.hooks.stream(id, call.device));
    }

    static void set_stream(const PyTorch& pytorch, const nb::object& stream) {
      const nb::object done = nb::steal(PyObject_Call(pytorch.set_stream.ptr(), stream.ptr(), nullptr));
      if (!done.is_valid()) throw nb::python_error();
    }

    const Run& run_;
    const nb::object framework_;
    nb::object entered_, leading_;  // of a framework that Python enters
    nb::object device_, there_;     // PyTorch's before
    std::uintptr_t before_ = 0;
    bool has_left_ = false;
  };

  const Framework& native() const { return *nb::inst_ptr<Framework>(framework_); }

  // A structure with something else in the place of each of its leaves.
  template <class F>
  static nb::object mapped(nb::handle value, F&& of_leaf) {
    PyObject* const object = value.ptr();
    const bool is_tuple = PyTuple_Check(object), is_list = PyList_Check(object);
    if (!is_tuple && !is_list && !PyDict_Check(object)) return of_leaf(value);
    struct Deeper {
      Deeper() {
        if (Py_EnterRecursiveCall(" in the arguments or results of an operation")) throw nb::python_error();
      }
      ~Deeper() { Py_LeaveRecursiveCall(); }
    } const deeper;
    if (!is_tuple && !is_list) {
      nb::dict items;
      for (const auto& [key, item] : nb::borrow<nb::dict>(value)) items[key] = mapped(item, of_leaf);
      return items;
    }
    nb::list items;
    for (nb::handle item : value) items.append(mapped(item, of_leaf));
    const nb::handle kind(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    if (PyList_CheckExact(object)) return items;
    if (PyTuple_CheckExact(object)) return nb::tuple(items);
    return nb::hasattr(kind, "_fields") ? kind(*nb::tuple(items)) : kind(items);
  }

  nb::object lend_to_it(nb::handle value, std::vector<LentToFramework>& lent) {
    const Array* const array = dataflow::as_array(value);
    if (!array) return nb::borrow(value);
    if (reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())) != process_engine().hooks.device_array.ptr())
      call_method(framework_, names().refuse, value);
    nb::object theirs = native().exchange ? lend_to_pytorch(*array) : call_method(framework_, names().lend, value);
    lent.push_back({value, theirs});
    return theirs;
  }

  // The operation is ordered by what it is said to use, so the borrow has no order.
  nb::object lend_to_pytorch(const Array& array) const {
    dlpack::ManagedVersioned& tensor = lend(array, {{dlpack::kinds::cuda, array.device}, array.device, nullptr, false});
    void* theirs = nullptr;
    if (native().exchange->to_object(&tensor, &theirs) != 0) {
      try {
        throw nb::python_error();  // takes Python's error, under which the deleter may not run
      } catch (const nb::python_error&) {
        tensor.deleter(&tensor);
        throw;
      }
    }
    return nb::steal(static_cast<PyObject*>(theirs));
  }

  bool was_written(const nb::object& theirs) const {
    if (native().exchange) {
      const nb::object version = nb::steal(PyObject_GetAttr(theirs.ptr(), names().version));
      if (version.is_valid()) return PyLong_AsLong(version.ptr()) != 0;
      PyErr_Clear();  // a tensor without a version
    }
    return PyObject_IsTrue(call_method(framework_, names().was_written, theirs).ptr()) == 1;
  }

  nb::object adopted(nb::handle value, const std::vector<LentToFramework>& lent, std::int32_t device) const {
    for (const LentToFramework& each : lent)
      if (each.theirs.is(value)) return nb::borrow(each.array);
    const Framework& native = this->native();
    Array array;
    std::optional<std::uint64_t> address;
    const bool is_tensor = native.exchange && Py_TYPE(value.ptr()) == type_of(native.pytorch->tensor);
    if (is_tensor) address = read_plain(*native.exchange, value, array);
    if (!address || array.device != device) {
      const bool may_be_one = !native.exchange || PyObject_TypeCheck(value.ptr(), type_of(native.pytorch->tensor));
      return may_be_one ? call_method(framework_, names().adopted, function_, value, nb::int_(device))
                        : nb::borrow(value);
    }
    return adopt(*address, std::move(array), nb::borrow(value));
  }
  static PyTypeObject* type_of(nb::handle type) { return reinterpret_cast<PyTypeObject*>(type.ptr()); }

  static nb::object tail(const nb::tuple& values, std::size_t from) {
    return nb::steal(PyTuple_GetSlice(values.ptr(), static_cast<Py_ssize_t>(from), PyTuple_GET_SIZE(values.ptr())));
  }

  nb::object framework_, function_, state_;
  nb::object kept_{};          // what lives as long as the graph that it is captured for
  const std::size_t written_;  // how many arguments behind the function's are what it writes
};

Run& run_of(PyObject* object) { return *nb::inst_ptr<Run>(nb::handle(object)); }

PyObject* run_call(PyObject* self, PyObject* arguments, PyObject*) {
  try {
    return run_of(self)(nb::borrow<nb::tuple>(arguments)).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// It is called as its function is.
PyObject* run_getattr(PyObject* self, PyObject* name) {
  if (PyUnicode_Compare(name, names().qualname) != 0) return PyObject_GenericGetAttr(self, name);
  const nb::object function = run_of(self).function();
  if (!function.is_valid()) return PyUnicode_FromString("a function");
  if (PyObject* const found = PyObject_GetAttr(function.ptr(), names().qualname)) return found;
  PyErr_Clear();
  return PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(function.ptr())), "__name__");
}

int run_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? run_of(self).traverse(visit, arg) : 0;
}
int run_clear(PyObject* self) {
  if (nb::inst_ready(self)) run_of(self).clear();
  return 0;
}
PyType_Slot run_slots[] = {{Py_tp_call, reinterpret_cast<void*>(run_call)},
                           {Py_tp_getattro, reinterpret_cast<void*>(run_getattr)},
                           {Py_tp_traverse, reinterpret_cast<void*>(run_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(run_clear)},
                           {0, nullptr}};

// --- building

// What a function keeps between calls, and whether a call changes it.
struct State {
  nb::object array;
  bool is_kept;
};

// What of Python's builds an operation.
struct Builders {
  nb::object prepare, lift;
  nb::dict states;  // of functions that keep something, by the identity of what keeps it: (weak reference, state)
  nb::object stateless{};  // the state of those that keep nothing, once there is one
};
std::optional<Builders>& builders() {
  static auto* made = new std::optional<Builders>;
  return *made;
}

// Whose state it is, as `states.state_of` finds it; null: Python must look.
PyObject* keeper_of(nb::handle function) {
  if (PyFunction_Check(function.ptr())) {
    PyObject* const attributes = reinterpret_cast<PyFunctionObject*>(function.ptr())->func_dict;
    const bool is_wrapper = attributes && PyDict_Contains(attributes, names().wrapped) != 0;
    return is_plain_function(function) && !is_wrapper ? PyFunction_GET_CODE(function.ptr()) : nullptr;
  }
  if (PyMethod_Check(function.ptr())) return is_plain_function(function) ? PyMethod_GET_SELF(function.ptr()) : nullptr;
  return function.ptr();  // if it is a partial, nothing is kept by its identity
}

State state_of(Builders& builders, nb::handle function, bool is_stateless) {
  const bool keeps_nothing = is_in_c(function);
  if (keeps_nothing && builders.stateless.is_valid()) return {builders.stateless, false};
  if (PyObject* const keeper = keeps_nothing ? nullptr : keeper_of(function)) {
    const nb::object identity = nb::steal(PyLong_FromVoidPtr(keeper));
    PyObject* const known = PyDict_GetItemWithError(builders.states.ptr(), identity.ptr());
    if (known && target_of(PyTuple_GET_ITEM(known, 0)).is(keeper)) {
      if (!is_stateless) return {nb::borrow(PyTuple_GET_ITEM(known, 1)), true};
      if (builders.stateless.is_valid()) return {builders.stateless, false};
    }
  }
  const auto found = nb::cast<nb::tuple>(builders.prepare(function, is_stateless));
  const bool is_kept = nb::cast<bool>(found[1]);
  if (!is_kept) builders.stateless = found[0];
  return {found[0], is_kept};
}

// The operation of a function; see `aiocuda._interop.operation.operation`.
nb::object build(nb::handle_t<Framework> framework, nb::object function, const nb::sequence& arguments,
                 nb::handle reads, nb::handle writes, bool is_stateless) {
  Builders& builders = *aiocuda::builders();
  State state = state_of(builders, function, is_stateless);
  ForeignOp* made = nullptr;
  nb::object object = new_foreign_op(made);
  ForeignOp& op = *made;
  auto take = [&](nb::object argument) {
    op.note_tensors(argument);
    op.arguments.push_back(std::move(argument));
  };
  for (nb::handle each : arguments) {
    PyObject* const argument = each.ptr();
    const bool holds_others = PyTuple_Check(argument) || PyList_Check(argument) || PyDict_Check(argument);
    take(holds_others ? builders.lift(each) : nb::borrow(each));
  }
  take_accesses(op, reads, writes);
  std::size_t written = 0;
  for (const ForeignOp::Access& each : op.accesses) {
    if (!each.writes) continue;
    op.arguments.push_back(each.array);
    ++written;
  }
  op.state = state.array;
  op.keeps_state = state.is_kept;
  nb::object run = nb::inst_alloc(nb::type<Run>());
  new (nb::inst_ptr<Run>(run)) Run(nb::borrow(framework), std::move(function), std::move(state.array), written);
  nb::inst_mark_ready(run);
  op.function = std::move(run);
  return object;
}

}  // namespace

void bind_framework_ops(nb::module_& module) {
  nb::class_<Framework>(module, "Framework")
      .def(nb::init<>())
      .def(
          "_use_pytorch",
          [](Framework& self, nb::object tensor, nb::object get_device, nb::object set_device, nb::object get_stream,
             nb::object set_stream, nb::dict streams) {
            self.exchange = exchange_of(tensor);
            self.pytorch = PyTorch{std::move(tensor),     std::move(get_device), std::move(set_device),
                                   std::move(get_stream), std::move(set_stream), std::move(streams)};
          },
          nb::kw_only(), "tensor"_a, "get_device"_a, "set_device"_a, "get_stream"_a, "set_stream"_a, "streams"_a);
  nb::class_<Run>(module, "FrameworkRun", nb::type_slots(run_slots));
  // `prepare`: (function, is it said to keep nothing) -> its state, and whether a call changes that; an error where it
  // cannot be called. `lift`: (structure) -> it, or an operation if it holds some. `states`: of functions, as
  // `aiocuda._interop.states` keeps them.
  module.def(
      "set_framework_ops",
      [](nb::object prepare, nb::object lift, nb::dict states) {
        builders() = Builders{std::move(prepare), std::move(lift), std::move(states)};
      },
      nb::kw_only(), "prepare"_a, "lift"_a, "states"_a);
  module.def("framework_op", build, "framework"_a, "function"_a.none(), "arguments"_a, "reads"_a.none(),
             "writes"_a.none(), "is_stateless"_a);
}

}  // namespace aiocuda
