// The Python face of arrays: where they are, how they lie, and views of them.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "../dataflow/array.hpp"

namespace aiocuda {
namespace nb = nanobind;

// The extents that a sequence of Python's holds, and how many bytes an array of them has; raises where there is none.
std::vector<std::int64_t> read_shape(const nb::sequence& extents, dataflow::DType dtype, std::uint64_t& size_bytes);

// The accesses that may still be going on, also of other libraries.
struct InUse {
  bool written, read;
};
InUse in_use(const dataflow::Array& array);

void bind_arrays(nb::module_& module);

}  // namespace aiocuda
