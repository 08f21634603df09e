// The engine: see engine.hpp.
#include "engine.hpp"

#include <algorithm>

#include "outstanding.hpp"
#include "refused.hpp"

namespace aiocuda::driver {

namespace {

// How long the process' end waits for calls that the driver has not been given.
constexpr std::chrono::seconds last_calls{1};

}  // namespace

Engine::Engine() = default;
Engine::~Engine() {
  shut_down();
  submission.losses.forget();
  given.drop_made();  // while the parts are there to which their memory goes back
}

void Engine::open_device(std::int32_t ordinal, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
                         int highest_priority) {
  if (devices.is_open(ordinal)) return;
  interpreter::guard_thread();
  // Others go on meanwhile. They see the device when all of it is there. If a call is refused, it can be opened another
  // time.
  submission.start();
  waits.start(context);
  const StreamIndex default_stream = streams.create_first(ordinal, context);
  devices.add(ordinal, context, pool, memory_bytes, default_stream, highest_priority);
}

dataflow::PolicyStreams& Engine::find_or_make_streams(const dataflow::Policy& policy, std::int32_t ordinal,
                                                      int priority, dataflow::Op& op) {
  if (devices.is_open(ordinal))
    if (auto& known = known_streams(policy, ordinal, priority); !known.streams.empty()) return known;
  const nb::list ids(hooks.policy_streams(nb::find(policy), ordinal, priority, nb::find(op)));  // opens the device
  dataflow::PolicyStreams& made = known_streams(policy, ordinal, priority);
  made.streams.clear();
  for (nb::handle id : ids) made.streams.push_back(dataflow::slot_of(nb::cast<dataflow::StreamId>(id)));
  return made;
}

// The driver takes what is beyond a device's range for the end of it. So such streams are the same, and so is the place
// where a policy stands among them.
dataflow::PolicyStreams& Engine::known_streams(const dataflow::Policy& policy, std::int32_t ordinal, int priority) {
  const int highest = devices.at(ordinal).highest_priority;
  const int brought = std::clamp(priority, highest, 0);
  if (brought != std::clamp(policy.priority, highest, 0)) return policy.placed_elsewhere[{ordinal, brought}];
  const auto slot = static_cast<std::size_t>(ordinal);
  if (policy.placed.size() <= slot) policy.placed.resize(slot + 1);
  return policy.placed[slot];
}

void Engine::collect(std::size_t most_streams) {
  if (is_over() || !now.has_all()) return;
  if (!streams.has_order()) {
    try {
      streams.restore_order();
    } catch (const Refusal&) {
      return;
    }
  }
  lending.take_back();
  given.drop_made();
  retained_.drop_ended([this](Tick tick) { return streams.has_ended(tick); }, most_streams);
  staging.drop_ended();
  memory.free_due(most_streams);
  streams.destroy_closed();
  // At the very end: others may submit meanwhile.
  memory.close_due();
  // NVIDIA's driver may wait for a device that was idle a moment ago. So nobody else submits meanwhile: who wants to
  // waits for the right to submit, without the GIL. If somebody has that right now, the images and the memory wait for
  // the next time.
  if (depth != 0 || !(images.dropped_count() || memory.has_excess())) return;
  const std::unique_lock alone(submitting, std::try_to_lock);
  if (!alone) return;
  images.unload_idle();
  memory.free_excess();
}

void Engine::mark_last(dataflow::AtEnd& last, StreamIndex stream) {
  last.leave();
  if (timeline.is_known_complete({stream, timeline.submitted(stream)})) return;
  outstanding(*this, static_cast<Op&>(last)).marks.push_back(mark(stream));
}

CUresult Engine::call_slowly(const std::function<CUresult()>& call) { return without_gil(call); }

nb::object Engine::find_loss(dataflow::Op& op) {
  if (outcomes.has_failed()) {
    if (nb::object error = outcomes.find_error(op); error.is_valid()) {
      if (op.is_done() && depth == 0) {  // so what is still to be made of it fails, too; a walk may be using its result
        const std::unique_lock alone(submitting, std::try_to_lock);
        if (alone) op.fail(error);
      }
      return error;
    }
    if (!submission.losses.is_any()) return {};
  }
  if (depth == 0) {
    const std::unique_lock alone(submitting, std::try_to_lock);
    if (alone) {
      given.settle(hooks);
      return op.state == dataflow::State::failed ? op.outcome : nb::object();
    }
  }
  const auto cause = given.find_cause(op);
  return cause ? Given::error_of(*cause, hooks) : nb::object();
}

void Engine::shut_down() {
  devices.guests().end();
  if (is_forked()) return;  // its threads are not here
  staging.shut_down();
  submission.drain_within(last_calls);
  waits.shut_down();  // the reactor asks about what is on its way
  submission.shut_down();
  memory.shut_down();
}

void Engine::raise_over() const { raise_exception(hooks.over()); }

void Engine::raise_over_limit(const dataflow::MemoryLimit& limit, std::uint64_t asked_bytes) {
  raise_exception(hooks.over_limit(asked_bytes, limit.device, limit.most_bytes));
}

}  // namespace aiocuda::driver
