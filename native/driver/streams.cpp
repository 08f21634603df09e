// Streams: see streams.hpp.
#include "../dataflow/timeline.hpp"
#include "stream_calls.hpp"

#include <algorithm>

namespace aiocuda::driver {

CUevent Streams::make_event() const {
  CUevent event = nullptr;
  check(table_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

// A slot is used again when its stream has been destroyed. Its counts go on: ticks of the old stream are
// below them, and have all passed.
StreamIndex Streams::new_slot(std::int32_t device) {
  std::lock_guard lock(mutex_);
  if (device != last_device_.value_or(device)) spans_devices_ = true;
  last_device_ = device;
  if (!spare_slots_.empty()) {
    const StreamIndex index = spare_slots_.back();
    spare_slots_.pop_back();
    const std::uint32_t generation = streams_[index].generation + 1;
    streams_[index] = StreamState{};
    streams_[index].generation = generation;
    streams_[index].before = timeline_.submitted(index);
    return index;
  }
  by_index_.push_back(&streams_.emplace_back());
  return timeline_.add_stream();
}

StreamIndex Streams::create(std::int32_t device, int priority) {
  ContextScope scope(devices_);
  scope.bind(device);
  CUstream made = nullptr;
  check(table_.cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority), "cuStreamCreateWithPriority");
  return keep(made, device, devices_.at(device).context);
}

StreamIndex Streams::create_first(std::int32_t device, CUcontext context) {
  ContextScope scope(devices_);
  scope.bind(context);
  CUstream made = nullptr;
  auto make = [&] { return table_.cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0); };
  check(around_.call_slowly(make), "cuStreamCreateWithPriority");
  return keep(made, device, context);
}

// In the device's context.
StreamIndex Streams::keep(CUstream made, std::int32_t device, CUcontext context) {
  Fresh stream(now_, made);
  Fresh mark(now_, make_event());
  const StreamIndex index = new_slot(device);
  std::lock_guard lock(mutex_);
  StreamState& state = streams_[index];
  ours_.insert_or_assign(made, index);
  state.handle = stream.keep();
  state.device = device;
  state.context = context;
  state.mark = mark.keep();
  return index;
}

void Streams::close(StreamIndex index) {
  if (std::exchange(streams_.at(index).closing, true) || streams_[index].is_kept) return;
  closing_.push_back(index);
  around_.note_return();
}

void Streams::destroy_closed() {
  if (closing_.empty() || around_.is_over() || !now_.has_all()) return;
  // Other streams may be about to wait for events of these. A finalizer may be here, so nothing is waited for.
  if (!now_.has_made_all()) return;
  for (const StreamIndex index : std::exchange(closing_, {})) {
    StreamState& state = streams_[index];
    const Tick last{index, timeline_.submitted(index)};
    bool passed = state.held.use_count() <= 1;
    try {
      passed = passed && is_complete(last) && (!follower_ || follower_->has_left(index));
    } catch (const Refusal&) {        // a broken context runs nothing any more
      passed = passed && !state.end;  // who asks for the work at its end must find the stream, which tells of the loss
    }
    if (!passed) {
      closing_.push_back(index);
      continue;
    }
    ContextScope scope(devices_);
    scope.bind(state.device);
    const std::shared_ptr<void> keepalive =
        std::move(state.keepalive);  // let go of without the lock: it may come back here
    if (follower_) follower_->leave(index);
    std::lock_guard lock(mutex_);
    timeline_.learn_complete(last);
    timeline_.forget_marks(index);
    now_.destroy(state.mark);
    for (CUevent& event : state.marks)
      if (event) now_.destroy(std::exchange(event, nullptr));
    state.same = nullptr;
    if (state.beside) now_.destroy(std::exchange(state.beside, nullptr));
    if (state.owned) {
      ours_.erase(state.handle);
      now_.destroy(state.handle);
    } else if (const auto known = adopted_.find({state.handle, state.device});
               known != adopted_.end() && known->second == index) {
      adopted_.erase(known);
    }
    if (state.end) state.end->leave();
    state.mark = nullptr;
    state.handle = nullptr;
    spare_slots_.push_back(index);
  }
}

StreamIndex Streams::aside(std::int32_t ordinal) {
  DeviceState& device = devices_.at(ordinal);
  if (!device.aside) device.aside = create(ordinal, 0);
  return *device.aside;
}

bool Streams::stand_at_end(dataflow::AtEnd& work, Tick tick) {
  StreamState& state = at(tick.stream);
  if (state.end == &work) return true;
  if (state.end || !state.owned || state.is_lent || !state.mark || !timeline_.is_tail(tick)) return false;
  work.stand(state.end);
  return true;
}

CUresult Streams::wait(StreamIndex index, StreamIndex other) {
  const StreamState& source = streams_[other];
  if (!source.mark) return CUDA_SUCCESS;  // destroyed: all of it has passed
  if (!source.owned && !source.is_at_rest && is_captured(source.handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enter(index);
  if (const CUresult result = now_.record(source.mark, source.behind())) return result;
  return now_.wait(streams_[index].on(), source.mark);
}

void Streams::put_mark(StreamIndex index, std::uint32_t slot) {
  StreamState& state = streams_[index];
  if (!state.mark) return;  // destroyed: all of it has passed
  auto require = [&](CUresult result, const char* function) {
    if (result != CUDA_SUCCESS) throw Refusal(result, function, state.device);
  };
  if (!state.owned && !state.is_at_rest && is_captured(state.handle))
    require(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuEventRecord");
  require(now_.record(event_of(state, slot), state.behind()), "cuEventRecord");
}

CUevent Streams::event_of(StreamState& state, std::uint32_t slot) {
  if (state.marks[slot]) return state.marks[slot];
  ContextScope scope(devices_);
  scope.bind(state.device);
  if (const CUresult result = table_.cuEventCreate(&state.marks[slot], CU_EVENT_DISABLE_TIMING))
    throw Refusal(result, "cuEventCreate", state.device);
  return state.marks[slot];
}

void Streams::wait_for_mark(StreamIndex index, StreamIndex other, std::uint32_t slot, const WorkOf& of,
                            std::span<const MemoryRange> touched) {
  const StreamState& source = streams_[other];
  if (!source.mark) return;
  enter(index);
  if (const CUresult result = now_.wait(streams_[index].on(), source.marks[slot], of, touched))
    throw Refusal(result, "cuStreamWaitEvent", streams_[index].device);
}

// Afterwards it is true again that each is ordered after as much of the others as was counted on.
void Streams::restore_order() {
  ContextScope scope(devices_);
  std::erase_if(unordered_, [&](StreamIndex each) {
    const StreamState& stream = streams_[each];
    timeline_.forget_marks(each);
    if (!stream.mark) return true;  // destroyed: all of it has passed
    scope.bind(stream.device);
    const CUresult state = query(stream);
    return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;  // a broken context runs nothing any more
  });
  if (unordered_.empty()) return;
  const StreamIndex middle = *unordered_.begin();
  auto order = [&](StreamIndex stream, StreamIndex other) {
    if (stream == other) return;
    scope.bind(streams_[other].device);
    if (const CUresult result = wait(stream, other))
      throw Refusal(result, "cuStreamWaitEvent", streams_[stream].device);
  };
  for (const StreamIndex other : unordered_) order(middle, other);
  for (const StreamIndex other : unordered_) order(other, middle);
  unordered_.clear();
  rest();
}

Tick Streams::pass(StreamIndex stream) {
  const Tick now = timeline_.advance(stream, 1, true);
  Waits waits(*this);
  timeline_.mark_end(stream, waits);
  return now;
}

void Streams::after(StreamIndex stream, Tick tick) {
  Waits waits(*this);
  timeline_.after(stream, tick, waits);
}

void Streams::order(StreamIndex stream, const dataflow::Buffer& buffer, dataflow::Span span) {
  Waits waits(*this);
  buffer.hazards.each(
      span, [&](const dataflow::Hazard& hazard, dataflow::Span) { timeline_.order(stream, hazard, true, waits); });
}

std::int32_t Streams::ask(StreamIndex index) const {
  CUstream handle;
  CUcontext context;
  {
    std::lock_guard lock(mutex_);
    if (!streams_[index].mark) return 0;
    handle = streams_[index].beside ? streams_[index].beside : streams_[index].handle;
    context = streams_[index].context;
  }
  const RelaxedCaptures relaxed(table_);
  table_.cuCtxSetCurrent(context);
  const CUresult result = query(handle, context);
  return result == CUDA_ERROR_NOT_READY ? 0 : result;
}

bool Streams::is_complete(Tick tick) {
  if (timeline_.is_known_complete(tick)) return true;
  around_.require_usable();
  const StreamState& state = streams_[tick.stream];
  const auto all = timeline_.snapshot(tick.stream);
  ContextScope scope(devices_);
  scope.bind(state.device);
  const CUresult result = query(state);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) throw Refusal(result, "cuStreamQuery", state.device);
  learn(all);
  return true;
}

Few<Tick> Streams::incomplete(std::span<const Tick> ticks) {
  Few<Tick> left;
  for (const Tick tick : ticks)
    if (!is_complete(tick)) left.push_back(tick);
  return left;
}

bool Streams::has_ended(Tick tick) {
  try {
    return is_complete(tick);
  } catch (const Refusal&) {
    return true;
  }
}

Tick Streams::first_not_ended(const dataflow::Buffer& buffer) {
  Tick found;
  buffer.hazards.each([&](const dataflow::Hazard& hazard, dataflow::Span) {
    hazard.each_before(true, [&](Tick tick) {
      if (found.count == 0 && !has_ended(tick)) found = tick;
    });
  });
  return found;
}

std::uint64_t Streams::count_used(std::int32_t ordinal) const {
  std::uint64_t found = 0;
  for (StreamIndex index = 0; index < streams_.size(); ++index) {
    const StreamState& each = streams_[index];
    if (each.device != ordinal || !each.mark) continue;
    const bool others_may_use_it = !each.owned || each.is_lent;
    if (others_may_use_it || timeline_.submitted(index) > each.before) ++found;
    if (each.beside) ++found;
  }
  return found;
}

bool Streams::has_nothing_to_do(StreamIndex index) {
  return !streams_[index].mark || is_complete({index, timeline_.submitted(index)});
}

bool Streams::is_idle(std::int32_t ordinal) {
  for (StreamIndex index = 0; index < streams_.size(); ++index)
    if (streams_[index].device == ordinal && !has_nothing_to_do(index)) return false;
  return true;
}

bool Streams::is_idle() {
  for (StreamIndex index = 0; index < streams_.size(); ++index) {
    try {
      if (!has_nothing_to_do(index)) return false;
    } catch (const Refusal&) {  // a broken context runs nothing any more
    }
  }
  return true;
}

std::vector<StreamIndex> Streams::foreign_producers(const dataflow::Snapshot& complete) const {
  if (!spans_devices_) return {};
  std::vector<StreamIndex> found = timeline_.unsettled(complete);
  std::erase_if(found,
                [&](StreamIndex other) { return streams_[other].device == streams_[complete.last.stream].device; });
  return found;
}

void Streams::learn(const dataflow::Snapshot& complete) {
  if (spans_devices_) [[unlikely]]
    require_producers_well(complete);
  timeline_.learn(complete);
}

[[gnu::noinline]] void Streams::require_producers_well(const dataflow::Snapshot& complete) {
  for (const StreamIndex other : foreign_producers(complete)) {
    const StreamState& state = streams_[other];
    if (!state.mark) continue;  // destroyed: all of it has passed
    ContextScope scope(devices_);
    scope.bind(state.device);
    const CUresult result = query(state);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", state.device);
  }
}

void Streams::settle(std::int32_t ordinal) {
  now_.drain();
  ContextScope scope(devices_);
  scope.bind(ordinal);
  for (const StreamState& state : streams_) {
    if (!state.mark || state.device != ordinal || query(state) != CUDA_SUCCESS) continue;
    check(now_.synchronize(state.behind().stream), "cuStreamSynchronize");
  }
}

Streams::Mark Streams::mark(StreamIndex index) {
  const StreamState& state = streams_[index];
  ContextScope scope(devices_);
  scope.bind(state.device);
  std::vector<CUevent>& spare = spare_events_[state.device];
  CUevent event;
  if (spare.empty()) {
    event = make_event();
  } else {
    event = spare.back();
    spare.pop_back();
  }
  Mark made(timeline_.snapshot(index), state.entries, event, spare);
  check(now_.record(event, state.behind()), "cuEventRecord");
  made.note_given(now_.given());
  return made;
}

}  // namespace aiocuda::driver
