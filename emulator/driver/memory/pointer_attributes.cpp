// The attributes of a pointer. One table of answers serves two functions. The one for a single attribute is an error
// for a pointer that CUDA does not know; the one for many attributes answers zeros for it.
#include <array>
#include <cstring>

#include "context.hpp"
#include "memory/allocation.hpp"
#include "memory/memory.hpp"
#include "memory/newer_attributes.hpp"
#include "memory/virtual_memory.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;
using memory::PoolTable;

namespace {

// The bytes of one answer, of whatever type the attribute has.
struct Answer {
  std::array<unsigned char, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS)> bytes{};
  std::size_t size = 0;  // 0: the attribute has no answer for this pointer
};

template <typename Value>
Answer make_answer(Value value) {
  Answer answer;
  static_assert(sizeof(value) <= sizeof(answer.bytes));
  std::memcpy(answer.bytes.data(), &value, sizeof(value));
  answer.size = sizeof(value);
  return answer;
}

constexpr std::uint32_t no = 0, yes = 1;

CUmemAccess_flags access_flags(const Allocation& allocation) {
  const Entry entry = enter_even_if_lost();
  if (allocation.mappable && entry) {
    const auto has = [&](std::uint64_t devices) { return (devices >> entry.context().device() & 1) != 0; };
    if (has(allocation.devices_with_access)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return has(allocation.devices_that_read) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  if (!allocation.pool || !entry) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = entry.context().device();
  return allocation.pool->access(location);
}

// cuPointerGetAttribute's answer about `pointer`, which is in `allocation`.
CUresult answer(const Allocation& allocation, CUpointer_attribute attribute, CUdeviceptr pointer, Answer& answered) {
  const bool host_may_read = allocation.is_page_locked() || allocation.is_managed();
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory out of a pool belongs to no context.
      answered = make_answer<CUcontext>(allocation.pool ? nullptr : allocation.context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      answered = make_answer<std::uint32_t>(allocation.is_page_locked() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      answered = make_answer<CUdeviceptr>(pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      answered = make_answer<CUdeviceptr>(host_may_read ? pointer : 0);
      return host_may_read ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      answered = make_answer<std::uint32_t>(allocation.sync_memops ? yes : no);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      answered = make_answer<std::uint64_t>(allocation.id);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      answered = make_answer<std::uint32_t>(allocation.is_managed() ? yes : no);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      answered = make_answer<int>(allocation.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      answered =
          make_answer<std::uint32_t>(allocation.kind == Allocation::Kind::device && allocation.block.range ? yes : no);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      answered = make_answer<std::uint32_t>(no);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      answered = make_answer<CUdeviceptr>(allocation.address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      answered = make_answer<std::size_t>(allocation.bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      answered = make_answer<std::uint32_t>(yes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      answered =
          make_answer<std::uint64_t>(allocation.pool       ? allocation.pool->properties().handleTypes
                                     : allocation.mappable ? allocation.mappable->properties().requestedHandleTypes
                                                           : CU_MEM_HANDLE_TYPE_NONE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      answered = make_answer<std::uint32_t>(access_flags(allocation));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      answered = make_answer<CUmemoryPool>(
          allocation.kind == Allocation::Kind::stream_ordered ? PoolTable::handle_of(*allocation.pool) : nullptr);
      return CUDA_SUCCESS;
    case memory::newer::pointer_locality_domain:
      answered = make_answer<int>(-1);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;  // nv-p2p.h
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// cuPointerGetAttributes' answer about a pointer that CUDA does not know: a zero of the right size.
CUresult default_answer(CUpointer_attribute attribute, Answer& answered) {
  static const Allocation nothing;
  const CUresult result = answer(nothing, attribute, 0, answered);
  answered.bytes.fill(0);
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    answered = make_answer<int>(CU_DEVICE_INVALID);
  }
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_SUCCESS : result;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (const CUresult error = check_initialised()) return error;
  const auto allocation = memory::find(pointer);
  if (data == nullptr || !allocation) return CUDA_ERROR_INVALID_VALUE;
  Answer answered;
  if (const CUresult error = answer(*allocation, attribute, pointer, answered)) return error;
  std::memcpy(data, answered.bytes.data(), answered.size);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  if (const CUresult error = check_initialised()) return error;
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = memory::find(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Answer answered;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (allocation) result = answer(*allocation, attributes[i], pointer, answered);
    // The host pointer of device memory is a null pointer here, and not an error.
    if (result != CUDA_SUCCESS) result = default_answer(attributes[i], answered);
    if (result != CUDA_SUCCESS) return result;
    std::memcpy(data[i], answered.bytes.data(), answered.size);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (const CUresult error = check_initialised()) return error;
  const auto allocation = memory::find(pointer);
  if (value == nullptr || !allocation || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool on = *static_cast<const std::uint32_t*>(value) != 0;
  if (on) {
    // Memory operations that are under way count as synchronous ones from now on.
    if (const auto owner = contexts().find(allocation->context)) {
      if (const CUresult error = owner->synchronise()) return error;
    }
  }
  allocation->sync_memops.store(on);
  return CUDA_SUCCESS;
}
