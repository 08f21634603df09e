// Waits for streams and events: see passing.hpp.
#include "passing.hpp"

#include "refused.hpp"

namespace aiocuda::driver {
namespace {

// Without those that were destroyed: all of theirs has passed.
std::vector<StreamIndex> still_there(const Engine& engine, const std::vector<dataflow::StreamId>& streams) {
  std::vector<StreamIndex> found;
  for (const dataflow::StreamId stream : streams) {
    const StreamIndex slot = dataflow::slot_of(stream);
    if (slot < engine.stream_count() && engine.id_of(slot) == stream) found.push_back(slot);
  }
  return found;
}

// Of those, what has not passed. A broken stream is one of them: to wait for it is the error. Throws Refusal.
std::vector<Tick> at_work(Engine& engine, const std::vector<dataflow::StreamId>& streams) {
  ContextScope scope(engine);
  std::vector<Tick> found;
  for (const StreamIndex stream : still_there(engine, streams)) {
    const StreamState& state = engine.stream(stream);
    if (!state.mark) continue;  // destroyed
    const Tick last{stream, engine.timeline.submitted(stream)};
    const auto all = engine.timeline.snapshot(stream);
    scope.bind(state.device);
    if (engine.streams.query(state) != CUDA_SUCCESS)
      found.push_back(last);
    else if (!engine.timeline.is_known_complete(last))
      engine.learn(all);
  }
  return found;
}

}  // namespace

std::vector<dataflow::StreamId> streams_at_work(Engine& engine, const std::vector<dataflow::StreamId>& streams) {
  std::vector<dataflow::StreamId> found;
  for (const Tick tick : at_work(engine, streams)) found.push_back(engine.id_of(tick.stream));
  return found;
}

bool Passing::has_come(std::int32_t error) {
  if (error > 0) raise_refused(engine_, static_cast<CUresult>(error), "cuStreamQuery", asked(), 0, device());
  return true;
}

bool Passing::block(double timeout_s) {
  interpreter::guard_thread();
  const Patience patience(timeout_s);
  for (;;) {
    const CompletionRef completion = wait(spin_time);
    if (!completion) return true;
    if (!wait_until(*completion, patience)) return has_passed();
    if (has_come(completion->error())) return true;
  }
}

StreamsPassing::StreamsPassing(Engine& engine, std::vector<dataflow::StreamId> streams, std::string asked,
                               std::int32_t device)
    : Passing(engine),
      streams_(std::move(streams)),
      asked_(std::move(asked)),
      device_(streams_.empty() ? device : engine.stream(dataflow::slot_of(streams_.front())).device) {}

// Raises what the thread raised that was to open it.
bool StreamsPassing::is_open() {
  if (device_ == dataflow::unknown_ordinal || engine_.devices.is_open(device_)) return true;
  if (opening_.is_valid()) engine_.hooks.not_done(opening_, asked_, device_);
  return false;
}

bool StreamsPassing::has_come(std::int32_t error) { return Passing::has_come(error) && is_open(); }

bool StreamsPassing::has_passed() {
  engine_.require_usable();
  if (!is_open()) return false;
  engine_.now.drain_slowly();
  return doing(engine_, asked_, device_, [&] { return at_work(engine_, streams_).empty(); });
}

CompletionRef StreamsPassing::wait(std::chrono::microseconds budget) {
  interpreter::guard_thread();
  engine_.require_usable();
  if (device_ != dataflow::unknown_ordinal && !engine_.devices.is_open(device_)) {
    opening_ = engine_.hooks.opening(device_);
    if (!opening_.is_none()) return nb::cast<const HostWork&>(opening_).ended;
    opening_.reset();
  }
  engine_.now.drain_slowly();  // else all streams would count as at work
  return doing(engine_, asked_, device_, [&]() -> CompletionRef {
    const std::vector<Tick> ticks = at_work(engine_, streams_);
    if (ticks.empty()) return nullptr;
    const Engine::Armed armed = engine_.arm(ticks, {}, true);
    return spin(engine_, armed, budget) ? nullptr : engine_.watch(armed);
  });
}

bool EventPassing::has_passed() {
  engine_.require_usable();
  auto words = [this] { return "asking whether " + title() + " has passed"; };
  return doing(engine_, words, device(), [&] { return event_->has_passed(); });
}

CompletionRef EventPassing::wait(std::chrono::microseconds budget) {
  interpreter::guard_thread();
  if (has_passed()) return nullptr;
  // While this looks the event may turn out to be broken: the reactor finds that out.
  const bool passed = spin(engine_, budget, [&] {
    const RelaxedCaptures relaxed(engine_.table);
    return engine_.now.query(event_->handle(), event_->context()) == CUDA_SUCCESS;
  });
  return passed ? nullptr : engine_.waits.watch(event_);
}

std::vector<dataflow::StreamId> EventPassing::named() const {
  if (stream_ == dataflow::no_stream) return {};
  return {stream_};
}

}  // namespace aiocuda::driver
