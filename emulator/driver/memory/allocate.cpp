// The plain allocations of the driver API: cuMemAlloc and its kin, cuMemAllocManaged, cuMemFree.
#include <mutex>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "context.hpp"
#include "graph/graph_memory.hpp"
#include "holding.hpp"
#include "injection.hpp"
#include "memory/allocation.hpp"
#include "memory/interprocess.hpp"
#include "memory/memory.hpp"
#include "memory/physical_memory.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;

namespace {

// A row of cuMemAllocPitch starts at a multiple of this, as on NVIDIA's devices.
constexpr std::size_t pitch_alignment_bytes = 512;

CUresult allocate(Context& context, memory::PhysicalMemory& from, Allocation::Kind kind, std::size_t bytes,
                  unsigned flags, std::uintptr_t& address) {
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (const CUresult error = context.pass_gate()) return error;
  if (injection::strikes(injection::Kind::alloc, context.device())) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto allocation = std::make_shared<Allocation>();
  {
    const std::lock_guard lock(from.mutex());
    const auto block = from.allocate(bytes, kind == Allocation::Kind::device ? from.file() : nullptr);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->block = *block;
  }
  allocation->kind = kind;
  allocation->address = allocation->block.address;
  allocation->bytes = bytes;
  allocation->context = context.handle();
  allocation->device = context.device();
  allocation->flags = flags;
  allocation->memory = &from;
  if (auto* const checker = checking::checker())
    checker->allocated(allocation->address, bytes, allocation->block.bytes);
  memory::list(allocation);
  address = allocation->address;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (free == nullptr && total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const memory::Usage usage = memory::usage(entry.context().device());
  if (free != nullptr) *free = usage.total_bytes - usage.used_bytes;
  if (total != nullptr) *total = usage.total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context& context = entry.context();
  std::uintptr_t address = 0;
  const CUresult result =
      allocate(context, memory::device_memory(context.device()), Allocation::Kind::device, bytes, 0, address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

CUresult cuMemAllocPitch(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width_bytes, std::size_t height,
                         unsigned element_bytes) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (pointer == nullptr || pitch == nullptr || width_bytes == 0 || height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t row = memory::round_up(width_bytes, pitch_alignment_bytes);
  std::size_t bytes = 0;
  if (row == 0 || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = cuMemAlloc(pointer, bytes);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const bool flags_are_valid = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (pointer == nullptr || bytes == 0 || !flags_are_valid) return CUDA_ERROR_INVALID_VALUE;
  std::uintptr_t address = 0;
  const CUresult result =
      allocate(entry.context(), memory::host_memory(), Allocation::Kind::managed, bytes, flags, address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  constexpr unsigned known_flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || bytes == 0 || (flags & ~known_flags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult error = held("cuMemHostAlloc", entry.context().device())) return error;
  std::uintptr_t address = 0;
  const CUresult result =
      allocate(entry.context(), memory::host_memory(), Allocation::Kind::page_locked, bytes, flags, address);
  if (result == CUDA_SUCCESS) *pointer = reinterpret_cast<void*>(address);
  return result;
}

CUresult cuMemAllocHost(void** pointer, std::size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

namespace {

// Waits for the work of the context that the allocation belongs to, or else of the current one, then gives it back.
CUresult free_after_waiting(const Allocation& allocation, Context& current, const char* function) {
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const CUcontext waited_for = allocation.context != nullptr ? allocation.context : current.handle();
  if (const auto owner = contexts().find(waited_for)) {
    if (const CUresult error = owner->synchronise_behind_gate()) return error;
  }
  if (memory::close_once_more(allocation)) return CUDA_SUCCESS;
  if (!memory::unlist(allocation)) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
  if (auto* const checker = checking::checker()) checker->freed_by_host(allocation.address, allocation.bytes, function);
  memory::release(allocation);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemFree(CUdeviceptr pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (pointer == 0) return CUDA_SUCCESS;
  const auto allocation = memory::find(pointer);
  if (!allocation || allocation->address != pointer) return CUDA_ERROR_INVALID_VALUE;
  switch (allocation->kind) {
    case Allocation::Kind::device:
    case Allocation::Kind::managed:
    case Allocation::Kind::stream_ordered:
      return free_after_waiting(*allocation, entry.context(), "cuMemFree");
    case Allocation::Kind::graph:
      if (const CUresult error = capture::check_unsafe_call()) return error;
      if (const CUresult error = entry.context().synchronise_behind_gate()) return error;
      return graph::free_now(pointer);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemFreeHost(void* pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto allocation = memory::find(address);
  if (!allocation || allocation->address != address || allocation->kind != Allocation::Kind::page_locked) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return free_after_waiting(*allocation, entry.context(), "cuMemFreeHost");
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto allocation = memory::find(pointer);
  if (!allocation) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation->address;
  if (bytes != nullptr) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}
