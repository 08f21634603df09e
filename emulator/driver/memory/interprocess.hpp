// Memory that processes lend one another. A handle says where the memory is: in which file, and, for handles that are
// plain bytes, which process has it open. Whoever opens it maps the same pages.
// Always: what is opened here is mapped once, however often it is opened, and until it was closed as often.
#pragma once
#include <cstdint>
#include <memory>

#include "memory/allocation.hpp"
#include "process_identity.hpp"

namespace aiocuda::emulator::memory {

// A file as a handle of plain bytes names it.
struct RemoteFile {
  ProcessIdentity owner;
  std::int32_t descriptor = -1;
  FileIdentity identity;
};
RemoteFile remote(int descriptor) noexcept;
// The file itself. INVALID_HANDLE where it is no longer there, OPERATING_SYSTEM where this process may not open it.
CUresult open(const RemoteFile& file, Descriptor& opened);

// A part of a file that holds an allocation.
struct LentRange {
  std::uint64_t offset = 0;
  std::uint64_t block_bytes = 0;  // rounded
  std::uint64_t bytes = 0;        // as asked for
};
LentRange range_of(const Allocation& allocation) noexcept;

// Maps a range into the addresses of a device, and lists it; or answers the allocation that has it already. The
// allocation given says the rest: its kind, context, device and pool.
CUresult open_range(int descriptor, const LentRange& range, std::shared_ptr<Allocation> described,
                    std::shared_ptr<Allocation>& opened);
// True where it was opened once more than it has been closed: nothing else is to be done.
bool close_once_more(const Allocation& allocation);

// The first page of the file of a memory pool.
struct PoolHeader {
  static constexpr std::uint64_t right_magic = 0x61696f6375646170;  // "aiocudap"
  std::uint64_t magic = right_magic;
  std::int32_t location_type = 0;
  std::int32_t location = 0;
  std::uint64_t max_bytes = 0;
};
std::shared_ptr<SharedFile> make_pool_file(const CUmemPoolProps& properties);
// False where the file is none of a pool.
bool read_header(int descriptor, PoolHeader& header) noexcept;

}  // namespace aiocuda::emulator::memory
