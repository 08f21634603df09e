// The files of other processes, and what of them is mapped here.
#include "memory/interprocess.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <vector>

#include "checking/checking.hpp"
#include "memory/physical_memory.hpp"

namespace aiocuda::emulator::memory {
namespace {

struct Opened {
  FileIdentity file;
  std::uint64_t offset;
  CUdevice device;
  std::shared_ptr<Allocation> allocation;
  std::size_t openings = 1;
};

struct OpenedRanges {
  std::mutex mutex;
  std::vector<Opened> all;
};

OpenedRanges& opened_ranges() {
  static auto& ranges = *new OpenedRanges;
  return ranges;
}

std::size_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

RemoteFile remote(int descriptor) noexcept { return {this_process(), descriptor, identity_of(descriptor)}; }

CUresult open(const RemoteFile& file, Descriptor& opened) {
  if (!file.owner.is_alive()) return CUDA_ERROR_INVALID_HANDLE;
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", file.owner.id, file.descriptor);
  Descriptor found(::open(path.data(), O_RDWR | O_CLOEXEC));
  if (!found) return errno == EACCES || errno == EPERM ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_HANDLE;
  // The process may have closed the file and opened another one.
  if (identity_of(found.number()) != file.identity) return CUDA_ERROR_INVALID_HANDLE;
  opened = std::move(found);
  return CUDA_SUCCESS;
}

LentRange range_of(const Allocation& allocation) noexcept {
  return {allocation.block.range->offset(), allocation.block.bytes, allocation.bytes};
}

CUresult open_range(int descriptor, const LentRange& range, std::shared_ptr<Allocation> described,
                    std::shared_ptr<Allocation>& opened) {
  const std::size_t pages = round_up(range.block_bytes, page_bytes());
  std::size_t end = 0;
  const bool makes_sense = pages != 0 && range.bytes <= range.block_bytes && range.offset % page_bytes() == 0 &&
                           !__builtin_add_overflow(range.offset, pages, &end) && end <= bytes_of(descriptor);
  if (!makes_sense) return CUDA_ERROR_INVALID_VALUE;
  const FileIdentity file = identity_of(descriptor);
  auto& [mutex, all] = opened_ranges();
  const std::lock_guard lock(mutex);
  const auto known = std::find_if(all.begin(), all.end(), [&](const Opened& each) {
    return each.file == file && each.offset == range.offset && each.device == described->device &&
           each.allocation->kind == described->kind;
  });
  if (known != all.end()) {
    ++known->openings;
    opened = known->allocation;
    return CUDA_SUCCESS;
  }
  PhysicalMemory& memory = *described->memory;
  {
    const std::lock_guard memory_lock(memory.mutex());
    auto block = memory.reserve(range.block_bytes);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!memory.arena().map(*block, descriptor, range.offset)) {
      memory.unmap(*block);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    described->block = *block;
  }
  described->address = described->block.address;
  described->bytes = range.bytes;
  if (auto* const checker = checking::checker())
    checker->allocated(described->address, described->bytes, described->block.bytes);
  list(described);
  all.push_back({file, range.offset, described->device, described});
  opened = std::move(described);
  return CUDA_SUCCESS;
}

bool close_once_more(const Allocation& allocation) {
  auto& [mutex, all] = opened_ranges();
  const std::lock_guard lock(mutex);
  const auto known =
      std::find_if(all.begin(), all.end(), [&](const Opened& each) { return each.allocation.get() == &allocation; });
  if (known == all.end()) return false;
  if (--known->openings > 0) return true;
  all.erase(known);
  return false;
}

std::shared_ptr<SharedFile> make_pool_file(const CUmemPoolProps& properties) {
  auto file = SharedFile::make(page_bytes());
  if (!file) return nullptr;
  PoolHeader header;
  header.location_type = properties.location.type;
  header.location = properties.location.id;
  header.max_bytes = properties.maxSize;
  const bool is_written = ::pwrite(file->descriptor(), &header, sizeof header, 0) == sizeof header;
  return is_written ? file : nullptr;
}

bool read_header(int descriptor, PoolHeader& header) noexcept {
  return ::pread(descriptor, &header, sizeof header, 0) == sizeof header && header.magic == PoolHeader::right_magic;
}

}  // namespace aiocuda::emulator::memory
