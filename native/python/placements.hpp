// Python's face of placements.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

#include "../dataflow/buffer.hpp"

namespace aiocuda {
namespace nb = nanobind;

inline nb::object ordinal_or_none(std::int32_t ordinal) {
  return ordinal == dataflow::unknown_ordinal ? nb::none() : nb::object(nb::int_(ordinal));
}

void bind_placements(nb::module_& module);

}  // namespace aiocuda
