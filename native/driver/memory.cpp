// Memory: allocated, borrowed, kept for its users, freed behind them.
#include <algorithm>
#include <string>

#include "../dataflow/origin.hpp"
#include "engine.hpp"

namespace aiocuda::driver {

dataflow::BufferRef Engine::allocate_device(std::int32_t ordinal, std::uint64_t size_bytes, StreamIndex stream,
                                            const std::function<void()>& before_retry) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal);
  if (size_bytes) allocate_device(*buffer, stream, before_retry);
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Engine::allocate_managed(std::int32_t ordinal, std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal, dataflow::MemoryKind::managed);
  if (!size_bytes) return dataflow::BufferRef(std::move(buffer));
  check(allocate_block(managed(ordinal), *buffer), "cuMemAllocManaged");
  take_in(*buffer);
  account(ordinal).managed_bytes += size_bytes;
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Engine::allocate_interprocess(std::int32_t ordinal, std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal, dataflow::MemoryKind::interprocess);
  if (!size_bytes) return dataflow::BufferRef(std::move(buffer));
  CUresult result = allocate_block(interprocess(ordinal), *buffer);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // what the memory pool keeps unused is no part of this
    settle_frees(ordinal);
    check(table.cuMemPoolTrimTo(device(ordinal).pool, 0), "cuMemPoolTrimTo");
    result = interprocess(ordinal).allocate(size_bytes, buffer->address, without_gil);
  }
  check(result, "cuMemAlloc");
  take_in(*buffer);
  account(ordinal).add(size_bytes);
  return dataflow::BufferRef(std::move(buffer));
}

template <class Kind>
CUresult Engine::allocate_block(BlockPool<Kind>& pool, dataflow::Buffer& buffer) {
  CUresult result = pool.allocate(buffer.size_bytes, buffer.address, without_gil);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    collect();
    pool.trim(without_gil);
    result = pool.allocate(buffer.size_bytes, buffer.address, without_gil);
  }
  return result;
}

dataflow::BufferRef Engine::allocate_host(std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes);
  if (size_bytes) allocate_host(*buffer);
  return dataflow::BufferRef(std::move(buffer));
}

void Engine::raise_over_limit(const dataflow::MemoryLimit& limit, std::uint64_t asked_bytes) {
  const nb::object error = hooks.over_limit(asked_bytes, limit.device, limit.most_bytes);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void Engine::allocate(dataflow::Buffer& buffer) {
  ContextScope scope(*this);
  dataflow::Origin origin;
  origin.capture();
  buffer.maker = origin.maker();
  if (buffer.device == dataflow::host_ordinal) {
    scope.bind(streams_.front().device);  // page-locked memory is every context's
    return allocate_host(buffer);
  }
  scope.bind(buffer.device);
  const StreamIndex stream = device(buffer.device).default_stream;
  const nb::object in_force = dataflow::placement_in_force();
  if (const dataflow::MemoryLimit* limit = nb::cast<const dataflow::Placement&>(in_force).limit_of(buffer.device)) {
    if (!has_room(*limit, buffer.size_bytes)) collect();
    if (!has_room(*limit, buffer.size_bytes)) raise_over_limit(*limit, buffer.size_bytes);
  }
  allocate_device(buffer, stream, [] {});
  buffer.hazards.commit({0, buffer.size_bytes}, true, timeline.advance(stream, 1, true));
}

void Engine::allocate_device(dataflow::Buffer& buffer, StreamIndex stream, const std::function<void()>& before_retry) {
  const CUmemoryPool pool = device(buffer.device).pool;
  CUdeviceptr address = 0;
  CUresult result = table.cuMemAllocFromPoolAsync(&address, buffer.size_bytes, pool, streams_[stream].handle);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !returned_.empty()) {
    before_retry();
    collect();
    result = table.cuMemAllocFromPoolAsync(&address, buffer.size_bytes, pool, streams_[stream].handle);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && interprocess(buffer.device).cached_bytes()) {
    before_retry();
    interprocess(buffer.device).trim(without_gil);
    result = table.cuMemAllocFromPoolAsync(&address, buffer.size_bytes, pool, streams_[stream].handle);
  }
  // What it took of the device before it gave up, the driver keeps: seen on an H200, where other processes had no room then.
  if (result == CUDA_ERROR_OUT_OF_MEMORY) check(table.cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  check(result, "cuMemAllocFromPoolAsync");
  buffer.address = address;
  take_in(buffer);
  account(buffer.device).add(buffer.size_bytes);
}

void Engine::allocate_host(dataflow::Buffer& buffer) {
  CUresult result = page_locked_.allocate(buffer.size_bytes, buffer.address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    collect();
    page_locked_.trim();
    result = page_locked_.allocate(buffer.size_bytes, buffer.address);
  }
  check(result, "cuMemHostAlloc");
  take_in(buffer);
}

void Engine::take_in(dataflow::Buffer& buffer) {
  buffer.owner = this;
  buffer.insert_after(own_);
}

void Engine::trim_blocks(std::int32_t ordinal) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  const CUresult refused = managed(ordinal).trim(without_gil);
  check(interprocess(ordinal).trim(without_gil), "cuMemFree");
  check(refused, "cuMemFree");
}

CUresult Engine::advise(const dataflow::Array& array, CUmem_advise advice, CUmemLocation location) {
  ContextScope scope(*this);
  scope.bind(array.device);
  const dataflow::Span span = array.span();
  return managed(array.device).kind().advise(table, array.buffer->address, array.address(), span.end - span.begin, advice, location);
}

void Engine::take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept {
  if (is_over()) return;
  (buffer->kind == dataflow::MemoryKind::image ? dropped_images_ : returned_).push_back(std::move(buffer));
  if (depth == 0) collect();
}

void Engine::collect() {
  if (is_over()) return;
  if (!retained_.empty()) drop_retained();
  staging.drop_ended();
  borrowed_.forget([this](const dataflow::Buffer& buffer) { return has_passed(buffer); });
  if (!returned_.empty()) collect_returned();
  // At the very end: others may submit meanwhile.
  if (!dropped_images_.empty() && depth == 0) unload_idle_images();
}

void Engine::collect_returned() {
  ContextScope scope(*this);
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due = std::exchange(returned_, {});
  for (auto& buffer : due) {
    // Page-locked memory is every context's: any will do to give it back.
    scope.bind(buffer->device == dataflow::host_ordinal ? streams_.front().device : buffer->device);
    if (!try_free(*buffer)) left.push_back(std::move(buffer));
  }
  returned_.insert(returned_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  destroy_closed_streams();
  // At the very end: others may submit meanwhile.
  for (const auto& [ordinal, address] : std::exchange(to_close_, {})) {
    scope.bind(ordinal);
    close_memory(address);
  }
}

void Engine::settle_frees(std::int32_t ordinal) {
  ContextScope scope(*this);
  scope.bind(ordinal);
  for (const StreamState& state : streams_) {
    if (!state.mark || state.device != ordinal || query(state.handle) != CUDA_SUCCESS) continue;
    check(table.cuStreamSynchronize(state.handle), "cuStreamSynchronize");
  }
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
  const bool is_host = buffer.device == dataflow::host_ordinal;
  if (!is_host && buffer.kind == dataflow::MemoryKind::ordinary) {
    free_device(buffer);
    return true;
  }
  // All other memory knows no streams: it goes when all its users have passed.
  if (!has_passed(buffer)) return false;
  switch (buffer.kind) {
    case dataflow::MemoryKind::ordinary: page_locked_.give_back(buffer.address, buffer.size_bytes); break;
    case dataflow::MemoryKind::managed:
      managed(buffer.device).give_back(buffer.address, buffer.size_bytes);
      account(buffer.device).managed_bytes -= buffer.size_bytes;
      break;
    case dataflow::MemoryKind::interprocess:
      interprocess(buffer.device).give_back(buffer.address, buffer.size_bytes);
      note_freed(buffer);
      break;
    case dataflow::MemoryKind::opened: to_close_.emplace_back(buffer.device, buffer.address); break;
    case dataflow::MemoryKind::image: break;  // is never here: see images.cpp
  }
  return true;
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
  note_freed(buffer);
}

// Somebody may wait for it.
void Engine::note_freed(const dataflow::Buffer& buffer) {
  account(buffer.device).used_bytes -= buffer.size_bytes;
  if (!lines.is_empty()) keep_moving(memory_lane(buffer.device));
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
    if (own->address == base && own->holders && own->device != dataflow::host_ordinal) return dataflow::BufferRef::another(*own);
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

Engine::Account& Engine::account(std::int32_t ordinal) {
  device(ordinal);
  return accounts_[static_cast<std::size_t>(ordinal)];
}

}  // namespace aiocuda::driver
