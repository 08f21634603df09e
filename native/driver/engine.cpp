// Devices, streams, marks: see engine.hpp.
#include "engine.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

namespace aiocuda::driver {
namespace {

// How long the process' end waits for an answer of the driver's to the reactor.
constexpr std::chrono::seconds last_question{1};

}  // namespace

Engine& Engine::get() {
  static Engine* engine = new Engine;  // never destroyed: the driver's threads may call until the very end
  return *engine;
}

void Engine::load(Table loaded) {
  table = loaded;
  if (std::exchange(starter_, getpid()) != 0) return;
  // A process that is forked from here on has a driver that refuses every call, and none of the threads.
  if (pthread_atfork(nullptr, nullptr, [] { get().is_forked_.store(true, std::memory_order_relaxed); }) != 0)
    throw std::runtime_error("no memory to register a function that is called after fork");
  // Until the interpreter has ended, other threads may wait for what the reactor tells, also in functions of `atexit`.
  auto end = [] { get().shut_down(); };
  if (Py_AtExit(end) != 0) std::atexit(end);
}

void Engine::open_device(std::int32_t ordinal, CUcontext context, CUmemoryPool pool) {
  const auto slot = static_cast<std::size_t>(ordinal);
  {
    std::lock_guard lock(streams_mutex_);
    if (devices_.size() <= slot) {
      devices_.resize(slot + 1);
      accounts_.resize(slot + 1);
      spare_events_.resize(slot + 1);
      while (spare_point_events_.size() <= slot) spare_point_events_.emplace_back();
    }
    if (devices_[slot]) return;
    devices_[slot] = DeviceState{context, pool};
  }
  try {
    if (!reactor_) start_reactor(ordinal);
    devices_[slot]->default_stream = create_stream(ordinal, 0);
  } catch (...) {  // it is not open, and can be opened another time
    std::lock_guard lock(streams_mutex_);
    devices_[slot].reset();
    throw;
  }
}

DeviceState& Engine::device(std::int32_t ordinal) {
  require_usable();
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
  if (const auto known = adopted_.find({handle, ordinal}); known != adopted_.end()) {
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
  adopted_.emplace(std::pair(handle, ordinal), index);
  return index;
}

void Engine::close_stream(StreamIndex index) {
  if (std::exchange(streams_.at(index).closing, true)) return;
  closing_.push_back(index);
  if (depth == 0) destroy_closed_streams();
}

bool Engine::has_written_flags(const StreamState& state) {
  for (const auto& slot : {state.slot, state.side_slot}) {
    if (!slot || slots_->is_settled(*slot)) continue;
    const CUresult result = query(state.handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", state.device);
    return false;
  }
  return true;
}

void Engine::destroy_closed_streams() {
  if (is_over()) return;
  for (const StreamIndex index : std::exchange(closing_, {})) {
    StreamState& state = streams_[index];
    const Tick last{index, timeline.submitted(index)};
    bool passed = true;
    try {
      passed = is_complete(last) && has_written_flags(state);
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

bool Engine::is_captured(CUstream handle) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return table.cuStreamIsCapturing(handle, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult Engine::query(CUstream handle) const { return is_captured(handle) ? CUDA_ERROR_NOT_READY : table.cuStreamQuery(handle); }

void Engine::require_not_captured(StreamIndex index) {
  const StreamState& state = streams_[index];
  if (!state.owned && is_captured(state.handle)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamIsCapturing", state.device);
}

CUresult Engine::wait(StreamIndex index, StreamIndex other) {
  const StreamState& source = streams_[other];
  if (!source.mark) return CUDA_SUCCESS;  // destroyed: all of it has passed
  if (!source.owned && is_captured(source.handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult result = table.cuEventRecord(source.mark, source.handle)) return result;
  return table.cuStreamWaitEvent(streams_[index].handle, source.mark, CU_EVENT_WAIT_DEFAULT);
}

CUresult Engine::put_mark(StreamIndex index, std::uint32_t slot) {
  StreamState& state = streams_[index];
  if (!state.mark) return CUDA_SUCCESS;  // destroyed: all of it has passed
  if (!state.owned && is_captured(state.handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
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

dataflow::Lanes& Engine::make_lanes(const dataflow::Policy& policy, std::int32_t ordinal, dataflow::Op& op) {
  const auto slot = static_cast<std::size_t>(ordinal);
  const nb::list ids(hooks.lanes(nb::find(policy), ordinal, nb::find(op)));  // opens the device
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
  const RelaxedCaptures relaxed(table);
  CUdevice device_here = 0, device_there = 0;
  int is_possible = 0;
  check(table.cuDeviceGet(&device_here, ordinal), "cuDeviceGet");
  check(table.cuDeviceGet(&device_there, other), "cuDeviceGet");
  check(table.cuDeviceCanAccessPeer(&is_possible, device_here, device_there), "cuDeviceCanAccessPeer");
  if (is_possible) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    is_possible = table.cuMemPoolSetAccess(there.pool, &access, 1) == CUDA_SUCCESS;
  }
  here.peers[slot] = is_possible != 0;
  return is_possible != 0;
}

bool Engine::is_complete(Tick tick) {
  if (timeline.is_known_complete(tick)) return true;
  require_usable();
  const StreamState& state = streams_[tick.stream];
  const auto all = timeline.snapshot(tick.stream);
  ContextScope scope(*this);
  scope.bind(state.device);
  const CUresult result = query(state.handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) throw Refusal(result, "cuStreamQuery", state.device);
  learn(all);
  return true;
}

std::uint64_t Engine::count_streams(std::int32_t ordinal) const {
  return static_cast<std::uint64_t>(std::count_if(streams_.begin(), streams_.end(), [ordinal](const StreamState& each) {
    return each.device == ordinal && each.mark;
  }));
}

bool Engine::is_idle(std::int32_t ordinal) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto index = static_cast<StreamIndex>(i);
    if (streams_[i].device == ordinal && streams_[i].mark && !is_complete({index, timeline.submitted(index)})) return false;
  }
  return true;
}

std::vector<StreamIndex> Engine::foreign_producers(const dataflow::Timeline::Snapshot& complete) const {
  std::vector<StreamIndex> found = timeline.unsettled(complete);
  std::erase_if(found, [&](StreamIndex other) { return streams_[other].device == streams_[complete.last.stream].device; });
  return found;
}

void Engine::learn(const dataflow::Timeline::Snapshot& complete) {
  for (const StreamIndex other : foreign_producers(complete)) {
    const StreamState& state = streams_[other];
    if (!state.mark) continue;  // destroyed: all of it has passed
    ContextScope scope(*this);
    scope.bind(state.device);
    const CUresult result = query(state.handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuStreamQuery", state.device);
  }
  timeline.learn(complete);
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

void Engine::shut_down() {
  if (is_forked()) return;  // its threads are not here
  staging.shut_down();
  // A thread that stopped inside the driver may keep it there; the process ends all the same.
  if (reactor_ && !reactor_->stops_within(last_question)) static_cast<void>(reactor_.release());
  reactor_.reset();
}

void Engine::raise_over() const {
  const nb::object error = hooks.over();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace aiocuda::driver
