// What the rest of the driver needs of its memory half. Always: no function here calls into a stream
// while it holds a lock of the memory half, so each of them may be called with a stream's lock held,
// except those that say that they wait.
//
// What a device can do with memory, for cuDeviceGetAttribute: MANAGED_MEMORY, CONCURRENT_MANAGED_ACCESS,
// MEMORY_POOLS_SUPPORTED, HOST_MEMORY_POOLS_SUPPORTED, HOST_NUMA_MEMORY_POOLS_SUPPORTED, UNIFIED_ADDRESSING,
// CAN_MAP_HOST_MEMORY, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, HOST_REGISTER_SUPPORTED,
// READ_ONLY_HOST_REGISTER_SUPPORTED, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, IPC_EVENT_SUPPORTED,
// VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED are 1;
// MEMPOOL_SUPPORTED_HANDLE_TYPES is that of POSIX file descriptors;
// MULTICAST_SUPPORTED, GPU_DIRECT_RDMA_*, DMA_BUF_SUPPORTED, MEM_DECOMPRESS_* are 0.
#pragma once
#include <cstddef>
#include <cstdint>

#include "api.hpp"
#include "checking/access.hpp"

namespace aiocuda::emulator::memory {

// For Context::end, once the context's streams have ended: everything that was allocated, registered
// or adopted in it is released; with a primary context also what its device's pools hold.
void release_context(Context& context) noexcept;

// For the end of a successful cuStreamSynchronize, cuEventSynchronize or cuCtxSynchronize on this
// device: memory pools give back what they hold beyond their release threshold. Cheap when there is
// nothing to give back.
void after_synchronise(CUdevice device) noexcept;

// Makes a `__device__` or `__constant__` variable of a loaded module known as device memory of the
// context, so copies, memsets and pointer attributes accept its address; and forgets it again (before
// the module is unloaded). Without this a copy to it answers CUDA_ERROR_INVALID_VALUE.
void adopt_module_variable(Context& context, std::uintptr_t address, std::size_t bytes);
void disown_module_variable(std::uintptr_t address) noexcept;

// May a piece of device work, such as a stream memory operation, use [address, address + bytes)? True
// when it lies inside one live allocation of any kind: device, managed, page-locked or registered.
bool is_device_accessible(std::uintptr_t address, std::size_t bytes) noexcept;

// May the host look at this address? True of managed, page-locked and registered memory.
bool is_host_accessible(std::uintptr_t address) noexcept;

// For the checker of races. May [address, address + bytes) hold memory of the driver's? And the parts of accesses
// that do: memory that was freed meanwhile, in the order of some stream, included.
bool may_hold_memory(std::uintptr_t address, std::size_t bytes);
checking::Accesses only_of_memory(const checking::Accesses& accesses);

struct Usage {
  std::size_t total_bytes;
  std::size_t used_bytes;  // allocated, or held by pools
};
Usage usage(CUdevice device) noexcept;

}  // namespace aiocuda::emulator::memory
