#include "known_calls.hpp"

#include <algorithm>
#include <vector>

#include "../dataflow/pageable.hpp"
#include "../dataflow/placement.hpp"
#include "../dataflow/replay.hpp"
#include "../driver/graph.hpp"
#include "replaying.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using namespace nb::literals;

// The properties that an array needs to take another one's place, besides its address.
struct Layout {
  explicit Layout(nb::handle object) : type(Py_TYPE(object.ptr())) {
    const Array& array = *as_array(object);
    dtype = array.dtype;
    device = array.device;
    shape = array.shape;
    strides = array.strides;
    tile = array.tile;
  }
  bool is_of(nb::handle object, const Array& array) const {
    return Py_TYPE(object.ptr()) == type && array.dtype == dtype && array.device == device && array.shape == shape &&
           array.strides == strides && array.tile == tile;
  }

  PyTypeObject* type;  // which the argument keeps
  DType dtype;
  std::int32_t device;
  std::vector<std::int64_t> shape, strides, tile;
};

bool begin_alike(const Array& a, const Array& b) { return a.buffer.get() == b.buffer.get() && a.offset == b.offset; }

bool is_equal(nb::handle a, nb::handle b) {
  const nb::object answer = nb::steal(PyObject_RichCompare(a.ptr(), b.ptr(), Py_EQ));
  if (!answer.is_valid()) throw nb::python_error();
  const int truth = PyObject_IsTrue(answer.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

// A call of a compiled function with arguments of one kind, each of them an array, a number or something hashable.
//
// Always true: it takes a call only if the call's key (compiled_call.py) would have found the same graph. So the
// numbers that the function looked at are equal, and the arrays' addresses are aligned alike. It leaves all other calls
// to the caller, and those that need new memory for an output.
class KnownCall {
 public:
  // `given`: the arguments of the call that the graph was made for. `names`: of the last of them, which were given by
  // name. `which`: of its arrays, which of the distinct ones each is. `guards`: the numbers that the function looked
  // at, by index. `arrays`, `numbers`, `targets`: what a launch replaces, as for a ReplayOp; the outputs come behind.
  // `outputs`: the list of memory that may be used again, for each. `leaves`: what the call yields, each as (array,
  // source, is all of that). A source is the number of a distinct array, or ~(the number of an output). An array that
  // was there before stands alone.
  KnownCall(nb::object op_class, nb::object graph, std::int32_t device, const nb::tuple& given, nb::tuple names,
            const nb::list& which, const nb::dict& guards, const nb::list& arrays, const nb::list& numbers,
            const nb::tuple& targets, const nb::list& outputs, const nb::tuple& leaves, bool is_tuple)
      : op_class_(std::move(op_class)),
        graph_(std::move(graph)),
        device_(device),
        names_(std::move(names)),
        is_tuple_(is_tuple) {
    std::vector<std::size_t> number_args;
    for (nb::handle each : given) {
      const std::size_t position = args_.size();
      Arg& arg = args_.emplace_back();
      arg.object = nb::borrow(nb::handle(Py_TYPE(each.ptr())));
      if (as_array(each)) {
        arg.kind = Arg::Kind::array;
        arg.distinct = nb::cast<std::size_t>(which[layouts_.size()]);
        if (arg.distinct == firsts_.size()) firsts_.push_back(position);
        arg.layout = layouts_.size();
        layouts_.emplace_back(each);
      } else if (PyLong_CheckExact(each.ptr()) || PyFloat_CheckExact(each.ptr())) {
        arg.kind = Arg::Kind::number;
        if (const nb::int_ key(number_args.size()); guards.contains(key)) arg.guard = guards[key];
        number_args.push_back(position);
      } else {
        arg.kind = Arg::Kind::other;
        arg.object = nb::borrow(each);
      }
    }
    auto bind = [&](std::size_t source) {
      const auto target = nb::cast<long>(targets[bindings_.size()]);
      bindings_.push_back({target < 0, static_cast<std::uint32_t>(target < 0 ? ~target : target), source});
    };
    for (nb::handle each : arrays) bind(firsts_[nb::cast<std::size_t>(each)]);
    for (nb::handle each : numbers) bind(number_args[nb::cast<std::size_t>(each)]);
    first_output_ = bindings_.size();
    for (nb::handle each : outputs) {
      bind(outputs_.size());
      outputs_.push_back(nb::borrow<nb::list>(each));
    }
    for (nb::handle each : leaves) {
      if (as_array(each))
        leaves_.push_back({nb::borrow(each)});
      else
        leaves_.push_back({nb::borrow(each[0]), true, nb::cast<std::int64_t>(each[1]), nb::cast<bool>(each[2])});
    }
  }

  // The operation for another call; none where it is for the caller. `given`: as a vector call has them, those by name
  // last.
  nb::object launch(PyObject* const* given, std::size_t count, PyObject* names) {
    if (!graph_.is_valid() || count != args_.size() || !has_names(names) || Enclosure::recording()) return {};
    {
      const nb::object placement = placement_in_force();
      const auto& in_force = *nb::inst_ptr<Placement>(placement);
      if (!in_force.recording_at.empty() || in_force.device_or_default() != device_) return {};
    }
    if (!is_like(given) || !is_aligned(given)) return {};

    nb::object object = begin_replay(op_class_, graph_);
    auto& op = *nb::inst_ptr<ReplayOp>(object);
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      const Bound& each = bindings_[i];
      if (i < first_output_) {
        op.bind(each.is_output, each.index, given[each.source]);
        continue;
      }
      const nb::object output = next_of(outputs_[each.source]);
      if (!output.is_valid()) return {};
      op.bind(each.is_output, each.index, output);
    }
    op.result = result_of(given, op);
    op.spec = spec_of(op.result);
    check(op);
    op.is_asked = false;
    ++hits;
    return object;
  }

  std::uint64_t hits = 0;

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(op_class_.ptr());
    Py_VISIT(graph_.ptr());
    Py_VISIT(names_.ptr());
    for (const Arg& each : args_) {
      Py_VISIT(each.object.ptr());
      Py_VISIT(each.guard.ptr());
    }
    for (const nb::list& spare : outputs_) Py_VISIT(spare.ptr());
    for (const Leaf& each : leaves_) Py_VISIT(each.part.ptr());
    return 0;
  }
  void clear() {
    const auto args = std::move(args_);
    const auto outputs = std::move(outputs_);
    const auto leaves = std::move(leaves_);
    const nb::object graph = std::move(graph_);
    args_.clear();
    outputs_.clear();
    leaves_.clear();
  }

 private:
  struct Arg {
    enum class Kind : std::uint8_t { array, number, other };
    Kind kind = Kind::other;
    std::size_t distinct = 0, layout = 0;  // of an array: which of the distinct ones, and which of the layouts
    nb::object object;                     // an array's or a number's type, or what must be equal
    nb::object guard;                      // of a number that the function looked at: what that was
  };
  struct Bound {
    bool is_output;
    std::uint32_t index;
    std::size_t source;  // the argument's position, or the output's
    SlotIndex slot = 0;  // known once a launch was checked
    bool is_memory = false;
  };
  struct Leaf {
    nb::object part;
    bool has_source = false;
    std::int64_t source = 0;
    bool is_all = false;
  };

  bool has_names(PyObject* names) const {
    const std::size_t count = names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0;
    if (count != names_.size()) return false;
    for (std::size_t i = 0; i < count; ++i) {
      PyObject* const name = PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i));
      PyObject* const known = PyTuple_GET_ITEM(names_.ptr(), static_cast<Py_ssize_t>(i));
      if (name != known && PyUnicode_Compare(name, known) != 0) return false;
    }
    return true;
  }

  // A comparison of Python's may do anything, such as close an array.
  bool is_like(PyObject* const* given) const {
    for (std::size_t i = 0; i < args_.size(); ++i) {
      const Arg& arg = args_[i];
      const nb::handle object = given[i];
      if (arg.kind == Arg::Kind::array) {
        const Array* const array = as_array(object);
        if (!array || !array->buffer || !layouts_[arg.layout].is_of(object, *array)) return false;
        // The same arrays are the same again, and those that were different are different.
        for (std::size_t distinct = 0; distinct <= arg.distinct; ++distinct) {
          const std::size_t first = firsts_[distinct];
          if (first == i) break;
          const bool is_same =
              begin_alike(*as_array(given[first]), *array) && layouts_[args_[first].layout].is_of(object, *array);
          if (is_same != (distinct == arg.distinct)) return false;
        }
      } else if (arg.kind == Arg::Kind::number) {
        if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != arg.object.ptr()) return false;
        if (arg.guard.is_valid() && !is_equal(object, arg.guard)) return false;
      } else if (!object.is(arg.object)) {
        if (Py_TYPE(object.ptr()) != Py_TYPE(arg.object.ptr()) || !is_equal(object, arg.object)) return false;
      }
    }
    return true;
  }

  bool is_aligned(PyObject* const* given) const {
    const GraphPlan& plan = nb::inst_ptr<driver::GraphObject>(graph_)->graph->plan;
    for (std::size_t i = 0; i < std::min(firsts_.size(), plan.inputs.size()); ++i) {
      const Array& array = *as_array(given[firsts_[i]]);
      if (!array.buffer) return false;  // closed by a comparison
      const Memory& memory = plan.memory[plan.inputs[i].memory];
      if (memory.size_bytes && memory.misalignment(array.buffer->place() + array.offset)) return false;
    }
    return true;
  }

  // The first launch is checked in full. The arrays of later ones are like its, so it is asked only whether they may be
  // used.
  void check(ReplayOp& op) {
    if (!is_checked_) {
      check_replay(op);
      for (std::size_t i = 0; i < bindings_.size(); ++i) {
        bindings_[i].slot = op.bindings[i].slot;
        bindings_[i].is_memory = op.bindings[i].is_memory;
      }
      is_checked_ = true;
      return;
    }
    Replay replay(*op.plan, op);
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      ReplayOp::Binding& binding = op.bindings[i];
      if (!bindings_[i].is_memory) {
        replay.bind(binding, nb::handle(binding.value));
      } else if (binding.is_output) {
        replay.bind(binding, *as_array(binding.value));
      } else {
        binding.take_slot(bindings_[i].slot);
        replay.bind_again(binding, *as_array(binding.value));
      }
    }
  }

  // Memory for an output that nobody holds any more; none: the caller gets new.
  static nb::object next_of(const nb::list& spare) {
    for (nb::handle each : spare) {
      const Array& memory = *as_array(each);
      if (memory.buffer && memory.buffer->holders == 1) return like_part(memory, each);
    }
    return {};
  }

  nb::object result_of(PyObject* const* given, const ReplayOp& op) const {
    auto at = [&](const Leaf& leaf) -> nb::object {
      if (!leaf.has_source) return leaf.part;
      const nb::handle whole =
          leaf.source >= 0 ? nb::handle(given[firsts_[static_cast<std::size_t>(leaf.source)]])
                           : nb::handle(op.bindings[first_output_ + static_cast<std::size_t>(~leaf.source)].value);
      return leaf.is_all ? nb::borrow(whole) : like_part(*as_array(whole), leaf.part);
    };
    if (!is_tuple_) return at(leaves_.front());
    nb::object results = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(leaves_.size())));
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      PyTuple_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), at(leaves_[i]).release().ptr());
    return results;
  }

  nb::object op_class_, graph_;
  std::int32_t device_;
  nb::tuple names_;
  bool is_tuple_;
  std::vector<Arg> args_;
  std::vector<Layout> layouts_;      // of the arrays, in their order
  std::vector<std::size_t> firsts_;  // of the distinct ones, the positions
  std::vector<Bound> bindings_;
  std::size_t first_output_ = 0;  // among them
  bool is_checked_ = false;
  std::vector<nb::list> outputs_;
  std::vector<Leaf> leaves_;
};

int known_call_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<KnownCall>(self)->traverse(visit, arg) : 0;
}

int known_call_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<KnownCall>(self)->clear();
  return 0;
}

PyType_Slot known_call_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(known_call_traverse)},
                                  {Py_tp_clear, reinterpret_cast<void*>(known_call_clear)},
                                  {0, nullptr}};

}  // namespace

nb::object launch_known(nb::handle known, PyObject* const* given, std::size_t count, PyObject* names) {
  return nb::cast<KnownCall&>(known).launch(given, count, names);
}

void bind_known_calls(nb::module_& module) {
  nb::class_<KnownCall>(module, "KnownCall", nb::type_slots(known_call_slots))
      .def(nb::init<nb::object, nb::object, std::int32_t, const nb::tuple&, nb::tuple, const nb::list&, const nb::dict&,
                    const nb::list&, const nb::list&, const nb::tuple&, const nb::list&, const nb::tuple&, bool>(),
           "op_class"_a, "graph"_a, "device"_a, "given"_a, "names"_a, "which"_a, "guards"_a, "arrays"_a, "numbers"_a,
           "targets"_a, "outputs"_a, "leaves"_a, "is_tuple"_a)
      .def_ro("hits", &KnownCall::hits);
}

}  // namespace aiocuda
