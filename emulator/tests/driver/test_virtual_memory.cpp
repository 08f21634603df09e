// Virtual memory management: mappings of reserved addresses, and who may use them. More is in tests/bindings.
#include <unistd.h>

#include "test_memory_support.hpp"

using namespace memory_test;
using driver_test::launch;
using driver_test::Module;

namespace {

constexpr std::size_t unit = std::size_t{2} << 20;

CUmemAllocationProp described() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

// Reserved addresses, and memory that is mapped to them.
struct Mapping {
  explicit Mapping(std::size_t bytes = unit) : bytes(bytes) {
    const CUmemAllocationProp properties = described();
    REQUIRE_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    REQUIRE_OK(cuMemCreate(&handle, bytes, &properties, 0));
    REQUIRE_OK(cuMemMap(address, bytes, 0, handle, 0));
  }
  ~Mapping() {
    CHECK_OK(cuMemUnmap(address, bytes));
    CHECK_OK(cuMemRelease(handle));
    CHECK_OK(cuMemAddressFree(address, bytes));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  CUresult allow(CUmemAccess_flags flags) const {
    CUmemAccessDesc access{};
    access.location = described().location;
    access.flags = flags;
    return cuMemSetAccess(address, bytes, &access, 1);
  }
  const std::size_t bytes;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
};

CUresult store_at(CUdeviceptr address) {
  const Module module;
  if (const CUresult error = launch(module.function("store"), nullptr, 1, address, 1)) return error;
  return cuCtxSynchronize();
}

}  // namespace

TEST_CASE("a kernel uses a mapping as far as it has access") {
  for (const auto& [flags, expected] : {std::pair{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS},
                                        std::pair{CU_MEM_ACCESS_FLAGS_PROT_READ, CUDA_ERROR_ILLEGAL_ADDRESS},
                                        std::pair{CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_ERROR_ILLEGAL_ADDRESS}}) {
    CAPTURE(flags);
    const Mapping mapping;
    REQUIRE_OK(mapping.allow(flags));
    const Device device;
    CHECK(store_at(mapping.address) == expected);
  }
}

TEST_CASE("a kernel that uses a mapping without access, or beyond its end, faults") {
  const Mapping mapping;
  {
    const Device device;
    CHECK(store_at(mapping.address) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  REQUIRE_OK(mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  const Device device;
  CHECK(store_at(mapping.address + mapping.bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("memory for mappings is on its device's account until nothing holds it") {
  const Device device;
  const std::size_t before = device.free_bytes();
  {
    const Mapping mapping(3 * unit);
    CHECK(device.free_bytes() == before - 3 * unit);
    int descriptor = -1;
    REQUIRE_OK(cuMemExportToShareableHandle(&descriptor, mapping.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle imported = 0;
    REQUIRE_OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    CHECK(imported != mapping.handle);
    CHECK(device.free_bytes() == before - 3 * unit);
    REQUIRE_OK(cuMemRelease(imported));
  }
  CHECK(device.free_bytes() == before);
  std::size_t free = 0, total = 0;
  REQUIRE_OK(cuMemGetInfo(&free, &total));
  const CUmemAllocationProp properties = described();
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, total / unit * unit + unit, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(device.free_bytes() == before);
}

TEST_CASE("what cannot be mapped is refused") {
  const Device device;
  CUmemAllocationProp properties = described();
  CUmemGenericAllocationHandle handle = 0;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(cuMemCreate(&handle, unit, &properties, 0) == CUDA_ERROR_NOT_SUPPORTED);
  properties = described();
  properties.location.id = 99;
  CHECK(cuMemCreate(&handle, unit, &properties, 0) == CUDA_ERROR_INVALID_DEVICE);
  properties = described();
  properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(cuMemCreate(&handle, unit, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemRelease(12345) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(unit, unit) == CUDA_ERROR_INVALID_VALUE);
}
