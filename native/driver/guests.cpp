// Guests: see guests.hpp.
#include "guests.hpp"

#include <algorithm>
#include <utility>

#include "devices.hpp"

namespace aiocuda::driver {
namespace {

// An allocation in a capture would be a part of the graph, and a free its end: neither is what an allocator promises.
CUresult require_uncaptured(const Table& table, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = table.cuStreamIsCapturing(stream, &status);
  if (result != CUDA_SUCCESS) return result;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

class OwnEvent {
 public:
  explicit OwnEvent(const Table& table) : table_(table) {}
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  ~OwnEvent() {
    if (event_) table_.cuEventDestroy(event_);
  }
  // Orders all later work of `stream` behind what `other` holds now.
  CUresult order(CUstream stream, CUstream other) {
    CUresult result = event_ ? CUDA_SUCCESS : table_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = table_.cuEventRecord(event_, other);
    if (result == CUDA_SUCCESS) result = table_.cuStreamWaitEvent(stream, event_, CU_EVENT_WAIT_DEFAULT);
    return result;
  }

 private:
  const Table& table_;
  CUevent event_ = nullptr;
};

}  // namespace

void Guests::open(std::int32_t device, CUcontext context, CUmemoryPool pool, std::uint64_t memory_bytes,
                  dataflow::StreamIndex first_stream) {
  const std::lock_guard lock(mutex_);
  const auto slot = static_cast<std::size_t>(device);
  if (homes_.size() <= slot) homes_.resize(slot + 1);
  if (!homes_[slot]) homes_[slot].emplace(Home{context, pool, memory_bytes, first_stream});
}

void Guests::set_pool(std::int32_t device, CUmemoryPool pool) {
  const std::unique_lock unused(pools_);
  const std::lock_guard lock(mutex_);
  if (Home* home = find(device)) home->pool = pool;
}

// Once the interpreter is gone, it does not say any more that it is ending.
bool Guests::is_over() const { return has_ended_.load(std::memory_order_relaxed) || devices_.is_over(); }

Guests::Home* Guests::find(std::int32_t device) {
  const auto slot = static_cast<std::size_t>(device);
  return device >= 0 && slot < homes_.size() && homes_[slot] ? &*homes_[slot] : nullptr;
}

CUresult Guests::allocate(std::int32_t device, std::uint64_t size_bytes, CUstream stream, CUdeviceptr& address) {
  if (is_over()) return CUDA_ERROR_DEINITIALIZED;
  free_due();
  const std::shared_lock used(pools_);
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Home* home = find(device);
    if (!home) return CUDA_ERROR_INVALID_DEVICE;
    if (size_bytes > home->memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;  // as for arrays: see memory.cpp
    context = home->context;
    pool = home->pool;
  }
  const Table& table = devices_.table();
  ContextScope scope(devices_);
  scope.bind(context);
  CUresult result = require_uncaptured(table, stream);
  if (result == CUDA_SUCCESS) result = table.cuMemAllocFromPoolAsync(&address, size_bytes, pool, stream);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && devices_.former_pools().has(device)) {
    devices_.former_pools().trim(device);
    result = table.cuMemAllocFromPoolAsync(&address, size_bytes, pool, stream);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) table.cuMemPoolTrimTo(pool, 0);  // as for arrays: see memory.cpp
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  guests_.insert_or_assign(address, Guest{address, size_bytes, device, stream});
  find(device)->allocated_bytes += size_bytes;
  return CUDA_SUCCESS;
}

void Guests::note_use(CUdeviceptr address, CUstream stream) noexcept {
  if (is_over()) return;
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(address);
  if (found == guests_.end() || found->second.stream == stream) return;
  auto& users = found->second.users;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

void Guests::free(CUdeviceptr address) noexcept {
  if (is_over()) return;
  free_due();
  if (auto guest = take(address)) free(std::move(*guest));
}

void Guests::free_behind(CUdeviceptr address, CUstream stream) noexcept {
  if (is_over()) return;
  free_due();
  auto guest = take(address);
  if (!guest) return;
  guest->stream = stream;
  guest->users.clear();
  free(std::move(*guest));
}

std::optional<Guests::Guest> Guests::take(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  auto found = guests_.extract(address);
  if (found.empty()) return {};
  return std::move(found.mapped());
}

void Guests::free(Guest guest) noexcept {
  if (try_free(guest)) return;
  const std::lock_guard lock(mutex_);
  due_.push_back(std::move(guest));
}

// Up to the first that has to wait on: a long capture does not make each call long. That one goes behind the others.
void Guests::free_due() noexcept {
  for (bool is_freed = true; is_freed;) {
    Guest guest;
    {
      const std::lock_guard lock(mutex_);
      if (due_.empty()) [[likely]]
        return;
      guest = std::move(due_.front());
      due_.pop_front();
    }
    is_freed = try_free(guest);
    if (is_freed) continue;
    const std::lock_guard lock(mutex_);
    due_.push_back(std::move(guest));
  }
}

bool Guests::try_free(const Guest& guest) noexcept {
  dataflow::StreamIndex first_stream = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> freed_bytes;
  CUcontext context = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Home& home = *find(guest.device);
    context = home.context;
    first_stream = home.first_stream;
    freed_bytes = home.freed_bytes;
  }
  const Table& table = devices_.table();
  ContextScope scope(devices_);
  scope.bind(context);
  CUresult result = require_uncaptured(table, guest.stream);
  for (const CUstream user : guest.users)
    if (result == CUDA_SUCCESS) result = require_uncaptured(table, user);
  if (result == CUDA_SUCCESS)
    result = guest.users.empty() ? table.cuMemFreeAsync(guest.address, guest.stream) : free_aside(guest);
  if (result != CUDA_SUCCESS && !breaks_context(result)) return false;  // else the memory went with its context
  freed_bytes->fetch_add(guest.size_bytes, std::memory_order_release);
  if (tell_of_room_) tell_of_room_(first_stream);
  return true;
}

CUresult Guests::free_aside(const Guest& guest) {
  const Table& table = devices_.table();
  CUstream aside = nullptr;
  CUresult result = aside_of(guest.device, aside);
  OwnEvent event(table);
  if (result == CUDA_SUCCESS) result = event.order(aside, guest.stream);
  for (const CUstream user : guest.users)
    if (result == CUDA_SUCCESS) result = event.order(aside, user);
  return result == CUDA_SUCCESS ? table.cuMemFreeAsync(guest.address, aside) : result;
}

CUresult Guests::aside_of(std::int32_t device, CUstream& aside) {
  {
    const std::lock_guard lock(mutex_);
    aside = find(device)->aside;
  }
  if (aside) return CUDA_SUCCESS;
  const CUresult result = devices_.table().cuStreamCreateWithPriority(&aside, CU_STREAM_NON_BLOCKING, 0);
  if (result != CUDA_SUCCESS) return result;
  CUstream surplus = nullptr;
  {
    const std::lock_guard lock(mutex_);
    CUstream& known = find(device)->aside;
    if (known) surplus = std::exchange(aside, known);  // another thread was first
    known = aside;
  }
  return surplus ? devices_.table().cuStreamDestroy(surplus) : CUDA_SUCCESS;
}

Guests::Account Guests::account(std::int32_t device) const {
  const std::lock_guard lock(mutex_);
  const auto slot = static_cast<std::size_t>(device);
  static const auto none = std::make_shared<const std::atomic<std::uint64_t>>(0);
  if (slot >= homes_.size() || !homes_[slot]) return {0, none};
  return {homes_[slot]->allocated_bytes, homes_[slot]->freed_bytes};
}

}  // namespace aiocuda::driver
