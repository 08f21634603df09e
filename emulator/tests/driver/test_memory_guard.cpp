// A kernel that strays outside its memory, or uses it after it was released, faults at once; what lies
// inside the allocation is untouched ground.
#include "support.hpp"

using namespace driver_test;

namespace {

// Stores one int at the address with a kernel, and answers what waiting for it answers.
CUresult store_at(CUdeviceptr address) {
  const Module module;
  const CUfunction store = module.function("store");
  if (const CUresult error = launch(store, nullptr, 1, address, 1)) return error;
  return cuCtxSynchronize();
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, bytes));
  return pointer;
}

constexpr std::size_t sizes[] = {4, 256, 1000, 4096, 100000, (8 << 20) + 256};

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

TEST_CASE("a kernel may use its allocation up to the last element") {
  const Device device;
  for (const std::size_t bytes : sizes) {
    const CUdeviceptr pointer = allocate(bytes);
    CHECK_OK(store_at(pointer));
    CHECK_OK(store_at(pointer + (bytes - 4) / 4 * 4));
  }
}

TEST_CASE("a kernel that writes behind its allocation faults") {
  for (const std::size_t bytes : sizes) {
    CAPTURE(bytes);
    const Device device;
    CHECK(store_at(allocate(bytes) + rounded(bytes)) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("a kernel that writes before the pages of its allocation faults") {
  for (const std::size_t bytes : sizes) {
    CAPTURE(bytes);
    const Device device;
    CHECK(store_at(allocate(bytes) / 4096 * 4096 - 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("a kernel that uses freed memory faults") {
  const Device device;
  const CUdeviceptr pointer = allocate(4096);
  REQUIRE_OK(cuMemFree(pointer));
  CHECK(store_at(pointer) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a kernel that uses freed memory faults when the memory was used again under another address") {
  const Device device;
  const CUdeviceptr pointer = allocate(4096);
  REQUIRE_OK(cuMemFree(pointer));
  allocate(4096);
  CHECK(store_at(pointer) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a kernel that uses memory its pool has given back faults") {
  const Device device;
  const Stream stream;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAllocAsync(&pointer, 4096, stream));
  REQUIRE_OK(cuMemFreeAsync(pointer, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(store_at(pointer) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a module's variables are device memory to copies and to pointers") {
  const Device device;
  const Module module;
  CUdeviceptr variable = 0;
  std::size_t bytes = 0;
  REQUIRE_OK(cuModuleGetGlobal(&variable, &bytes, module, "module_table"));
  const std::array<float, 16> table{1.5F};
  REQUIRE(bytes >= sizeof table);  // a sanitizer may have put a red zone behind it
  CHECK_OK(cuMemcpyHtoD(variable, table.data(), sizeof table));
  std::array<float, 16> result{};
  CHECK_OK(cuMemcpyDtoH(result.data(), variable, sizeof table));
  CHECK(result == table);
  CHECK(cuMemcpyHtoD(variable, table.data(), bytes + 1) == CUDA_ERROR_INVALID_VALUE);
  unsigned type = 0;
  CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, variable));
  CHECK(type == CU_MEMORYTYPE_DEVICE);
}
