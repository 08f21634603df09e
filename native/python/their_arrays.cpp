// What arrays of other libraries say of themselves: see their_arrays.hpp.
#include "their_arrays.hpp"

#include <algorithm>
#include <span>

namespace aiocuda {
namespace nb = nanobind;
namespace {
using dataflow::Array;
using dlpack::ExchangeApi;

constexpr std::uint8_t complex_code = 5;  // DLPack's

// An answer of Python's that was refused counts as true: who is asked in words says why.
bool is_true(PyObject* answer) {
  const nb::object held = nb::steal(answer);
  if (held.is_valid()) return held.ptr() != Py_False;
  PyErr_Clear();
  return true;
}
bool asks(nb::handle x, PyObject* method) {
  PyObject* const self = x.ptr();
  return is_true(PyObject_VectorcallMethod(method, &self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}
PyObject* interned(const char* name) { return PyUnicode_InternFromString(name); }

// Is each step as far as the items behind it reach? Axes of one item have no step.
bool is_dense(std::span<const std::int64_t> shape, const std::int64_t* steps) {
  std::int64_t reach = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 0) return true;
    if (shape[axis] == 1) continue;
    if (steps[axis] != reach) return false;
    reach *= shape[axis];
  }
  return true;
}

}  // namespace

const ExchangeApi* exchange_of(nb::handle type) {
  const nb::object capsule = nb::steal(PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__"));
  if (!capsule.is_valid() || !PyCapsule_IsValid(capsule.ptr(), dlpack::exchange_capsule)) {
    PyErr_Clear();
    return nullptr;
  }
  const auto* table = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::exchange_capsule));
  while (table && table->major > dlpack::major) table = table->previous;
  const bool is_known =
      table && table->major == dlpack::major && table->to_object && table->view_of_object && table->current_work_stream;
  return is_known ? table : nullptr;
}

std::optional<std::uint64_t> read_plain(const ExchangeApi& exchange, nb::handle x, Array& array) {
  static PyObject* const requires_grad = interned("requires_grad");
  static PyObject* const is_neg = interned("is_neg");
  static PyObject* const is_conj = interned("is_conj");
  dlpack::Tensor tensor;
  if (exchange.view_of_object(x.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return {};
  }
  if (tensor.device.kind != dlpack::kinds::cuda || tensor.type.lanes != 1) return {};
  const auto dtype = dataflow::dtypes.find({tensor.type.code, tensor.type.bits});
  if (!dtype) return {};
  if (is_true(PyObject_GetAttr(x.ptr(), requires_grad)) || asks(x, is_neg)) return {};
  if (tensor.type.code == complex_code && asks(x, is_conj)) return {};
  const std::span<const std::int64_t> shape(tensor.shape, static_cast<std::size_t>(tensor.axes));
  array.dtype = *dtype;
  array.device = tensor.device.ordinal;
  array.shape.assign(shape.begin(), shape.end());
  if (tensor.strides && !is_dense(shape, tensor.strides)) {
    const std::int64_t item_bytes = dataflow::dtypes[*dtype].size_bytes;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (tensor.strides[axis] < 0) return {};
      array.strides.push_back(tensor.strides[axis] * item_bytes);
    }
  }
  return reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset;
}

std::optional<std::uintptr_t> work_stream_of(const ExchangeApi& exchange, std::int32_t device) {
  void* stream = nullptr;
  if (exchange.current_work_stream(dlpack::kinds::cuda, device, &stream) == 0)
    return reinterpret_cast<std::uintptr_t>(stream);
  PyErr_Clear();
  return {};
}

}  // namespace aiocuda
