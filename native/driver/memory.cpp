// The memory of arrays: see memory.hpp. Memory that processes lend each other is in interprocess.cpp.
#include "memory.hpp"

#include <algorithm>
#include <iterator>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {
using dataflow::MemoryKind;
namespace {

// How long the process' end waits for the driver to take memory back.
constexpr std::chrono::seconds last_frees{1};

}  // namespace

dataflow::BufferRef Memory::allocate_device(std::int32_t ordinal, std::uint64_t size_bytes, StreamIndex stream,
                                            const std::function<void()>& before_retry) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal);
  if (size_bytes) allocate_device(*buffer, stream, before_retry);
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Memory::allocate_host(std::uint64_t size_bytes, const std::function<void()>& before_retry) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes);
  if (size_bytes) allocate_host(*buffer, before_retry);
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Memory::allocate_managed(std::int32_t ordinal, std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal, MemoryKind::managed);
  if (!size_bytes) return dataflow::BufferRef(std::move(buffer));
  check(allocate_block(managed(ordinal), *buffer), "cuMemAllocManaged");
  take_in(*buffer);
  account(ordinal).managed_bytes += size_bytes;
  return dataflow::BufferRef(std::move(buffer));
}

dataflow::BufferRef Memory::allocate_interprocess(std::int32_t ordinal, std::uint64_t size_bytes) {
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, ordinal, MemoryKind::interprocess);
  if (!size_bytes) return dataflow::BufferRef(std::move(buffer));
  CUresult result = allocate_block(interprocess(ordinal), *buffer);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // what the memory pool keeps unused is no part of this
    streams_.settle(ordinal);
    devices_.former_pools().trim(ordinal);
    if (table_.cuMemPoolTrimTo(devices_.at(ordinal).pool, 0) == CUDA_SUCCESS)
      result = interprocess(ordinal).allocate(size_bytes, buffer->address, slowly());
  }
  check(result, "cuMemAlloc");
  take_in(*buffer);
  account(ordinal).add(size_bytes);
  return dataflow::BufferRef(std::move(buffer));
}

bool Memory::has_block(MemoryKind kind, std::int32_t ordinal, std::uint64_t size_bytes) {
  constexpr std::uint64_t soon_bytes = 256 << 10;  // locking takes some 0.6 ms for each MiB
  if (ordinal == dataflow::host_ordinal) return size_bytes <= soon_bytes || page_locked_.has(size_bytes);
  if (!size_bytes) return true;
  return kind == MemoryKind::managed ? managed(ordinal).has(size_bytes) : interprocess(ordinal).has(size_bytes);
}

dataflow::BufferRef Memory::allocate_ahead(MemoryKind kind, std::int32_t ordinal, std::uint64_t size_bytes) {
  if (kind == MemoryKind::managed) return allocate_managed(ordinal, size_bytes);
  if (kind == MemoryKind::interprocess) return allocate_interprocess(ordinal, size_bytes);
  auto buffer = std::make_unique<dataflow::Buffer>(size_bytes);
  const CUresult result = page_locked_.allocate(size_bytes, buffer->address, slowly());
  if (result != CUDA_SUCCESS) throw Refusal::of_host_memory(result, "cuMemHostAlloc", size_bytes);
  take_in(*buffer);
  return dataflow::BufferRef(std::move(buffer));
}

void Memory::allocate(dataflow::Buffer& buffer, StreamIndex stream) {
  ContextScope scope(devices_);
  scope.bind(device_of(buffer));
  if (buffer.device == dataflow::host_ordinal) return allocate_host(buffer, [] {});
  allocate_device(buffer, stream, [] {});
}

void Memory::reclaim() {
  now_.drain();
  around_.collect();
  now_.drain();  // the frees
}

template <class Kind>
CUresult Memory::allocate_block(BlockPool<Kind>& pool, dataflow::Buffer& buffer,
                                const std::function<void()>& before_retry) {
  CUresult result = pool.allocate(buffer.size_bytes, buffer.address, slowly());
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    before_retry();
    reclaim();
    slowly()([&] {
      freeing_.finish();
      return CUDA_SUCCESS;
    });
    pool.trim(slowly());
    result = pool.allocate(buffer.size_bytes, buffer.address, slowly());
  }
  return result;
}

void Memory::allocate_device(dataflow::Buffer& buffer, StreamIndex stream, const std::function<void()>& before_retry) {
  const DeviceState& device = devices_.at(buffer.device);
  // Before the driver refuses, it takes what the device has. On an H200 other processes had no memory meanwhile.
  if (buffer.size_bytes > device.memory_bytes) check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAllocFromPoolAsync");
  const CUstream handle = streams_.at(stream).handle;
  CUdeviceptr address = 0;
  auto try_it = [&] {  // from the pool that the device has then: another thread may exchange it between two tries
    return table_.cuMemAllocFromPoolAsync(&address, buffer.size_bytes, device.pool, handle);
  };
  CUresult result = try_it();
  // The results of work that is on its way are kept until it was made.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && (has_returned() || now_.gives())) {
    before_retry();
    reclaim();
    result = try_it();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && interprocess(buffer.device).cached_bytes()) {
    before_retry();
    interprocess(buffer.device).trim(slowly());
    result = try_it();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && devices_.former_pools().has(buffer.device)) {
    before_retry();
    streams_.settle(buffer.device);
    devices_.former_pools().trim(buffer.device);
    result = try_it();
  }
  // What it took, it keeps. Whatever it answers here, the allocation is what it refused.
  if (result == CUDA_ERROR_OUT_OF_MEMORY) table_.cuMemPoolTrimTo(device.pool, 0);
  check(result, "cuMemAllocFromPoolAsync");
  buffer.address = address;
  take_in(buffer);
  known_account(buffer.device).add(buffer.size_bytes);
}

void Memory::allocate_host(dataflow::Buffer& buffer, const std::function<void()>& before_retry) {
  const CUresult result = allocate_block(page_locked_, buffer, before_retry);
  if (result != CUDA_SUCCESS) throw Refusal::of_host_memory(result, "cuMemHostAlloc", buffer.size_bytes);
  take_in(buffer);
}

void Memory::take_in(dataflow::Buffer& buffer) {
  if (!known_foreign_.empty() && buffer.device != dataflow::host_ordinal) [[unlikely]]
    forget_foreign(buffer.address, buffer.address + buffer.size_bytes);
  buffer.owner = this;
  buffer.insert_after(own_);
}

void Memory::trim_blocks(std::int32_t ordinal) {
  ContextScope scope(devices_);
  scope.bind(ordinal);
  const CUresult refused = managed(ordinal).trim(slowly());
  check(interprocess(ordinal).trim(slowly()), "cuMemFree");
  check(refused, "cuMemFree");
}

CUresult Memory::advise(const dataflow::Buffer& buffer, dataflow::Span span, CUmem_advise advice,
                        CUmemLocation location) {
  ContextScope scope(devices_);
  scope.bind(buffer.device);
  Managed& kind = managed(buffer.device).kind();
  return kind.advise(table_, buffer.address, buffer.address + span.begin, span.end - span.begin, advice, location);
}

void Memory::free_excess() {
  if (!has_excess() || freeing_.is_at_work()) return;
  unlocked_ = {};  // to let go of its keeper may run Python code
  if (!has_excess() || !now_.has_all() || !streams_.is_idle()) return;
  const std::int32_t any_device = streams_.at(0).device;  // page-locked memory is every context's
  if (!locked_.empty()) {
    unlocked_ = std::move(locked_.back());
    locked_.pop_back();
    auto unlock = [](const Table& table, std::uint64_t address) {
      return table.cuMemHostUnregister(reinterpret_cast<void*>(address));
    };
    return freeing_.hand_over(devices_.at(any_device).context, unlocked_.address, unlock);
  }
  auto free_one_of = [&](auto& pool, std::int32_t device) {
    using Kind = std::remove_cvref_t<decltype(pool.kind())>;
    if (!pool.has_excess()) return false;
    freeing_.hand_over(devices_.at(device).context, pool.take_excess(), Kind::free);
    return true;
  };
  if (free_one_of(page_locked_, any_device)) return;
  for (auto& [device, pool] : managed_)
    if (free_one_of(pool, device)) return;
}

void Memory::shut_down() { freeing_.finish_within(last_frees); }

void Memory::take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept {
  if (around_.is_over()) return;
  returned_.push_back(std::move(buffer));
  around_.note_return();
}

void Memory::free_due(std::size_t most_streams) {
  if (!has_returned() || !now_.has_all()) return;
  ContextScope scope(devices_);
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due = std::exchange(returned_, {});
  waiting_.take_ended(due, [this](Tick tick) { return streams_.has_ended(tick); }, most_streams);
  for (auto& buffer : due) {
    scope.bind(device_of(*buffer));
    if (buffer->device != dataflow::host_ordinal && buffer->kind == MemoryKind::ordinary) {
      if (!free_device(*buffer)) left.push_back(std::move(buffer));
      continue;
    }
    const Tick until = streams_.first_not_ended(*buffer);
    if (until.count == 0)
      give_back(*buffer);
    else if (buffer->kind == MemoryKind::opened)
      left.push_back(std::move(buffer));  // who opens it again looks for it there
    else
      waiting_.keep(until, std::move(buffer));
  }
  returned_.insert(returned_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
}

void Memory::give_back(const dataflow::Buffer& buffer) {
  switch (buffer.kind) {
    case MemoryKind::ordinary:
      page_locked_.give_back(buffer.address, buffer.size_bytes);
      break;
    case MemoryKind::managed:
      managed(buffer.device).give_back(buffer.address, buffer.size_bytes);
      known_account(buffer.device).managed_bytes -= buffer.size_bytes;
      break;
    case MemoryKind::interprocess:
      interprocess(buffer.device).give_back(buffer.address, buffer.size_bytes);
      note_freed(buffer);
      break;
    case MemoryKind::opened:
      to_close_.emplace_back(buffer.device, buffer.address);
      break;
    case MemoryKind::image:
      break;  // is never here: see images.hpp
  }
}

// If one stream still uses it, it is freed in the order of that stream. If several do, it is freed in a stream of its
// own behind them all, so that freeing holds up nobody's work.
bool Memory::free_device(dataflow::Buffer& buffer) {
  Tick written;
  std::vector<Tick> users;
  auto add = [&](Tick tick) {
    if (!timeline_.is_known_complete(tick)) users.push_back(tick);
  };
  buffer.hazards.each([&](const dataflow::Hazard& hazard, dataflow::Span) {
    if (hazard.written.count) written = hazard.written;
    hazard.each_before(true, add);
  });
  const bool is_one =
      std::all_of(users.begin(), users.end(), [&](Tick tick) { return tick.stream == users.front().stream; });
  auto is_native = [&](Tick tick) {
    const StreamState& stream = streams_.at(tick.stream);
    return tick.count && stream.device == buffer.device && stream.mark;
  };
  StreamIndex stream = devices_.at(buffer.device).default_stream;
  if (users.empty()) {
    if (is_native(written)) stream = written.stream;
  } else if (is_one && is_native(users.front())) {
    stream = users.front().stream;
  } else {
    try {
      stream = streams_.aside(buffer.device);
    } catch (const Refusal&) {  // the default stream does as well
    }
  }
  for (const Tick tick : users) {
    try {
      streams_.after(stream, tick);
    } catch (const Refusal&) {
      if (!streams_.has_ended(tick)) return false;  // it may still use the memory
    }
  }
  // A lost device's memory went with its context, and every await reports that.
  if (now_.free(buffer.address, buffer.size_bytes, streams_.at(stream).behind()) != CUDA_SUCCESS && !is_lost(stream))
    return false;
  note_freed(buffer);
  return true;
}

bool Memory::is_lost(StreamIndex stream) const {
  const CUresult state = streams_.query(streams_.at(stream));
  return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
}

void Memory::note_freed(const dataflow::Buffer& buffer) {
  known_account(buffer.device).used_bytes -= buffer.size_bytes;
  around_.note_freed(buffer.device);
}

Memory::Borrowed Memory::borrow(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t ordinal) {
  for (dataflow::Buffer* own = own_.next; own && wanted_bytes; own = own->next)
    if (own->holders && own->device != dataflow::host_ordinal && own->address <= address &&
        address - own->address < own->size_bytes)
      return {dataflow::BufferRef::another(*own), address - own->address, own->address + own->size_bytes - address};
  dataflow::BufferRef& foreign = foreign_[ordinal];
  if (!foreign)
    foreign = dataflow::BufferRef(std::make_unique<dataflow::Buffer>(dataflow::address_space_bytes, ordinal));
  return {foreign, address, allocated_bytes(address, wanted_bytes, ordinal)};
}

Memory::Borrowed Memory::borrow_again(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t ordinal) {
  const auto after = known_foreign_.upper_bound(address);
  if (after != known_foreign_.begin()) {
    const auto& [begin, known] = *std::prev(after);
    if (known.device == ordinal && address + wanted_bytes <= known.end)
      return {foreign_.at(ordinal), address, known.end - address};
  }
  const Borrowed found = borrow(address, wanted_bytes, ordinal);
  if (found.buffer->is_address_space() && found.allocated_bytes) {
    const CUdeviceptr end = address + found.allocated_bytes;
    forget_foreign(address, end);
    known_foreign_[address] = {end, ordinal};
  }
  return found;
}

// The driver gives addresses again to whoever asks: their owner gave them back.
void Memory::forget_foreign(CUdeviceptr begin, CUdeviceptr end) {
  auto at = known_foreign_.upper_bound(begin);
  if (at != known_foreign_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != known_foreign_.end() && at->first < end) at = known_foreign_.erase(at);
}

// From an address on, as far as somebody wants to know. An allocator of theirs may use several allocations of the
// driver's as one, if they lie one behind another (PyTorch's expandable segments).
std::uint64_t Memory::allocated_bytes(CUdeviceptr address, std::uint64_t wanted_bytes, std::int32_t ordinal) const {
  ContextScope scope(devices_);
  scope.bind(ordinal);
  std::uint64_t found_bytes = 0;
  while (found_bytes < wanted_bytes) {
    CUdeviceptr start = 0;
    std::size_t whole_bytes = 0;
    auto ask = [&](CUpointer_attribute attribute, auto& answer) {
      return table_.cuPointerGetAttribute(&answer, attribute, address + found_bytes);
    };
    CUresult result = ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, start);
    if (result == CUDA_SUCCESS) result = ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, whole_bytes);
    if (found_bytes == 0) check(result, "cuPointerGetAttribute");
    if (result != CUDA_SUCCESS || start + whole_bytes <= address + found_bytes) break;
    found_bytes = start + whole_bytes - address;
  }
  return found_bytes;
}

}  // namespace aiocuda::driver
