// The attributes of pointers.
#include "test_memory_support.hpp"

using namespace memory_test;

namespace {

template <typename Value>
Value ask(CUdeviceptr pointer, CUpointer_attribute attribute) {
  Value value{};
  REQUIRE_OK(cuPointerGetAttribute(&value, attribute, pointer));
  return value;
}

}  // namespace

TEST_CASE("a device pointer knows its range, its device and its context") {
  const Device device;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, 1000));
  const CUdeviceptr inside = pointer + 999;
  CHECK(ask<unsigned>(inside, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
  CHECK(ask<CUcontext>(inside, CU_POINTER_ATTRIBUTE_CONTEXT) == device.context());
  CHECK(ask<CUdeviceptr>(inside, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == inside);
  CHECK(ask<CUdeviceptr>(inside, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == pointer);
  CHECK(ask<std::size_t>(inside, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == 1000);
  CHECK(ask<int>(inside, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == device.ordinal());
  CHECK(ask<unsigned>(inside, CU_POINTER_ATTRIBUTE_MAPPED) == 1);
  CHECK(ask<unsigned>(inside, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0);
  CHECK(ask<unsigned>(inside, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 1);
  CHECK(ask<CUmemoryPool>(inside, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) == nullptr);
  void* host = nullptr;
  CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_CONTEXT, pointer + 1000) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("buffer ids are never used again") {
  const Device device;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, 64));
  const auto first = ask<unsigned long long>(pointer, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  REQUIRE_OK(cuMemFree(pointer));
  REQUIRE_OK(cuMemAlloc(&pointer, 64));
  CHECK(ask<unsigned long long>(pointer, CU_POINTER_ATTRIBUTE_BUFFER_ID) > first);
}

TEST_CASE("page-locked and managed pointers can be used by the host") {
  const Device device;
  void* host = nullptr;
  REQUIRE_OK(cuMemHostAlloc(&host, 64, 0));
  const auto locked = reinterpret_cast<CUdeviceptr>(host);
  CHECK(ask<unsigned>(locked, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST);
  CHECK(ask<void*>(locked, CU_POINTER_ATTRIBUTE_HOST_POINTER) == host);
  CHECK(ask<CUdeviceptr>(locked, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == locked);
  CUdeviceptr managed = 0;
  REQUIRE_OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  CHECK(ask<unsigned>(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
  CHECK(ask<unsigned>(managed, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
  CHECK(ask<CUdeviceptr>(managed, CU_POINTER_ATTRIBUTE_HOST_POINTER) == managed);
}

TEST_CASE("an unknown pointer is an error to one question and zeros to many") {
  const Device device;
  int local = 0;
  const auto pointer = reinterpret_cast<CUdeviceptr>(&local);
  unsigned type = 77;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_ERROR_INVALID_VALUE);
  CUcontext context = device.context();
  unsigned managed = 77;
  void* host = &local;
  std::size_t size = 77;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&type, &context, &managed, &host, &size};
  REQUIRE_OK(cuPointerGetAttributes(5, attributes, data, pointer));
  CHECK(type == 0);
  CHECK(context == nullptr);
  CHECK(managed == 0);
  CHECK(host == nullptr);
  CHECK(size == 0);
}

TEST_CASE("many questions about a device pointer answer a null host pointer, not an error") {
  const Device device;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuMemAlloc(&pointer, 64));
  unsigned type = 0;
  int local = 0;
  void* host = &local;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&type, &host};
  REQUIRE_OK(cuPointerGetAttributes(2, attributes, data, pointer));
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(host == nullptr);
}

TEST_CASE("synchronous operations on a pointer can be made to wait always") {
  const Device device;
  CUdeviceptr one = 0, other = 0;
  REQUIRE_OK(cuMemAlloc(&one, 64));
  REQUIRE_OK(cuMemAlloc(&other, 64));
  unsigned on = 1;
  REQUIRE_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
  CHECK(ask<unsigned>(one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) == 1);
  REQUIRE_OK(cuMemcpyDtoD(one, other, 64));
  CHECK(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
  CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, one) == CUDA_ERROR_INVALID_VALUE);
}
