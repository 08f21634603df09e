// Calls of CUDA 13.1 to 13.5 that stand alone: counts of parameters, single copies with attributes, host functions with
// a mode, where managed memory is, and classes of tensor maps.
#include <array>
#include <cstdlib>
#include <vector>

#include "newer_api.hpp"
#include "support.hpp"

using namespace driver_test;
using aiocuda::emulator::host_task_spin_wait;

namespace {

CUmemcpyAttributes in_stream_order() {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return attributes;
}

void count(void* data) { ++*static_cast<int*>(data); }

}  // namespace

TEST_CASE("functions and kernels tell how many parameters they take") {
  const Device device;
  const Module module;
  std::size_t found = 99;
  REQUIRE_OK(cuFuncGetParamCount(module.function("add"), &found));
  std::size_t offset = 0, bytes = 0;
  CHECK_OK(cuFuncGetParamInfo(module.function("add"), found - 1, &offset, &bytes));
  CHECK(cuFuncGetParamInfo(module.function("add"), found, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncGetParamCount(module.function("add"), nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuKernelGetParamCount(nullptr, &found) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("one copy with attributes is as one of a batch") {
  const Device device;
  const Stream stream;
  const SharedInts<4> source, destination;
  for (int i = 0; i < 4; ++i) source.data()[i] = i + 1;
  CUmemcpyAttributes attributes = in_stream_order();
  REQUIRE_OK(cuMemcpyWithAttributesAsync(destination.address(), source.address(), 16, &attributes, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(destination.data()[3] == 4);

  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr.ptr = source.address();
  operation.dst.op.ptr.ptr = destination.address() + 8;
  operation.extent = {8, 1, 1};
  REQUIRE_OK(cuMemcpy3DWithAttributesAsync(&operation, 0, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(destination.data()[3] == 2);

  // NVIDIA's driver takes no default stream and no captured one for it.
  const auto copy_into = [&](CUstream into) {
    return cuMemcpyWithAttributesAsync(destination.address(), source.address(), 16, &attributes, into);
  };
  CHECK(copy_into(CU_STREAM_LEGACY) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(copy_into(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &graph));
  CHECK_OK(cuGraphDestroy(graph));
  CHECK(cuMemcpyWithAttributesAsync(destination.address(), source.address(), 16, nullptr, stream) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpy3DWithAttributesAsync(&operation, 1, stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a host function is called whatever way its thread waits, and other ways are refused") {
  const Device device;
  const Stream stream;
  int calls = 0;
  CHECK_OK(cuLaunchHostFunc_v2(stream, &count, &calls, host_task_spin_wait));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(calls == 1);
  CHECK(cuLaunchHostFunc_v2(stream, &count, &calls, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchHostFunc_v2(stream, nullptr, &calls, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("managed memory is where most of it was prefetched to") {
  const Device device;
  const Stream stream;
  constexpr std::size_t bytes = std::size_t{1} << 20;
  CUdeviceptr memory = 0;
  REQUIRE_OK(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
  REQUIRE_OK(cuMemPrefetchAsync(memory, bytes / 2 + bytes / 8, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0, stream));
  std::array<CUmemLocation, 3> found{};
  REQUIRE_OK(cuMemGetLocationInfo(memory, bytes, bytes / 2, bytes / 16, found.data()));
  CHECK(found[0].type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(found[0].id == 1);
  CHECK(found[1].type == CU_MEM_LOCATION_TYPE_HOST);
  CHECK(found[2].type == 0);
  CHECK(cuMemGetLocationInfo(memory, bytes, 2 * bytes, 0, found.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemGetLocationInfo(memory, bytes, bytes, 2 * bytes, found.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemGetLocationInfo(memory, bytes, bytes, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuMemFree(memory));

  std::vector<int> pageable(64);
  REQUIRE_OK(cuMemGetLocationInfo(reinterpret_cast<CUdeviceptr>(pageable.data()), 256, 256, 0, found.data()));
  CHECK(found[0].type == CU_MEM_LOCATION_TYPE_HOST);
  REQUIRE_OK(cuMemAlloc(&memory, 256));
  CHECK(cuMemGetLocationInfo(memory, 256, 256, 0, found.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuMemFree(memory));
}

TEST_CASE("all classes of tensor maps are the small one") {
  const Device device;
  CUtensorMap map{};
  CUtensorMapAllocClass effective{};
  REQUIRE_OK(cuTensorMapSetAllocationClass(&map, CU_TENSOR_MAP_ALLOC_CLASS_LARGE, &effective));
  CHECK(effective == CU_TENSOR_MAP_ALLOC_CLASS_SMALL);
  CHECK_OK(cuTensorMapSetAllocationClass(&map, CU_TENSOR_MAP_ALLOC_CLASS_AUTO, nullptr));
  CHECK(cuTensorMapSetAllocationClass(nullptr, CU_TENSOR_MAP_ALLOC_CLASS_SMALL, &effective) ==
        CUDA_ERROR_INVALID_VALUE);
}
