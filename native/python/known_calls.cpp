#include "known_calls.hpp"

#include <algorithm>
#include <vector>

#include "../dataflow/placement.hpp"
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

bool is_same_place(const Array& a, const Array& b) { return a.buffer.get() == b.buffer.get() && a.offset == b.offset; }

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
  // `given`: the arguments of the call that the graph was made for. `which`: of its arrays, which of the distinct ones
  // each is. `guards`: the numbers that the function looked at, by index. `arrays`, `numbers`, `targets`: what a launch
  // replaces, as for a ReplayOp; the outputs come behind. `outputs`: the list of memory that may be used again, for
  // each. `leaves`: what the call yields, each as (array, source, is all of that). A source is the number of a
  // distinct array, or ~(the number of an output). An array that was there before stands alone.
  KnownCall(nb::object op_class, nb::object graph, std::int32_t device, const nb::tuple& given, const nb::list& which,
            const nb::dict& guards, const nb::list& arrays, const nb::list& numbers, nb::tuple targets,
            const nb::list& outputs, const nb::tuple& leaves, bool is_tuple)
      : op_class_(std::move(op_class)),
        graph_(std::move(graph)),
        device_(device),
        targets_(std::move(targets)),
        is_tuple_(is_tuple) {
    std::size_t number_count = 0;
    for (nb::handle each : given) {
      if (as_array(each)) {
        const auto index = nb::cast<std::size_t>(which[layouts_.size()]);
        if (index == firsts_.size()) firsts_.push_back(layouts_.size());
        args_.push_back({Arg::Kind::array, index, nb::borrow(nb::handle(Py_TYPE(each.ptr())))});
        layouts_.emplace_back(each);
      } else if (PyLong_CheckExact(each.ptr()) || PyFloat_CheckExact(each.ptr())) {
        nb::object guard;
        if (const nb::int_ key(number_count); guards.contains(key)) guard = guards[key];
        args_.push_back({Arg::Kind::number, number_count++, nb::borrow(nb::handle(Py_TYPE(each.ptr()))), guard});
      } else {
        args_.push_back({Arg::Kind::other, 0, nb::borrow(each)});
      }
    }
    for (nb::handle each : arrays) arrays_.push_back(nb::cast<std::size_t>(each));
    for (nb::handle each : numbers) numbers_.push_back(nb::cast<std::size_t>(each));
    for (nb::handle each : outputs) outputs_.push_back(nb::borrow<nb::list>(each));
    for (nb::handle each : leaves) {
      if (as_array(each))
        leaves_.push_back({nb::borrow(each)});
      else
        leaves_.push_back({nb::borrow(each[0]), true, nb::cast<std::int64_t>(each[1]), nb::cast<bool>(each[2])});
    }
  }

  // The operation for another call; none where it is for the caller.
  nb::object launch(const nb::tuple& given) {
    if (!graph_.is_valid() || Enclosure::recording() || given.size() != args_.size()) return nb::none();
    const nb::object placement = placement_in_force();
    const auto& in_force = *nb::inst_ptr<Placement>(placement);
    if (!in_force.recording_at.empty() || in_force.device_or_default() != device_) return nb::none();
    std::vector<nb::handle> distinct, numbers;
    if (!is_like(given, distinct, numbers) || !is_aligned(distinct)) return nb::none();

    nb::list values;
    for (const std::size_t index : arrays_) values.append(distinct[index]);
    for (const std::size_t index : numbers_) values.append(numbers[index]);
    std::vector<nb::object> outputs;
    for (const nb::list& spare : outputs_) {
      outputs.push_back(next_of(spare));
      if (!outputs.back().is_valid()) return nb::none();
    }
    nb::object result = result_of(distinct, outputs);
    for (const nb::object& output : outputs) values.append(output);

    nb::object object = nb::inst_alloc(op_class_);
    auto& op = *new (nb::inst_ptr<ReplayOp>(object)) ReplayOp();
    nb::inst_mark_ready(object);
    op.is_asked = true;  // if it comes to nothing, nobody is told that it was never executed
    op.origin.capture();
    make_replay(op, graph_, targets_, values, std::move(result));
    op.is_asked = false;
    ++hits;
    return object;
  }

  std::uint64_t hits = 0;

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(op_class_.ptr());
    Py_VISIT(graph_.ptr());
    Py_VISIT(targets_.ptr());
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
    Kind kind;
    std::size_t index;   // of an array: which of the distinct ones; of a number: which
    nb::object object;   // an array's or a number's type, or what must be equal
    nb::object guard{};  // of a number that the function looked at: what that was
  };
  struct Leaf {
    nb::object part;
    bool has_source = false;
    std::int64_t source = 0;
    bool is_all = false;
  };

  bool is_like(const nb::tuple& given, std::vector<nb::handle>& distinct, std::vector<nb::handle>& numbers) const {
    std::size_t array_count = 0;
    for (std::size_t i = 0; i < args_.size(); ++i) {
      const Arg& arg = args_[i];
      const nb::handle object = given[i];
      if (arg.kind == Arg::Kind::array) {
        const Array* const array = as_array(object);
        if (!array || !array->buffer || !layouts_[array_count++].is_of(object, *array)) return false;
        // The same arrays are the same again, and those that were different are different.
        std::size_t same = 0;
        while (same < distinct.size() &&
               !(is_same_place(*as_array(distinct[same]), *array) && layouts_[firsts_[same]].is_of(object, *array)))
          ++same;
        if (arg.index != same) return false;
        if (same == distinct.size()) distinct.push_back(object);
      } else if (arg.kind == Arg::Kind::number) {
        if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != arg.object.ptr()) return false;
        if (arg.guard.is_valid() && !is_equal(object, arg.guard)) return false;
        numbers.push_back(object);
      } else {
        if (object.is(arg.object)) continue;
        if (Py_TYPE(object.ptr()) != Py_TYPE(arg.object.ptr()) || !is_equal(object, arg.object)) return false;
      }
    }
    return true;
  }

  bool is_aligned(const std::vector<nb::handle>& distinct) const {
    const GraphPlan& plan = nb::inst_ptr<driver::GraphObject>(graph_)->graph->plan;
    for (std::size_t i = 0; i < std::min(distinct.size(), plan.inputs.size()); ++i) {
      const Array& array = *as_array(distinct[i]);
      const Memory& memory = plan.memory[plan.inputs[i].memory];
      if (memory.size_bytes && memory.misalignment(array.buffer->place() + array.offset)) return false;
    }
    return true;
  }

  // Memory for an output that nobody holds any more; none: the caller gets new.
  static nb::object next_of(const nb::list& spare) {
    for (nb::handle each : spare) {
      const Array& memory = *as_array(each);
      if (memory.buffer && memory.buffer->holders == 1) return like_part(memory, each);
    }
    return {};
  }

  nb::object result_of(const std::vector<nb::handle>& distinct, const std::vector<nb::object>& outputs) const {
    auto at = [&](const Leaf& leaf) -> nb::object {
      if (!leaf.has_source) return leaf.part;
      const nb::handle whole = leaf.source >= 0 ? distinct[static_cast<std::size_t>(leaf.source)]
                                                : nb::handle(outputs[static_cast<std::size_t>(~leaf.source)]);
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
  nb::tuple targets_;
  bool is_tuple_;
  std::vector<Arg> args_;
  std::vector<Layout> layouts_;      // of the arrays, in their order
  std::vector<std::size_t> firsts_;  // of the distinct ones, which of these it is
  std::vector<std::size_t> arrays_, numbers_;
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

void bind_known_calls(nb::module_& module) {
  nb::class_<KnownCall>(module, "KnownCall", nb::type_slots(known_call_slots))
      .def(nb::init<nb::object, nb::object, std::int32_t, const nb::tuple&, const nb::list&, const nb::dict&,
                    const nb::list&, const nb::list&, nb::tuple, const nb::list&, const nb::tuple&, bool>(),
           "op_class"_a, "graph"_a, "device"_a, "given"_a, "which"_a, "guards"_a, "arrays"_a, "numbers"_a, "targets"_a,
           "outputs"_a, "leaves"_a, "is_tuple"_a)
      .def("launch", &KnownCall::launch, "given"_a)
      .def_ro("hits", &KnownCall::hits);
}

}  // namespace aiocuda
