// Work of other libraries as operations.
//
// Always true: such an operation has been submitted. Its point in their stream was recorded then, and is never recorded
// anew.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

#include "../dataflow/array.hpp"

namespace aiocuda {

// Within a function of `call`: its stream goes on behind all that a stream of its framework's holds. In a capture no
// stream can: there the launches of the graph go behind that, as they use `state`.
void come_after(std::uintptr_t theirs, const dataflow::Array& state);

void bind_foreign_work(nanobind::module_& module);

}  // namespace aiocuda
