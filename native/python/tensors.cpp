// Arrays of other libraries, given as they are: see tensors.hpp.
//
// Always true: what is kept of a class stays true of it. An array's address, shape and stream may change, and are read
// each time.
#include "tensors.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>

#include "../dataflow/operation.hpp"
#include "../driver/refused.hpp"
#include "ownership.hpp"
#include "process.hpp"
#include "their_arrays.hpp"

namespace aiocuda {
namespace {
namespace nb = nanobind;
using namespace nb::literals;
using dataflow::Array;
using dataflow::Lender;

// How the arrays of one class are read.
struct TensorKind {
  nb::object take{};            // (array) -> DeviceArray, of a library that has no current stream; else none
  nb::object read{};            // (array) -> (address, shape, strides in bytes or None, dtype's code, device, stream or
                                // None); or, in words, why it cannot be used
  nb::object current_stream{};  // (ordinal) -> handle, where `read` gives none
  nb::object note_writes{};     // as of a Lender
  const dlpack::ExchangeApi* exchange = nullptr;  // asked before `read`; null: there is none

  Lender& lender(std::int32_t device, nb::handle stream) {
    for (Lender& each : lenders)
      if (each.device == device &&
          (stream.is_none() ? each.current_stream.is(current_stream) : each.current_stream.equal(stream)))
        return each;
    return lenders.emplace_back(Lender{device, stream.is_none() ? current_stream : nb::borrow(stream), note_writes,
                                       exchange && stream.is_none() ? exchange->current_work_stream : nullptr});
  }
  std::deque<Lender> lenders{};
};

struct Known {
  nb::object kind_of;                                   // (class) -> TensorKind, or None
  std::unordered_map<PyTypeObject*, nb::object> kinds;  // None: it has none
};
constexpr std::size_t most_without = 256;  // more than that are asked about each time
Known& known() {
  static auto* made = new Known;
  return *made;
}

// Of a class that has one. The class is kept, so that no other one comes to its address.
TensorKind* kind_of(PyTypeObject* type) {
  auto kind_in = [](const nb::object& found) { return found.is_none() ? nullptr : nb::inst_ptr<TensorKind>(found); };
  if (const auto at = known().kinds.find(type); at != known().kinds.end()) return kind_in(at->second);
  if (!known().kind_of.is_valid()) return nullptr;
  const nb::object found = known().kind_of(nb::handle(reinterpret_cast<PyObject*>(type)));
  if (found.is_none() && known().kinds.size() >= most_without) return nullptr;
  dataflow::Loan::is_any_tensor() = dataflow::Loan::is_any_tensor() || !found.is_none();
  if (known().kinds.emplace(type, found).second) Py_INCREF(type);
  return kind_in(found);
}

void read_extents(nb::handle tuple, std::vector<std::int64_t>& into) {
  const nb::object items = nb::steal(PySequence_Fast(tuple.ptr(), "an array's shape is a sequence"));
  if (!items.is_valid()) throw nb::python_error();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  into.resize(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    into[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items.ptr(), i));
    if (PyErr_Occurred()) throw nb::python_error();
  }
}

// What the reader finds; what it raises is why the array cannot be used.
nb::object read(const TensorKind& kind, nb::handle x) {
  nb::object found = nb::steal(PyObject_CallOneArg(kind.read.ptr(), x.ptr()));
  if (found.is_valid()) return found;
  nb::python_error error;
  if (dataflow::is_interruption(error.value())) throw nb::python_error(error);
  return nb::str("a %s: %s")
      .attr("__mod__")(nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr()))).attr("__name__"),
                                      nb::str(error.value())));
}

std::int32_t device_at(std::uint64_t address) {
  driver::Engine& engine = process_engine();
  int ordinal = 0;
  driver::doing(engine, std::string("looking for the device of an array of another library"), 0, [&] {
    const driver::ContextScope scope(engine);
    driver::check(engine.table.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
                  "cuPointerGetAttribute");
  });
  return ordinal;
}

// Why an array is not taken.
struct Problem {
  bool is_on_host = false;
  std::string words{};

  bool is_none() const { return !is_on_host && words.empty(); }
};

// What Python's reader says. An array, where the library has no current stream; or the problem.
nb::object read_by_python(const TensorKind& kind, nb::handle x, Array& array, std::uint64_t& address,
                          nb::object& stream, Problem& problem) {
  if (kind.take.is_valid())
    if (nb::object taken = kind.take(x); !taken.is_none()) return taken;
  const nb::object found = kind.take.is_valid() ? nb::none() : read(kind, x);
  problem.is_on_host = found.is_none();
  if (PyUnicode_Check(found.ptr())) problem.words = nb::cast<std::string>(found);
  if (!problem.is_none()) return {};
  auto item = [&](Py_ssize_t i) { return nb::handle(PyTuple_GET_ITEM(found.ptr(), i)); };
  address = nb::cast<std::uint64_t>(item(0));
  array.dtype = nb::cast<dataflow::DType>(item(3));
  array.device = item(4).is_none() ? device_at(address) : nb::cast<std::int32_t>(item(4));
  array.shape.clear();
  array.strides.clear();
  read_extents(item(1), array.shape);
  if (!item(2).is_none()) read_extents(item(2), array.strides);
  stream = nb::borrow(item(5));
  return {};
}

// None where there is a problem, or it is no array of another library's.
nb::object take(nb::handle x, Problem& problem) {
  TensorKind* const kind = kind_of(Py_TYPE(x.ptr()));
  if (!kind) return {};
  Array array;
  nb::object stream = nb::none();
  std::uint64_t address = 0;
  if (const auto found = kind->exchange ? read_plain(*kind->exchange, x, array) : std::nullopt) {
    address = *found;
  } else {
    nb::object taken = read_by_python(*kind, x, array, address, stream, problem);
    if (taken.is_valid() || !problem.is_none()) return taken;
  }
  driver::Engine& engine = process_engine();
  const std::uint64_t reach_bytes = array.span().end;
  const auto words = [&] { return "looking for the memory of " + describe(array); };
  const driver::Memory::Borrowed memory = driver::doing(
      engine, words, array.device, [&] { return engine.memory.borrow_again(address, reach_bytes, array.device); });
  if (memory.allocated_bytes < reach_bytes) {
    problem.words =
        describe(array) + " reaches beyond the " + std::to_string(memory.allocated_bytes) + " bytes of its allocation";
    return {};
  }
  array.buffer = memory.buffer;
  array.offset = memory.offset;
  lend(array, nb::borrow(x), &kind->lender(array.device, stream));
  return dataflow::make_array(engine.hooks.device_array, std::move(array));
}

}  // namespace

void bind_tensors(nb::module_& module) {
  dataflow::take_tensor = [](nb::handle x, std::string& words) {
    Problem problem;
    nb::object taken = take(x, problem);
    if (problem.is_on_host)
      words = std::string("this ") + Py_TYPE(x.ptr())->tp_name + " is in host memory; to_device() brings it over";
    else
      words = std::move(problem.words);
    return taken;
  };
  auto given = [](nb::object function) { return function.is_none() ? nb::object() : std::move(function); };
  nb::class_<TensorKind>(module, "TensorKind")
      .def(
          "__init__",
          [given](TensorKind* self, nb::object take, nb::object read, nb::object current_stream, nb::object note_writes,
                  nb::object exchange_of_class) {
            new (self) TensorKind{given(std::move(take)), given(std::move(read)), given(std::move(current_stream)),
                                  given(std::move(note_writes)),
                                  exchange_of_class.is_none() ? nullptr : exchange_of(exchange_of_class)};
          },
          nb::kw_only(), "take"_a.none() = nb::none(), "read"_a.none() = nb::none(),
          "current_stream"_a.none() = nb::none(), "note_writes"_a.none() = nb::none(),
          "exchange_of"_a.none() = nb::none());
  module.def("set_tensor_kinds", [](nb::object function) { known().kind_of = std::move(function); });
  // An array of another library's as a `DeviceArray`; None if it is no such thing, or in host memory.
  module.def(
      "take_tensor",
      [](nb::handle x, const std::string& where) -> nb::object {
        Problem problem;
        nb::object taken = take(x, problem);
        if (!problem.words.empty()) dataflow::raise(dataflow::error_types.argument_type, where + ": " + problem.words);
        return taken.is_valid() ? taken : nb::none();
      },
      "x"_a.none(), "where"_a);
}

}  // namespace aiocuda
