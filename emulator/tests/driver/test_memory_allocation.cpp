// Plain allocations: the exact limit, what is refused, and that nothing is left behind.
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <string>

#include "test_memory_support.hpp"

using namespace memory_test;

namespace {

std::size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

}  // namespace

TEST_CASE("device memory is out exactly at its limit and there again after a free") {
  const Device device;
  std::size_t free = 0, total = 0;
  REQUIRE_OK(cuMemGetInfo(&free, &total));
  CHECK(free == total);
  CUdeviceptr most = 0, last = 0, beyond = 0;
  REQUIRE_OK(cuMemAlloc(&most, total - 256));
  CHECK(device.free_bytes() == 256);
  CHECK(cuMemAlloc(&beyond, 257) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_OK(cuMemAlloc(&last, 256));
  CHECK(device.free_bytes() == 0);
  CHECK(cuMemAlloc(&beyond, 1) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_OK(cuMemFree(last));
  REQUIRE_OK(cuMemAlloc(&last, 1));
  REQUIRE_OK(cuMemFree(most));
  REQUIRE_OK(cuMemFree(last));
  CHECK(device.free_bytes() == total);
}

TEST_CASE("an allocation larger than the address space is out of memory") {
  const Device device;
  CUdeviceptr pointer = 0;
  CHECK(cuMemAlloc(&pointer, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&pointer, SIZE_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t pitch = 0;
  CHECK(cuMemAllocPitch(&pointer, &pitch, SIZE_MAX / 2, 4, 4) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("allocations are aligned and do not overlap") {
  const Device device;
  std::vector<CUdeviceptr> pointers;
  for (const std::size_t bytes : {1, 255, 256, 257, 4095, 4096, 4097, 1 << 20, (4 << 20) + 1}) {
    CUdeviceptr pointer = 0, base = 0;
    std::size_t size = 0;
    REQUIRE_OK(cuMemAlloc(&pointer, bytes));
    CHECK(pointer % 256 == 0);
    REQUIRE_OK(cuMemGetAddressRange(&base, &size, pointer + bytes - 1));
    CHECK(base == pointer);
    CHECK(size == bytes);
    REQUIRE_OK(cuMemsetD8(pointer, static_cast<unsigned char>(pointers.size()), bytes));
    pointers.push_back(pointer);
  }
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    CHECK(read_device(pointers[i], 1)[0] == i);
    REQUIRE_OK(cuMemFree(pointers[i]));
  }
}

TEST_CASE("a pitched allocation has room for every row") {
  const Device device;
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0, size = 0;
  REQUIRE_OK(cuMemAllocPitch(&pointer, &pitch, 700, 5, 4));
  CHECK(pitch >= 700);
  CHECK(pitch % 256 == 0);
  REQUIRE_OK(cuMemGetAddressRange(nullptr, &size, pointer));
  CHECK(size >= pitch * 4 + 700);
  CHECK(cuMemAllocPitch(&pointer, &pitch, 700, 5, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAllocPitch(&pointer, &pitch, 0, 5, 4) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("what is not a live allocation cannot be freed") {
  const Device device;
  CUdeviceptr pointer = 0;
  CHECK(cuMemAlloc(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(nullptr, 16) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemFree(0));
  REQUIRE_OK(cuMemAlloc(&pointer, 1024));
  CHECK(cuMemFree(pointer + 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFreeHost(reinterpret_cast<void*>(pointer)) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemFree(pointer));
  CHECK(cuMemFree(pointer) == CUDA_ERROR_INVALID_VALUE);
  int local = 0;
  CHECK(cuMemFree(reinterpret_cast<CUdeviceptr>(&local)) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a free waits for the work that uses the memory") {
  const Device device;
  const Stream stream;
  void* source = nullptr;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemHostAlloc(&source, 4096, 0));
  REQUIRE_OK(cuMemAlloc(&pointer, 4096));
  Gate gate(stream);
  REQUIRE_OK(cuMemcpyHtoDAsync(pointer, source, 4096, stream));
  auto freed = std::async(std::launch::async, [&] {
    cuCtxSetCurrent(device.context());
    return cuMemFree(pointer);
  });
  gate.open();
  CHECK(freed.get() == CUDA_SUCCESS);
  CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);
  REQUIRE_OK(cuMemFreeHost(source));
}

TEST_CASE("a thousand allocations and frees of every kind leave no mapping behind") {
  const Device device;
  const Stream stream;
  const auto cycle = [&] {
    CUdeviceptr plain = 0, managed = 0, ordered = 0;
    void* host = nullptr;
    REQUIRE_OK(cuMemAlloc(&plain, 10000));
    REQUIRE_OK(cuMemAllocManaged(&managed, 10000, CU_MEM_ATTACH_GLOBAL));
    REQUIRE_OK(cuMemHostAlloc(&host, 10000, 0));
    REQUIRE_OK(cuMemAllocAsync(&ordered, 10000, stream));
    REQUIRE_OK(cuMemsetD8Async(ordered, 1, 10000, stream));
    REQUIRE_OK(cuMemFreeAsync(ordered, stream));
    REQUIRE_OK(cuMemFree(plain));
    REQUIRE_OK(cuMemFree(managed));
    REQUIRE_OK(cuMemFreeHost(host));
  };
  for (int i = 0; i < 20; ++i) cycle();
  stream.synchronise();
  const std::size_t before = mapping_count();
  const std::size_t free_before = device.free_bytes();
  for (int i = 0; i < 1000; ++i) cycle();
  stream.synchronise();
  // The allocator of the C++ library may have grown; so may the lists of checks, and what a sanitizer maps itself.
  CHECK(mapping_count() <= before + 20);
  CHECK(device.free_bytes() == free_before);
}

TEST_CASE("more allocations live at once than a process may have guarded mappings") {
  const Device device;
  const std::size_t all = device.free_bytes();
  std::vector<CUdeviceptr> pointers(40000);
  for (CUdeviceptr& pointer : pointers) REQUIRE(cuMemAlloc(&pointer, 256) == CUDA_SUCCESS);
  CHECK(device.free_bytes() == all - 256 * pointers.size());
  REQUIRE_OK(cuMemsetD32(pointers.back(), 5, 64));
  REQUIRE_OK(cuMemsetD32(pointers[pointers.size() - 2], 6, 64));
  CHECK(read_device(pointers.back(), 256)[252] == 5);
  for (const CUdeviceptr pointer : pointers) REQUIRE(cuMemFree(pointer) == CUDA_SUCCESS);
  CHECK(device.free_bytes() == all);
}

TEST_CASE("the end of the primary context releases everything") {
  std::size_t total = 0;
  CUdeviceptr plain = 0, ordered = 0;
  {
    const Device device;
    total = device.free_bytes();
    const Stream stream;
    REQUIRE_OK(cuMemAlloc(&plain, 1 << 20));
    REQUIRE_OK(cuMemAllocAsync(&ordered, 1 << 20, stream));
  }
  const Device again;
  CHECK(again.free_bytes() == total);
  CHECK(cuMemFree(plain) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(ordered) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("page-locked memory is accessible to the host and known by address") {
  const Device device;
  void* host = nullptr;
  REQUIRE_OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE));
  static_cast<char*>(host)[4999] = 7;
  CUdeviceptr pointer = 0;
  unsigned flags = 0;
  REQUIRE_OK(cuMemHostGetDevicePointer(&pointer, static_cast<char*>(host) + 8, 0));
  CHECK(pointer == reinterpret_cast<CUdeviceptr>(host) + 8);
  REQUIRE_OK(cuMemHostGetFlags(&flags, host));
  CHECK(flags == CU_MEMHOSTALLOC_PORTABLE);
  CHECK(cuMemHostGetDevicePointer(&pointer, &flags, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(reinterpret_cast<CUdeviceptr>(host)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemHostUnregister(host) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  REQUIRE_OK(cuMemFreeHost(host));
  CHECK(cuMemFreeHost(host) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemHostAlloc(&host, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemHostAlloc(&host, 16, 0x100) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAllocHost(&host, std::size_t{1} << 60) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("host memory is registered once, and only where there is some") {
  const Device device;
  std::vector<char> memory(10000);
  REQUIRE_OK(cuMemHostRegister(memory.data(), memory.size(), 0));
  CHECK(cuMemHostRegister(memory.data() + 100, 10, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  unsigned type = 0;
  REQUIRE_OK(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(memory.data())));
  CHECK(type == CU_MEMORYTYPE_HOST);
  REQUIRE_OK(cuMemHostUnregister(memory.data()));
  CHECK(cuMemHostUnregister(memory.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(cuMemHostRegister(memory.data(), 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemHostRegister(memory.data(), 10, CU_MEMHOSTREGISTER_IOMEMORY) == CUDA_ERROR_NOT_SUPPORTED);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const hole = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(munmap(hole, page) == 0);
  CHECK(cuMemHostRegister(hole, page, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("managed memory is one memory for the host and the device") {
  const Device device;
  CUdeviceptr pointer = 0;
  CHECK(cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAllocManaged(&pointer, 64, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemAllocManaged(&pointer, 64, CU_MEM_ATTACH_GLOBAL));
  REQUIRE_OK(cuMemsetD32(pointer, 0x01020304, 16));
  REQUIRE_OK(cuCtxSynchronize());
  CHECK(reinterpret_cast<const std::uint32_t*>(pointer)[15] == 0x01020304);
  REQUIRE_OK(cuMemFree(pointer));
}

TEST_CASE("advice about managed memory is kept for the parts it is about") {
  const Device device;
  const Stream stream;
  CUdeviceptr pointer = 0;
  constexpr std::size_t half = 1 << 16;
  REQUIRE_OK(cuMemAllocManaged(&pointer, 2 * half, CU_MEM_ATTACH_GLOBAL));
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device.ordinal();
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  const auto ask = [&](CUmem_range_attribute attribute, std::size_t offset, std::size_t bytes) {
    int value = -77;
    REQUIRE_OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, pointer + offset, bytes));
    return value;
  };
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 2 * half) == CU_DEVICE_INVALID);
  REQUIRE_OK(cuMemAdvise(pointer, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
  REQUIRE_OK(cuMemAdvise(pointer, 2 * half, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  REQUIRE_OK(cuMemPrefetchAsync(pointer + half, half, host, 0, stream));
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, half) == device.ordinal());
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, half + 1) == CU_DEVICE_INVALID);
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 2 * half) == 1);
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, half, half) == CU_DEVICE_CPU);
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, half) == CU_DEVICE_INVALID);
  CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, half, 1) == CU_MEM_LOCATION_TYPE_HOST);
  REQUIRE_OK(cuMemAdvise(pointer, half, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
  int accessed_by[2] = {-77, -77};
  REQUIRE_OK(
      cuMemRangeGetAttribute(accessed_by, sizeof accessed_by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, pointer, half));
  CHECK(accessed_by[0] == device.ordinal());
  CHECK(accessed_by[1] == CU_DEVICE_INVALID);
  REQUIRE_OK(cuMemAdvise(pointer, half, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
  REQUIRE_OK(
      cuMemRangeGetAttribute(accessed_by, sizeof accessed_by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, pointer, half));
  CHECK(accessed_by[0] == device.ordinal());
  CHECK(accessed_by[1] == CU_DEVICE_CPU);
  CHECK(cuMemAdvise(pointer, 3 * half, CU_MEM_ADVISE_SET_READ_MOSTLY, here) == CUDA_ERROR_INVALID_VALUE);
  here.id = 99;
  CHECK(cuMemPrefetchAsync(pointer, half, here, 0, stream) == CUDA_ERROR_INVALID_DEVICE);
  CUdeviceptr plain = 0;
  REQUIRE_OK(cuMemAlloc(&plain, 4096));
  CHECK(cuMemPrefetchAsync(plain, 4096, host, 0, stream) == CUDA_ERROR_INVALID_VALUE);
}
