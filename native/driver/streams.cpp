// Streams: see streams.hpp.
#include "streams.hpp"

#include <algorithm>

namespace aiocuda::driver {
namespace {

// A handle that goes back to the driver unless it is kept.
template <class Handle>
class Fresh {
 public:
  Fresh(const DriverNow& now, Handle handle) : now_(now), handle_(handle) {}
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
  ~Fresh() {
    if (handle_) now_.destroy(handle_);
  }
  Handle keep() { return std::exchange(handle_, nullptr); }

 private:
  const DriverNow& now_;
  Handle handle_;
};

}  // namespace

// The timeline's calls. A refused call ends its decision, and the timeline does not remember it then.
class Streams::Waits {
 public:
  explicit Waits(Streams& streams) : streams_(streams) {}
  void mark(StreamIndex stream, std::uint32_t slot) { streams_.put_mark(stream, slot); }
  void wait(StreamIndex stream, StreamIndex other, std::uint32_t slot) { streams_.wait_for_mark(stream, other, slot); }

 private:
  Streams& streams_;
};

CUevent Streams::make_event() const {
  CUevent event = nullptr;
  check(table_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

// A slot is used again when its stream has been destroyed. Its counts go on: ticks of the old stream are
// below them, and have all passed.
StreamIndex Streams::new_slot() {
  std::lock_guard lock(mutex_);
  if (!spare_slots_.empty()) {
    const StreamIndex index = spare_slots_.back();
    spare_slots_.pop_back();
    const std::uint32_t generation = streams_[index].generation + 1;
    streams_[index] = StreamState{};
    streams_[index].generation = generation;
    streams_[index].before = timeline_.submitted(index);
    return index;
  }
  streams_.emplace_back();
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
  const StreamIndex index = new_slot();
  std::lock_guard lock(mutex_);
  StreamState& state = streams_[index];
  state.handle = stream.keep();
  state.device = device;
  state.context = context;
  state.mark = mark.keep();
  return index;
}

StreamIndex Streams::adopt(CUstream handle, std::int32_t device, std::shared_ptr<void> keepalive) {
  ContextScope scope(devices_);
  scope.bind(device);
  const auto known = adopted_.find({handle, device});
  const bool is_known = known != adopted_.end();
  // The question for its number would end their capture. A stream that was known may be named meanwhile: nothing is
  // submitted to it before it is asked again.
  const bool may_ask = !is_captured(handle);
  if (!may_ask && !is_known) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamIsCapturing", device);
  unsigned long long number = 0;
  if (may_ask) check(table_.cuStreamGetId(handle, &number), "cuStreamGetId");
  if (is_known) {
    StreamState& state = streams_[known->second];
    if (!may_ask || state.number == number) {
      if (keepalive) state.keepalive.swap(keepalive);  // the former one goes at the end: it may come back here
      return known->second;
    }
    // The stream was destroyed. The driver gives a handle out again when all work of the former stream has passed.
    const StreamIndex former = known->second;
    adopted_.erase(known);
    close(former);
  }
  CUstream made = nullptr;
  if (!is_default(handle))
    check(table_.cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
  Fresh beside(now_, made);
  Fresh mark(now_, make_event());
  const StreamIndex index = new_slot();
  {
    std::lock_guard lock(mutex_);
    StreamState& state = streams_[index];
    state.handle = handle;
    state.beside = beside.keep();
    state.is_at_rest = made != nullptr;
    state.device = device;
    state.context = devices_.at(device).context;
    state.mark = mark.keep();
    state.number = number;
    state.same = hold(handle, device, number);
    state.owned = false;
  }
  streams_[index].keepalive = std::move(keepalive);
  adopted_.emplace(std::pair(handle, device), index);
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
      lent_.erase(state.handle);
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

bool Streams::is_captured(CUstream handle) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult answer = table_.cuStreamIsCapturing(handle, &status);
  return is_capture_error(answer) || (answer == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

bool Streams::has_passed_all(CUstream theirs, std::int32_t device) const {
  const CUresult result = query(theirs, devices_.at(device).context);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", device);
  return result == CUDA_SUCCESS;
}

void Streams::follow(StreamIndex index, CUstream theirs) {
  StreamState& state = streams_[index];
  state.is_kept = true;
  if (state.handle == theirs) return;
  ContextScope scope(devices_);
  scope.bind(state.device);
  if (is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuEventRecord", state.device);
  check(now_.record(state.mark, theirs), "cuEventRecord");
  check(now_.wait(state.handle, state.mark), "cuStreamWaitEvent");
}

void Streams::require_not_captured(StreamIndex index) {
  const StreamState& state = streams_[index];
  if (!state.owned) require_not_captured(state.handle, state.device);
}

void Streams::require_not_captured(CUstream theirs, std::int32_t device) const {
  if (is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamIsCapturing", device);
}

bool Streams::stand_at_end(dataflow::AtEnd& work, Tick tick) {
  StreamState& state = streams_[tick.stream];
  if (state.end == &work) return true;
  if (state.end || !state.owned || state.is_lent || !state.mark || !timeline_.is_tail(tick)) return false;
  work.stand(state.end);
  return true;
}

CUstream Streams::lend(StreamIndex index) {
  StreamState& state = streams_.at(index);
  if (state.owned) {
    enter(index);
    state.is_lent = true;
    lent_[state.handle] = index;
  }
  now_.drain();
  return state.handle;
}

void Streams::wake(StreamIndex index) {
  streams_[index].is_at_rest = false;
  woken_.push_back(index);
}

void Streams::rest_woken() noexcept {
  std::erase_if(woken_, [this](StreamIndex index) {
    StreamState& state = streams_[index];
    if (!state.mark) return true;  // destroyed
    try {
      ContextScope scope(devices_);
      scope.bind(state.device);
      if (is_captured(state.handle)) return false;  // an event there would be one of the capture
      CUresult result = now_.record(state.mark, state.on());
      if (result == CUDA_SUCCESS) result = now_.wait(On{state.beside, state.context, false}, state.mark);
      state.is_at_rest = result == CUDA_SUCCESS || breaks_context(result);  // such a one runs nothing any more
    } catch (const Refusal&) {
      return false;
    }
    return state.is_at_rest;
  });
}

std::shared_ptr<void> Streams::hold(CUstream handle, std::int32_t device, unsigned long long number) {
  if (const auto ours = lent_.find(handle); ours != lent_.end()) {
    std::shared_ptr<void>& held = streams_[ours->second].held;
    if (!held) held = std::make_shared<char>();
    return held;
  }
  const auto known = adopted_.find({handle, device});
  if (known == adopted_.end() || streams_[known->second].number != number) return nullptr;
  return streams_[known->second].keepalive;
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

// A relay's marks: its stream waits for them, and does nothing else.
class Streams::MarksElsewhere {
 public:
  MarksElsewhere(Streams& streams, CUstream theirs) : streams_(streams), theirs_(theirs) {}
  void mark(StreamIndex stream, std::uint32_t slot) {
    StreamState& state = streams_.streams_[stream];
    const CUevent event = streams_.event_of(state, slot);
    check(streams_.now_.record(event, theirs_), "cuEventRecord");
    check(streams_.now_.wait(state.handle, event), "cuStreamWaitEvent");
  }

 private:
  Streams& streams_;
  const CUstream theirs_;
};

Tick Streams::pass_behind(StreamIndex stream, CUstream theirs) {
  enter(stream);
  const Tick now = timeline_.advance(stream, 1, true);
  MarksElsewhere marks(*this, theirs);
  timeline_.mark_end(stream, marks);
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

// The timeline's calls for a stream that it does not know.
class Streams::WaitsElsewhere {
 public:
  WaitsElsewhere(Streams& streams, CUstream theirs) : streams_(streams), theirs_(theirs) {}
  void mark(StreamIndex stream, std::uint32_t slot) { streams_.put_mark(stream, slot); }
  void wait(StreamIndex other, std::uint32_t slot) {
    const StreamState& source = streams_.streams_[other];
    if (source.mark) check(streams_.now_.wait(theirs_, source.marks[slot]), "cuStreamWaitEvent");
  }

 private:
  Streams& streams_;
  const CUstream theirs_;
};

// Calls `f(after)`, where `after(tick)` has the stream wait.
template <class F>
void Streams::order_theirs(CUstream theirs, std::int32_t device, F&& f) {
  if (is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamWaitEvent", device);
  // One that we know, whose handle somebody has: it is ordered after much already.
  const auto number = [&] {
    unsigned long long found = 0;
    check(table_.cuStreamGetId(theirs, &found), "cuStreamGetId");
    return found;
  };
  const auto known = std::find_if(streams_.begin(), streams_.end(), [&](const StreamState& each) {
    return each.handle == theirs && each.device == device && each.mark && (each.owned || each.number == number());
  });
  if (known == streams_.end()) {
    WaitsElsewhere elsewhere(*this, theirs);
    return f([&](Tick tick) { timeline_.after_elsewhere(tick, elsewhere); });
  }
  const auto index = static_cast<StreamIndex>(known - streams_.begin());
  lend(index);
  Waits here(*this);
  f([&](Tick tick) { timeline_.after(index, tick, here); });
  rest();
}

void Streams::order_others(CUstream theirs, std::int32_t device, const dataflow::Buffer& buffer,
                           std::span<const dataflow::Span> pieces, bool writes) {
  order_theirs(theirs, device, [&](auto&& after) {
    for (const dataflow::Span piece : pieces)
      buffer.hazards.each(piece,
                          [&](const dataflow::Hazard& hazard, dataflow::Span) { hazard.each_before(writes, after); });
  });
}

void Streams::order_others(CUstream theirs, std::int32_t device, std::span<const Tick> ticks) {
  order_theirs(theirs, device, [&](auto&& after) {
    for (const Tick tick : ticks) after(tick);
  });
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

std::vector<Tick> Streams::incomplete(std::span<const Tick> ticks) {
  std::vector<Tick> left;
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

bool Streams::has_ended(const dataflow::Buffer& buffer) {
  bool ended = true;
  buffer.hazards.each([&](const dataflow::Hazard& hazard, dataflow::Span) {
    hazard.each_before(true, [&](Tick tick) { ended = ended && has_ended(tick); });
  });
  return ended;
}

std::uint64_t Streams::count(std::int32_t ordinal) const {
  return static_cast<std::uint64_t>(std::count_if(streams_.begin(), streams_.end(), [ordinal](const StreamState& each) {
    return each.device == ordinal && each.mark;
  }));
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
  for (StreamIndex index = 0; index < streams_.size(); ++index)
    if (!has_nothing_to_do(index)) return false;
  return true;
}

std::vector<StreamIndex> Streams::foreign_producers(const dataflow::Timeline::Snapshot& complete) const {
  std::vector<StreamIndex> found = timeline_.unsettled(complete);
  std::erase_if(found,
                [&](StreamIndex other) { return streams_[other].device == streams_[complete.last.stream].device; });
  return found;
}

void Streams::learn(const dataflow::Timeline::Snapshot& complete) {
  for (const StreamIndex other : foreign_producers(complete)) {
    const StreamState& state = streams_[other];
    if (!state.mark) continue;  // destroyed: all of it has passed
    ContextScope scope(devices_);
    scope.bind(state.device);
    const CUresult result = query(state);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", state.device);
  }
  timeline_.learn(complete);
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
