// The Python face of what the host reaches: NumPy's memory and files, which copies carry, and an array's memory, which
// NumPy looks at.
#include "host_memory.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../dataflow/access.hpp"
#include "../dataflow/pageable.hpp"
#include "../driver/cufile.hpp"

namespace aiocuda {
namespace nb = nanobind;
using namespace nb::literals;
using namespace dataflow;
namespace {

// NumPy's own description of an array (its array interface, C side): a twentieth of the time of the one for Python.
struct NumpyArray {
  int two, dimensions;
  char kind;
  int item_bytes, flags;
  Py_intptr_t *shape, *strides;
  void* data;
};

Pageable pageable_of(nb::object owner, DType dtype, nb::object locked) {
  const nb::object capsule = owner.attr("__array_struct__");
  const auto* array = static_cast<const NumpyArray*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (!array) throw nb::python_error();
  const auto axes = static_cast<std::size_t>(array->dimensions);
  std::vector<std::int64_t> shape(array->shape, array->shape + axes), strides(array->strides, array->strides + axes);
  staging::HostLayout layout(array->data, shape, strides, dtypes[dtype].size_bytes);
  return {std::move(owner), std::move(layout), dtype, std::move(shape), std::move(locked)};
}

void bind_pageable(nb::module_& module) {
  auto pageable = nb::class_<Pageable>(module, "Pageable");
  is_pageable.set(reinterpret_cast<PyTypeObject*>(pageable.ptr()));
  pageable
      .def(
          "__init__",
          [](Pageable* self, nb::object owner, DType dtype, nb::object locked) {
            new (self) Pageable(pageable_of(std::move(owner), dtype, std::move(locked)));
          },
          "owner"_a, "dtype"_a, "locked"_a.none())
      .def_prop_ro("repeats", [](const Pageable& self) { return self.host.repeats(); });
  // Have two arrays the same shape and dtype? One of them may be pageable memory.
  module.def(
      "are_alike",
      [](nb::handle a, nb::handle b) {
        auto is_like = [&](const auto& x, const auto& y) { return x.dtype == y.dtype && x.shape == y.shape; };
        const Array *array = as_array(a), *other = as_array(b);
        if (array && other) return is_like(*array, *other);
        const Pageable* memory = as_pageable(array ? b : a);
        return memory && (array || other) && is_like(array ? *array : *other, *memory);
      },
      "a"_a, "b"_a);
}

// A refused submission leaves a file open, and the last who knows it may be an object of Python's. To close a file may
// take as long as its disk does.
struct WithoutGil {
  void operator()(staging::File* file) const {
    const bool lets_go = file->is_open() && PyGILState_Check();
    PyThreadState* const state = lets_go ? PyEval_SaveThread() : nullptr;
    std::default_delete<staging::File>()(file);
    if (state) PyEval_RestoreThread(state);
  }
};

// A file as one operation uses it.
struct FileCopy {
  std::shared_ptr<staging::File> file;
  std::string name;
  nb::object places;
};

staging::File::Use use_of(const std::string& name) {
  using enum staging::File::Use;
  return name == "read" ? read : name == "read_some" ? read_some : name == "replace" ? replace : update;
}

void bind_files(nb::module_& module) {
  nb::class_<driver::CuFile>(module, "CuFile")
      // It starts the library, which asks the driver for memory: that may have to wait for whoever has the GIL.
      .def(nb::init<const std::string&>(), "path"_a, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<FilePlaces>(module, "FilePlaces", nb::is_weak_referenceable()).def(nb::init<>());
  nb::class_<FileCopy>(module, "FileCopy", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](FileCopy* self, const nb::bytes& path, std::string name, const std::string& use, std::uint64_t offset,
             std::uint64_t size_bytes, nb::handle_t<FilePlaces> places, const nb::bytes& head, bool directly) {
            auto made = std::make_unique<staging::File>(std::string(path.c_str(), path.size()), use_of(use), offset,
                                                        size_bytes, std::string(head.c_str(), head.size()), directly);
            std::shared_ptr<staging::File> file(made.release(), WithoutGil());
            new (self) FileCopy{std::move(file), std::move(name), nb::borrow(places)};
          },
          "path"_a, "name"_a, "use"_a, "offset"_a, "size_bytes"_a, "places"_a, "head"_a, "directly"_a)
      // Waits for the disk. None: there is no library, so threads carry the parts.
      .def(
          "open_directly",
          [](const FileCopy& self, std::shared_ptr<driver::CuFile> library) {
            nb::gil_scoped_release others_go_on;
            self.file->open_directly(std::move(library));
          },
          "library"_a.none())
      .def_prop_ro("is_direct", [](const FileCopy& self) { return self.file->is_direct(); })
      // A part of its bytes, as an end of a copy.
      .def(
          "part",
          [](nb::handle_t<FileCopy> self, std::uint64_t begin, DType dtype, std::vector<std::int64_t> shape) {
            const auto& copy = nb::cast<const FileCopy&>(self);
            std::uint64_t size_bytes = dtypes[dtype].size_bytes;
            for (const std::int64_t extent : shape) size_bytes *= static_cast<std::uint64_t>(extent);
            return Pageable{.owner = nb::borrow(self),
                            .host = {copy.file, begin, size_bytes},
                            .dtype = dtype,
                            .shape = std::move(shape),
                            .file = nb::cast<const FilePlaces&>(copy.places).buffer,
                            .name = copy.name};
          },
          "begin"_a, "dtype"_a, "shape"_a)
      .def_prop_ro("moved_bytes", [](const FileCopy& self) { return self.file->moved_bytes(); })
      // None, or what failed: the step, the system's error or 0, and how many bytes there were until then.
      .def_prop_ro("failure", [](const FileCopy& self) -> nb::object {
        const auto failure = self.file->failure();
        if (!failure) return nb::none();
        return nb::make_tuple(failure->step, failure->error, failure->bytes);
      });
}

// Lends an array's memory to NumPy, and keeps it for as long as NumPy holds it, closed or not.
struct LentMemory {
  Array array;
  bool is_for_reading;
};

int lent_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const LentMemory& lent = *nb::inst_ptr<LentMemory>(self);
  const Span span = lent.array.span();
  return PyBuffer_FillInfo(view, self, reinterpret_cast<void*>(lent.array.address()),
                           static_cast<Py_ssize_t>(span.end - span.begin), lent.is_for_reading, flags);
}
PyType_Slot lent_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(lent_buffer)}, {0, nullptr}};

void bind_lent(nb::module_& module) {
  nb::class_<LentMemory>(module, "Lent", nb::type_slots(lent_slots))
      // A shared array is only for reading, in NumPy too.
      .def(
          "__init__",
          [](LentMemory* self, const Array& array) {
            const bool is_claimed = array.buffer && array.buffer->claims &&
                                    array.buffer->claims->against_access(array.region(), true, array.group.get());
            new (self) LentMemory{array, is_claimed};
          },
          "array"_a)
      .def_prop_ro("array", [](const LentMemory& self) { return Array(self.array); });
}

}  // namespace

void bind_host_memory(nb::module_& module) {
  bind_pageable(module);
  bind_files(module);
  bind_lent(module);
}

}  // namespace aiocuda
