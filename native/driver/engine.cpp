#include "engine.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

namespace aiocuda::driver {
namespace {

// A broken context is noticed within two of these; the promise is 100 ms.
constexpr std::chrono::milliseconds ask_interval{20};
// Streams that can be waited for through flags, a cache line each; more than that are told by host functions.
constexpr std::size_t flag_count = 1024;
// A stream with much to do writes its flag after so many submissions: 0.7 us each time on an H200.
constexpr std::uint64_t progress_interval = 128;

void check(CUresult result, const char* function) {
  if (result != CUDA_SUCCESS) throw Refusal(result, function);
}

// The device hands back the number of what has passed. No GIL, no driver call here.
void CUDA_CB tell_done(void* number) {
  Engine::get().pending.done(reinterpret_cast<std::uint64_t>(number));
}

}  // namespace

Engine& Engine::get() {
  static Engine* engine = new Engine;  // never destroyed: the driver's threads may call until the very end
  return *engine;
}

void Engine::load(Table loaded) { table = loaded; }

void Engine::open_device(std::int32_t ordinal, CUcontext context, CUmemoryPool pool) {
  const auto slot = static_cast<std::size_t>(ordinal);
  {
    std::lock_guard lock(streams_mutex_);
    if (devices_.size() <= slot) {
      devices_.resize(slot + 1);
      used_bytes_.resize(slot + 1, 0);
      spare_events_.resize(slot + 1);
    }
    if (devices_[slot]) return;
    devices_[slot] = DeviceState{context, pool};
  }
  devices_[slot]->default_stream = create_stream(ordinal, 0);
  if (!reactor_) start_reactor();
}

void Engine::start_reactor() {
  ContextScope scope(*this);
  scope.bind(streams_.front().device);
  void* memory = nullptr;
  constexpr std::size_t words = flag_count * completion::SlotTable::flag_stride;
  check(table.cuMemHostAlloc(&memory, words * sizeof(std::uint32_t), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  std::memset(memory, 0, words * sizeof(std::uint32_t));
  slots_.emplace(std::span(static_cast<std::uint32_t*>(memory), words));  // it stays as long as the process
  reactor_ = std::make_unique<completion::Reactor>(pending, *slots_, [this](StreamIndex stream) { return ask(stream); }, ask_interval);
}

DeviceState& Engine::device(std::int32_t ordinal) {
  const auto slot = static_cast<std::size_t>(ordinal);
  if (slot >= devices_.size() || !devices_[slot]) hooks.open(ordinal);
  return *devices_.at(slot);
}

// A slot is used again when its stream has been destroyed. Its counts go on: ticks of the old stream are
// below them, and have all passed.
StreamIndex Engine::new_stream_slot() {
  std::lock_guard lock(streams_mutex_);
  if (!spare_slots_.empty()) {
    const StreamIndex index = spare_slots_.back();
    spare_slots_.pop_back();
    const std::uint32_t generation = streams_[index].generation + 1;
    streams_[index] = StreamState{};
    streams_[index].generation = generation;
    streams_[index].before = timeline.submitted(index);
    return index;
  }
  streams_.emplace_back();
  return timeline.add_stream();
}

CUevent Engine::make_event() {
  CUevent event = nullptr;
  check(table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

StreamIndex Engine::create_stream(std::int32_t ordinal, int priority) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  CUstream handle = nullptr;
  check(table.cuStreamCreateWithPriority(&handle, CU_STREAM_NON_BLOCKING, priority), "cuStreamCreateWithPriority");
  const CUevent mark = make_event();
  const StreamIndex index = new_stream_slot();
  std::lock_guard lock(streams_mutex_);
  streams_[index].handle = handle;
  streams_[index].device = ordinal;
  streams_[index].mark = mark;
  return index;
}

StreamIndex Engine::adopt_stream(CUstream handle, std::int32_t ordinal, nb::object keepalive) {
  if (const auto known = adopted_.find(handle); known != adopted_.end()) {
    streams_[known->second].keepalive = std::move(keepalive);
    return known->second;
  }
  ContextScope scope(*this);
  scope.bind(ordinal);
  const CUevent mark = make_event();
  const StreamIndex index = new_stream_slot();
  {
    std::lock_guard lock(streams_mutex_);
    streams_[index].handle = handle;
    streams_[index].device = ordinal;
    streams_[index].mark = mark;
    streams_[index].owned = false;
  }
  streams_[index].keepalive = std::move(keepalive);
  adopted_.emplace(handle, index);
  return index;
}

void Engine::close_stream(StreamIndex index) {
  if (std::exchange(streams_.at(index).closing, true)) return;
  closing_.push_back(index);
  if (depth == 0) destroy_closed_streams();
}

void Engine::destroy_closed_streams() {
  if (shut_down_) return;
  for (const StreamIndex index : std::exchange(closing_, {})) {
    StreamState& state = streams_[index];
    const Tick last{index, timeline.submitted(index)};
    bool passed = true;
    try {
      passed = is_complete(last);
    } catch (const Refusal&) {  // a broken context runs nothing any more
    }
    if (!passed) {
      closing_.push_back(index);
      continue;
    }
    ContextScope scope(*this);
    scope.bind(state.device);
    const nb::object keepalive = std::move(state.keepalive);  // let go of without the lock: it may come back here
    std::lock_guard lock(streams_mutex_);
    timeline.learn_complete(last);
    timeline.forget_marks(index);
    table.cuEventDestroy(state.mark);
    for (CUevent& event : state.marks)
      if (event) table.cuEventDestroy(std::exchange(event, nullptr));
    if (state.side) table.cuStreamDestroy(state.side);
    if (state.owned) table.cuStreamDestroy(state.handle);
    state.mark = nullptr;
    state.side = state.handle = nullptr;
    for (auto* slot : {&state.slot, &state.side_slot})
      if (*slot) slots_->release(**slot);
    spare_slots_.push_back(index);
  }
}

CUresult Engine::wait(StreamIndex index, StreamIndex other) {
  const StreamState& source = streams_[other];
  if (!source.mark) return CUDA_SUCCESS;  // destroyed: all of it has passed
  if (const CUresult result = table.cuEventRecord(source.mark, source.handle)) return result;
  return table.cuStreamWaitEvent(streams_[index].handle, source.mark, CU_EVENT_WAIT_DEFAULT);
}

CUresult Engine::put_mark(StreamIndex index, std::uint32_t slot) {
  StreamState& state = streams_[index];
  if (!state.mark) return CUDA_SUCCESS;  // destroyed: all of it has passed
  if (!state.marks[slot]) {
    ContextScope scope(*this);
    scope.bind(state.device);
    if (const CUresult result = table.cuEventCreate(&state.marks[slot], CU_EVENT_DISABLE_TIMING)) return result;
  }
  return table.cuEventRecord(state.marks[slot], state.handle);
}

CUresult Engine::wait_for_mark(StreamIndex index, StreamIndex other, std::uint32_t slot) {
  const StreamState& source = streams_[other];
  if (!source.mark) return CUDA_SUCCESS;
  return table.cuStreamWaitEvent(streams_[index].handle, source.marks[slot], CU_EVENT_WAIT_DEFAULT);
}

dataflow::Lanes& Engine::lanes(const dataflow::Policy& policy, std::int32_t ordinal) {
  const auto slot = static_cast<std::size_t>(ordinal);
  if (policy.placed.size() > slot && !policy.placed[slot].streams.empty()) return policy.placed[slot];
  device(ordinal);
  const nb::list ids(hooks.lanes(nb::find(policy), ordinal));
  if (policy.placed.size() <= slot) policy.placed.resize(slot + 1);
  dataflow::Lanes& made = policy.placed[slot];
  made.streams.clear();
  for (nb::handle id : ids) made.streams.push_back(dataflow::slot_of(nb::cast<dataflow::StreamId>(id)));
  return made;
}

bool Engine::is_peer(std::int32_t ordinal, std::int32_t other) {
  DeviceState& here = device(ordinal);
  DeviceState& there = device(other);
  const auto slot = static_cast<std::size_t>(other);
  if (here.peers.size() <= slot) here.peers.resize(slot + 1);
  if (here.peers[slot]) return *here.peers[slot];
  CUdevice device_here = 0, device_there = 0;
  int is_possible = 0;
  check(table.cuDeviceGet(&device_here, ordinal), "cuDeviceGet");
  check(table.cuDeviceGet(&device_there, other), "cuDeviceGet");
  check(table.cuDeviceCanAccessPeer(&is_possible, device_here, device_there), "cuDeviceCanAccessPeer");
  if (is_possible) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    is_possible = table.cuMemPoolSetAccess(there.pool, &access, 1) == CUDA_SUCCESS;
  }
  here.peers[slot] = is_possible != 0;
  return is_possible != 0;
}

bool Engine::is_complete(Tick tick) {
  if (timeline.is_known_complete(tick)) return true;
  const StreamState& state = streams_[tick.stream];
  const auto all = timeline.snapshot(tick.stream);
  ContextScope scope(*this);
  scope.bind(state.device);
  const CUresult result = table.cuStreamQuery(state.handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuStreamQuery");
  timeline.learn(all);
  return true;
}

std::vector<Tick> Engine::incomplete(const std::vector<Tick>& ticks) {
  std::vector<Tick> left;
  for (const Tick tick : ticks)
    if (!is_complete(tick)) left.push_back(tick);
  return left;
}

Engine::Mark Engine::mark(StreamIndex index) {
  const StreamState& state = streams_[index];
  ContextScope scope(*this);
  scope.bind(state.device);
  auto& spare = spare_events_[static_cast<std::size_t>(state.device)];
  CUevent event;
  if (spare.empty()) {
    event = make_event();
  } else {
    event = spare.back();
    spare.pop_back();
  }
  Mark made(timeline.snapshot(index), state.device, event);
  check(table.cuEventRecord(event, state.handle), "cuEventRecord");
  return made;
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
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    home.writes_flags = false;
    return std::nullopt;
  }
  check(result, "cuStreamWriteValue32");
  return ticket;
}

Engine::Armed Engine::arm(const std::vector<Tick>& ticks, const std::vector<Mark>& marks, bool whoever) {
  ContextScope scope(*this);
  Armed armed;
  for (const Tick tick : ticks) {
    StreamState& state = streams_[tick.stream];
    if (!state.mark) continue;  // destroyed: all of it has passed
    if (std::any_of(armed.parts.begin(), armed.parts.end(), [&](const Armed::Part& part) { return part.stream == tick.stream; })) continue;
    scope.bind(state.device);
    const auto marked = std::find_if(marks.begin(), marks.end(), [&](const Mark& each) { return each.stream() == tick.stream; });
    const std::uint64_t held = timeline.submitted(tick.stream);
    if (marked != marks.end() && marked->complete().last.count != held) {
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
    timeline.learn(state.tickets.front().complete);
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

bool Engine::has_passed(const Armed& armed) const {
  return std::all_of(armed.parts.begin(), armed.parts.end(), [this](const Armed::Part& part) { return part.ticket && slots_->has_passed(*part.ticket); });
}

void Engine::learn(const Armed& armed) {
  for (const Armed::Part& part : armed.parts) timeline.learn(part.complete);
}

void Engine::note_wait(completion::Pending::Clock::duration time) {
  const float us = std::chrono::duration<float, std::micro>(time).count();
  const float before = recent_wait_us.load(std::memory_order_relaxed);
  recent_wait_us.store(before + (us - before) / 8, std::memory_order_relaxed);
}

std::shared_ptr<completion::Completion> Engine::watch(const Armed& armed) {
  ContextScope scope(*this);
  auto completion = std::make_shared<completion::Completion>(static_cast<std::uint32_t>(armed.parts.size()));
  const auto now = completion::Pending::Clock::now();
  for (const Armed::Part& part : armed.parts) {
    auto learn = [this, now, implied = timeline.progress_of(part.complete)] {
      for (const dataflow::Progress& progress : implied) progress.learn();
      note_wait(completion::Pending::Clock::now() - now);
    };
    const std::uint64_t number = pending.add({completion, part.stream, std::move(learn), now});
    if (part.ticket) {
      slots_->watch(*part.ticket, number);
      reactor_->wake();
      continue;
    }
    StreamState& state = streams_[part.stream];
    scope.bind(state.device);
    host_functions.fetch_add(1, std::memory_order_relaxed);
    try {
      const CUstream side = side_stream(state);
      const CUevent event = part.event ? part.event : state.mark;
      if (!part.event) check(table.cuEventRecord(event, state.handle), "cuEventRecord");
      check(table.cuStreamWaitEvent(side, event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
      check(table.cuLaunchHostFunc(side, tell_done, reinterpret_cast<void*>(number)), "cuLaunchHostFunc");
    } catch (const Refusal&) {
      pending.withdraw(number);
      throw;
    }
  }
  return completion;
}

// The reactor's question, from its own thread.
std::int32_t Engine::ask(StreamIndex index) {
  CUstream handle;
  CUcontext context;
  {
    std::lock_guard lock(streams_mutex_);
    handle = streams_[index].handle;
    if (!streams_[index].mark) return 0;
    context = devices_[static_cast<std::size_t>(streams_[index].device)]->context;
  }
  table.cuCtxSetCurrent(context);
  const CUresult result = table.cuStreamQuery(handle);
  return result == CUDA_ERROR_NOT_READY ? 0 : result;
}

dataflow::BufferRef Engine::allocate_device(std::int32_t ordinal, std::uint64_t size_bytes, StreamIndex stream,
                                            const std::function<void()>& before_retry) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal);
  if (size_bytes) {
    const CUmemoryPool pool = device(ordinal).pool;
    CUdeviceptr address = 0;
    CUresult result = table.cuMemAllocFromPoolAsync(&address, size_bytes, pool, streams_[stream].handle);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !returned_.empty()) {
      before_retry();
      collect();
      result = table.cuMemAllocFromPoolAsync(&address, size_bytes, pool, streams_[stream].handle);
    }
    check(result, "cuMemAllocFromPoolAsync");
    buffer->address = address;
    buffer->owner = this;
    buffer->insert_after(own_);
    used_bytes_[static_cast<std::size_t>(ordinal)] += size_bytes;
  }
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Engine::allocate_host(std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes);
  if (size_bytes) {
    CUresult result = page_locked_.allocate(size_bytes, buffer->address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      collect();
      page_locked_.trim();
      result = page_locked_.allocate(size_bytes, buffer->address);
    }
    check(result, "cuMemHostAlloc");
    buffer->owner = this;
  }
  return dataflow::BufferRef(std::move(buffer));
}

void Engine::take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept {
  if (shut_down_) return;
  returned_.push_back(std::move(buffer));
  if (depth == 0) collect();
}

void Engine::collect() {
  if (shut_down_) return;
  if (!retained_.empty()) drop_retained();
  borrowed_.forget([this](const dataflow::Buffer& buffer) { return has_passed(buffer); });
  if (returned_.empty()) return;
  ContextScope scope(*this);
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due = std::exchange(returned_, {});
  for (auto& buffer : due) {
    // Page-locked memory is every context's: any will do to give it back.
    scope.bind(buffer->device == dataflow::host_ordinal ? streams_.front().device : buffer->device);
    if (!try_free(*buffer)) left.push_back(std::move(buffer));
  }
  returned_.insert(returned_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  destroy_closed_streams();
}

struct Engine::Waits {
  Engine& engine;
  CUresult refused = CUDA_SUCCESS;
  void mark(StreamIndex stream, std::uint32_t slot) { note(engine.put_mark(stream, slot)); }
  void wait(StreamIndex stream, StreamIndex other, std::uint32_t slot) { note(engine.wait_for_mark(stream, other, slot)); }
  void note(CUresult result) {
    if (!refused) refused = result;
  }
};

StreamIndex Engine::aside(std::int32_t ordinal) {
  DeviceState& home = device(ordinal);
  if (!home.aside) home.aside = create_stream(ordinal, 0);
  return *home.aside;
}

void Engine::order(StreamIndex stream, const dataflow::Buffer& buffer, dataflow::Span span) {
  Waits waits{*this};
  buffer.hazards.each(span, [&](const dataflow::Hazard& hazard, dataflow::Span) { timeline.order(stream, hazard, true, waits); });
  check(waits.refused, "cuStreamWaitEvent");
}

bool Engine::has_passed(const dataflow::Buffer& buffer) {
  bool passed = true;
  try {
    buffer.hazards.each([&](const dataflow::Hazard& hazard, dataflow::Span) {
      passed = passed && is_complete(hazard.written);
      for (const Tick read : hazard.reads) passed = passed && is_complete(read);
    });
  } catch (const Refusal&) {  // a broken context touches nothing any more
  }
  return passed;
}

bool Engine::try_free(dataflow::Buffer& buffer) {
  if (buffer.device != dataflow::host_ordinal) {
    free_device(buffer);
    return true;
  }
  const bool passed = has_passed(buffer);
  if (passed) page_locked_.give_back(buffer.address, buffer.size_bytes);
  return passed;
}

// Where one stream still uses it, it is freed in the order of that one; where several do, in a stream of its own
// behind them all, so that freeing holds up nobody's work.
void Engine::free_device(dataflow::Buffer& buffer) {
  Tick written;
  std::vector<Tick> users;
  auto add = [&](Tick tick) {
    if (!timeline.is_known_complete(tick)) users.push_back(tick);
  };
  buffer.hazards.each([&](const dataflow::Hazard& hazard, dataflow::Span) {
    if (hazard.written.count) written = hazard.written;
    add(hazard.written);
    for (const Tick read : hazard.reads) add(read);
  });
  const bool is_one = std::all_of(users.begin(), users.end(), [&](Tick tick) { return tick.stream == users.front().stream; });
  auto is_native = [&](Tick tick) { return tick.count && streams_[tick.stream].device == buffer.device && streams_[tick.stream].mark; };
  DeviceState& home = device(buffer.device);
  StreamIndex lane = home.default_stream;
  if (users.empty() && is_native(written)) {
    lane = written.stream;
  } else if (!users.empty() && is_one && is_native(users.front())) {
    lane = users.front().stream;
  } else if (!users.empty()) {
    try {
      lane = aside(buffer.device);
    } catch (const Refusal&) {
    }
  }
  // Refused only by a broken context, whose memory went with it, and which every await reports.
  Waits waits{*this};
  for (const Tick tick : users) timeline.after(lane, tick, waits);
  table.cuMemFreeAsync(buffer.address, streams_[lane].handle);
  used_bytes_[static_cast<std::size_t>(buffer.device)] -= buffer.size_bytes;
}

void Engine::drop_retained() {
  std::deque<Retained> left, kept = std::exchange(retained_, {});
  for (Retained& each : kept) {
    bool passed = true;
    try {
      passed = is_complete(each.until);
    } catch (const Refusal&) {
    }
    if (!passed) left.push_back(std::move(each));
  }
  retained_.insert(retained_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  // What has passed is let go of here, when nothing of the engine is half done: it may come back.
}

dataflow::BufferRef Engine::borrow(CUdeviceptr address, std::uint64_t size_bytes, std::int32_t ordinal) {
  CUdeviceptr base = address;
  std::size_t whole = size_bytes;
  if (size_bytes) {
    ContextScope scope(*this);
    scope.bind(ordinal);
    check(table.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address), "cuPointerGetAttribute");
    check(table.cuPointerGetAttribute(&whole, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), "cuPointerGetAttribute");
  }
  for (dataflow::Buffer* own = own_.next; own; own = own->next)
    if (own->address == base && own->holders) return dataflow::BufferRef::another(*own);
  return borrowed_.of(base, whole, ordinal);
}

dataflow::BufferRef Borrowed::of(std::uint64_t base, std::uint64_t size_bytes, std::int32_t device) {
  if (const auto idle = idle_.find(base); idle != idle_.end()) {
    std::unique_ptr<dataflow::Buffer> again = std::move(idle->second);
    idle_.erase(idle);
    // The owner may have given the memory back, and got other memory at the same place: its size may differ, and
    // what works on the old one still does.
    if (again->size_bytes == size_bytes && again->device == device) {
      held_[base] = again.get();
      return dataflow::BufferRef(std::move(again));
    }
  }
  if (const auto held = held_.find(base); held != held_.end()) return dataflow::BufferRef::another(*held->second);
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, device);
  buffer->address = base;
  buffer->owner = this;
  if (base) held_[base] = buffer.get();
  return dataflow::BufferRef(std::move(buffer));
}

void Borrowed::take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept {
  const auto held = held_.find(buffer->address);
  if (held == held_.end() || held->second != buffer.get()) return;
  held_.erase(held);
  const std::uint64_t base = buffer->address;
  idle_[base] = std::move(buffer);
}

std::uint64_t Engine::used_bytes(std::int32_t ordinal) const {
  const auto slot = static_cast<std::size_t>(ordinal);
  return slot < used_bytes_.size() ? used_bytes_[slot] : 0;
}

void Engine::shut_down() {
  if (shut_down_) return;
  shut_down_ = true;
  reactor_.reset();
}

}  // namespace aiocuda::driver
