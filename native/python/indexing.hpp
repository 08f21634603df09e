// Views of an array by index: integers, slices that go forward, and '...', as NumPy takes them.
#pragma once
#include <nanobind/nanobind.h>

#include "../dataflow/array.hpp"

namespace aiocuda {
namespace nb = nanobind;

// A view of the items that an index picks.
nb::object select(nb::handle_t<dataflow::Array> array, nb::handle key);

// Two views: of what is before an index of the first axis, and of the rest.
nb::object split(nb::handle_t<dataflow::Array> array, nb::handle index);

}  // namespace aiocuda
