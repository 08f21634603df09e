// The memory that graphs allocate, the account of it, and the pieces of work that open and shut it; see
// graph_memory.hpp.
#include "graph/graph_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checking/checking.hpp"
#include "checking/known_memory.hpp"
#include "device.hpp"
#include "graph/node_parameters.hpp"
#include "hexadecimal.hpp"
#include "injection.hpp"

namespace aiocuda::emulator::graph {
namespace {

// Bytes of a device. Always: backed <= reserved; what is between them was backed once, and is kept for the next launch.
// NVIDIA's driver counts what is kept as used until it is trimmed, as cuda.core's tests say.
struct Account {
  std::size_t backed = 0;
  std::size_t reserved = 0, reserved_high = 0;
  std::size_t used() const noexcept { return reserved; }
  std::size_t used_high = 0;
};

}  // namespace

struct GraphAllocation::Registry {
  std::mutex mutex;
  std::unordered_map<std::uintptr_t, GraphAllocation*> by_address;
  std::map<memory::PhysicalMemory*, Account> accounts;

  static Registry& get() {
    static auto* const made = new Registry;
    return *made;
  }

  // Memory that no allocation has goes back to its device.
  void trim(memory::PhysicalMemory& memory) {
    Account& account = accounts[&memory];
    give_back(memory, account, account.reserved - account.backed);
  }

  void trim_idle(memory::PhysicalMemory& memory) {
    for (const auto& [address, allocation] : by_address) {
      if (&allocation->memory_ != &memory || allocation->is_allocated_ || allocation->uses_ > 0) continue;
      take_back(*allocation);
    }
    trim(memory);
  }

  bool take(GraphAllocation& allocation) {
    if (allocation.is_backed_) return true;
    const std::size_t bytes = allocation.block_.bytes;
    Account& account = accounts[&allocation.memory_];
    if (account.reserved - account.backed < bytes) {
      memory::Block missing = allocation.block_;
      missing.bytes = bytes - (account.reserved - account.backed);
      const std::lock_guard lock(allocation.memory_.mutex());
      if (!allocation.memory_.count(missing)) return false;
      account.reserved += missing.bytes;
      account.reserved_high = std::max(account.reserved_high, account.reserved);
      account.used_high = std::max(account.used_high, account.used());
    }
    account.backed += bytes;
    allocation.is_backed_ = true;
    return true;
  }

  // To be kept for others, not to the device.
  void take_back(GraphAllocation& allocation) {
    if (!allocation.is_backed_) return;
    allocation.is_backed_ = false;
    accounts[&allocation.memory_].backed -= allocation.block_.bytes;
    allocation.memory_.arena().shut(allocation.block_, false);
  }

 private:
  static void give_back(memory::PhysicalMemory& memory, Account& account, std::size_t bytes) {
    memory::Block unused;
    unused.bytes = bytes;
    account.reserved -= bytes;
    const std::lock_guard lock(memory.mutex());
    memory.uncount(unused);
  }
};

namespace {

using Registry = GraphAllocation::Registry;

class AllocateWork final : public Work {
 public:
  explicit AllocateWork(std::shared_ptr<GraphAllocation> allocation) : allocation_(std::move(allocation)) {}
  void run() override {
    allocation_->open();
    if (auto* const known = checking::known_memory()) known->forget_writes(allocation_->address());
    if (auto* const checker = checking::checker()) checker->allocated(allocation_->address(), allocation_->bytes(), 0);
  }
  std::string text() const override { return "the allocation of " + checking::count_of(allocation_->bytes(), "byte"); }
  checking::Accesses accesses() override {
    return {{allocation_->address(), allocation_->address() + allocation_->bytes(), abi::access_write, true}};
  }

 private:
  const std::shared_ptr<GraphAllocation> allocation_;
};

class FreeWork : public Work {
 public:
  explicit FreeWork(std::shared_ptr<GraphAllocation> allocation) : allocation_(std::move(allocation)) {}
  void run() override {
    allocation_->shut();
    if (auto* const checker = checking::checker()) checker->freed_in_stream(allocation_->address());
  }
  std::string text() const override { return "the free of " + checking::count_of(allocation_->bytes(), "byte"); }
  checking::Accesses accesses() override {
    return {{allocation_->address(), allocation_->address() + allocation_->bytes(), abi::access_write, true}};
  }

 private:
  const std::shared_ptr<GraphAllocation> allocation_;
};

// The same in a stream, where the memory is in use until it has run.
class FreeInStreamWork final : public FreeWork {
 public:
  explicit FreeInStreamWork(const std::shared_ptr<GraphAllocation>& allocation)
      : FreeWork(allocation), in_use_(allocation) {
    in_use_->begin_use();
  }
  ~FreeInStreamWork() override { in_use_->end_use(); }

 private:
  const std::shared_ptr<GraphAllocation> in_use_;
};

CUresult check_properties(const CUmemPoolProps& properties) {
  const CUmemLocation& location = properties.location;
  const CUmemAllocationType type = properties.allocType;
  const bool is_type = type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (!is_type || location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  // As of CUDA 13.0, graphs allocate memory at devices alone.
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return location.id >= 0 && location.id < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult GraphAllocation::make(const CUmemPoolProps& properties, std::span<const CUmemAccessDesc> access,
                               std::size_t bytes, std::shared_ptr<GraphAllocation>& made) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_properties(properties)) return error;
  const CUdevice device = properties.location.id;
  const bool is_managed = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  memory::PhysicalMemory& memory = is_managed ? memory::host_memory() : memory::device_memory(device);
  const auto pool = std::make_shared<memory::MemoryPool>(memory, properties);
  if (!access.empty()) {
    if (const CUresult error = pool->set_access(access.data(), access.size())) return error;
  }
  if (injection::strikes(injection::Kind::alloc, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::optional<memory::Block> block;
  {
    const std::lock_guard lock(memory.mutex());
    block = memory.reserve(bytes);
  }
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  made.reset(new GraphAllocation(memory, *block, bytes));
  made->listed_ = std::make_shared<memory::Allocation>();
  made->listed_->kind = memory::Allocation::Kind::graph;
  made->listed_->address = block->address;
  made->listed_->bytes = bytes;
  made->listed_->device = device;
  made->listed_->pool = pool;
  if (auto* const checker = checking::checker()) checker->allocated(block->address, bytes, block->bytes);
  memory::list(made->listed_);
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  registry.by_address[block->address] = made.get();
  return CUDA_SUCCESS;
}

GraphAllocation::~GraphAllocation() {
  Registry& registry = Registry::get();
  {
    const std::lock_guard lock(registry.mutex);
    registry.by_address.erase(block_.address);
    registry.take_back(*this);
  }
  if (!listed_) return;
  memory::unlist(*listed_);
  const std::lock_guard lock(memory_.mutex());
  memory_.unmap(block_);
}

CUdevice GraphAllocation::device() const noexcept { return listed_->device; }

void GraphAllocation::set_owner(std::uint64_t graph_id) {
  const std::lock_guard lock(Registry::get().mutex);
  owner_ = graph_id;
}

CUresult GraphAllocation::add_free_node(std::uint64_t graph_id) {
  const std::lock_guard lock(Registry::get().mutex);
  const bool is_owner = graph_id == owner_;
  if (is_freed_in_owner_ || (is_owner && is_freed_elsewhere_)) return CUDA_ERROR_INVALID_VALUE;
  (is_owner ? is_freed_in_owner_ : is_freed_elsewhere_) = true;
  return CUDA_SUCCESS;
}

CUresult GraphAllocation::check_free_by_host() const {
  const std::lock_guard lock(Registry::get().mutex);
  return is_freed_in_owner_ || !is_allocated_ ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool GraphAllocation::is_allocated() const {
  const std::lock_guard lock(Registry::get().mutex);
  return is_allocated_;
}

void GraphAllocation::set_allocated(bool allocated) {
  std::shared_ptr<GraphAllocation> last;  // may be the last reference: let go of it outside of the lock
  const std::lock_guard lock(Registry::get().mutex);
  is_allocated_ = allocated;
  unback_if_unused();
  last = std::exchange(while_allocated_, allocated ? shared_from_this() : nullptr);
}

bool GraphAllocation::back() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  is_wanted_ = true;
  return registry.take(*this);
}

void GraphAllocation::unback() {
  const std::lock_guard lock(Registry::get().mutex);
  is_wanted_ = false;
  unback_if_unused();
}

void GraphAllocation::unback_if_unused() {
  if (!is_wanted_ && !is_allocated_ && uses_ == 0) Registry::get().take_back(*this);
}

void GraphAllocation::begin_use() {
  const std::lock_guard lock(Registry::get().mutex);
  ++uses_;
}

void GraphAllocation::end_use() {
  const std::lock_guard lock(Registry::get().mutex);
  --uses_;
  unback_if_unused();
}

void GraphAllocation::open() { memory_.arena().open(block_); }

void GraphAllocation::shut() noexcept { memory_.arena().shut(block_, true); }

std::shared_ptr<GraphAllocation> find_allocation(std::uintptr_t address) {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.by_address.find(address);
  return found == registry.by_address.end() ? nullptr : found->second->weak_from_this().lock();
}

std::unique_ptr<Work> make_free_work(const std::shared_ptr<GraphAllocation>& allocation) {
  return std::make_unique<FreeInStreamWork>(allocation);
}

CUresult free_in_stream(std::uintptr_t address, Stream& stream) {
  const auto allocation = find_allocation(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = allocation->check_free_by_host()) return error;
  stream.enqueue(make_free_work(allocation));
  allocation->set_allocated(false);
  return CUDA_SUCCESS;
}

CUresult free_now(std::uintptr_t address) {
  const auto allocation = find_allocation(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = allocation->check_free_by_host()) return error;
  allocation->shut();
  if (auto* const checker = checking::checker()) checker->freed_by_host(address, allocation->bytes(), "cuMemFree");
  allocation->set_allocated(false);
  return CUDA_SUCCESS;
}

void release_allocations_of(CUdevice device) {
  std::vector<std::shared_ptr<GraphAllocation>> allocated;
  Registry& registry = Registry::get();
  {
    const std::lock_guard lock(registry.mutex);
    for (const auto& [address, allocation] : registry.by_address) {
      auto live = allocation->weak_from_this().lock();
      if (live && live->device() == device) allocated.push_back(std::move(live));
    }
  }
  for (const auto& each : allocated) each->set_allocated(false);
  const std::lock_guard lock(registry.mutex);
  registry.trim_idle(memory::device_memory(device));
}

CUresult AllocateParameters::make(const CUDA_MEM_ALLOC_NODE_PARAMS& given,
                                  std::shared_ptr<const AllocateParameters>& made) {
  if (given.accessDescCount > static_cast<std::size_t>(device_count())) return CUDA_ERROR_INVALID_VALUE;
  if (given.accessDescs == nullptr && given.accessDescCount != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUmemAccessDesc> access(given.accessDescs, given.accessDescs + given.accessDescCount);
  std::shared_ptr<GraphAllocation> allocation;
  if (const CUresult error = GraphAllocation::make(given.poolProps, access, given.bytesize, allocation)) return error;
  made.reset(new AllocateParameters(given, std::move(access), std::move(allocation)));
  return CUDA_SUCCESS;
}

AllocateParameters::AllocateParameters(const CUDA_MEM_ALLOC_NODE_PARAMS& given, std::vector<CUmemAccessDesc> access,
                                       std::shared_ptr<GraphAllocation> allocation)
    : given_(given), access_(std::move(access)), allocation_(std::move(allocation)) {
  given_.accessDescs = access_.empty() ? nullptr : access_.data();
  given_.dptr = allocation_->address();
}

void AllocateParameters::append_work(Works& works) const {
  works.push_back(std::make_shared<AllocateWork>(allocation_));
}

CUgraphExecUpdateResult AllocateParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const AllocateParameters&>(next);
  return other.allocation_ == allocation_ ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

void AllocateParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS) == 0) return;
  details.push_back({"bytesize", std::to_string(given_.bytesize)});
  details.push_back({"dptr", hexadecimal(given_.dptr)});
  details.push_back({"device", std::to_string(allocation_->device())});
}

CUDA_MEM_ALLOC_NODE_PARAMS AllocateParameters::given() const { return given_; }

CUresult FreeParameters::make(CUdeviceptr address, ParametersPointer& made) {
  auto allocation = find_allocation(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  made = ParametersPointer(new FreeParameters(std::move(allocation)));
  return CUDA_SUCCESS;
}

CUdeviceptr FreeParameters::address() const noexcept { return allocation_->address(); }

void FreeParameters::append_work(Works& works) const { works.push_back(std::make_shared<FreeWork>(allocation_)); }

CUgraphExecUpdateResult FreeParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const FreeParameters&>(next);
  return other.allocation_ == allocation_ ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

void FreeParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS) == 0) return;
  details.push_back({"dptr", hexadecimal(allocation_->address())});
}

}  // namespace aiocuda::emulator::graph

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  if (const CUresult error = check_device(device)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const Account& account = registry.accounts[&memory::device_memory(device)];
  cuuint64_t& answer = *static_cast<cuuint64_t*>(value);
  switch (static_cast<int>(attribute)) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      answer = account.used();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      answer = account.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      answer = account.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      answer = account.reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  if (const CUresult error = check_device(device)) return error;
  if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  Account& account = registry.accounts[&memory::device_memory(device)];
  switch (static_cast<int>(attribute)) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      account.used_high = account.used();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      account.reserved_high = account.reserved;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  registry.trim_idle(memory::device_memory(device));
  return CUDA_SUCCESS;
}
