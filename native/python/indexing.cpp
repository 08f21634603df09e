// An index is read axis by axis; what it says of each becomes an extent, a stride and an offset.
//
// Always true: a view lies within its array, and may be used when it is made. Reading an index may run any Python code,
// so the array is looked at again afterwards.
#include "indexing.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../dataflow/access.hpp"
#include "../driver/refused.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;

std::string repr_of(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

// In the place of a TypeError; another exception is whoever's code raised it.
template <class Message>
[[noreturn, gnu::cold]] void raise_type(Message&& message) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();
  raise(error_types.argument_type, message());
}

// The items of one axis that an index picks: every `step`-th of `length` items.
struct Picked {
  std::int64_t start, length, step;
};

Picked read_slice(std::int64_t extent, PyObject* key) {
  auto message = [&] { return "a slice has integers; " + repr_of(key) + " was given"; };
  PyObject* asked_step = reinterpret_cast<PySliceObject*>(key)->step;
  if (asked_step != Py_None) {  // by itself, and first: of a slice that goes backwards nothing else matters
    const nb::object step = nb::steal(PyNumber_Index(asked_step));
    if (!step.is_valid()) raise_type(message);
    int overflow = 0;
    if (PyLong_AsLongLongAndOverflow(step.ptr(), &overflow) < 1 && overflow <= 0)
      raise(error_types.argument_value,
            "a slice of step " + nb::cast<std::string>(nb::str(nb::handle(asked_step))) +
                " was given; views go forward, in steps of 1 or more: reverse the items in a kernel, or on the host");
  }
  Py_ssize_t start = 0, stop = 0, step = 1;
  if (PySlice_Unpack(key, &start, &stop, &step)) raise_type(message);
  const Py_ssize_t length = PySlice_AdjustIndices(extent, &start, &stop, step);
  return {start, length, step};
}

std::int64_t read_index(std::int64_t extent, nb::handle key, std::size_t axis) {
  auto message = [&] { return "an array is indexed by integers, slices and '...'; " + repr_of(key) + " was given"; };
  if (PyBool_Check(key.ptr())) raise(error_types.argument_type, message());
  const nb::object integer = nb::steal(PyNumber_Index(key.ptr()));
  if (!integer.is_valid()) raise_type(message);
  int overflow = 0;
  const std::int64_t index = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow || index < -extent || index >= extent)
    raise(error_types.argument_index, "index " + nb::cast<std::string>(nb::str(integer)) +
                                          " is out of range for axis " + std::to_string(axis) + ", which has " +
                                          std::to_string(extent) + " items");
  return index < 0 ? index + extent : index;
}

// The indices of an array's axes, one for each.
class Keys {
 public:
  Keys(nb::handle key, std::size_t axes) : one_(key.ptr()), is_tuple_(PyTuple_Check(key.ptr())) {
    given_ = is_tuple_ ? static_cast<std::size_t>(PyTuple_GET_SIZE(one_)) : 1;
    for (std::size_t i = 0; i < given_; ++i) {
      if (at(i) == Py_None) raise(error_types.argument_type, "an index adds no axes: None was given; reshape() does");
      if (at(i) != Py_Ellipsis) continue;
      if (ellipsis_) raise(error_types.argument_index, "an index has at most one ellipsis");
      ellipsis_ = i;
    }
    const std::size_t indices = given_ - ellipsis_.has_value();
    if (indices > axes)
      raise(error_types.argument_index, std::to_string(indices) + (indices == 1 ? " index was" : " indices were") +
                                            " given for an array of " + std::to_string(axes) +
                                            (axes == 1 ? " axis" : " axes"));
    before_ = ellipsis_.value_or(given_);
    behind_ = axes - (indices - before_);
  }

  // Null: the whole axis, for which an ellipsis stands, or the end.
  PyObject* of(std::size_t axis) const {
    if (axis < before_) return at(axis);
    return axis < behind_ ? nullptr : at(before_ + 1 + axis - behind_);
  }

 private:
  PyObject* at(std::size_t i) const { return is_tuple_ ? PyTuple_GET_ITEM(one_, static_cast<Py_ssize_t>(i)) : one_; }

  PyObject* one_;
  bool is_tuple_;
  std::size_t given_ = 0, before_ = 0, behind_ = 0;  // axes before, and from where on those behind, the ellipsis
  std::optional<std::size_t> ellipsis_;
};

// Some items of an array; strides and offset in bytes.
struct Part {
  std::vector<std::int64_t> shape, strides;
  std::uint64_t offset_bytes = 0;

  explicit Part(std::size_t axes) {
    shape.reserve(axes);
    strides.reserve(axes);
  }
  void skip(std::int64_t items, std::int64_t stride) {
    offset_bytes += static_cast<std::uint64_t>(items) * static_cast<std::uint64_t>(stride);
  }
  void add(Picked picked, std::int64_t stride) {
    skip(picked.start, stride);
    shape.push_back(picked.length);
    strides.push_back(picked.length > 1 ? stride * picked.step : stride);
  }
  bool has_items() const { return std::find(shape.begin(), shape.end(), 0) == shape.end(); }
  // In one piece, the last axis fastest.
  bool is_contiguous(std::uint32_t item_bytes) const {
    std::int64_t step = item_bytes;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (shape[axis] == 1) continue;
      if (strides[axis] != step) return false;
      step *= shape[axis];
    }
    return true;
  }
};

nb::object make_view(nb::handle_t<Array> array, Part&& part, const char* where) {
  const Array& whole = *nb::inst_ptr<Array>(array);
  if (!whole.buffer) raise_ended(whole, where);
  const bool has_items = part.has_items(),
             is_contiguous = !has_items || part.is_contiguous(dtypes[whole.dtype].size_bytes);
  Array view{whole.buffer, whole.offset + (has_items ? part.offset_bytes : 0), whole.device, whole.dtype,
             std::move(part.shape)};
  if (!is_contiguous) view.strides = std::move(part.strides);
  view.group = whole.group;
  view.loan = whole.loan;
  check_usable(view, false,
               [where] { return std::string(where); });  // it, and not the whole: a part of that may be moved
  return dataflow::make_array(array.type(), std::move(view));
}

}  // namespace

nb::object select(nb::handle_t<Array> array, nb::handle key) {
  static constexpr const char* where = "indexing";
  const Array& whole = *nb::inst_ptr<Array>(array);
  if (!whole.buffer) raise_ended(whole, where);
  const std::size_t axes = whole.shape.size();
  const Keys keys(key, axes);
  Part part(axes);
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::int64_t extent = whole.shape[axis], stride = whole.stride(axis);
    PyObject* each = keys.of(axis);
    if (!each)
      part.add({0, extent, 1}, stride);
    else if (PySlice_Check(each))
      part.add(read_slice(extent, each), stride);
    else
      part.skip(read_index(extent, each, axis), stride);
  }
  return make_view(array, std::move(part), where);
}

nb::object split(nb::handle_t<Array> array, nb::handle index) {
  static constexpr const char* where = "split_at";
  const Array& whole = *nb::inst_ptr<Array>(array);
  if (!whole.buffer) raise_ended(whole, where);
  if (whole.shape.empty()) raise(error_types.argument_index, "an array without axes cannot be split");
  const nb::object integer = nb::steal(PyNumber_Index(index.ptr()));
  if (!integer.is_valid())
    raise_type([&] { return "an array is split at an integer; " + repr_of(index) + " was given"; });
  const std::int64_t length = whole.shape.front();
  int overflow = 0;
  const std::int64_t at = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow || at < 0 || at > length)
    raise(error_types.argument_index, "an array of length " + std::to_string(length) + " cannot be split at " +
                                          nb::cast<std::string>(nb::str(integer)));
  auto half = [&](std::int64_t start, std::int64_t items) {
    Part part(whole.shape.size());
    part.add({start, items, 1}, whole.stride(0));
    for (std::size_t axis = 1; axis < whole.shape.size(); ++axis)
      part.add({0, whole.shape[axis], 1}, whole.stride(axis));
    return make_view(array, std::move(part), where);
  };
  return nb::make_tuple(half(0, at), half(at, length - at));
}

}  // namespace aiocuda
