// Streams, and where operations go, as Python names them.
#pragma once
#include <cstdint>
#include <string>

#include "dataflow/placing.hpp"
#include "driver/engine.hpp"

namespace aiocuda {

inline driver::StreamIndex index_of(dataflow::StreamId stream) {
  const driver::Engine& engine = driver::Engine::get();
  const driver::StreamIndex slot = dataflow::slot_of(stream);
  if (stream < 0 || slot >= engine.stream_count()) throw nanobind::index_error("no such stream");
  if (engine.id_of(slot) != stream) dataflow::raise_stream_closed(stream);
  return slot;
}

inline dataflow::Placement place(std::int32_t device, dataflow::StreamId stream, const dataflow::Policy& policy, std::int32_t spin_us, const dataflow::Bounds& bounds) {
  dataflow::Placement placement{device, stream, dataflow::unknown_ordinal, &policy, spin_us, &bounds};
  if (stream == dataflow::no_stream) return placement;
  const driver::StreamState& state = driver::Engine::get().stream(index_of(stream));
  if (state.closing) dataflow::raise_stream_closed(stream);
  placement.stream_device = state.device;
  return placement;
}

}  // namespace aiocuda
