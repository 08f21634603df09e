// The functions of the driver API with which processes lend one another memory and events.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "context.hpp"
#include "device.hpp"
#include "event.hpp"
#include "memory/allocation.hpp"
#include "memory/interprocess.hpp"
#include "shared_event.hpp"

using namespace aiocuda::emulator;
using memory::Allocation;

namespace {

// What the bytes of CUDA's handles mean here.
struct MemoryHandle {
  static constexpr std::uint64_t right_magic = 0x61696f637564616d;  // "aiocudam"
  std::uint64_t magic = right_magic;
  std::int32_t process = 0, descriptor = 0;
  std::uint64_t process_started = 0;
  std::uint64_t file_node = 0;
  std::uint32_t file_device = 0;
  std::int32_t device = 0;
  memory::LentRange range;
};

struct EventHandle {
  static constexpr std::uint64_t right_magic = 0x61696f6375646168;  // "aiocudah"
  std::uint64_t magic = right_magic;
  std::int32_t process = 0, descriptor = 0;
  std::uint64_t process_started = 0;
  std::uint64_t file_device = 0, file_node = 0;
};

struct PointerHandle {
  static constexpr std::uint64_t right_magic = 0x61696f6375646170;  // "aiocudap"
  std::uint64_t magic = right_magic;
  memory::FileIdentity file;
  memory::LentRange range;
};

template <typename Ours, typename Theirs>
void write(const Ours& ours, Theirs& theirs) {
  static_assert(sizeof(Ours) <= sizeof(Theirs) && std::is_trivially_copyable_v<Ours>);
  std::memset(&theirs, 0, sizeof theirs);
  std::memcpy(&theirs, &ours, sizeof ours);
}

template <typename Ours, typename Theirs>
bool read(const Theirs& theirs, Ours& ours) {
  std::memcpy(static_cast<void*>(&ours), &theirs, sizeof ours);
  return ours.magic == Ours::right_magic;
}

template <typename Handle>
memory::RemoteFile file_of(const Handle& handle) {
  return {{handle.process, handle.process_started}, handle.descriptor, {handle.file_device, handle.file_node}};
}

// For handles that are plain bytes: the process that made one has the memory already.
template <typename Handle>
CUresult check_owner(const Handle& handle) {
  return file_of(handle).owner == this_process() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = memory::find(pointer);
  if (!allocation || allocation->kind != Allocation::Kind::device) return CUDA_ERROR_INVALID_VALUE;
  if (!allocation->block.range) return CUDA_ERROR_NOT_SUPPORTED;  // the system's, or the process's, limits
  const memory::RemoteFile file = memory::remote(allocation->block.range->file().descriptor());
  MemoryHandle made;
  made.process = file.owner.id;
  made.descriptor = file.descriptor;
  made.process_started = file.owner.started;
  made.file_node = file.identity.node;
  made.file_device = static_cast<std::uint32_t>(file.identity.device);
  made.device = allocation->device;
  made.range = memory::range_of(*allocation);
  write(made, *handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle given, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  MemoryHandle handle;
  if (!read(given, handle)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_owner(handle)) return error;
  Context& context = entry.context();
  if (handle.device != context.device() && !can_access_peers()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  memory::Descriptor file;
  if (const CUresult error = memory::open(file_of(handle), file)) return error;
  auto described = std::make_shared<Allocation>();
  described->kind = Allocation::Kind::opened;
  described->context = context.handle();
  described->device = context.device();
  described->memory = &memory::device_memory(context.device());
  std::shared_ptr<Allocation> opened;
  if (const CUresult error = memory::open_range(file.number(), handle.range, std::move(described), opened))
    return error;
  *pointer = opened->address;
  return CUDA_SUCCESS;
}

// As on a GPU, it does not wait: what uses the memory afterwards is in error.
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto allocation = memory::find(pointer);
  const bool is_opened = allocation && allocation->address == pointer && allocation->kind == Allocation::Kind::opened;
  if (!is_opened) return CUDA_ERROR_INVALID_VALUE;
  if (memory::close_once_more(*allocation)) return CUDA_SUCCESS;
  if (!memory::unlist(*allocation)) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
  if (auto* const checker = checking::checker())
    checker->freed_by_host(allocation->address, allocation->bytes, "cuIpcCloseMemHandle");
  memory::release(*allocation);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent given) {
  if (const CUresult error = check_initialised()) return error;
  const auto event = events().find(given);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = event->context().error()) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (event->shared() == nullptr || event->is_foreign()) return CUDA_ERROR_INVALID_HANDLE;
  const memory::RemoteFile file = memory::remote(event->shared()->descriptor());
  EventHandle made;
  made.process = file.owner.id;
  made.descriptor = file.descriptor;
  made.process_started = file.owner.started;
  made.file_device = file.identity.device;
  made.file_node = file.identity.node;
  write(made, *handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle given) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EventHandle handle;
  if (!read(given, handle)) return CUDA_ERROR_MAP_FAILED;
  if (const CUresult error = check_owner(handle)) return error;
  memory::Descriptor file;
  if (memory::open(file_of(handle), file) != CUDA_SUCCESS) return CUDA_ERROR_MAP_FAILED;
  auto shared = SharedEvent::open(std::move(file));
  if (!shared) return CUDA_ERROR_MAP_FAILED;
  *event = events().add(std::make_shared<Event>(entry.context().shared_from_this(), std::move(shared)));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle, CUmemoryPool given, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  const auto pool = memory::pools().find(given);
  if (!pool || handle == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      pool->file() == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int copy = ::fcntl(pool->file()->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = copy;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  if (pool == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The handle is the descriptor itself, as a pointer.
  memory::Descriptor file(::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)), F_DUPFD_CLOEXEC, 0));
  memory::PoolHeader header;
  if (!file || !memory::read_header(file.number(), header)) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = static_cast<CUmemLocationType>(header.location_type);
  properties.location.id = header.location;
  properties.maxSize = header.max_bytes;
  const bool is_on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (is_on_device && check_device(properties.location.id) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  auto& memory = is_on_device ? memory::device_memory(properties.location.id) : memory::host_memory();
  auto imported = std::make_shared<memory::MemoryPool>(memory, properties, std::move(file));
  {
    const std::lock_guard lock(memory.mutex());
    memory.add_pool(imported);
  }
  *pool = memory::pools().add(std::move(imported));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  if (const CUresult error = check_initialised()) return error;
  const auto allocation = memory::find(pointer);
  const bool is_lent = allocation && allocation->address == pointer && allocation->pool &&
                       allocation->kind == Allocation::Kind::stream_ordered && allocation->pool->file() != nullptr;
  if (data == nullptr || !is_lent) return CUDA_ERROR_INVALID_VALUE;
  if (!allocation->block.range) return CUDA_ERROR_NOT_SUPPORTED;  // the process's limits
  PointerHandle made;
  made.file = allocation->block.range->file().identity();
  made.range = memory::range_of(*allocation);
  write(made, *data);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool given, CUmemPoolPtrExportData* data) {
  // Memory out of a pool belongs to no context, so none need be current.
  const Entry entry = enter();
  if (!entry && entry.error() != CUDA_ERROR_INVALID_CONTEXT) return entry.error();
  const auto pool = memory::pools().find(given);
  PointerHandle handle;
  if (pointer == nullptr || !pool || !pool->is_imported() || data == nullptr || !read(*data, handle) ||
      handle.file != memory::identity_of(pool->imported_file())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto described = std::make_shared<Allocation>();
  described->kind = Allocation::Kind::stream_ordered;
  if (entry) {
    described->context = entry.context().handle();
    described->device = entry.context().device();
  }
  if (pool->is_on_device()) described->device = pool->properties().location.id;
  described->memory = &pool->memory();
  described->pool = pool;
  std::shared_ptr<Allocation> opened;
  if (const CUresult error = memory::open_range(pool->imported_file(), handle.range, std::move(described), opened)) {
    return error;
  }
  *pointer = opened->address;
  return CUDA_SUCCESS;
}

// The form of CUDA 4 to 10, with the same arguments.
#undef cuIpcOpenMemHandle
extern "C" [[gnu::visibility("default")]] CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle,
                                                                      unsigned flags) {
  return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}
