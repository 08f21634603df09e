// Stream-ordered allocation out of a pool. See pool.hpp for what always holds.
#include "memory/pool.hpp"

#include <algorithm>

#include "checking/checking.hpp"
#include "context.hpp"
#include "device.hpp"
#include "memory/newer_attributes.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::memory {
namespace {

// Stands in the stream for the free of a block, which passes when the work is destroyed: in a stream whose context
// is lost that happens without having run, and where races are checked the free is recorded before that.
class FreeWork final : public Work {
 public:
  FreeWork(std::shared_ptr<FreedBlock> freed, std::size_t bytes) : freed_(std::move(freed)), bytes_(bytes) {}
  ~FreeWork() override { freed_->pass(); }
  void run() override {}
  std::string text() const override { return "the free of " + checking::count_of(bytes_, "byte"); }
  checking::Accesses accesses() override {
    const std::uintptr_t address = freed_->block().address;
    return {{address, address + bytes_, abi::access_write, true}};
  }

 private:
  const std::shared_ptr<FreedBlock> freed_;
  const std::size_t bytes_;
};

// True where nothing can be ahead of a free submitted now. A stream that orders itself with the
// context's legacy stream may be idle while work it has to wait for is not.
bool nothing_is_ahead(const Stream& stream) { return !stream.is_blocking() && stream.idle(); }

}  // namespace

void FreedBlock::pass() noexcept {
  State seen = State::pending;
  if (state_.compare_exchange_strong(seen, State::passed)) return;
  if (seen == State::abandoned && state_.compare_exchange_strong(seen, State::released)) {
    const std::lock_guard lock(memory_.mutex());
    memory_.unmap(block_);
  }
}

void FreedBlock::abandon() noexcept {
  if (is_counted_) memory_.uncount(block_);
  State seen = State::pending;
  if (state_.compare_exchange_strong(seen, State::abandoned)) return;
  state_.store(State::released);
  memory_.unmap(block_);
}

std::optional<MemoryPool::Given> MemoryPool::take_unused(std::size_t bytes, std::uint64_t stream_id) {
  const auto of_size = unused_.find(bytes);
  if (of_size == unused_.end()) return std::nullopt;
  FreedBlocks& blocks = of_size->second;
  // The latest first: its memory is the likeliest to be in a cache.
  auto found =
      std::find_if(blocks.rbegin(), blocks.rend(), [&](const auto& each) { return each->stream_id() == stream_id; });
  if (found == blocks.rend()) {
    found = std::find_if(blocks.rbegin(), blocks.rend(), [&](const auto& each) {
      return each->passed() && (allow_opportunistic_ != 0 || each->stream_id() == 0);
    });
  }
  if (found == blocks.rend()) return std::nullopt;
  Given given{(*found)->block(), (*found)->stream_id() == stream_id};
  blocks.erase(std::next(found).base());
  if (blocks.empty()) unused_.erase(of_size);
  memory_.unused_blocks.fetch_sub(1, std::memory_order_relaxed);
  return given;
}

std::optional<MemoryPool::Given> MemoryPool::allocate(std::size_t bytes, const Stream& stream) {
  const std::size_t rounded = round_up(std::max<std::size_t>(bytes, 1), alignment_bytes);
  if (rounded == 0) return std::nullopt;
  const std::lock_guard lock(memory_.mutex());
  auto given = take_unused(rounded, stream.id());
  if (!given) {
    if (const std::size_t most = properties_.maxSize; most != 0) {
      if (rounded > most) return std::nullopt;
      const auto room = [&] { return most - reserved_bytes_ >= rounded; };
      while (!room() && evict_one(false)) {
      }
      while (!room() && evict_one(true)) {
      }
      if (!room()) return std::nullopt;
    }
    const auto block = memory_.allocate(rounded, file_.get());
    if (!block) return std::nullopt;
    given = Given{*block, false};
    reserved_bytes_ += rounded;
    reserved_high_ = std::max(reserved_high_, reserved_bytes_);
  }
  used_bytes_ += rounded;
  used_high_ = std::max(used_high_, used_bytes_);
  return given;
}

void MemoryPool::put(std::shared_ptr<FreedBlock> freed) {
  const std::size_t bytes = freed->block().bytes;
  const std::lock_guard lock(memory_.mutex());
  if (!is_imported()) used_bytes_ -= bytes;  // memory of another process is on that one's account
  if (closed_ && !is_imported()) {
    reserved_bytes_ -= bytes;
    freed->abandon();
    return;
  }
  if (has_ended()) memory_.add_pool(shared_from_this());  // for the next synchronisation
  unused_[bytes].push_back(std::move(freed));
  memory_.unused_blocks.fetch_add(1, std::memory_order_relaxed);
}

void MemoryPool::free(const Block& block, std::size_t bytes, Stream& stream) {
  auto* const checker = checking::checker();
  if (checker != nullptr) checker->freed_in_stream(block.address);
  // While races are checked, every free is an operation of its stream.
  const bool passed = checker == nullptr && nothing_is_ahead(stream);
  const auto freed = std::make_shared<FreedBlock>(memory_, block, stream.id(), passed, !is_imported());
  if (!passed) stream.enqueue(std::make_unique<FreeWork>(freed, bytes));
  put(freed);
}

void MemoryPool::free_at_once(const Block& block) {
  put(std::make_shared<FreedBlock>(memory_, block, 0, true, !is_imported()));
}

bool MemoryPool::evict_one(bool pending_too) noexcept {
  for (auto of_size = unused_.rbegin(); of_size != unused_.rend(); ++of_size) {
    FreedBlocks& blocks = of_size->second;
    const auto found =
        std::find_if(blocks.begin(), blocks.end(), [&](const auto& each) { return pending_too || each->passed(); });
    if (found == blocks.end()) continue;
    const std::size_t bytes = of_size->first;
    if (!is_imported()) reserved_bytes_ -= bytes;
    (*found)->abandon();
    blocks.erase(found);
    if (blocks.empty()) unused_.erase(bytes);
    memory_.unused_blocks.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void MemoryPool::trim_locked(std::size_t bytes_to_keep) noexcept {
  while (reserved_bytes_ > bytes_to_keep && evict_one(false)) {
  }
}

void MemoryPool::settle() noexcept {
  if (is_imported()) {  // it gives nothing of what it keeps to anybody
    while (evict_one(false)) {
    }
    return;
  }
  trim_locked(release_threshold_);
  if (allow_opportunistic_ != 0) return;  // who freed a block is asked for only without it
  for (auto& [bytes, blocks] : unused_) {
    for (const auto& freed : blocks) {
      if (freed->passed()) freed->forget_stream();
    }
  }
}

void MemoryPool::trim_to(std::size_t bytes_to_keep) {
  const std::lock_guard lock(memory_.mutex());
  trim_locked(bytes_to_keep);
}

void MemoryPool::close() {
  const std::lock_guard lock(memory_.mutex());
  closed_ = true;
  while (!is_imported() && evict_one(true)) {
  }
  if (has_ended()) memory_.remove_pool(*this);
}

CUresult MemoryPool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const auto as_int = [&] { return *static_cast<const int*>(value); };
  const auto as_bytes = [&] { return *static_cast<const cuuint64_t*>(value); };
  const std::lock_guard lock(memory_.mutex());
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_event_dependencies_ = as_int() != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      allow_opportunistic_ = as_int() != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      allow_internal_dependencies_ = as_int() != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = as_bytes();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (as_bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = reserved_bytes_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (as_bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_bytes_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult MemoryPool::get_attribute(CUmemPool_attribute attribute, void* value) {
  const auto answer_int = [&](int answer) {
    *static_cast<int*>(value) = answer;
    return CUDA_SUCCESS;
  };
  const auto answer_bytes = [&](std::uint64_t answer) {
    *static_cast<cuuint64_t*>(value) = answer;
    return CUDA_SUCCESS;
  };
  const std::lock_guard lock(memory_.mutex());
  switch (static_cast<int>(attribute)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return answer_int(follow_event_dependencies_);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return answer_int(allow_opportunistic_);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return answer_int(allow_internal_dependencies_);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return answer_bytes(release_threshold_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return answer_bytes(reserved_bytes_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return answer_bytes(reserved_high_);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return answer_bytes(used_bytes_);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return answer_bytes(used_high_);
    case newer::pool_allocation_type:
      return answer_int(properties_.allocType);
    case newer::pool_export_handle_types:
      return answer_int(static_cast<int>(properties_.handleTypes));
    case newer::pool_location_id:
      return answer_int(properties_.location.id);
    case newer::pool_location_type:
      return answer_int(properties_.location.type);
    case newer::pool_max_size:
      return answer_bytes(properties_.maxSize);
    case newer::pool_hardware_decompress:
      return answer_int(0);
    case newer::pool_locality_domain:
      return answer_int(-1);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult MemoryPool::set_access(const CUmemAccessDesc* descriptions, std::size_t count) {
  if (is_managed()) return CUDA_ERROR_NOT_SUPPORTED;
  // All or nothing: first every description is looked at, then every one is kept.
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = descriptions[i];
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      if (location.id < 0 || location.id >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
      const bool is_own = is_on_device() && location.id == properties_.location.id;
      if (is_own && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
      const bool is_peer = is_on_device() && !is_own;
      if (is_peer && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && !can_access_peers())
        return CUDA_ERROR_INVALID_DEVICE;
      continue;
    }
    // The host's access to host memory is always on, its access to device memory always off.
    const bool is_host = location.type == CU_MEM_LOCATION_TYPE_HOST ||
                         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    if (!is_host || flags != access(location)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    const std::uint64_t device = std::uint64_t{1} << descriptions[i].location.id;
    if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      devices_with_access_.fetch_and(~device);
    } else {
      devices_with_access_.fetch_or(device);
    }
  }
  return CUDA_SUCCESS;
}

CUmemAccess_flags MemoryPool::access(const CUmemLocation& location) const {
  if (is_managed()) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return is_on_device() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return (devices_with_access() >> location.id & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void free_in_stream(PhysicalMemory& memory, const Block& block, std::size_t bytes, Stream& stream) {
  if (auto* const checker = checking::checker()) checker->freed_in_stream(block.address);
  const auto freed = std::make_shared<FreedBlock>(memory, block, stream.id(), false);
  stream.enqueue(std::make_unique<FreeWork>(freed, bytes));
  const std::lock_guard lock(memory.mutex());
  freed->abandon();
}

PoolTable& pools() {
  static auto& table = *new PoolTable;
  return table;
}

}  // namespace aiocuda::emulator::memory
