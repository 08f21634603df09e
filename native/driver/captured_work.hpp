// The work that functions put on a stream of their own, as graphs of the driver's: nodes of a plan.
//
// Always true: nobody else knows of the stream, and it ends with the capture.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine.hpp"

namespace aiocuda::driver {

// The work that a function puts on a stream of its own, as a graph; null if there is none. Throws Refusal; raises what
// the function raises. `kept` gets what must live as long as the graph, `returned` what the function returned.
std::shared_ptr<void> capture(Engine& engine, dataflow::ForeignOp& op, const std::vector<nb::handle>& values,
                              std::int32_t device, CUstreamCaptureMode mode, nb::object& kept, nb::object& returned);

// Names a node that no body of a conditional node may have (CUDA driver API, "Conditional nodes"); null: none.
const char* refused_in_body(const Engine& engine, CUgraph graph);

}  // namespace aiocuda::driver
