// Waiting: tickets that streams write, the reactor that looks for them, events that it asks about where there are none.
#include <algorithm>
#include <cstring>
#include <span>

#include "engine.hpp"

namespace aiocuda::driver {
namespace {

// A broken context is noticed within two of these; the promise is 100 ms.
constexpr std::chrono::milliseconds ask_interval{20};
// Streams that can be waited for through flags, a cache line each; more than that are asked about.
constexpr std::size_t flag_count = 1024;
// A stream with much to do writes its flag after so many submissions: 0.7 us each time on an H200.
constexpr std::uint64_t progress_interval = 128;

}  // namespace

void Engine::start_reactor(std::int32_t ordinal) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  if (!slots_) {  // another start may have failed: they stay as long as the process
    void* memory = nullptr;
    constexpr std::size_t words = flag_count * completion::SlotTable::flag_stride, size_bytes = words * sizeof(std::uint32_t);
    if (const CUresult result = table.cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
      throw Refusal::of_host_memory(result, "cuMemHostAlloc", size_bytes);
    std::memset(memory, 0, size_bytes);
    slots_.emplace(std::span(static_cast<std::uint32_t*>(memory), words));
  }
  reactor_ = std::make_unique<completion::Reactor>(
      pending, *slots_, points_, [this](const void* point) { return has_passed(*static_cast<const PointEvent*>(point)); },
      [this](StreamIndex stream) {
        lines.look(stream);
        lines.look(stream | completion::memory_bit);
        return ask(stream);
      },
      ask_interval);
}

CUstream Engine::side_stream(StreamState& state) {
  if (!state.side) {
    CUstream side = nullptr;
    check(table.cuStreamCreateWithPriority(&side, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
    std::lock_guard lock(streams_mutex_);
    state.side = side;
  }
  return state.side;
}

// Has the stream write the next number of a slot; none where there is no slot, or the device cannot.
std::optional<completion::Ticket> Engine::write_ticket(StreamState& state, CUstream stream, std::optional<completion::Slot>& slot) {
  DeviceState& home = device(state.device);
  if (!home.writes_flags) return std::nullopt;
  if (!slot) slot = slots_->acquire();
  if (!slot) return std::nullopt;
  const completion::Ticket ticket = slots_->issue(*slot);
  const auto address = reinterpret_cast<CUdeviceptr>(slots_->flag(*slot));
  const CUresult result = table.cuStreamWriteValue32(stream, address, ticket.number, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result == CUDA_SUCCESS) return ticket;
  slots_->take_back(ticket);
  if (result != CUDA_ERROR_NOT_SUPPORTED) throw Refusal(result, "cuStreamWriteValue32");
  home.writes_flags = false;
  return std::nullopt;
}

Engine::Armed Engine::arm(const std::vector<Tick>& ticks, const std::vector<Mark>& marks, bool whoever) {
  ContextScope scope(*this);
  Armed armed;
  for (const Tick tick : ticks) {
    StreamState& state = streams_[tick.stream];
    if (!state.mark) continue;  // destroyed: all of it has passed
    if (std::any_of(armed.parts.begin(), armed.parts.end(), [&](const Armed::Part& part) { return part.stream == tick.stream; })) continue;
    scope.bind(state.device);
    const auto marked = std::find_if(marks.begin(), marks.end(), [&](const Mark& each) { return each.covers(tick); });
    const std::uint64_t held = timeline.submitted(tick.stream);
    const bool is_theirs = !state.owned && is_captured(state.handle);  // what were written there would be captured
    if (is_theirs && marked == marks.end()) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamWriteValue32", state.device);
    if (marked != marks.end() && (is_theirs || marked->complete().last.count != held)) {
      // More has been submitted since: what is waited for is waited for beside the stream.
      const CUstream side = side_stream(state);
      check(table.cuStreamWaitEvent(side, marked->event(), CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
      armed.parts.push_back({tick.stream, write_ticket(state, side, state.side_slot), marked->complete(), marked->event()});
      continue;
    }
    const StreamState::Ticketed* found = whoever ? nullptr : ticket_behind(state, tick.count);
    if (!found) {
      const auto ticket = write_ticket(state, state.handle, state.slot);
      if (!ticket) {
        armed.parts.push_back({tick.stream, std::nullopt, timeline.snapshot(tick.stream), nullptr});
        continue;
      }
      state.tickets.push_back({*ticket, timeline.snapshot(tick.stream)});
      found = &state.tickets.back();
    }
    armed.parts.push_back({tick.stream, found->ticket, found->complete, nullptr});
  }
  return armed;
}

// The first ticket that is written when a count has passed; learns from those that are written.
const StreamState::Ticketed* Engine::ticket_behind(StreamState& state, std::uint64_t count) {
  while (!state.tickets.empty() && slots_->has_passed(state.tickets.front().ticket)) {
    learn(state.tickets.front().complete);
    state.tickets.pop_front();
  }
  const auto found = std::lower_bound(state.tickets.begin(), state.tickets.end(), count,
                                      [](const StreamState::Ticketed& each, std::uint64_t asked) { return each.complete.last.count < asked; });
  return found == state.tickets.end() ? nullptr : &*found;
}

void Engine::note_progress(StreamIndex index) {
  StreamState& state = streams_[index];
  const std::uint64_t held = timeline.submitted(index);
  if (held - state.noted < progress_interval) return;
  state.noted = held;
  if (timeline.backlog(index) < progress_interval) return;
  if (const auto ticket = write_ticket(state, state.handle, state.slot)) {
    ticket_behind(state, held);
    state.tickets.push_back({*ticket, timeline.snapshot(index)});
  }
}

bool Engine::is_full(StreamIndex index, std::uint64_t most) {
  if (timeline.backlog(index) < most) return false;
  StreamState& state = streams_[index];
  ticket_behind(state, 0);
  if (timeline.backlog(index) < most) return false;
  return !state.tickets.empty() || !is_complete({index, timeline.submitted(index)});
}

completion::Level Engine::level(completion::Lane lane) {
  const StreamIndex stream = completion::stream_of(lane);
  if (lane & completion::memory_bit) {
    static const auto none = std::make_shared<const std::atomic<std::uint64_t>>(0);
    return {account(streams_[stream].device).used_bytes, none};
  }
  dataflow::Progress progress = timeline.progress(stream);
  return {progress.count, std::move(progress.counter)};
}

void Engine::keep_moving(completion::Lane lane) {
  if (lane & completion::memory_bit) return lines.note(lane, level(lane));
  const StreamIndex stream = lane;
  const auto count = lines.next_watch(stream, level(stream));
  if (!count) return;
  const Armed armed = arm({{stream, *count}}, {});
  if (armed.parts.empty()) return lines.has_room(stream);  // destroyed: all of it has passed
  lines.set_watch(stream, watch(armed, [this, stream] { lines.has_room(stream); }));
}

bool Engine::has_passed(const Armed& armed) const {
  return std::all_of(armed.parts.begin(), armed.parts.end(), [this](const Armed::Part& part) { return part.ticket && slots_->has_passed(*part.ticket); });
}

void Engine::learn(const Armed& armed) {
  for (const Armed::Part& part : armed.parts) learn(part.complete);
}

void Engine::note_wait(completion::Pending::Clock::duration time) {
  const float us = std::chrono::duration<float, std::micro>(time).count();
  const float before = recent_wait_us.load(std::memory_order_relaxed);
  recent_wait_us.store(before + (us - before) / 8, std::memory_order_relaxed);
}

std::shared_ptr<completion::Completion> Engine::watch(const Armed& armed, const std::function<void()>& then) {
  ContextScope scope(*this);
  auto completion = std::make_shared<completion::Completion>(static_cast<std::uint32_t>(armed.parts.size()));
  const auto now = completion::Pending::Clock::now();
  for (const Armed::Part& part : armed.parts) {
    auto passed = [this, now, then, implied = timeline.progress_of(part.complete), foreign = foreign_producers(part.complete)] {
      for (const StreamIndex other : foreign)
        if (const std::int32_t error = ask(other)) return error;
      for (const dataflow::Progress& progress : implied) progress.learn();
      note_wait(completion::Pending::Clock::now() - now);
      if (then) then();
      return 0;
    };
    const std::uint64_t number = pending.add({completion, part.stream, std::move(passed), now});
    if (part.ticket) {
      slots_->watch(*part.ticket, number);
    } else {
      without_flag.fetch_add(1, std::memory_order_relaxed);
      try {
        watch_point(part, number);
      } catch (const Refusal&) {
        pending.withdraw(number);
        throw;
      }
    }
    reactor_->wake();
  }
  return completion;
}

// An event and not a host function: of those the driver takes 56 that are pending, and the next one waits with the GIL.
void Engine::watch_point(const Armed::Part& part, std::uint64_t number) {
  StreamState& state = streams_[part.stream];
  ContextScope scope(*this);
  scope.bind(state.device);
  const bool is_aside = part.event != nullptr;
  // At a stream's end it is in the stream itself: where flags are used up, streams are many, and making more of them may
  // wait for what runs.
  const CUstream where = is_aside ? side_stream(state) : state.handle;
  if (is_aside) check(table.cuStreamWaitEvent(where, part.event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
  auto point = std::make_shared<const PointEvent>(*this, state.device);
  check(table.cuEventRecord(point->event(), where), "cuEventRecord");
  points_.watch(std::uint64_t{part.stream} * 2 + is_aside, std::move(point), number);
}

CUevent Engine::SpareEvents::take() {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return nullptr;
  const CUevent event = events_.back();
  events_.pop_back();
  return event;
}

Engine::PointEvent::PointEvent(Engine& engine, std::int32_t device)
    : spare_(engine.spare_point_events_[static_cast<std::size_t>(device)]), context_(engine.device(device).context), event_(spare_.take()) {
  if (!event_) event_ = engine.make_event();
}

// The reactor's questions, from its own thread.
bool Engine::has_passed(const PointEvent& point) {
  const RelaxedCaptures relaxed(table);
  table.cuCtxSetCurrent(point.context());
  return table.cuEventQuery(point.event()) == CUDA_SUCCESS;
}

std::int32_t Engine::ask(StreamIndex index) {
  CUstream handle;
  CUcontext context;
  {
    std::lock_guard lock(streams_mutex_);
    handle = streams_[index].handle;
    if (!streams_[index].mark) return 0;
    context = devices_[static_cast<std::size_t>(streams_[index].device)]->context;
  }
  const RelaxedCaptures relaxed(table);
  table.cuCtxSetCurrent(context);
  const CUresult result = query(handle);
  return result == CUDA_ERROR_NOT_READY ? 0 : result;
}

}  // namespace aiocuda::driver
