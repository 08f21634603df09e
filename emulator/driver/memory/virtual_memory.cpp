// Reservations, handles and mappings, and their part of the driver API. See virtual_memory.hpp for what always holds.
#include "memory/virtual_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "context.hpp"
#include "device.hpp"
#include "injection.hpp"
#include "memory/allocation.hpp"
#include "memory/shared_file.hpp"

namespace aiocuda::emulator::memory {
namespace {

// Behind the memory in its file, so that a descriptor alone tells what it is.
struct Trailer {
  static constexpr std::uint64_t right_magic = 0x61696f6375646176;  // "aiocudav"
  std::uint64_t magic = right_magic;
  std::uint64_t bytes = 0;
  CUmemAllocationProp properties{};
};
constexpr std::size_t trailer_bytes = 4096;
static_assert(sizeof(Trailer) <= trailer_bytes);

}  // namespace

CUresult MappableMemory::make(const CUmemAllocationProp& properties, std::size_t bytes,
                              std::shared_ptr<MappableMemory>& made) {
  PhysicalMemory& memory = device_memory(properties.location.id);
  Block counted;
  counted.bytes = bytes;
  {
    const std::lock_guard lock(memory.mutex());
    if (!memory.count(counted)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Descriptor file(::memfd_create("emulated-cuda-mapping", MFD_CLOEXEC));
  Trailer trailer;
  trailer.bytes = bytes;
  trailer.properties = properties;
  trailer.properties.win32HandleMetaData = nullptr;
  const bool is_made = file && ::ftruncate(file.number(), static_cast<off_t>(bytes + trailer_bytes)) == 0 &&
                       ::pwrite(file.number(), &trailer, sizeof trailer, static_cast<off_t>(bytes)) == sizeof trailer;
  made = std::shared_ptr<MappableMemory>(new MappableMemory(properties, bytes, std::move(file), true));
  if (is_made) return CUDA_SUCCESS;
  made.reset();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult MappableMemory::import(int descriptor, std::shared_ptr<MappableMemory>& made) {
  Descriptor file(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  const std::size_t size = file ? bytes_of(file.number()) : 0;
  if (size <= trailer_bytes) return CUDA_ERROR_INVALID_VALUE;
  Trailer trailer;
  const bool is_read =
      ::pread(file.number(), &trailer, sizeof trailer, static_cast<off_t>(size - trailer_bytes)) == sizeof trailer;
  if (!is_read || trailer.magic != Trailer::right_magic || trailer.bytes != size - trailer_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (check_device(trailer.properties.location.id) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  made = std::shared_ptr<MappableMemory>(new MappableMemory(trailer.properties, trailer.bytes, std::move(file), false));
  return CUDA_SUCCESS;
}

MappableMemory::~MappableMemory() {
  if (!is_counted_) return;
  PhysicalMemory& memory = device_memory(properties_.location.id);
  Block counted;
  counted.bytes = bytes_;
  const std::lock_guard lock(memory.mutex());
  memory.uncount(counted);
}

bool reaches_over_mappings(std::uintptr_t address, std::size_t bytes, MappingAccess& access) {
  const std::uintptr_t end = address + bytes;
  access = {~std::uint64_t{0}, ~std::uint64_t{0}};
  while (address < end) {
    const auto mapping = find(address);
    if (!mapping || mapping->kind != Allocation::Kind::mapped) return false;
    access.writes &= mapping->devices_with_access.load();
    access.reads &= mapping->devices_that_read.load();
    address = mapping->address + mapping->bytes;
  }
  return true;
}

}  // namespace aiocuda::emulator::memory

using namespace aiocuda::emulator;
using memory::Allocation;
using memory::MappableMemory;
using memory::mapping_granularity;

namespace {

struct Reservation {
  std::size_t bytes;
  void* pages;  // with what is left around for the alignment and for guards
  std::size_t page_bytes;
};

struct AddressSpace {
  std::mutex mutex;
  std::map<CUdeviceptr, Reservation> reservations;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<MappableMemory>> handles;
  std::map<CUdeviceptr, std::shared_ptr<Allocation>> mappings;

  std::shared_ptr<MappableMemory> find(CUmemGenericAllocationHandle handle) const {
    const auto found = handles.find(handle);
    return found == handles.end() ? nullptr : found->second;
  }
  bool is_reserved(CUdeviceptr address, std::size_t bytes) const {
    const auto after = reservations.upper_bound(address);
    if (after == reservations.begin()) return false;
    const auto& [start, reservation] = *std::prev(after);
    const std::size_t within = address - start;
    return within < reservation.bytes && bytes <= reservation.bytes - within;
  }
  // Those that have bytes in [address, address + bytes).
  std::vector<std::shared_ptr<Allocation>> within(CUdeviceptr address, std::size_t bytes) const {
    std::vector<std::shared_ptr<Allocation>> found;
    for (const auto& [start, mapping] : mappings) {
      if (start < address + bytes && start + mapping->bytes > address) found.push_back(mapping);
    }
    return found;
  }
  // Those that [address, address + bytes) is made of; nothing where it is not made of whole ones.
  std::vector<std::shared_ptr<Allocation>> made_of(CUdeviceptr address, std::size_t bytes) const {
    std::vector<std::shared_ptr<Allocation>> found;
    const CUdeviceptr end = address + bytes;
    for (auto each = mappings.find(address); each != mappings.end() && each->first == address && address < end;
         ++each) {
      found.push_back(each->second);
      address += each->second->bytes;
    }
    if (address != end) found.clear();
    return found;
  }
};

AddressSpace& address_space() {
  static auto& address_space = *new AddressSpace;
  return address_space;
}

bool is_granular(std::uint64_t value) { return value % mapping_granularity == 0; }

CUresult check(const CUmemAllocationProp& properties) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const CUmemAllocationHandleType types = properties.requestedHandleTypes;
  if (types != CU_MEM_HANDLE_TYPE_NONE && types != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  switch (properties.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return check_device(properties.location.id) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What the union of all devices may do.
int protection_of(const Allocation& mapping) {
  const bool writes = mapping.devices_with_access.load() != 0;
  const bool reads = mapping.devices_that_read.load() != 0;
  return writes ? PROT_READ | PROT_WRITE : reads ? PROT_READ : PROT_NONE;
}

}  // namespace

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  if (const CUresult error = check_initialised()) return error;
  const bool is_option = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || properties == nullptr || !is_option) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check(*properties)) return error;
  *granularity = mapping_granularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const bool is_valid = address != nullptr && bytes != 0 && is_granular(bytes) && flags == 0 &&
                        (alignment == 0 || std::has_single_bit(alignment));
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t aligned = std::max(alignment, mapping_granularity);
  std::size_t page_bytes = 0;
  if (__builtin_add_overflow(bytes, 2 * aligned, &page_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const pages = ::mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<std::uintptr_t>(pages);
  *address = (start / aligned + 1) * aligned;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  all.reservations.emplace(*address, Reservation{bytes, pages, page_bytes});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto found = all.reservations.find(address);
  if (found == all.reservations.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!all.within(address, bytes).empty()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(found->second.pages, found->second.page_bytes);
  all.reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (handle == nullptr || properties == nullptr || bytes == 0 || !is_granular(bytes) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check(*properties)) return error;
  if (injection::strikes(injection::Kind::alloc, properties->location.id)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::shared_ptr<MappableMemory> made;
  if (const CUresult error = MappableMemory::make(*properties, bytes, made)) return error;
  *handle = made->handle();
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  all.handles.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  std::shared_ptr<MappableMemory> ended;  // after the lock
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto found = all.handles.find(handle);
  if (found == all.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second->references > 0) return CUDA_SUCCESS;
  ended = std::move(found->second);
  all.handles.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto memory = all.find(handle);
  const bool is_valid = memory && bytes != 0 && is_granular(address) && is_granular(bytes) && flags == 0;
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 || bytes != memory->bytes()) return CUDA_ERROR_NOT_SUPPORTED;  // as on an H100
  if (!all.is_reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto mapping = std::make_shared<Allocation>();
  mapping->kind = Allocation::Kind::mapped;
  mapping->address = address;
  mapping->bytes = bytes;
  mapping->device = memory->properties().location.id;
  mapping->mappable = memory;
  mapping->devices_with_access.store(0);
  if (!memory::list(mapping)) return CUDA_ERROR_INVALID_VALUE;  // something is mapped there
  void* const pages = reinterpret_cast<void*>(address);
  if (::mmap(pages, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->descriptor(), 0) == MAP_FAILED) {
    memory::unlist(*mapping);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (auto* const checker = checking::checker()) checker->allocated(address, bytes, bytes);
  all.mappings.emplace(address, std::move(mapping));
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  if (bytes == 0 || !is_granular(bytes) || !all.is_reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  // Addresses that nothing is mapped to may be among them, but no part of a mapping.
  const auto mappings = all.within(address, bytes);
  const bool is_whole = std::all_of(mappings.begin(), mappings.end(), [&](const auto& each) {
    return each->address >= address && each->address + each->bytes <= address + bytes;
  });
  if (!is_whole) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& each : mappings) {
    // The addresses stay reserved.
    const void* const pages = ::mmap(reinterpret_cast<void*>(each->address), each->bytes, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (pages == MAP_FAILED || !memory::unlist(*each)) return CUDA_ERROR_OPERATING_SYSTEM;
    if (auto* const checker = checking::checker()) checker->freed_by_host(each->address, each->bytes, "cuMemUnmap");
    all.mappings.erase(each->address);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions,
                        std::size_t count) {
  if (const CUresult error = check_initialised()) return error;
  if (descriptions == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto mappings = all.made_of(address, bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = descriptions[i];
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (location.id < 0 || location.id >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool is_peer = std::any_of(mappings.begin(), mappings.end(),
                                     [id = location.id](const auto& each) { return each->device != id; });
    if (is_peer && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !can_access_peers()) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (const auto& each : mappings) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t device = std::uint64_t{1} << descriptions[i].location.id;
      const bool reads = descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
      const bool writes = descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      each->devices_that_read = reads ? each->devices_that_read | device : each->devices_that_read & ~device;
      each->devices_with_access = writes ? each->devices_with_access | device : each->devices_with_access & ~device;
    }
    if (::mprotect(reinterpret_cast<void*>(each->address), each->bytes, protection_of(*each)) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  if (const CUresult error = check_initialised()) return error;
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_device(location->id)) return error;
  const auto mapping = memory::find(address);
  if (!mapping || mapping->kind != Allocation::Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  const bool reads = (mapping->devices_that_read.load() >> location->id & 1) != 0;
  const bool writes = (mapping->devices_with_access.load() >> location->id & 1) != 0;
  *flags = writes  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : reads ? CU_MEM_ACCESS_FLAGS_PROT_READ
                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (const CUresult error = check_initialised()) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = memory::find(reinterpret_cast<std::uintptr_t>(address));
  if (!mapping || mapping->kind != Allocation::Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  // A handle that was released, while its memory is mapped, comes back.
  if (!all.handles.emplace(mapping->mappable->handle(), mapping->mappable).second) {
    ++mapping->mappable->references;
  } else {
    mapping->mappable->references = 1;
  }
  *handle = mapping->mappable->handle();
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  if (const CUresult error = check_initialised()) return error;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto memory = all.find(handle);
  if (properties == nullptr || !memory) return CUDA_ERROR_INVALID_VALUE;
  *properties = memory->properties();
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  if (const CUresult error = check_initialised()) return error;
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  const auto memory = all.find(handle);
  const bool is_valid = shareable != nullptr && memory && flags == 0 &&
                        type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                        memory->properties().requestedHandleTypes == type;
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  const int copy = ::fcntl(memory->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = copy;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  if (const CUresult error = check_initialised()) return error;
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<MappableMemory> made;
  const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  if (const CUresult error = MappableMemory::import(descriptor, made)) return error;
  *handle = made->handle();
  auto& all = address_space();
  const std::lock_guard lock(all.mutex);
  all.handles.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}
