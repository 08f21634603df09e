// Host memory that is not page-locked, such as NumPy's, and parts of files, as copies see them: a device cannot reach
// them, so threads carry their bytes.
//
// Always true: the owner is kept for as long as a thread may touch the memory. Its accesses are hazards like those of
// arrays: of one buffer that stands for all such memory, by address; or of one that stands for the file, by place.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "../staging/host_end.hpp"
#include "operation.hpp"

namespace aiocuda::dataflow {

// Stands for a file in the hazards. All copies of one path share it.
struct FilePlaces {
  FilePlaces() { ++count; }
  FilePlaces(const FilePlaces&) = delete;
  FilePlaces& operator=(const FilePlaces&) = delete;
  ~FilePlaces() { --count; }

  const BufferRef buffer{std::make_unique<Buffer>(address_space_bytes)};
  static inline std::size_t count = 0;  // of files that operations name, guarded by the GIL
};

struct Pageable {
  nb::object owner;  // what the memory belongs to, and what a copy to it yields
  staging::HostEnd host;
  DType dtype = any_dtype;
  std::vector<std::int64_t> shape{};
  nb::object locked{};  // an array over the same memory, where that is page-locked after all: devices reach it
  BufferRef file{};     // stands for the file, where it is a part of one
  std::string name{};   // of the file, in messages

  Span span() const { return {host.begin(), host.end()}; }
  // `all`: stands for all pageable memory.
  Buffer& hazards_in(Buffer& all) const { return file ? *file : all; }
  // Nothing is to be done for memory of no bytes. A file of no bytes is made, or looked for.
  bool is_nothing() const { return !host.file() && host.size_bytes() == 0; }
};

inline TypeTest is_pageable;
inline Pageable* as_pageable(nb::handle object) {
  return object.ptr() && is_pageable(object.ptr()) ? nb::inst_ptr<Pageable>(object) : nullptr;
}

inline Spec spec_of(const Array& array) {
  return {array.is_host() ? Yields::host_array : Yields::device_array, array.dtype, array.device, array.is_managed()};
}
inline Spec spec_of(nb::handle value) {
  if (const Array* array = as_array(value)) return spec_of(*array);
  if (const Op* op = as_op(value)) return op->spec;
  if (const Pageable* memory = as_pageable(value)) return {Yields::host_value, memory->dtype, unknown_ordinal};
  return {Yields::host_value, any_dtype, unknown_ordinal};
}

inline std::string describe_place(const Pageable& memory) {
  return memory.host.file() ? "file " + memory.name : "pageable host memory";
}
inline std::string describe(const Pageable& memory) {
  return dtypes[memory.dtype].name + describe_shape(memory.shape) + " in " + describe_place(memory);
}

}  // namespace aiocuda::dataflow
