#include "drive.hpp"

#include "../dataflow/graph_recording.hpp"
#include "submit_sink.hpp"

namespace aiocuda::driver {

nb::object record_into(Engine& engine, dataflow::GraphSink& planner, nb::handle object,
                       const dataflow::Placement& placement) {
  if (!planner.is_part()) refuse_while_recording(object);
  Engine::Submission submission(engine);
  try {
    return planner.record(object, placement);
  } catch (const Refusal& refusal) {
    raise_refused(engine, refusal.result, refusal.function, nb::borrow(object), refusal.asked_host_bytes,
                  refusal.device);
  }
}

nb::list record(Engine& engine, nb::handle object, const dataflow::Placement& placement) {
  Engine::Submission submission(engine);
  const dataflow::Enclosure::Entered nowhere(nullptr);
  dataflow::ExplainSink::Services services;
  services.look = [&engine](dataflow::ExplainSink::Services& of) {
    of.stream_devices.clear();
    of.stream_ids.clear();
    for (std::size_t i = 0; i < engine.stream_count(); ++i) {
      const StreamState& stream = engine.stream(static_cast<StreamIndex>(i));
      of.stream_devices.push_back(stream.device);
      of.stream_ids.push_back(stream.closing ? dataflow::no_stream : engine.id_of(static_cast<StreamIndex>(i)));
    }
  };
  services.policy_streams = [&engine](Op& op, const dataflow::Policy& policy, std::int32_t device,
                                      int priority) -> const dataflow::PolicyStreams& {
    return engine.policy_streams(policy, device, priority, op);
  };
  services.is_peer = [&engine](std::int32_t device, std::int32_t other) { return engine.is_peer(device, other); };
  services.pageable = &engine.staging.pageable();
  services.stages = [&engine](const dataflow::Pageable& memory, const dataflow::Array& array) {
    return SubmitSink::stages(engine, memory, array);
  };
  dataflow::ExplainSink sink(engine.timeline, std::move(services));
  dataflow::Scratch<dataflow::ExplainSink::Value> scratch;
  sink.uses = &scratch.uses;
  dataflow::Path path;
  dataflow::Walk<dataflow::ExplainSink> walk(sink, placement, scratch, path);
  try {
    walk.run(object);
  } catch (const Refusal& refusal) {
    raise_refused(engine, refusal.result, refusal.function, nb::borrow(object), refusal.asked_host_bytes,
                  refusal.device);
  }
  return sink.steps;
}

}  // namespace aiocuda::driver
