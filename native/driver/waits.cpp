// Waits for streams: see waits.hpp.
#include "waits.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {
namespace {

// A broken context is noticed within two of these; the promise is 100 ms.
constexpr std::chrono::milliseconds ask_interval{20};
// How long the process' end waits for an answer of the driver's to the reactor.
constexpr std::chrono::seconds last_question{1};
// Streams that can be waited for through flags, a cache line each; more than that are asked about.
constexpr std::size_t flag_count = 1024;
// A stream with much to do writes its flag after so many submissions: 0.7 us each time on an H200.
constexpr std::uint64_t progress_interval = 128;

}  // namespace

Waits::Waits(Devices& devices, Streams& streams, dataflow::Timeline& timeline, completion::Pending& pending,
             Surroundings& around, std::function<void(StreamIndex)> look)
    : devices_(devices),
      streams_(streams),
      timeline_(timeline),
      pending_(pending),
      around_(around),
      look_(std::move(look)),
      table_(devices.table()),
      now_(devices.now()) {
  streams.set_follower(*this);
}

void Waits::start(CUcontext context) {
  if (reactor_) return;
  ContextScope scope(devices_);
  scope.bind(context);
  if (!slots_) {  // another start may have failed: they stay as long as the process
    void* memory = nullptr;
    constexpr std::size_t words = flag_count * completion::FlagTable::flag_stride,
                          size_bytes = words * sizeof(std::uint32_t);
    auto allocate = [&] {
      return table_.cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    };
    if (const CUresult result = around_.call_slowly(allocate))
      throw Refusal::of_host_memory(result, "cuMemHostAlloc", size_bytes);
    if (slots_) {  // another thread, which opens another device, was faster
      around_.call_slowly([&] { return table_.cuMemFreeHost(memory); });
    } else {
      std::memset(memory, 0, size_bytes);
      slots_.emplace(std::span(static_cast<std::uint32_t*>(memory), words));
    }
    if (reactor_) return;
  }
  reactor_ = std::make_unique<completion::Reactor>(
      pending_, *slots_, points_, [this](const void* asked) { return has_passed(*static_cast<const Asked*>(asked)); },
      [this](StreamIndex stream) {
        look_(stream);
        return streams_.ask(stream);
      },
      ask_interval);
}

void Waits::shut_down() {
  if (reactor_ && !reactor_->stops_within(last_question))
    static_cast<void>(reactor_.release());  // NOLINT(bugprone-unused-return-value): it is left alone for good
  reactor_.reset();
}

[[gnu::cold]] void Waits::make_flags(StreamIndex stream) {
  while (flags_.size() <= stream) flags_.push_back(std::make_unique<Flags>());
}

CUstream Waits::side_stream(Flags& flags) {
  if (!flags.side) {
    CUstream side = nullptr;
    check(table_.cuStreamCreateWithPriority(&side, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
    flags.side = side;
  }
  return flags.side;
}

bool Waits::has_left(StreamIndex index) {
  if (index >= flags_.size()) return true;
  const Flags& flags = *flags_[index];
  for (const auto& slot : {flags.slot, flags.side_slot}) {
    if (!slot || slots_->is_settled(*slot)) continue;
    const StreamState& stream = streams_.at(index);
    const CUresult result = streams_.query(stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", stream.device);
    return false;
  }
  return true;
}

void Waits::leave(StreamIndex index) {
  if (index >= flags_.size()) return;
  const Flags left = std::exchange(*flags_[index], {});
  if (left.side) now_.destroy(left.side);
  for (const auto& slot : {left.slot, left.side_slot})
    if (slot) slots_->release(*slot);
}

// Has the stream write the next number of a slot; none where there is no slot, or the device cannot.
std::optional<completion::Ticket> Waits::write_ticket(std::int32_t ordinal, On on,
                                                      std::optional<completion::Slot>& slot) {
  DeviceState& device = devices_.at(ordinal);
  if (!device.writes_flags) return std::nullopt;
  if (!slot) slot = slots_->acquire();
  if (!slot) return std::nullopt;
  const completion::Ticket ticket = slots_->issue(*slot);
  on.is_shown = on.is_shown || !device.has_written_flags;  // the first answer is waited for
  const CUresult result = now_.write(on, reinterpret_cast<CUdeviceptr>(slots_->flag(*slot)), ticket.number);
  if (result == CUDA_SUCCESS) {
    device.has_written_flags = true;
    return ticket;
  }
  slots_->take_back(ticket);
  if (result != CUDA_ERROR_NOT_SUPPORTED) throw Refusal(result, "cuStreamWriteValue32", ordinal);
  device.writes_flags = false;
  return std::nullopt;
}

Waits::Armed Waits::arm(std::span<const Tick> ticks, std::span<const Streams::Mark> marks, bool whoever) {
  ContextScope scope(devices_);
  Armed armed;
  for (const Tick tick : ticks) {
    const StreamState& stream = streams_.at(tick.stream);
    if (!stream.mark) continue;  // destroyed: all of it has passed
    if (std::any_of(armed.parts.begin(), armed.parts.end(),
                    [&](const Armed::Part& part) { return part.stream == tick.stream; }))
      continue;
    scope.bind(stream.device);
    if (!stream.owned || !marks.empty()) [[unlikely]] {
      if (auto part = arm_mark(tick, stream, marks)) {
        armed.parts.push_back(std::move(*part));
        continue;
      }
    }
    Flags& flags = flags_of(tick.stream);
    learn_written(flags);
    if (const Ticketed* const found = whoever ? nullptr : ticket_behind(flags, tick.count)) {
      armed.parts.emplace_back(Armed::Part{tick.stream, found->ticket});
    } else if (const auto ticket = write_ticket(stream.device, stream.behind(), flags.slot)) {
      flags.tickets.push_back({*ticket, timeline_.snapshot(tick.stream)});
      armed.parts.emplace_back(Armed::Part{tick.stream, ticket});
    } else {
      armed.parts.emplace_back(Armed::Part{tick.stream, std::nullopt, timeline_.snapshot(tick.stream)});
    }
  }
  return armed;
}

// Arms a wait beside the stream, for a mark behind which more was submitted. None: a wait for the stream's end will do.
[[gnu::noinline]] std::optional<Waits::Armed::Part> Waits::arm_mark(Tick tick, const StreamState& stream,
                                                                    std::span<const Streams::Mark> marks) {
  const auto marked =
      std::find_if(marks.begin(), marks.end(), [&](const Streams::Mark& each) { return each.covers(tick); });
  const bool is_theirs = !stream.owned && !stream.is_at_rest &&
                         streams_.is_captured(stream.handle);  // what were written there would be captured
  if (is_theirs && marked == marks.end())
    throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamWriteValue32", stream.device);
  if (marked == marks.end() || !(is_theirs || marked->is_overtaken(stream, timeline_.submitted(tick.stream))))
    return std::nullopt;
  Flags& flags = flags_of(tick.stream);
  const On on{side_stream(flags), stream.context};
  check(now_.wait(on, marked->event()), "cuStreamWaitEvent");
  return Armed::Part{tick.stream, write_ticket(stream.device, on, flags.side_slot), marked->complete(),
                     marked->event()};
}

// Learns from the stream's tickets that are written, and lets go of them.
void Waits::learn_written(Flags& flags) {
  while (!flags.tickets.empty() && slots_->has_passed(flags.tickets.front().ticket)) {
    streams_.learn(flags.tickets.front().complete);
    flags.tickets.pop_front();
  }
}

// The first ticket that is written when a count has passed.
const Waits::Ticketed* Waits::ticket_behind(const Flags& flags, std::uint64_t count) const {
  // Work that was submitted just now is behind all of them.
  if (flags.tickets.empty() || flags.tickets.back().complete.last.count < count) return nullptr;
  const auto found =
      std::lower_bound(flags.tickets.begin(), flags.tickets.end(), count,
                       [](const Ticketed& each, std::uint64_t asked) { return each.complete.last.count < asked; });
  return &*found;
}

// Returns what a part teaches when it has passed: nothing, if that was learnt since the part was armed.
dataflow::Snapshot Waits::complete_with(const Armed::Part& part) {
  if (!part.is_at_end()) return part.complete;
  const auto& tickets = flags_of(part.stream).tickets;
  const auto found = std::find_if(tickets.rbegin(), tickets.rend(),
                                  [&](const Ticketed& each) { return each.ticket.number == part.ticket->number; });
  return found == tickets.rend() ? dataflow::Snapshot{{part.stream, 0}, {}} : found->complete;
}

void Waits::note_progress(StreamIndex index) {
  Flags& flags = index < flags_.size() ? *flags_[index] : flags_of(index);
  const std::uint64_t held = timeline_.submitted(index);
  if (held - flags.noted < progress_interval) return;
  flags.noted = held;
  if (timeline_.backlog(index) < progress_interval) return;
  const StreamState& stream = streams_.at(index);
  if (const auto ticket = write_ticket(stream.device, stream.behind(), flags.slot)) {
    learn_written(flags);
    flags.tickets.push_back({*ticket, timeline_.snapshot(index)});
  }
}

bool Waits::is_full(StreamIndex index, std::uint64_t most) {
  if (timeline_.backlog(index) < most) return false;
  Flags& flags = flags_of(index);
  learn_written(flags);
  if (timeline_.backlog(index) < most) return false;
  return !flags.tickets.empty() || !streams_.is_complete({index, timeline_.submitted(index)});
}

bool Waits::has_passed(const Armed& armed) const {
  return std::all_of(armed.parts.begin(), armed.parts.end(),
                     [this](const Armed::Part& part) { return part.ticket && slots_->has_passed(*part.ticket); });
}

void Waits::learn(const Armed& armed) {
  for (const Armed::Part& part : armed.parts)
    if (part.is_at_end())
      learn_written(flags_of(part.stream));  // it is among the stream's, or was learnt from already
    else
      streams_.learn(part.complete);
}

void Waits::note_wait(completion::Pending::Clock::duration time) {
  const float us = std::chrono::duration<float, std::micro>(time).count();
  const float before = recent_wait_us.load(std::memory_order_relaxed);
  recent_wait_us.store(before + (us - before) / 8, std::memory_order_relaxed);
}

// A completion, and what is known once its parts have passed: one allocation for both.
struct Waits::WatchedStreams final : completion::Completion {
  struct Part {
    Part(const Waits& of, const dataflow::Snapshot& complete)
        : implied(of.timeline_.progress_of(complete)), foreign(of.streams_.foreign_producers(complete)) {}

    Few<dataflow::Progress> implied;
    std::vector<StreamIndex> foreign;
  };

  WatchedStreams(Waits& of, const Armed& armed, const std::function<void()>& called)
      : Completion(static_cast<std::uint32_t>(armed.parts.size())), waits(of), then(called) {
    for (const Armed::Part& part : armed.parts) parts.emplace_back(of, of.complete_with(part));
  }

  // On the reactor's thread, before the part counts.
  std::int32_t passed(const Part& part) const {
    for (const StreamIndex other : part.foreign)
      if (const std::int32_t error = waits.streams_.ask(other)) return error;
    for (const dataflow::Progress& progress : part.implied) progress.learn();
    waits.note_wait(completion::Pending::Clock::now() - begun);
    if (then) then();
    return 0;
  }

  Waits& waits;
  const std::function<void()> then;
  const completion::Pending::Clock::time_point begun = completion::Pending::Clock::now();
  Few<Part> parts;
};

std::shared_ptr<completion::Completion> Waits::watch(const Armed& armed, const std::function<void()>& then) {
  const auto completion = std::make_shared<WatchedStreams>(*this, armed, then);
  const WatchedStreams::Part* learnt = completion->parts.begin();  // none is added any more
  for (const Armed::Part& part : armed.parts) {
    // What is waiting keeps the completion. Two pointers fit into a function without memory of its own.
    const std::uint64_t number =
        pending_.add({completion, part.stream, [of = completion.get(), learnt] { return of->passed(*learnt); }});
    ++learnt;
    if (part.ticket) {
      slots_->watch(*part.ticket, number);
    } else {
      without_flag.fetch_add(1, std::memory_order_relaxed);
      try {
        watch_point(part, number);
      } catch (const Refusal&) {
        pending_.withdraw(number);
        throw;
      }
    }
    reactor_->wake();
  }
  return completion;
}

// It tells nothing of our own work. A fault breaks all streams of the device, so the default one is asked about.
std::shared_ptr<completion::Completion> Waits::watch(const std::shared_ptr<const Event>& event) {
  auto completion = std::make_shared<completion::Completion>(1);
  const StreamIndex stream = devices_.at(event->device()).default_stream;
  auto watched = std::make_shared<const WatchedEvent>(WatchedEvent{{event->context(), event->handle()}, event});
  auto passed = [this, begun = completion::Pending::Clock::now()] {
    note_wait(completion::Pending::Clock::now() - begun);
    return 0;
  };
  const std::uint64_t number = pending_.add({completion, stream, passed});
  points_.watch(event->series(), {watched, &watched->asked}, number, event->number());
  reactor_->wake();
  return completion;
}

// An event and not a host function: of those the driver takes 56 that are pending, and the next one waits with the GIL.
void Waits::watch_point(const Armed::Part& part, std::uint64_t number) {
  const StreamState& stream = streams_.at(part.stream);
  ContextScope scope(devices_);
  scope.bind(stream.device);
  const bool is_aside = part.event != nullptr;
  // At a stream's end it is in the stream itself: where flags are used up, streams are many, and making more of them
  // may wait for what runs.
  const CUstream where = is_aside ? side_stream(flags_of(part.stream)) : stream.behind().stream;
  if (is_aside) check(now_.wait(where, part.event), "cuStreamWaitEvent");
  auto point = std::make_shared<const PointEvent>(streams_, spare_events_[stream.device], stream.context);
  check(now_.record(point->asked.event, where), "cuEventRecord");
  points_.watch(std::uint64_t{part.stream} * 2 + is_aside, {point, &point->asked}, number);
}

CUevent Waits::SpareEvents::take() {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return nullptr;
  const CUevent event = events_.back();
  events_.pop_back();
  return event;
}

Waits::PointEvent::PointEvent(const Streams& streams, SpareEvents& spare, CUcontext context)
    : asked{context, spare.take()}, spare_(spare) {
  if (!asked.event) asked.event = streams.make_event();
}

// On the reactor's thread.
bool Waits::has_passed(const Asked& asked) const {
  const RelaxedCaptures relaxed(table_);
  table_.cuCtxSetCurrent(asked.context);
  return now_.query(asked.event, asked.context) == CUDA_SUCCESS;
}

}  // namespace aiocuda::driver
