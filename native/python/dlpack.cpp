// DLPack: see dlpack.hpp.
#include "dlpack.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../dataflow/doubt.hpp"
#include "../driver/refused.hpp"
#include "arrays.hpp"
#include "places.hpp"
#include "process.hpp"

namespace aiocuda {
namespace nb = nanobind;
namespace {
using namespace nb::literals;
using dataflow::Array;
using dataflow::LentType;
using dataflow::Span;
using driver::Borrow;
using driver::Engine;

using dlpack::Managed;
using dlpack::ManagedVersioned;

// All that a borrower points to.
struct LentByDlpack {
  LentByDlpack(const Array& lent, nb::object keeps_stream)
      : array(lent), keeper(std::move(keeps_stream)), shape(lent.shape), strides(lent.shape.size()) {}
  const Array array;
  const nb::object keeper;
  std::vector<std::int64_t> shape, strides;  // strides in items
  Managed managed{};
  ManagedVersioned versioned{};
  Borrow* borrow = nullptr;
};

template <class Capsule>
void end(Capsule* managed) {
  process_engine().lending.give_back(static_cast<LentByDlpack*>(managed->context)->borrow);
}

template <class Capsule>
constexpr const char* name_of = "dltensor";
template <>
constexpr const char* name_of<ManagedVersioned> = "dltensor_versioned";

// A consumed capsule has another name, and the borrow is its consumer's.
template <class Capsule>
void drop(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, name_of<Capsule>)) return;
  auto* managed = static_cast<Capsule*>(PyCapsule_GetPointer(capsule, name_of<Capsule>));
  managed->deleter(managed);
}
template <class Capsule>
PyObject* capsule_of(Capsule& managed) {
  return PyCapsule_New(&managed, name_of<Capsule>, drop<Capsule>);
}

Borrow::Bytes bytes_of(const Array& array, std::int32_t device, bool writes) {
  Borrow::Bytes bytes{array.buffer, array.span(), {}, device, writes};
  array.each_piece([&](Span piece) { bytes.pieces.push_back(piece); });
  return bytes;
}

LentType type_of(const Array& array) {
  const dataflow::DTypeInfo& dtype = dataflow::dtypes[array.dtype];
  if (!dtype.lent_as)
    dataflow::raise(dataflow::error_types.exchange,
                    "__dlpack__: DLPack has no dtype " + dtype.name + "; lend a view of it, such as x.view('uint8')");
  const std::int64_t item_bytes = dtype.lent_as->second / 8;
  if (std::ranges::any_of(array.strides, [&](std::int64_t step) { return step % item_bytes; }))
    dataflow::raise(dataflow::error_types.exchange, "__dlpack__: DLPack counts strides in items, and " +
                                                        dataflow::describe_shape(array.strides) +
                                                        " bytes are no multiples of " + std::to_string(item_bytes) +
                                                        "; lend what aiocuda.dup(x) yields");
  return *dtype.lent_as;
}

}  // namespace

ManagedVersioned& lend(const Array& array, Terms terms) {
  require_well(array);
  Engine& engine = process_engine();
  const LentType type = terms.item_type ? *terms.item_type : type_of(array);
  const bool lasts = terms.keeper.is_valid();
  auto lent = std::make_shared<LentByDlpack>(array, std::move(terms.keeper));
  const auto item_bytes = static_cast<std::int64_t>(dataflow::dtypes[array.dtype].size_bytes);
  for (std::size_t axis = 0; axis < lent->strides.size(); ++axis) lent->strides[axis] = array.stride(axis) / item_bytes;
  const bool has_axes = !lent->shape.empty();
  const dlpack::Tensor tensor{array.size() ? reinterpret_cast<void*>(array.address()) : nullptr,
                              terms.place,
                              static_cast<std::int32_t>(lent->shape.size()),
                              {type.first, type.second, 1},
                              has_axes ? lent->shape.data() : nullptr,
                              has_axes ? lent->strides.data() : nullptr,
                              0};
  lent->managed = {tensor, lent.get(), end<Managed>};
  lent->versioned = {
      dlpack::major, terms.minor, lent.get(), end<ManagedVersioned>, terms.is_read_only ? dlpack::read_only_flag : 0,
      tensor};
  ManagedVersioned& versioned = lent->versioned;
  const Engine::Submission submission(engine);
  // Who else holds the array may have closed it, while this thread waited.
  auto words = [&] { return "lending " + describe(lent->array) + " to another library"; };
  lent->borrow = driver::doing(engine, words, terms.device, [&] {
    return engine.lending.lend(bytes_of(lent->array, terms.device, !terms.is_read_only), terms.theirs, lent, lasts);
  });
  return versioned;
}

bool is_for_reading(const Array& array) {
  return array.buffer && array.buffer->claims &&
         array.buffer->claims->against_access(array.region(), true, array.group.get()) != nullptr;
}

void require_well(const Array& array) {
  if (!array.buffer->is_in_doubt) return;
  if (const dataflow::Doubt* const failed = array.buffer->doubts->find_failed(array.span())) failed->raise();
}

void require_at_rest(const Array& array) {
  const auto [written, read] = in_use(array);
  if (written || read)
    dataflow::raise(
        dataflow::error_types.exchange,
        "__dlpack__: the host may read the memory at once, and an operation, or another library, still works on it; "
        "await that first, or aiocuda.done(x)");
}

void bind_dlpack(nb::module_& module) {
  // A capsule that lends an array whose use was checked. `type`: DLPack's (code, bits); None: those of the dtype.
  // `place`: its (kind, ordinal) of the device. `theirs`: the borrower's stream, of `device`, which is ordered here; or
  // none is. `keeper`: an object that keeps it from being destroyed, or None.
  module.def(
      "lend_array",
      [](const Array& array, std::optional<LentType> type, std::pair<int, int> place, std::int32_t device,
         std::optional<std::uintptr_t> theirs, nb::object keeper, bool is_versioned, std::uint32_t minor,
         bool is_read_only) {
        ManagedVersioned& versioned = lend(array, {{place.first, place.second},
                                                   device,
                                                   reinterpret_cast<CUstream>(theirs.value_or(0)),
                                                   is_read_only,
                                                   keeper.is_none() ? nb::object() : std::move(keeper),
                                                   minor,
                                                   type});
        PyObject* const capsule =
            is_versioned ? capsule_of(versioned) : capsule_of(static_cast<LentByDlpack*>(versioned.context)->managed);
        if (!capsule) {
          versioned.deleter(&versioned);
          throw nb::python_error();
        }
        return nb::steal(capsule);
      },
      "array"_a, "type"_a.none(), "place"_a, "device"_a, "theirs"_a.none(), "keeper"_a.none(), "is_versioned"_a,
      "minor"_a, "is_read_only"_a);
  // The handle of a stream that is behind all work on an array, whose use was checked; none if there is no such work.
  module.def("stream_behind", [](const Array& array, bool writes) -> std::optional<std::uintptr_t> {
    Engine& engine = process_engine();
    const Engine::Submission submission(engine);
    auto words = [&] { return "ordering " + describe(array) + " for another library"; };
    return driver::doing(engine, words, array.device, [&]() -> std::optional<std::uintptr_t> {
      engine.lending.admit(*array.buffer, array.span(), writes);
      bool is_complete = true;
      array.each_piece([&](Span piece) {
        array.buffer->hazards.each(piece, [&](const dataflow::Hazard& hazard, Span) {
          hazard.each_before(writes,
                             [&](dataflow::Tick tick) { is_complete = is_complete && engine.is_complete(tick); });
        });
      });
      if (is_complete) return std::nullopt;
      const driver::StreamIndex relay = engine.relays.unnamed(array.device);
      const CUstream handle = engine.streams.lend(relay);
      engine.lending.order(handle, bytes_of(array, array.device, writes));
      engine.streams.pass(relay);
      return reinterpret_cast<std::uintptr_t>(handle);
    });
  });
  module.def("is_for_reading", is_for_reading);
  module.def("require_at_rest", require_at_rest);
  module.def("require_well", require_well);
  // Does a function of `call` run on this thread?
  module.def("is_in_call", [] { return driver::InCall::current() != nullptr; });
  // Is a stream captured, by its handle? A default stream is the one of the current context.
  module.def("is_captured", [](std::uintptr_t handle) {
    return process_engine().streams.is_captured(reinterpret_cast<CUstream>(handle));
  });
}

}  // namespace aiocuda
