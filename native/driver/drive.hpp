// Walks that execute nothing: into a graph's plan, or into words.
#pragma once
#include "../dataflow/graph_sink.hpp"
#include "execution.hpp"

namespace aiocuda::driver {

// Records an operation, and all that it needs, into a graph's plan; gives back the handle of its result.
nb::object record_into(Engine& engine, dataflow::GraphSink& planner, nb::handle op,
                       const dataflow::Placement& placement);

// The steps that the walk would take, as a list; nothing is done.
nb::list record(Engine& engine, nb::handle op, const dataflow::Placement& placement);

}  // namespace aiocuda::driver
