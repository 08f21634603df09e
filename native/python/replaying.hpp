// Launches of graphs as operations, for those who make them.
#pragma once
#include <nanobind/nanobind.h>

#include "../dataflow/operation.hpp"

namespace aiocuda {
namespace nb = nanobind;

// Makes a new operation that launches a graph. Each of `values` replaces the input of its target's number; or the
// output, of ~(its memory's slot). `result`: its result, if that is neither the graph's nor the given outputs.
void make_replay(dataflow::ReplayOp& op, nb::object graph, const nb::tuple& targets, const nb::list& values,
                 nb::object result);

// The same in steps, for native code: an operation of this class, which nobody is told of if it comes to nothing
// (`is_asked`); then come the bindings; then checks what is known of their values.
nb::object begin_replay(nb::handle op_class, nb::object graph);
void check_replay(dataflow::ReplayOp& op);

// A handle on what `part` is in its memory, in the memory that begins where `whole` does.
nb::object like_part(const dataflow::Array& whole, nb::handle part);

}  // namespace aiocuda
