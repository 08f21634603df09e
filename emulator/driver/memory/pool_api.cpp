// The stream-ordered allocator of the driver API, and which pool is the default and the current one
// of a location.
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "context.hpp"
#include "device.hpp"
#include "graph/graph_memory.hpp"
#include "graph/node_parameters.hpp"
#include "holding.hpp"
#include "injection.hpp"
#include "memory/allocation.hpp"
#include "memory/interprocess.hpp"
#include "memory/pool.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;
using memory::Block;
using memory::MemoryPool;
using memory::pools;
using memory::PoolTable;

namespace {

bool is_numa_node(int node) {
  return node == 0 ||
         (node > 0 && ::access(("/sys/devices/system/node/node" + std::to_string(node)).c_str(), F_OK) == 0);
}

// May a pool of this type be at this location? Answers the location with its meaningless id, where it
// has one, set to 0.
CUresult check_location(CUmemLocation& location, CUmemAllocationType type) {
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id >= 0 && location.id < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_numa_node(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
      location.id = 0;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_NONE:
      location.id = 0;
      return type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Null where other processes are to map its memory and the system has none for that.
std::shared_ptr<MemoryPool> make_pool(const CUmemPoolProps& properties) {
  auto& memory =
      properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
          ? memory::device_memory(properties.location.id)
          : memory::host_memory();
  std::shared_ptr<memory::SharedFile> file;
  if (properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    file = memory::make_pool_file(properties);
    if (!file) return nullptr;
  }
  auto pool = std::make_shared<MemoryPool>(memory, properties, std::move(file));
  {
    const std::lock_guard lock(memory.mutex());
    memory.add_pool(pool);
  }
  pools().add(pool);
  return pool;
}

using LocationKey = std::tuple<CUmemAllocationType, CUmemLocationType, int>;

LocationKey key_of(const MemoryPool& pool) {
  const CUmemPoolProps& properties = pool.properties();
  return {properties.allocType, properties.location.type, properties.location.id};
}

// The default pools, made at their first use, and the pools that were made current in their place.
struct Directory {
  std::mutex mutex;
  std::map<LocationKey, std::shared_ptr<MemoryPool>> defaults;
  std::map<LocationKey, std::shared_ptr<MemoryPool>> current;
};

Directory& directory() {
  static auto& directory = *new Directory;
  return directory;
}

std::shared_ptr<MemoryPool> default_pool(const CUmemLocation& location, CUmemAllocationType type) {
  auto& [mutex, defaults, current] = directory();
  const std::lock_guard lock(mutex);
  auto& pool = defaults[{type, location.type, location.id}];
  if (!pool) {
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = location;
    pool = make_pool(properties);
  }
  return pool;
}

std::shared_ptr<MemoryPool> current_pool(const CUmemLocation& location, CUmemAllocationType type) {
  {
    auto& [mutex, defaults, current] = directory();
    const std::lock_guard lock(mutex);
    const auto found = current.find({type, location.type, location.id});
    if (found != current.end()) return found->second;
  }
  return default_pool(location, type);
}

CUmemLocation device_location(CUdevice device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

// Stands in the stream for an allocation, where races are checked: what uses the memory must come after it.
class AllocateWork final : public Work {
 public:
  AllocateWork(std::uintptr_t address, std::size_t bytes) : address_(address), bytes_(bytes) {}
  void run() override {}
  std::string text() const override { return "the allocation of " + checking::count_of(bytes_, "byte"); }
  checking::Accesses accesses() override { return {{address_, address_ + bytes_, abi::access_write, true}}; }

 private:
  const std::uintptr_t address_;
  const std::size_t bytes_;
};

// The node of a captured allocation: the memory is the graph's, with the properties of the pool.
CUresult make_node(const MemoryPool& pool, std::size_t bytes, CUdeviceptr* pointer, graph::ParametersPointer& made) {
  std::vector<CUmemAccessDesc> access;
  for (CUdevice device = 0; pool.is_on_device() && device < device_count(); ++device) {
    const CUmemAccess_flags flags = pool.access(device_location(device));
    const bool is_peer = device != pool.properties().location.id;
    if (is_peer && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) access.push_back({device_location(device), flags});
  }
  CUDA_MEM_ALLOC_NODE_PARAMS given{};
  given.poolProps = pool.properties();
  given.accessDescs = access.data();
  given.accessDescCount = access.size();
  given.bytesize = bytes;
  std::shared_ptr<const graph::AllocateParameters> allocate;
  if (const CUresult error = graph::AllocateParameters::make(given, allocate)) return error;
  *pointer = allocate->allocation()->address();
  made = std::move(allocate);
  return CUDA_SUCCESS;
}

CUresult allocate_from(const std::shared_ptr<MemoryPool>& pool, std::size_t bytes, Stream& stream,
                       CUdeviceptr* pointer) {
  // Nothing is at address 0, and costs no work, not even a node (seen on an H100 with 580.159.04).
  if (bytes == 0) {
    *pointer = 0;
    return CUDA_SUCCESS;
  }
  const auto captured = capture::instead_of_work(
      stream, [&](graph::ParametersPointer& made) { return make_node(*pool, bytes, pointer, made); });
  if (captured) return *captured;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (injection::strikes(injection::Kind::alloc, stream.context().device())) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto given = pool->allocate(bytes, stream);
  if (!given) return CUDA_ERROR_OUT_OF_MEMORY;
  const Block& block = given->block;
  const auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::stream_ordered;
  allocation->address = block.address;
  allocation->bytes = bytes;
  allocation->context = stream.context().handle();
  allocation->device = pool->is_on_device() ? pool->properties().location.id : stream.context().device();
  allocation->block = block;
  allocation->memory = &pool->memory();
  allocation->pool = pool;
  if (auto* const checker = checking::checker()) {
    checker->allocated(block.address, bytes, given->was_freed_in_stream ? 0 : block.bytes);
    stream.enqueue(std::make_unique<AllocateWork>(block.address, bytes));
  }
  memory::list(allocation);
  *pointer = block.address;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps checked = *properties;
  if (const CUresult error = check_location(checked.location, checked.allocType)) return error;
  if (checked.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    if (checked.location.type == CU_MEM_LOCATION_TYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
    const bool can_be_shared = checked.allocType == CU_MEM_ALLOCATION_TYPE_PINNED;
    if (!can_be_shared || checked.handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (checked.win32SecurityAttributes != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (checked.usage != 0) return CUDA_ERROR_NOT_SUPPORTED;  // hardware decompression
  if (checked.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED && checked.maxSize != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult error = held("cuMemPoolCreate", checked.location.id)) return error;
  checked.maxSize = memory::round_up(checked.maxSize, memory::alignment_bytes);
  const auto made = make_pool(checked);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *pool = PoolTable::handle_of(*made);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto pool = pools().find(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  {
    auto& [mutex, defaults, current] = directory();
    const std::lock_guard lock(mutex);
    const LocationKey key = key_of(*pool);
    if (const auto found = defaults.find(key); found != defaults.end() && found->second == pool) {
      return CUDA_ERROR_INVALID_VALUE;  // a default pool stays
    }
    if (const auto found = current.find(key); found != current.end() && found->second == pool) {
      current.erase(found);
    }
  }
  if (!pools().take(handle)) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
  pool->close();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (const CUresult error = check_initialised()) return error;
  const auto pool = pools().find(handle);
  if (!pool || pool->is_imported() || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool->set_attribute(attribute, value);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto pool = pools().find(handle);
  if (!pool || pool->is_imported() || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool->get_attribute(attribute, value);
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptions, std::size_t count) {
  if (const CUresult error = check_initialised()) return error;
  const auto pool = pools().find(handle);
  if (!pool || (descriptions == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  return pool->set_access(descriptions, count);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  if (const CUresult error = check_initialised()) return error;
  const auto pool = pools().find(handle);
  if (!pool || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (const CUresult error = check_device(location->id)) return error;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = pool->access(*location);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t bytes_to_keep) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto pool = pools().find(handle);
  if (!pool || pool->is_imported()) return CUDA_ERROR_INVALID_VALUE;
  pool->trim_to(bytes_to_keep);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (const CUresult error = check_initialised()) return error;
  if (pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation checked = *location;
  if (const CUresult error = check_location(checked, type)) return error;
  *pool = PoolTable::handle_of(*default_pool(checked, type));
  return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (const CUresult error = check_initialised()) return error;
  if (pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation checked = *location;
  if (const CUresult error = check_location(checked, type)) return error;
  *pool = PoolTable::handle_of(*current_pool(checked, type));
  return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  if (const CUresult error = check_initialised()) return error;
  const auto pool = pools().find(handle);
  if (!pool || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation checked = *location;
  if (const CUresult error = check_location(checked, type)) return error;
  const LocationKey key{type, checked.type, checked.id};
  if (pool->is_imported() || key_of(*pool) != key) return CUDA_ERROR_INVALID_VALUE;
  auto& [mutex, defaults, current] = directory();
  const std::lock_guard lock(mutex);
  current[key] = pool;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  CUmemLocation location = device_location(device);
  return cuMemGetDefaultMemPool(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  CUmemLocation location = device_location(device);
  return cuMemGetMemPool(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  if (const CUresult error = check_device(device)) return error;
  CUmemLocation location = device_location(device);
  return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool handle, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  const auto pool = pools().find(handle);
  if (pointer == nullptr || !pool || pool->is_imported()) return CUDA_ERROR_INVALID_VALUE;
  return allocate_from(pool, bytes, *stream, pointer);
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto pool = current_pool(device_location(stream->context().device()), CU_MEM_ALLOCATION_TYPE_PINNED);
  return allocate_from(pool, bytes, *stream, pointer);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  if (pointer == 0) return CUDA_SUCCESS;
  const auto captured = capture::instead_of_work(
      *stream, [&](graph::ParametersPointer& made) { return graph::FreeParameters::make(pointer, made); });
  if (captured) return *captured;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto allocation = memory::find(pointer);
  if (!allocation || allocation->address != pointer) return CUDA_ERROR_INVALID_VALUE;
  if (allocation->kind == Allocation::Kind::graph) return graph::free_in_stream(pointer, *stream);
  const bool is_plain = allocation->kind == Allocation::Kind::device || allocation->kind == Allocation::Kind::managed;
  if (!allocation->pool && !is_plain) return CUDA_ERROR_INVALID_VALUE;
  if (memory::close_once_more(*allocation)) return CUDA_SUCCESS;
  if (!memory::unlist(*allocation)) return CUDA_ERROR_INVALID_VALUE;  // a double free
  if (allocation->pool) {
    allocation->pool->free(allocation->block, allocation->bytes, *stream);
  } else {
    memory::free_in_stream(*allocation->memory, allocation->block, allocation->bytes, *stream);
  }
  return CUDA_SUCCESS;
}
