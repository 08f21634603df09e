// Stream-ordered allocation: reuse, accounts, the limit and what is refused.
#include <algorithm>
#include <future>

#include "test_memory_support.hpp"

using namespace memory_test;

namespace {
constexpr cuuint64_t keep_everything = UINT64_MAX;
}

TEST_CASE("memory freed in a stream is at once the stream's again, even while it is held up") {
  const Device device;
  const Stream stream;
  const Pool pool;
  Gate gate(stream);
  const CUdeviceptr first = pool.allocate(4096, stream);
  REQUIRE_OK(cuMemFreeAsync(first, stream));
  CHECK(pool.allocate(4096, stream) == first);
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 4096);
}

TEST_CASE("memory freed in a stream is another's only when the free has passed") {
  const Device device;
  const Stream one, other;
  const Pool pool;
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep_everything);
  Gate gate(one);
  const CUdeviceptr first = pool.allocate(4096, one);
  REQUIRE_OK(cuMemFreeAsync(first, one));
  CHECK(pool.allocate(4096, other) != first);
  gate.open();
  one.synchronise();
  CHECK(pool.allocate(4096, other) == first);
}

TEST_CASE("without opportunistic reuse other streams get freed memory after a synchronisation") {
  const Device device;
  const Stream one, other, idle;
  const Pool pool;
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep_everything);
  int off = 0;
  REQUIRE_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  const CUdeviceptr first = pool.allocate(4096, one);
  REQUIRE_OK(cuMemFreeAsync(first, one));
  while (cuStreamQuery(one) == CUDA_ERROR_NOT_READY) {  // the free passes, and nobody synchronises
  }
  CHECK(pool.allocate(4096, other) != first);
  idle.synchronise();
  CHECK(pool.allocate(4096, other) == first);
}

TEST_CASE("memory freed in the default stream waits for the blocking streams it orders itself with") {
  const Device device;
  const Stream blocking(CU_STREAM_DEFAULT);
  const Stream other;
  const Pool pool;
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep_everything);
  Gate gate(blocking);
  const CUdeviceptr first = pool.allocate(4096, blocking);
  REQUIRE_OK(cuMemFreeAsync(first, CU_STREAM_LEGACY));
  CHECK(pool.allocate(4096, other) != first);
}

TEST_CASE("unused memory beyond the threshold is given back at a synchronisation") {
  const Device device;
  const std::size_t all = device.free_bytes();
  const Stream stream;
  const Pool pool;
  const auto cycle = [&] {
    const CUdeviceptr small = pool.allocate(1 << 16, stream);
    const CUdeviceptr large = pool.allocate(1 << 20, stream);
    REQUIRE_OK(cuMemFreeAsync(small, stream));
    REQUIRE_OK(cuMemFreeAsync(large, stream));
  };
  cycle();
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == (1 << 20) + (1 << 16));
  stream.synchronise();
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  CHECK(device.free_bytes() == all);
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1 << 17);
  cycle();
  stream.synchronise();
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 1 << 16);
  REQUIRE_OK(cuMemPoolTrimTo(pool, 0));
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

TEST_CASE("the high-water marks keep the most there ever was until they are reset") {
  const Device device;
  const Stream stream;
  const Pool pool;
  const CUdeviceptr one = pool.allocate(1000, stream);
  const CUdeviceptr two = pool.allocate(3000, stream);
  REQUIRE_OK(cuMemFreeAsync(two, stream));
  CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 1024);
  CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1024 + 3072);
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 1024 + 3072);
  stream.synchronise();
  pool.set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  pool.set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1024);
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 1024);
  cuuint64_t one_byte = 1;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one_byte) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one_byte) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemFreeAsync(one, stream));
}

TEST_CASE("a pending free makes room for an allocation of another size without any waiting") {
  const Device device;
  const Stream stream, other;
  const Pool pool;
  const std::size_t all = device.free_bytes();
  Gate gate(stream);
  const CUdeviceptr large = pool.allocate(all - 4096, stream);
  CUdeviceptr pointer = 0;
  CHECK(cuMemAllocFromPoolAsync(&pointer, 8192, pool, other) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&pointer, 8192) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_OK(cuMemFreeAsync(large, stream));
  REQUIRE_OK(cuMemAllocFromPoolAsync(&pointer, 8192, pool, other));  // the stream is still held
  REQUIRE_OK(cuMemFreeAsync(pointer, other));
  gate.open();
  REQUIRE_OK(cuCtxSynchronize());
  CHECK(device.free_bytes() == all);
}

TEST_CASE("what one pool holds unused is there for every other allocation of the device") {
  const Device device;
  const Stream stream;
  const Pool pool;
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep_everything);
  const std::size_t all = device.free_bytes();
  REQUIRE_OK(cuMemFreeAsync(pool.allocate(all, stream), stream));
  stream.synchronise();
  CHECK(device.free_bytes() == 0);
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, 1 << 20));
  CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

TEST_CASE("a pool's maximum size is exact") {
  const Device device;
  const Stream stream;
  CUmemPoolProps properties = device_pool_properties(device.ordinal());
  properties.maxSize = 8192;
  const Pool pool(properties);
  const CUdeviceptr first = pool.allocate(4096, stream);
  pool.allocate(4096, stream);
  CUdeviceptr pointer = 0;
  CHECK(cuMemAllocFromPoolAsync(&pointer, 1, pool, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_OK(cuMemFreeAsync(first, stream));
  REQUIRE_OK(cuMemAllocFromPoolAsync(&pointer, 2048, pool, stream));
}

TEST_CASE("double frees and foreign pointers are refused") {
  const Device device;
  const Stream stream;
  const Pool pool;
  const CUdeviceptr pointer = pool.allocate(1024, stream);
  CHECK(cuMemFreeAsync(pointer + 256, stream) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  CHECK(cuMemFreeAsync(pointer, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(pointer) == CUDA_ERROR_INVALID_VALUE);
  int local = 0;
  CHECK(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(&local), stream) == CUDA_ERROR_INVALID_VALUE);
}

// Seen on an H100 with 580.159.04.
TEST_CASE("no bytes out of a pool are at address 0, which can be freed; captured, they are no node") {
  const Device device;
  const Stream stream;
  const Pool pool;
  CHECK(pool.allocate(0, stream) == 0);
  REQUIRE_OK(cuMemFreeAsync(0, stream));
  REQUIRE_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUdeviceptr pointer = 7;
  REQUIRE_OK(cuMemAllocAsync(&pointer, 0, stream));
  CHECK(pointer == 0);
  REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  CUgraph graph = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &graph));
  std::size_t nodes = 9;
  REQUIRE_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 0);
  REQUIRE_OK(cuGraphDestroy(graph));
}

TEST_CASE("memory of cuMemAlloc may be freed in stream order") {
  const Device device;
  const Stream stream;
  const std::size_t all = device.free_bytes();
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, 1 << 20));
  Gate gate(stream);
  REQUIRE_OK(cuMemsetD8Async(pointer, 1, 1 << 20, stream));
  REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  gate.open();
  stream.synchronise();
  CHECK(device.free_bytes() == all);
}

TEST_CASE("a destroyed pool lives until its last allocation is freed") {
  const Device device;
  const std::size_t all = device.free_bytes();
  const Stream stream;
  CUmemoryPool handle = nullptr;
  const CUmemPoolProps properties = device_pool_properties(device.ordinal());
  REQUIRE_OK(cuMemPoolCreate(&handle, &properties));
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAllocFromPoolAsync(&pointer, 4096, handle, stream));
  REQUIRE_OK(cuMemPoolDestroy(handle));
  CHECK(cuMemPoolDestroy(handle) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr none = 0;
  CHECK(cuMemAllocFromPoolAsync(&none, 4096, handle, stream) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemsetD8Async(pointer, 5, 4096, stream));
  CHECK(device.free_bytes() == all - 4096);
  REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  stream.synchronise();
  CHECK(device.free_bytes() == all);
}

TEST_CASE("the default pool stays, and a device's current pool can be another") {
  const Device device;
  const Stream stream;
  CUmemoryPool by_default = nullptr, current = nullptr;
  REQUIRE_OK(cuDeviceGetDefaultMemPool(&by_default, device.ordinal()));
  CHECK(cuMemPoolDestroy(by_default) == CUDA_ERROR_INVALID_VALUE);
  {
    const Pool pool;
    REQUIRE_OK(cuDeviceSetMemPool(device.ordinal(), pool));
    REQUIRE_OK(cuDeviceGetMemPool(&current, device.ordinal()));
    CHECK(current == pool.handle);
    CUdeviceptr pointer = 0;
    CUmemoryPool from = nullptr;
    REQUIRE_OK(cuMemAllocAsync(&pointer, 64, stream));
    REQUIRE_OK(cuPointerGetAttribute(&from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
    CHECK(from == pool.handle);
    REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  }
  REQUIRE_OK(cuDeviceGetMemPool(&current, device.ordinal()));
  CHECK(current == by_default);
}

TEST_CASE("pools of the host hold page-locked memory, managed pools managed memory") {
  const Device device;
  const Stream stream;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  const Pool host(properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  properties.location.type = CU_MEM_LOCATION_TYPE_NONE;
  const Pool managed(properties);
  unsigned type = 0, is_managed = 0;
  const CUdeviceptr locked = host.allocate(64, stream);
  REQUIRE_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, locked));
  CHECK(type == CU_MEMORYTYPE_HOST);
  const CUdeviceptr shared = managed.allocate(64, stream);
  REQUIRE_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, shared));
  CHECK(is_managed == 1);
  REQUIRE_OK(cuMemFreeAsync(locked, stream));
  REQUIRE_OK(cuMemFreeAsync(shared, stream));
}

TEST_CASE("pool properties that cannot be had are refused") {
  const Device device;
  CUmemoryPool handle = nullptr;
  CUmemPoolProps properties = device_pool_properties(99);
  CHECK(cuMemPoolCreate(&handle, &properties) == CUDA_ERROR_INVALID_DEVICE);
  properties = device_pool_properties(0);
  properties.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(cuMemPoolCreate(&handle, &properties) == CUDA_ERROR_NOT_SUPPORTED);
  properties = device_pool_properties(0);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(cuMemPoolCreate(&handle, &properties) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("access to a pool is its own device's, and others' when it is granted") {
  const Device device;
  const Pool pool;
  CUmemAccess_flags flags{};
  CUmemLocation own{};
  own.type = CU_MEM_LOCATION_TYPE_DEVICE;
  REQUIRE_OK(cuMemPoolGetAccess(&flags, pool, &own));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemAccessDesc revoke{own, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  CHECK(cuMemPoolSetAccess(pool, &revoke, 1) == CUDA_ERROR_INVALID_VALUE);
  int devices = 0;
  REQUIRE_OK(cuDeviceGetCount(&devices));
  if (devices < 2) return;
  CUmemLocation other = own;
  other.id = 1;
  REQUIRE_OK(cuMemPoolGetAccess(&flags, pool, &other));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const CUmemAccessDesc grant{other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  REQUIRE_OK(cuMemPoolSetAccess(pool, &grant, 1));
  REQUIRE_OK(cuMemPoolGetAccess(&flags, pool, &other));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_CASE("another device's copies and memsets reach a pool's memory only while access is granted") {
  const Device here(0);
  const Stream own;
  const Pool pool(0);
  const CUdeviceptr memory = pool.allocate(4096, own);
  REQUIRE_OK(cuStreamSynchronize(own));
  const Device there(1);
  const Stream stream(CU_STREAM_DEFAULT);  // in order with the synchronous copies
  CUdeviceptr buffer = 0;
  REQUIRE_OK(cuMemAlloc(&buffer, 4096));
  const auto expect = [&](CUresult expected) {
    CHECK(cuMemcpyAsync(memory, buffer, 4096, stream) == expected);
    CHECK(cuMemcpyAsync(buffer, memory, 4096, stream) == expected);
    CHECK(cuMemcpyDtoD(buffer, memory, 4096) == expected);
    CHECK(cuMemsetD8Async(memory, 1, 4096, stream) == expected);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = memory;
    rows.dstDevice = buffer;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 64;
    rows.Height = 64;
    CHECK(cuMemcpy2DAsync(&rows, stream) == expected);
    CUdeviceptr to = buffer, from = memory;
    std::size_t bytes = 4096, first = 0;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream) == expected);
    // Peer copies name both contexts.
    CHECK_OK(cuMemcpyPeerAsync(buffer, there.context(), memory, here.context(), 4096, stream));
    REQUIRE_OK(cuStreamSynchronize(stream));
  };
  expect(CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE_OK(cuMemPoolSetAccess(pool, &access, 1));
  expect(CUDA_SUCCESS);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  REQUIRE_OK(cuMemPoolSetAccess(pool, &access, 1));
  expect(CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuMemFree(buffer));
}

TEST_CASE("many threads allocating and freeing in their own streams never share memory") {
  const Device device;
  const Pool pool;
  pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1 << 16);
  const auto work = [&](unsigned char mark) {
    cuCtxSetCurrent(device.context());
    const Stream stream;
    std::vector<std::uint8_t> host(2048);
    for (int i = 0; i < 200; ++i) {
      const CUdeviceptr pointer = pool.allocate(2048, stream);
      REQUIRE_OK(cuMemsetD8Async(pointer, mark, 2048, stream));
      REQUIRE_OK(cuMemcpyDtoHAsync(host.data(), pointer, host.size(), stream));
      REQUIRE_OK(cuMemFreeAsync(pointer, stream));
      const bool is_own = std::all_of(host.begin(), host.end(), [&](auto each) { return each == mark; });
      REQUIRE(is_own);
    }
    stream.synchronise();
    return true;
  };
  std::vector<std::future<bool>> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) {
    threads.push_back(std::async(std::launch::async, work, mark));
  }
  for (auto& thread : threads) CHECK(thread.get());
}
