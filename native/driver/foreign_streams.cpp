// Streams of other libraries, and streams of ours whose handles they have: see streams.hpp.
#include "../dataflow/timeline.hpp"
#include "stream_calls.hpp"

namespace aiocuda::driver {

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
      if (state.users++ == 0) std::erase(left_, known->second);
      if (std::exchange(state.closing, false)) std::erase(closing_, known->second);
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
  const StreamIndex index = new_slot(device);
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
    state.users = 1;
    state.same = hold(handle, device, number);
    state.owned = false;
  }
  streams_[index].keepalive = std::move(keepalive);
  adopted_.emplace(std::pair(handle, device), index);
  return index;
}

void Streams::leave(StreamIndex index) {
  StreamState& state = streams_[index];
  if (--state.users || state.closing) return;
  left_.push_back(index);
  if (left_.size() <= most_left) return;
  const StreamIndex first = left_.front();
  left_.pop_front();
  close(first);
}

CUstream Streams::lend(StreamIndex index) {
  StreamState& state = streams_.at(index);
  if (state.owned) {
    enter(index);
    state.is_lent = true;
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
  if (const auto ours = ours_.find(handle); ours != ours_.end() && streams_[ours->second].is_lent) {
    std::shared_ptr<void>& held = streams_[ours->second].held;
    if (!held) held = std::make_shared<char>();
    return held;
  }
  const auto known = adopted_.find({handle, device});
  if (known == adopted_.end() || streams_[known->second].number != number) return nullptr;
  return streams_[known->second].keepalive;
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

void Streams::require_not_captured(CUstream theirs, std::int32_t device) const {
  if (is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamIsCapturing", device);
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

std::optional<StreamIndex> Streams::find(CUstream handle, std::int32_t device) const {
  if (const auto ours = ours_.find(handle); ours != ours_.end() && streams_[ours->second].device == device)
    return ours->second;
  const auto adopted = adopted_.find({handle, device});
  if (adopted == adopted_.end()) return {};
  unsigned long long number = 0;
  check(table_.cuStreamGetId(handle, &number), "cuStreamGetId");
  if (streams_[adopted->second].number != number) return {};  // another stream has its handle now
  return adopted->second;
}

// Calls `f(after)`, where `after(tick)` has the stream wait.
template <class F>
void Streams::order_theirs(CUstream theirs, std::int32_t device, F&& f) {
  if (is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamWaitEvent", device);
  const std::optional<StreamIndex> known = find(theirs, device);
  if (!known) {
    WaitsElsewhere elsewhere(*this, theirs);
    return f([&](Tick tick) { timeline_.after_elsewhere(tick, elsewhere); });
  }
  // Somebody has its handle, and it is ordered after much already.
  lend(*known);
  Waits here(*this);
  f([&](Tick tick) { timeline_.after(*known, tick, here); });
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

}  // namespace aiocuda::driver
