#include "drive.hpp"

#include "submit.hpp"

namespace aiocuda::driver {

nb::object record_into(Engine& engine, dataflow::Planner& planner, nb::handle object,
                       const dataflow::Placement& placement) {
  refuse_while_recording(object);
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
  dataflow::Record::House house;
  house.look = [&engine](dataflow::Record::House& of) {
    of.stream_devices.clear();
    of.stream_ids.clear();
    for (std::size_t i = 0; i < engine.stream_count(); ++i) {
      const StreamState& stream = engine.stream(static_cast<StreamIndex>(i));
      of.stream_devices.push_back(stream.device);
      of.stream_ids.push_back(stream.closing ? dataflow::no_stream : engine.id_of(static_cast<StreamIndex>(i)));
    }
  };
  house.lanes = [&engine](Op& op, const dataflow::Policy& policy, std::int32_t device) -> const dataflow::Lanes& {
    return engine.lanes(policy, device, op);
  };
  house.is_peer = [&engine](std::int32_t device, std::int32_t other) { return engine.is_peer(device, other); };
  house.pageable = &engine.staging.pageable();
  house.stages = [&engine](const dataflow::Pageable& memory, const dataflow::Array& array) {
    return Submit::stages(engine, memory, array);
  };
  dataflow::Record sink(engine.timeline, std::move(house));
  dataflow::Scratch<dataflow::Record::Value> scratch;
  dataflow::Path path;
  dataflow::Walk<dataflow::Record> walk(sink, placement, scratch, path);
  try {
    walk.run(object);
  } catch (const Refusal& refusal) {
    raise_refused(engine, refusal.result, refusal.function, nb::borrow(object), refusal.asked_host_bytes,
                  refusal.device);
  }
  return sink.steps;
}

}  // namespace aiocuda::driver
