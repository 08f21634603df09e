// Transitions of arrays: share, unwrap, move, partition, close; and memory that is somebody else's.
#pragma once
#include "../dataflow/array.hpp"

namespace aiocuda {
namespace nb = nanobind;
// An array's memory is somebody else's. `lender`: a framework whose stream has to do with each use of it.
void lend(dataflow::Array& array, nb::object owner, dataflow::Lender* lender = nullptr);
// A `DeviceArray` over what a function of `call` that runs now has made on its stream, and on its device: there when
// its work is, of which no more comes. `array` says all but where it is.
nb::object adopt(std::uint64_t address, dataflow::Array array, nb::object owner, bool is_read_only = false);
void bind_ownership(nb::module_& module);
}  // namespace aiocuda
