// DLPack's exchange in C: see exchange_api.hpp.
#include "exchange_api.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "../dataflow/access.hpp"
#include "../dataflow/operation.hpp"
#include "../driver/refused.hpp"
#include "dlpack.hpp"
#include "process.hpp"

namespace aiocuda {
namespace nb = nanobind;
namespace {
using namespace nb::literals;
using dataflow::Array;
using dlpack::ExchangeApi;
using dlpack::ManagedVersioned;
using driver::Engine;
using driver::InCall;

// The calls of Python's, where an array is made: (shape, (code, bits), lanes, device or None) -> array, of new memory;
// (address, shape, strides in items or None, (code, bits), lanes, place, is_read_only, owner, stream or None) -> array.
struct Makers {
  nb::object make, take;
};
Makers& makers() {
  static auto* made = new Makers;
  return *made;
}

// No exception of C++'s leaves one of the functions: Python's error is set instead.
template <class F>
int guarded(F&& f) noexcept {
  try {
    f();
    return 0;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return -1;
}

// The function of `call` that runs on this thread, if it works on that device; else null.
const InCall* call_on(std::int32_t device) {
  const InCall* const call = InCall::current();
  return call && call->device == device ? call : nullptr;
}

CUstream work_stream(std::int32_t device) {
  const InCall* const call = call_on(device);
  if (!call) return CU_STREAM_LEGACY;
  Engine& engine = process_engine();
  auto words = [] { return std::string("giving an operation's stream to another library"); };
  return driver::doing(engine, words, device, [&] { return engine.streams.lend(call->stream); });
}

// The table knows no place that the borrower asks for. Memory that devices reach is lent as a device's, since a stream
// orders what is done there; page-locked memory as the host's, which reads it at once.
ManagedVersioned& lend_object(nb::handle object) {
  const driver::Hooks& hooks = process_engine().hooks;
  auto is_a = [&](nb::handle type) {
    return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr()));
  };
  Array* const array = dataflow::as_array(object);
  if (!array || !(is_a(hooks.device_array) || is_a(hooks.host_array)))
    dataflow::raise(dataflow::error_types.argument_type,
                    std::string("__dlpack_c_exchange_api__ lends DeviceArray and HostArray, and no ") +
                        (object.ptr() ? Py_TYPE(object.ptr())->tp_name : "null pointer"));
  dataflow::check_usable(*array, false, [] { return std::string("__dlpack_c_exchange_api__"); });
  const bool is_read_only = is_for_reading(*array);
  if (array->is_host()) {
    require_at_rest(*array);
    const std::int32_t any = process_engine().stream(0).device;  // nothing is done there
    return lend(*array, {{dlpack::kinds::cpu, 0}, any, nullptr, is_read_only});
  }
  // In a capture, all is ordered by the graph.
  const InCall* const call = call_on(array->device);
  const CUstream theirs = call && call->is_captured ? nullptr : work_stream(array->device);
  return lend(*array, {{dlpack::kinds::cuda, array->device}, array->device, theirs, is_read_only});
}

// A tensor that was given to us. It goes back when the last array over it has gone.
struct TensorEnd {
  void operator()(ManagedVersioned* tensor) const {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};
struct Given {
  std::unique_ptr<ManagedVersioned, TensorEnd> tensor;
};

nb::object extents_of(const std::int64_t* extents, std::int32_t axes) {
  nb::list items;
  for (std::int32_t axis = 0; axis < axes; ++axis) items.append(extents[axis]);
  return nb::tuple(items);
}

nb::object take_tensor(ManagedVersioned* tensor) {
  if (tensor->major != dlpack::major)
    dataflow::raise(dataflow::error_types.exchange, "a tensor of DLPack " + std::to_string(tensor->major) + "." +
                                                        std::to_string(tensor->minor) +
                                                        " was given; 1.x is known here");
  const dlpack::Tensor& t = tensor->tensor;
  const bool is_there = t.device.kind == dlpack::kinds::cuda || t.device.kind == dlpack::kinds::cuda_managed;
  nb::object theirs = nb::none();  // of a function of `call`: the operation itself orders it
  if (is_there && !call_on(t.device.ordinal))
    theirs = nb::int_(reinterpret_cast<std::uintptr_t>(work_stream(t.device.ordinal)));
  nb::object owner = nb::cast(Given{});
  nb::object array = makers().take(
      reinterpret_cast<std::uintptr_t>(t.data) + t.byte_offset, extents_of(t.shape, t.axes),
      t.strides || !t.axes ? extents_of(t.strides, t.axes) : nb::none(), nb::make_tuple(t.type.code, t.type.bits),
      t.type.lanes, nb::make_tuple(t.device.kind, t.device.ordinal), (tensor->flags & dlpack::read_only_flag) != 0,
      owner, theirs);
  // Ours from here on: where this fails, who has called ends the tensor himself.
  nb::inst_ptr<Given>(owner)->tensor.reset(tensor);
  return array;
}

// --- the functions

int from_object(void* object, ManagedVersioned** out) noexcept {
  return guarded([&] { *out = &lend_object(static_cast<PyObject*>(object)); });
}

int to_object(ManagedVersioned* tensor, void** out) noexcept {
  return guarded([&] { *out = take_tensor(tensor).release().ptr(); });
}

int current_work_stream(std::int32_t kind, std::int32_t ordinal, void** out) noexcept {
  return guarded([&] {
    switch (kind) {
      case dlpack::kinds::cpu:
      case dlpack::kinds::cuda_host:
        *out = nullptr;
        return;
      case dlpack::kinds::cuda:
      case dlpack::kinds::cuda_managed:
        *out = work_stream(ordinal);
        return;
      default:
        dataflow::raise(dataflow::error_types.exchange,
                        "aiocuda has no streams of devices of DLPack's kind " + std::to_string(kind));
    }
  });
}

// Who calls may not have the GIL: functions of other languages ask for memory while they run.
int allocate(dlpack::Tensor* like, ManagedVersioned** out, void* context,
             void (*set_error)(void* context, const char* kind, const char* message)) noexcept {
  const nb::gil_scoped_acquire held;
  const int result = guarded([&] {
    const dlpack::Device place = like->device;
    if (place.kind != dlpack::kinds::cpu && place.kind != dlpack::kinds::cuda)
      dataflow::raise(dataflow::error_types.exchange,
                      "memory of a device of DLPack's kind " + std::to_string(place.kind) +
                          " was asked of aiocuda, which has that of CUDA devices, and the host's");
    const nb::object device = place.kind == dlpack::kinds::cpu ? nb::none() : nb::object(nb::int_(place.ordinal));
    const nb::object array = makers().make(extents_of(like->shape, like->axes),
                                           nb::make_tuple(like->type.code, like->type.bits), like->type.lanes, device);
    *out = &lend_object(array);
  });
  if (result != 0) {
    const nb::python_error error;  // takes what is set
    const nb::object said = nb::steal(PyObject_Str(error.value().ptr()));
    const char* const message = said.is_valid() ? PyUnicode_AsUTF8(said.ptr()) : nullptr;
    PyErr_Clear();  // of an error that has no words
    set_error(context, reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name, message ? message : "");
  }
  return result;
}

// No view: it would end when its function returns, so nobody could order later work here after what was done with it
// outside of a function of `call`; it cannot say that it is for reading; and strides in items would need memory.
constexpr ExchangeApi table{dlpack::major, dlpack::minor, nullptr, allocate,
                            from_object,   to_object,     nullptr, current_work_stream};

}  // namespace

void bind_exchange_api(nb::module_& module) {
  nb::class_<Given>(module, "GivenTensor");
  module.def(
      "set_exchange", [](nb::object make, nb::object take) { makers() = {std::move(make), std::move(take)}; }, "make"_a,
      "take"_a);
  // What classes of arrays have as `__dlpack_c_exchange_api__`.
  module.def("exchange_api", [] {
    // Capsules of Python's point to what may be written; nobody writes the table.
    PyObject* const capsule = PyCapsule_New(const_cast<ExchangeApi*>(&table), dlpack::exchange_capsule, nullptr);
    if (!capsule) throw nb::python_error();
    return nb::steal(capsule);
  });
}

}  // namespace aiocuda
