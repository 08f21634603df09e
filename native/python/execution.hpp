// Executions and ports, for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
namespace nb = nanobind;
// Tells all whose tokens are due, in the order in which they became so. `begins_turn`: the loop asks, once in each
// turn.
void wake_due(struct LoopPort& port, bool begins_turn);
void bind_execution(nb::module_& module);
}  // namespace aiocuda
