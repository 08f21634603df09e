// Where shared memory lies: the block's own, and that of the other blocks of its cluster. Its addresses of 32 bits,
// which inline PTX takes, say the same.
#include <link.h>

#include <cstdint>
#include <cstdio>

#include "block.hpp"

extern "C" [[gnu::visibility("hidden")]] void* aiocuda_dynamic_shared();

namespace aiocuda::emulator::runtime {
namespace {

constexpr int cuda_error_illegal_address = 700;

// Static shared memory is thread-local memory of this module: what the C library says of the module that holds this
// function.
struct ThreadLocalRange {
  std::uintptr_t begin;
  std::uintptr_t end;
};
int find_thread_local_range(dl_phdr_info* info, std::size_t, void* found) {
  const auto here = reinterpret_cast<std::uintptr_t>(&find_thread_local_range);
  bool is_this_module = false;
  std::size_t size = 0;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && here >= begin && here - begin < header.p_memsz) is_this_module = true;
    if (header.p_type == PT_TLS) size = header.p_memsz;
  }
  if (!is_this_module || info->dlpi_tls_data == nullptr) return is_this_module ? 1 : 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
  *static_cast<ThreadLocalRange*>(found) = {begin, begin + size};
  return 1;
}
__thread ThreadLocalRange known_range;

ThreadLocalRange thread_local_range() {
  if (known_range.end == 0) ::dl_iterate_phdr(&find_thread_local_range, &known_range);
  return known_range;
}

abi::SharedWindows own_windows() {
  return {static_cast<char*>(aiocuda_dynamic_shared()), reinterpret_cast<char*>(thread_local_range().begin)};
}

// Where `address` lies in the windows `from`, seen in the windows `to`; null where it lies in neither.
char* moved(const void* address, const abi::SharedWindows& from, const abi::SharedWindows& to) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto dynamic_begin = reinterpret_cast<std::uintptr_t>(from.dynamic_memory);
  const auto static_begin = reinterpret_cast<std::uintptr_t>(from.static_memory);
  const ThreadLocalRange range = thread_local_range();
  if (at >= dynamic_begin && at - dynamic_begin <= max_dynamic_shared_bytes)
    return to.dynamic_memory + (at - dynamic_begin);
  if (at >= static_begin && at - static_begin <= range.end - range.begin) return to.static_memory + (at - static_begin);
  return nullptr;
}

abi::SharedWindows windows_of(unsigned rank) {
  return rank == rank_in_cluster() ? own_windows() : *services->shared_of(rank);
}

// The block of the cluster in whose shared memory `address` lies, and the same place in the calling block's.
struct Found {
  unsigned rank;
  char* in_own;  // null: in none
};
Found find(const void* address) {
  const unsigned own_rank = rank_in_cluster();
  if (char* const in_own = moved(address, own_windows(), own_windows())) return {own_rank, in_own};
  for (unsigned rank = 0; rank < blocks_of_cluster(); ++rank) {
    if (rank == own_rank) continue;
    if (char* const in_own = moved(address, windows_of(rank), own_windows())) return {rank, in_own};
  }
  return {0, nullptr};
}

// Shared addresses of 32 bits: dynamic shared memory from one base, static shared memory from another; in the highest
// byte, for other blocks, one more than the block's rank.
constexpr std::uint32_t first_dynamic_offset = 0x00100000;
constexpr std::uint32_t first_static_offset = 0x00800000;
constexpr unsigned rank_shift = 24;
constexpr std::uint32_t no_offset = 0xffffffffu;
constexpr std::uintptr_t static_base_alignment = 256;  // so that an offset is as aligned as its address

std::uint32_t own_offset(const char* at) {
  const abi::SharedWindows own = own_windows();
  if (at >= own.dynamic_memory && at - own.dynamic_memory <= static_cast<std::ptrdiff_t>(max_dynamic_shared_bytes))
    return first_dynamic_offset + static_cast<std::uint32_t>(at - own.dynamic_memory);
  const auto base = reinterpret_cast<std::uintptr_t>(own.static_memory) & ~(static_base_alignment - 1);
  return first_static_offset + static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) - base);
}

[[noreturn]] void fail_outside(const char* asked) {
  static __thread char message[160];
  std::snprintf(message, sizeof message, "%s of an address that is not in the shared memory of the cluster's blocks",
                asked);
  fail(cuda_error_illegal_address, message);
}

}  // namespace

void show_own_shared() {
  const abi::SharedWindows own = own_windows();
  services->show_shared(&own);
}

}  // namespace aiocuda::emulator::runtime

namespace abi = aiocuda::emulator::abi;
using namespace aiocuda::emulator::runtime;

extern "C" {

[[gnu::visibility("hidden")]] unsigned aiocuda_shared_offset(const void* address) {
  const Found found = find(address);
  if (found.in_own == nullptr) return no_offset;
  const std::uint32_t offset = own_offset(found.in_own);
  return found.rank == rank_in_cluster() ? offset : offset | (found.rank + 1) << rank_shift;
}
[[gnu::visibility("hidden")]] void* aiocuda_shared_address(unsigned address) {
  const unsigned rank = address >> rank_shift;
  const std::uint32_t offset = address & ((1u << rank_shift) - 1);
  const abi::SharedWindows own = own_windows();
  // Any other number is no shared address: what lies there nobody may touch.
  if (offset < first_dynamic_offset || rank > blocks_of_cluster())
    return reinterpret_cast<void*>(std::uintptr_t{address});
  const auto static_base = reinterpret_cast<std::uintptr_t>(own.static_memory) & ~(static_base_alignment - 1);
  char* const in_own = offset >= first_static_offset
                           ? reinterpret_cast<char*>(static_base + (offset - first_static_offset))
                           : own.dynamic_memory + (offset - first_dynamic_offset);
  return rank == 0 ? in_own : moved(in_own, own, windows_of(rank - 1));
}
[[gnu::visibility("hidden")]] int aiocuda_is_shared(const void* address) {
  return moved(address, own_windows(), own_windows()) != nullptr ? 1 : 0;
}
[[gnu::visibility("hidden")]] int aiocuda_is_cluster_shared(const void* address) {
  return find(address).in_own != nullptr ? 1 : 0;
}
[[gnu::visibility("hidden")]] void* aiocuda_map_shared(const void* address, unsigned rank) {
  const Found found = find(address);
  if (found.in_own == nullptr) fail_outside("the mapping to another block");
  return moved(found.in_own, own_windows(), windows_of(rank));
}
[[gnu::visibility("hidden")]] unsigned aiocuda_shared_rank(const void* address) {
  const Found found = find(address);
  if (found.in_own == nullptr) fail_outside("the rank of the block");
  return found.rank;
}
}
