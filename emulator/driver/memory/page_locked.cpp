// Page-locked host memory of the user's own, and what can be asked of any page-locked memory. On a
// CPU nothing has to be locked: registered memory is remembered, so copies to and from it are
// asynchronous, as on a GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "capture/capture.hpp"
#include "context.hpp"
#include "memory/allocation.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;

namespace {

bool is_mapped(std::uintptr_t address, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = address / page * page;
  const std::size_t length = address + bytes - first;
  std::vector<unsigned char> residence((length + page - 1) / page);
  return ::mincore(reinterpret_cast<void*>(first), length, residence.data()) == 0;
}

std::shared_ptr<Allocation> find_page_locked(const void* pointer) {
  auto allocation = memory::find(reinterpret_cast<std::uintptr_t>(pointer));
  return allocation && allocation->is_page_locked() ? allocation : nullptr;
}

}  // namespace

CUresult cuMemHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  constexpr unsigned known_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                   CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (pointer == nullptr || bytes == 0 || (flags & ~known_flags) != 0 || address + bytes < address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto registered = std::make_shared<Allocation>();
  registered->kind = Allocation::Kind::registered;
  registered->address = address;
  registered->bytes = bytes;
  registered->context = entry.context().handle();
  registered->device = entry.context().device();
  registered->flags = flags;
  return memory::list(registered) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto registered = memory::find(address);
  if (!registered || registered->address != address || registered->kind != Allocation::Kind::registered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (const auto owner = contexts().find(registered->context)) {
    if (const CUresult error = owner->synchronise_behind_gate()) return error;
  }
  return memory::unlist(*registered) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device_pointer, void* pointer, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (device_pointer == nullptr || flags != 0 || !find_page_locked(pointer)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device_pointer = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto allocation = find_page_locked(pointer);
  if (flags == nullptr || !allocation) return CUDA_ERROR_INVALID_VALUE;
  *flags = allocation->flags;
  return CUDA_SUCCESS;
}
