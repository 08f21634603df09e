// Arrays as Python sees them: see arrays.hpp.
#include "arrays.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>

#include "../dataflow/access.hpp"
#include "../dataflow/operation.hpp"
#include "../driver/refused.hpp"
#include "indexing.hpp"
#include "places.hpp"
#include "process.hpp"
#include "replaying.hpp"

namespace aiocuda {
using namespace dataflow;
using namespace nb::literals;

std::vector<std::int64_t> read_shape(const nb::sequence& extents, DType dtype, std::uint64_t& size_bytes) {
  std::vector<std::int64_t> shape;
  size_bytes = dtypes[dtype].size_bytes;
  for (nb::handle extent : extents) {
    const auto n = nb::cast<std::int64_t>(extent);
    if (n < 0)
      raise(error_types.argument_value,
            "a shape has no negative extents; " + nb::cast<std::string>(nb::repr(extents)) + " was given");
    shape.push_back(n);
  }
  for (const std::int64_t n : shape) {
    if (__builtin_mul_overflow(size_bytes, static_cast<std::uint64_t>(n), &size_bytes) ||
        size_bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      raise(error_types.argument_value, "an array of shape " + describe_shape(shape) + " and dtype " +
                                            dtypes[dtype].name +
                                            " is larger than any memory; its size in bytes does not fit 63 bits");
  }
  return shape;
}

nb::object like_part(const Array& whole, nb::handle part) {
  const Array& model = *nb::inst_ptr<Array>(part);
  if (!whole.buffer) raise_ended(whole, "a graph's output");
  Array same{whole.buffer, whole.offset + model.offset, whole.device, model.dtype, model.shape, model.strides};
  same.group = whole.group;
  same.loan = whole.loan;
  return dataflow::make_array(part.type(), std::move(same));
}

InUse in_use(const Array& array) {
  driver::Engine& engine = process_engine();
  if (!array.buffer) return {false, false};
  engine.require_usable();
  return driver::doing(engine, std::string("asking whether an array is in use"), array.device, [&] {
    if (array.buffer->is_lent) {
      const driver::Engine::Submission submission(engine);
      engine.lending.admit(*array.buffer, array.span(), true);
    }
    engine.now.drain_slowly();
    InUse found{false, false};
    array.each_piece([&](Span piece) {
      array.buffer->hazards.each(piece, [&](const Hazard& hazard, Span) {
        hazard.each_before(false, [&](Tick tick) { found.written = found.written || !engine.is_complete(tick); });
        for (const Tick tick : hazard.reads) found.read = found.read || !engine.is_complete(tick);
      });
    });
    return found;
  });
}

void bind_arrays(nb::module_& module) {
  // `lent_as`: what DLPack calls its items, (code, bits); None: DLPack has no such dtype.
  module.def(
      "add_dtype",
      [](std::string name, std::uint32_t size_bytes, std::optional<LentType> lent_as) {
        return dtypes.add(std::move(name), size_bytes, lent_as);
      },
      "name"_a, "size_bytes"_a, "lent_as"_a.none());
  auto array = nb::class_<Array>(module, "Array", nb::is_weak_referenceable());
  is_array.set(reinterpret_cast<PyTypeObject*>(array.ptr()));
  array
      .def_prop_ro("_address",
                   [](const Array& self) -> std::uint64_t {
                     if (!self.buffer) return 0;
                     if (self.buffer->enclosure && self.buffer->size_bytes) self.buffer->enclosure->pin(*self.buffer);
                     return self.address();
                   })
      .def_ro("_device", &Array::device)
      .def_ro("_dtype", &Array::dtype)
      .def_prop_ro("_shape",
                   [](const Array& self) {
                     nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(self.shape.size())));
                     for (std::size_t i = 0; i < self.shape.size(); ++i)
                       PyTuple_SET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(self.shape[i]));
                     return shape;
                   })
      .def_prop_ro("_size_bytes", &Array::size_bytes)
      .def_prop_ro("_is_managed", &Array::is_managed)
      .def_prop_ro("_is_interprocess",
                   [](const Array& self) { return self.buffer && self.buffer->kind == MemoryKind::interprocess; })
      .def_prop_ro("_is_in_doubt",  // that is, nobody says yet that its bytes are well
                   [](const Array& self) {
                     bool is_open = false;
                     if (self.buffer && self.buffer->is_in_doubt)
                       self.buffer->doubts->each(self.span(), [&](const dataflow::DoubtRef& doubt) {
                         is_open |= doubt->state != dataflow::Doubt::State::well;
                       });
                     return is_open;
                   })
      .def_prop_ro("_is_closed", [](const Array& self) { return !self.buffer; })
      .def_prop_ro("_strides",
                   [](const Array& self) {
                     nb::object strides = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(self.shape.size())));
                     for (std::size_t i = 0; i < self.shape.size(); ++i)
                       PyTuple_SET_ITEM(strides.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(self.stride(i)));
                     return strides;
                   })
      .def_prop_ro("_is_contiguous", &Array::is_contiguous)
      .def_prop_ro("_holders",
                   [](const Array& self) { return self.buffer ? self.buffer->holders : 0; })  // of its memory
      // A handle of the same class on its bytes as other items, with strides in bytes where they do not lie in one
      // piece; the caller has checked that they are its bytes.
      .def(
          "_view",
          [](nb::handle_t<Array> self, const nb::sequence& extents, DType dtype,
             std::optional<std::vector<std::int64_t>> strides) {
            const Array& whole = *nb::inst_ptr<Array>(self);
            std::uint64_t size_bytes = 0;
            auto shape = read_shape(extents, dtype, size_bytes);
            Array view{whole.buffer, whole.offset, whole.device, dtype, std::move(shape)};
            view.group = whole.group;
            view.loan = whole.loan;
            if (strides) view.strides = std::move(*strides);
            const Span span = view.span(), bounds = whole.span();
            if (span.end > bounds.end || span.begin < bounds.begin)
              raise(error_types.argument_value, "a view of bytes " + std::to_string(span.begin) + " to " +
                                                    std::to_string(span.end) + " does not lie in " + describe(whole));
            return dataflow::make_array(self.type(), std::move(view));
          },
          "extents"_a, "dtype"_a, "strides"_a.none())
      // The same part of memory that an array is in its buffer, in the memory that begins where this one does.
      .def(
          "_like_part", [](const Array& self, nb::handle_t<Array> part) { return like_part(self, part); }, "part"_a)
      // Is the address of each item a multiple of a power of two?
      .def(
          "_is_aligned",
          [](const Array& self, std::uint64_t alignment) {
            return !self.buffer || self.size() == 0 || !self.misalignment(alignment, self.shape.size());
          },
          "alignment"_a)
      // Two arrays of one layout can be put in each other's place.
      .def_prop_ro("_layout",
                   [](nb::handle_t<Array> self) {
                     const Array& it = *nb::inst_ptr<Array>(self);
                     auto tuple_of = [](std::size_t size, auto&& item) {
                       nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(size)));
                       for (std::size_t i = 0; i < size; ++i)
                         PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(item(i)));
                       return tuple;
                     };
                     nb::object strides = nb::none();
                     if (!it.is_contiguous())
                       strides = tuple_of(it.shape.size(), [&](std::size_t axis) { return it.stride(axis); });
                     nb::object tile = nb::none();
                     if (it.is_partition())
                       tile = tuple_of(it.tile.size(), [&](std::size_t axis) { return it.tile[axis]; });
                     return nb::make_tuple(self.type(), it.dtype, it.device,
                                           tuple_of(it.shape.size(), [&](std::size_t axis) { return it.shape[axis]; }),
                                           strides, tile);
                   })
      // Its place: two arrays of one layout with the same place are one.
      .def_prop_ro("_place",
                   [](const Array& self) {
                     return nb::make_tuple(reinterpret_cast<std::uintptr_t>(self.buffer.get()), self.offset);
                   })
      .def("_select", select, "key"_a.none())
      .def("_split", split, "index"_a.none())
      // Of an array in managed memory, whose use was checked. `place`: a device, or -1 for the host.
      .def("_advise",
           [](const Array& self, int advice, std::int32_t place) {
             driver::Engine& engine = process_engine();
             driver::doing(
                 engine, [&] { return "advising on " + describe(self); }, self.device,
                 [&] {
                   driver::check(engine.memory.advise(*self.buffer, self.span(), static_cast<CUmem_advise>(advice),
                                                      driver::location_of(place)),
                                 "cuMemAdvise");
                 });
           })
      .def("_prefetch",
           [](const Array& self, std::int32_t place, StreamId stream) {
             driver::Engine& engine = process_engine();
             const Span span = self.span();
             const driver::StreamIndex index = index_of(stream);
             const CUstream handle = engine.stream(index).handle;
             driver::doing(
                 engine, [&] { return "a prefetch of " + describe(self); }, self.device,
                 [&] {
                   engine.streams.enter(index);
                   engine.now.drain();
                   driver::check(engine.table.cuMemPrefetchAsync(self.address(), span.end - span.begin,
                                                                 driver::location_of(place), 0, handle),
                                 "cuMemPrefetchAsync");
                   engine.streams.rest();
                 });
           })
      // The accesses that may still be going on: (written, read).
      .def("_in_use", [](const Array& self) {
        const auto [written, read] = in_use(self);
        return nb::make_tuple(written, read);
      });
}

}  // namespace aiocuda
