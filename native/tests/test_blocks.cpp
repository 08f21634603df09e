// Pools of blocks, over a driver that only counts.
#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "driver/blocks.hpp"

using namespace aiocuda::driver;

namespace {

struct Calls {
  std::uint64_t last = 1 << 20;
  std::vector<std::uint64_t> sizes, freed;  // of managed blocks
  std::vector<std::tuple<std::uint64_t, std::uint64_t, int, int, int>>
      advised;                   // address, bytes, advice, location's type and id
  std::vector<unsigned> events;  // the flags of those that were made
  int events_destroyed = 0;
  CUresult advice_answer = CUDA_SUCCESS, allocation_answer = CUDA_SUCCESS;
};
Calls calls;

CUresult allocate_managed(CUdeviceptr* address, std::size_t size_bytes, unsigned) {
  if (calls.allocation_answer != CUDA_SUCCESS) return calls.allocation_answer;
  calls.sizes.push_back(size_bytes);
  *address = calls.last += 1 << 30;
  return CUDA_SUCCESS;
}
CUresult free_managed(CUdeviceptr address) {
  calls.freed.push_back(address);
  return CUDA_SUCCESS;
}
CUresult advise(CUdeviceptr address, std::size_t size_bytes, CUmem_advise advice, CUmemLocation location) {
  calls.advised.emplace_back(address, size_bytes, advice, location.type, location.id);
  return calls.advice_answer;
}
CUresult allocate_device(CUdeviceptr* address, std::size_t size_bytes) {
  return allocate_managed(address, size_bytes, 0);
}
CUresult create_event(CUevent* event, unsigned flags) {
  calls.events.push_back(flags);
  *event = reinterpret_cast<CUevent>(calls.events.size());
  return CUDA_SUCCESS;
}
CUresult destroy_event(CUevent) {
  ++calls.events_destroyed;
  return CUDA_SUCCESS;
}
CUresult allocate_host(void** address, std::size_t, unsigned) {
  *address = reinterpret_cast<void*>(calls.last += 1ull << 34);
  return CUDA_SUCCESS;
}
CUresult free_host(void* address) {
  calls.freed.push_back(reinterpret_cast<std::uint64_t>(address));
  return CUDA_SUCCESS;
}

Table counting_table() {
  calls = Calls{};
  Table table;
  table.cuMemAllocManaged = allocate_managed;
  table.cuMemAlloc = allocate_device;
  table.cuMemFree = free_managed;
  table.cuEventCreate = create_event;
  table.cuEventDestroy = destroy_event;
  table.cuMemAdvise = advise;
  table.cuMemHostAlloc = allocate_host;
  table.cuMemFreeHost = free_host;
  return table;
}

constexpr std::uint64_t kib = 1 << 10, mib = 1 << 20;

}  // namespace

TEST_CASE("a block that came back is handed out again for all sizes that it fits, and for no others") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  std::uint64_t first = 0, again = 0, larger = 0;
  REQUIRE(pool.allocate(1, first) == CUDA_SUCCESS);
  CHECK(pool.held_bytes() == 64 * kib);
  CHECK(pool.cached_bytes() == 0);
  pool.give_back(first, 1);
  CHECK(pool.cached_bytes() == 64 * kib);
  REQUIRE(pool.allocate(64 * kib + 1, larger) == CUDA_SUCCESS);
  CHECK(larger != first);
  REQUIRE(pool.allocate(64 * kib, again) == CUDA_SUCCESS);
  CHECK(again == first);
  CHECK(calls.sizes == std::vector<std::uint64_t>{64 * kib, 128 * kib});
  CHECK(pool.cached_bytes() == 0);
  CHECK(pool.held_bytes() == 192 * kib);
  REQUIRE(pool.allocate(3 * mib + 1, larger) == CUDA_SUCCESS);
  CHECK(calls.sizes.back() == 4 * mib);
}

TEST_CASE("advice is undone for the whole block when it comes back, each piece once") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  std::uint64_t block = 0;
  pool.allocate(256 * kib, block);
  Managed& kind = pool.kind();
  kind.advise(table, block, block + 4096, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, location_of(0));
  kind.advise(table, block, block + 8192, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, location_of(0));
  kind.advise(table, block, block, 256 * kib, CU_MEM_ADVISE_SET_ACCESSED_BY, location_of(1));
  kind.advise(table, block, block, 256 * kib, CU_MEM_ADVISE_SET_ACCESSED_BY, location_of(-1));
  kind.advise(table, block, block, 256 * kib, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_of(-1));
  CHECK(calls.advised.size() == 5);
  calls.advised.clear();
  pool.give_back(block, 256 * kib);
  const int device = CU_MEM_LOCATION_TYPE_DEVICE, host = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(calls.advised == std::vector<std::tuple<std::uint64_t, std::uint64_t, int, int, int>>{
                             {block, 256 * kib, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device, 0},
                             {block, 256 * kib, CU_MEM_ADVISE_UNSET_ACCESSED_BY, device, 1},
                             {block, 256 * kib, CU_MEM_ADVISE_UNSET_ACCESSED_BY, host, 0},
                             {block, 256 * kib, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, host, 0},
                         });
  // Its next users said nothing.
  std::uint64_t again = 0;
  pool.allocate(256 * kib, again);
  CHECK(again == block);
  calls.advised.clear();
  pool.give_back(again, 256 * kib);
  CHECK(calls.advised.empty());
}

TEST_CASE("a block whose advice cannot be undone is not used again") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  std::uint64_t block = 0, next = 0;
  pool.allocate(1, block);
  pool.kind().advise(table, block, block, 1, CU_MEM_ADVISE_SET_READ_MOSTLY, location_of(0));
  calls.advice_answer = CUDA_ERROR_INVALID_VALUE;
  pool.give_back(block, 1);
  CHECK(pool.cached_bytes() == 0);
  REQUIRE(pool.has_excess());
  CHECK(pool.take_excess() == block);
  CHECK_FALSE(pool.has_excess());
  CHECK(pool.held_bytes() == 0);
  pool.allocate(1, next);
  CHECK(next != block);
}

TEST_CASE("advice that was refused, or only takes some back, is nothing to undo") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  std::uint64_t block = 0;
  pool.allocate(1, block);
  pool.kind().advise(table, block, block, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY, location_of(0));
  calls.advice_answer = CUDA_ERROR_INVALID_DEVICE;
  CHECK(pool.kind().advise(table, block, block, 1, CU_MEM_ADVISE_SET_ACCESSED_BY, location_of(7)) ==
        CUDA_ERROR_INVALID_DEVICE);
  calls.advised.clear();
  pool.give_back(block, 1);
  CHECK(calls.advised.empty());
}

TEST_CASE("trimming frees what nobody uses, and nothing else") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  std::uint64_t kept = 0, idle = 0;
  pool.allocate(1, kept);
  pool.allocate(1, idle);
  pool.give_back(idle, 1);
  std::uint64_t used_up = 0;
  pool.allocate(mib, used_up);
  pool.kind().advise(table, used_up, used_up, mib, CU_MEM_ADVISE_SET_READ_MOSTLY, location_of(0));
  calls.advice_answer = CUDA_ERROR_INVALID_VALUE;
  pool.give_back(used_up, mib);
  int calls_made = 0;
  auto counted = [&](auto&& call) {
    ++calls_made;
    CHECK(pool.cached_bytes() == 0);  // others may use the pool meanwhile
    return call();
  };
  CHECK(pool.trim(counted) == CUDA_SUCCESS);
  CHECK(calls.freed == std::vector{used_up, idle});
  CHECK(pool.held_bytes() == 64 * kib);
  CHECK(pool.trim(counted) == CUDA_SUCCESS);
  CHECK(calls.freed.size() == 2);
  CHECK(calls_made == 1);
}

TEST_CASE("an allocation that is refused holds nothing") {
  const Table table = counting_table();
  BlockPool<Managed> pool(table);
  calls.allocation_answer = CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t block = 0;
  CHECK(pool.allocate(1, block) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(pool.held_bytes() == 0);
}

TEST_CASE("of page-locked memory only so much is kept; the rest is used again or is for the caller to free") {
  const Table table = counting_table();
  BlockPool<PageLocked> pool(table);
  std::uint64_t first = 0, second = 0;
  pool.allocate(8ull << 30, first);
  pool.allocate(16ull << 20, second);
  pool.give_back(first, 8ull << 30);  // more than is ever kept
  CHECK(pool.has_excess());
  std::uint64_t again = 0;
  pool.allocate(8ull << 30, again);
  CHECK(again == first);
  CHECK_FALSE(pool.has_excess());
  pool.give_back(second, 16ull << 20);
  CHECK_FALSE(pool.has_excess());
  pool.give_back(first, 8ull << 30);
  REQUIRE(pool.has_excess());
  CHECK(pool.take_excess() == first);
  CHECK_FALSE(pool.has_excess());
  CHECK(calls.freed.empty());
  CHECK(pool.cached_bytes() == 16ull << 20);
  CHECK(pool.held_bytes() == 16ull << 20);
}

TEST_CASE(
    "what other processes may open is lent in whole multiples of 2 MiB, with one event a block while one array has "
    "it") {
  const Table table = counting_table();
  BlockPool<Interprocess> pool(table);
  std::uint64_t block = 0, other = 0, again = 0;
  pool.allocate(1, block);
  pool.allocate(2 * mib + 1, other);
  CHECK(calls.sizes == std::vector<std::uint64_t>{2 * mib, 4 * mib});
  CUevent first = nullptr, second = nullptr, others = nullptr;
  CHECK(pool.kind().event_of(table, block, first) == CUDA_SUCCESS);
  CHECK(pool.kind().event_of(table, block, second) == CUDA_SUCCESS);
  CHECK(pool.kind().event_of(table, other, others) == CUDA_SUCCESS);
  CHECK(first == second);
  CHECK(first != others);
  CHECK(calls.events == std::vector<unsigned>(2, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  pool.give_back(block, 1);
  CHECK(calls.events_destroyed == 1);
  pool.allocate(2 * mib, again);
  CHECK(again == block);
  CHECK(pool.kind().event_of(table, block, second) == CUDA_SUCCESS);
  CHECK(calls.events.size() == 3);
  CHECK(calls.freed.empty());
}
