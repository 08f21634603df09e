// Memory, pools and events that processes lend one another. The other process is other_process.cpp.
#include <unistd.h>

#include <cstring>

#include "other_process.hpp"
#include "test_memory_support.hpp"

using namespace memory_test;
using driver_test::Event;
using driver_test::OtherProcess;

namespace {

struct Memory {
  explicit Memory(std::size_t bytes = 64) {
    REQUIRE_OK(cuMemAlloc(&pointer, bytes));
    REQUIRE_OK(cuMemsetD32(pointer, 7, 1));
  }
  ~Memory() { cuMemFree(pointer); }
  int first() const {
    int value = 0;
    REQUIRE_OK(cuMemcpyDtoH(&value, pointer, sizeof value));
    return value;
  }
  CUipcMemHandle handle() const {
    CUipcMemHandle handle;
    REQUIRE_OK(cuIpcGetMemHandle(&handle, pointer));
    return handle;
  }
  CUdeviceptr pointer = 0;
};

CUmemPoolProps lent_pool() {
  CUmemPoolProps properties = device_pool_properties(0);
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUmemPoolPtrExportData exported(CUdeviceptr pointer) {
  CUmemPoolPtrExportData data;
  REQUIRE_OK(cuMemPoolExportPointer(&data, pointer));
  return data;
}

}  // namespace

TEST_CASE("two processes use the same memory") {
  const Device device;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{5} << 20}) {
    const Memory memory(bytes);
    OtherProcess other("memory");
    other.give(memory.handle());
    CHECK(other.end() == 0);
    CHECK(memory.first() == 8);
  }
}

TEST_CASE("only device memory of this process is lent, and only to others") {
  const Device device;
  const Memory memory;
  CUipcMemHandle handle = memory.handle();
  CUdeviceptr opened = 0;
  const auto open = [&](unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return cuIpcOpenMemHandle(&opened, handle, flags);
  };
  CHECK(open() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(open(0) == CUDA_ERROR_INVALID_VALUE);
  std::memset(&handle, 0, sizeof handle);
  CHECK(open() == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuIpcCloseMemHandle(memory.pointer) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuIpcGetMemHandle(&handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr managed = 0;
  REQUIRE_OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuIpcGetMemHandle(&handle, managed) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuMemFree(managed));
  unsigned is_capable = 0;
  CHECK_OK(cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory.pointer));
  CHECK(is_capable == 1);
}

TEST_CASE("memory that is freed and used again reads as zeros, also where it was lent") {
  const Device device;
  CUdeviceptr freed = 0;
  {
    const Memory memory(1 << 20);
    freed = memory.pointer;
  }
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr pointer = 0;
    REQUIRE_OK(cuMemAlloc(&pointer, 1 << 20));
    CHECK(read_device(pointer, 4) == std::vector<std::uint8_t>(4));
    REQUIRE_OK(cuMemsetD32(pointer, 7, 1));
    REQUIRE_OK(cuMemFree(pointer));
  }
  int value = 0;
  CHECK(cuMemcpyDtoH(&value, freed, sizeof value) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("two processes use memory of the same pool") {
  const Device device;
  const Pool pool(lent_pool()), other_pool(lent_pool());
  const CUdeviceptr pointer = pool.allocate(5000, nullptr), elsewhere = other_pool.allocate(5000, nullptr);
  REQUIRE_OK(cuMemsetD32(pointer, 7, 1));
  int descriptor = -1;
  REQUIRE_OK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OtherProcess other("pool", descriptor);
  close(descriptor);
  other.give(exported(pointer));
  other.give(exported(elsewhere));
  CHECK(other.end() == 0);
  CHECK(read_device(pointer, 1)[0] == 8);
  CHECK_OK(cuMemFree(pointer));
  CHECK_OK(cuMemFree(elsewhere));
}

TEST_CASE("a pool says what it lends") {
  const Device device;
  const Pool plain;
  void* handle = nullptr;
  CUmemPoolPtrExportData data;
  CHECK(cuMemPoolExportToShareableHandle(&handle, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
        CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr pointer = plain.allocate(64, nullptr);
  CHECK(cuMemPoolExportPointer(&data, pointer) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuMemFree(pointer));
  CUmemPoolProps properties = lent_pool();
  CUmemoryPool made = nullptr;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(cuMemPoolCreate(&made, &properties) == CUDA_ERROR_NOT_SUPPORTED);
  int types = 0;
  CHECK_OK(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
  CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_CASE("a pool that lends its memory gives it back as others do") {
  const Device device;
  const std::size_t before = device.free_bytes();
  {
    const Pool pool(lent_pool());
    const Stream stream;
    for (int round = 0; round < 5; ++round) {
      const CUdeviceptr pointer = pool.allocate(1 << 20, stream);
      REQUIRE_OK(cuMemFreeAsync(pointer, stream));
    }
    stream.synchronise();
    CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  }
  CHECK(device.free_bytes() == before);
}

TEST_CASE("another process waits for an event of this one, and this one for its") {
  const Device device;
  const Memory memory;
  const Stream stream;
  const Event event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  Gate gate(stream);
  REQUIRE_OK(cuEventRecord(event, stream));
  CUipcEventHandle handle;
  REQUIRE_OK(cuIpcGetEventHandle(&handle, event));
  CUevent opened = nullptr;
  CHECK(cuIpcOpenEventHandle(&opened, handle) == CUDA_ERROR_INVALID_CONTEXT);
  OtherProcess other("event");
  other.give(handle);
  other.give(memory.handle());
  CHECK(other.answer<CUresult>() == CUDA_ERROR_NOT_READY);
  CHECK(other.answer<CUresult>() == CUDA_ERROR_NOT_READY);
  gate.open();
  CHECK(other.answer<CUresult>() == CUDA_SUCCESS);
  CHECK_OK(cuEventSynchronize(event));
  CHECK(memory.first() == 9);
  CHECK(other.end() == 0);
}

TEST_CASE("a process that dies leaves nobody waiting, and what it lent stays mapped") {
  const Device device;
  OtherProcess other("die");
  const auto handle = other.answer<CUipcEventHandle>();
  const auto memory = other.answer<CUipcMemHandle>();
  CUevent event = nullptr;
  CUdeviceptr pointer = 0;
  REQUIRE_OK(cuIpcOpenEventHandle(&event, handle));
  REQUIRE_OK(cuIpcOpenMemHandle(&pointer, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  const Stream stream;
  REQUIRE_OK(cuStreamWaitEvent(stream, event, 0));
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CHECK(other.end() == 0);
  stream.synchronise();
  CHECK_OK(cuEventSynchronize(event));
  CHECK(read_device(pointer, 1)[0] == 7);
  CHECK_OK(cuEventDestroy(event));
  CHECK_OK(cuIpcCloseMemHandle(pointer));
  CHECK(cuIpcOpenMemHandle(&pointer, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuIpcOpenEventHandle(&event, handle) == CUDA_ERROR_MAP_FAILED);
}

TEST_CASE("an event of a lost context holds up nobody elsewhere, and a graph records for others, too") {
  const Device device;
  const Memory memory;
  const Event event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  const Stream stream;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphCreate(&graph, 0));
  REQUIRE_OK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  {
    Gate gate(stream);
    REQUIRE_OK(cuGraphLaunch(executable, stream));
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    CUipcEventHandle handle;
    REQUIRE_OK(cuIpcGetEventHandle(&handle, event));
    OtherProcess other("event");
    other.give(handle);
    other.give(memory.handle());
    CHECK(other.answer<CUresult>() == CUDA_ERROR_NOT_READY);
    CHECK(other.answer<CUresult>() == CUDA_ERROR_NOT_READY);
    gate.open();
    CHECK(other.answer<CUresult>() == CUDA_SUCCESS);
    CHECK(other.end() == 0);
  }
  REQUIRE_OK(cuGraphExecDestroy(executable));
  REQUIRE_OK(cuGraphDestroy(graph));
}
