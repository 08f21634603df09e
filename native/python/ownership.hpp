// Transitions of arrays: share, unwrap, move, partition, close; and memory that is somebody else's.
#pragma once
#include "../dataflow/array.hpp"

namespace aiocuda {
namespace nb = nanobind;
// An array's memory is somebody else's. `lender`: a framework whose stream has to do with each use of it.
void lend(dataflow::Array& array, nb::object owner, dataflow::Lender* lender = nullptr);
void bind_ownership(nb::module_& module);
}  // namespace aiocuda
