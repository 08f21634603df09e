// What arrays of other libraries say of themselves by DLPack's exchange in C.
//
// Always true: nothing is ordered here, and the host waits for nothing. What is not plain memory of a device, with a
// dtype that arrays can have, is left to who can say why it is not taken.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "../dataflow/array.hpp"
#include "dlpack.hpp"

namespace aiocuda {

// The table of a class of arrays; null: it has none that is known here. It lives as long as the class.
const dlpack::ExchangeApi* exchange_of(nanobind::handle type);

// The address of a tensor's memory, if it is plain; `array` gets the dtype, the device, the shape and the strides. Not
// plain is also what PyTorch computes a gradient of, or has yet to conjugate or negate where it is read.
std::optional<std::uint64_t> read_plain(const dlpack::ExchangeApi& exchange, nanobind::handle x,
                                        dataflow::Array& array);

// The stream that the library puts the calling thread's work on; none: it cannot say.
std::optional<std::uintptr_t> work_stream_of(const dlpack::ExchangeApi& exchange, std::int32_t device);

}  // namespace aiocuda
