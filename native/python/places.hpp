// Streams, and where operations go, as Python names them.
#pragma once
#include <cstdint>
#include <string>

#include "../dataflow/placing.hpp"
#include "../driver/engine.hpp"
#include "process.hpp"

namespace aiocuda {

inline driver::StreamIndex index_of(dataflow::StreamId stream) {
  const driver::Engine& engine = process_engine();
  const driver::StreamIndex slot = dataflow::slot_of(stream);
  if (stream < 0 || slot >= engine.stream_count()) throw nanobind::index_error("no such stream");
  if (engine.id_of(slot) != stream) dataflow::raise_stream_closed(stream);
  return slot;
}

// A placement for what is recorded or explained: its stream, if it names one, is open.
inline const dataflow::Placement& to_record(const dataflow::Placement& placement) {
  if (placement.stream != dataflow::no_stream && process_engine().stream(index_of(placement.stream)).closing)
    dataflow::raise_stream_closed(placement.stream);
  return placement;
}

[[noreturn, gnu::cold]] void raise_recorded(const dataflow::Placement& placement);

// A placement for what is executed. An operation that was submitted before goes nowhere any more: its stream may be
// closed.
inline const dataflow::Placement& to_execute(const dataflow::Op& op, const dataflow::Placement& placement) {
  if (!placement.recording_at.empty()) raise_recorded(placement);
  return op.state == dataflow::State::pending ? to_record(placement) : placement;
}

}  // namespace aiocuda
