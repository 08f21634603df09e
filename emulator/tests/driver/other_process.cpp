// What the tests of test_interprocess.cpp and test_checkpoints.cpp have another process do. It reads what it is given
// on its standard input and answers on its standard output; it ends with 0, or with the number of the line that found
// something wrong.
#include <cuda.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

namespace {

#define EXPECT(condition)                        \
  do {                                           \
    if (!(condition)) _exit(__LINE__ % 251 + 1); \
  } while (false)
#define EXPECT_OK(call) EXPECT((call) == CUDA_SUCCESS)

template <typename Value>
Value given() {
  Value value{};
  EXPECT(::read(STDIN_FILENO, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
  return value;
}

template <typename Value>
void answer(const Value& value) {
  EXPECT(::write(STDOUT_FILENO, &value, sizeof value) == static_cast<ssize_t>(sizeof value));
}

// Of the input.
void wait_for_end() {
  char nothing = 0;
  EXPECT(::read(STDIN_FILENO, &nothing, 1) == 0);
}

int read_int(CUdeviceptr address) {
  int value = 0;
  EXPECT_OK(cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

// Opens memory that holds 7, twice, leaves 8 there, and closes it.
void use_memory() {
  const auto handle = given<CUipcMemHandle>();
  CUdeviceptr first = 0, second = 0;
  EXPECT_OK(cuIpcOpenMemHandle(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_OK(cuIpcOpenMemHandle(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT(first == second);
  EXPECT(read_int(first) == 7);
  EXPECT(cuMemFree(first) == CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle lent_on;
  EXPECT(cuIpcGetMemHandle(&lent_on, first) == CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemsetD32(first, 8, 1));
  EXPECT_OK(cuIpcCloseMemHandle(first));
  EXPECT(read_int(first) == 8);
  EXPECT_OK(cuIpcCloseMemHandle(first));
  EXPECT(cuIpcCloseMemHandle(first) == CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT(cuMemcpyDtoH(&value, first, sizeof value) == CUDA_ERROR_INVALID_VALUE);
}

// The same, out of a pool whose descriptor is 3, and freed in the order of a stream.
void use_pool() {
  const auto data = given<CUmemPoolPtrExportData>();
  const auto of_other_pool = given<CUmemPoolPtrExportData>();
  CUmemoryPool pool = nullptr;
  EXPECT(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(0), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0) == CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(3),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr pointer = 0, again = 0;
  EXPECT(cuMemAllocFromPoolAsync(&pointer, 64, pool, nullptr) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemPoolImportPointer(&pointer, pool, const_cast<CUmemPoolPtrExportData*>(&of_other_pool)) ==
         CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemPoolImportPointer(&pointer, pool, const_cast<CUmemPoolPtrExportData*>(&data)));
  EXPECT_OK(cuMemPoolImportPointer(&again, pool, const_cast<CUmemPoolPtrExportData*>(&data)));
  EXPECT(pointer == again);
  EXPECT(read_int(pointer) == 7);
  EXPECT_OK(cuMemsetD32(pointer, 8, 1));
  EXPECT_OK(cuMemFreeAsync(pointer, nullptr));
  EXPECT(read_int(pointer) == 8);
  EXPECT_OK(cuMemFreeAsync(pointer, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  int value = 0;
  EXPECT(cuMemcpyDtoH(&value, pointer, sizeof value) == CUDA_ERROR_INVALID_VALUE);
  std::size_t free = 0, total = 0;
  EXPECT_OK(cuMemGetInfo(&free, &total));
  EXPECT(free == total);  // it is on the other process's account
  EXPECT_OK(cuMemPoolDestroy(pool));
}

// Puts a fill behind an event, says whether it has run, and what the event says.
void wait_for_event() {
  const auto handle = given<CUipcEventHandle>();
  const auto memory = given<CUipcMemHandle>();
  CUevent event = nullptr;
  CUdeviceptr pointer = 0;
  CUstream stream = nullptr;
  EXPECT_OK(cuIpcOpenEventHandle(&event, handle));
  EXPECT_OK(cuIpcOpenMemHandle(&pointer, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamWaitEvent(stream, event, 0));
  EXPECT_OK(cuMemsetD32Async(pointer, 8, 1, stream));
  answer(cuEventQuery(event));
  answer(cuStreamQuery(stream));
  EXPECT_OK(cuEventSynchronize(event));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuEventQuery(event));
  float milliseconds = 0;
  EXPECT(cuEventElapsedTime(&milliseconds, event, event) == CUDA_ERROR_INVALID_HANDLE);
  CUipcEventHandle lent_on;
  EXPECT(cuIpcGetEventHandle(&lent_on, event) == CUDA_ERROR_INVALID_HANDLE);
  // The other process waits for what is recorded here, too.
  EXPECT_OK(cuMemsetD32Async(pointer, 9, 1, stream));
  EXPECT_OK(cuEventRecord(event, stream));
  answer(CUDA_SUCCESS);
  wait_for_end();
}

// Records an event behind work that never ends; dies when the input does.
void die_before_it_passes() {
  CUevent event = nullptr;
  CUstream stream = nullptr;
  static std::atomic<bool> never{false};
  EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuLaunchHostFunc(stream, [](void*) { never.wait(false); }, nullptr));
  EXPECT_OK(cuEventRecord(event, stream));
  CUipcEventHandle handle;
  EXPECT_OK(cuIpcGetEventHandle(&handle, event));
  answer(handle);
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuMemAlloc(&pointer, 64));
  EXPECT_OK(cuMemsetD32(pointer, 7, 1));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  CUipcMemHandle memory;
  EXPECT_OK(cuIpcGetMemHandle(&memory, pointer));
  answer(memory);
  wait_for_end();
  _exit(0);
}

// Fills memory and says its device's UUID, each time that it is asked to.
void fill_when_asked() {
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuMemAlloc(&pointer, 64));
  EXPECT_OK(cuMemsetD32(pointer, 7, 1));
  answer(CUDA_SUCCESS);
  char asked = 0;
  while (::read(STDIN_FILENO, &asked, 1) == 1) {
    answer(asked);  // the next call may be held
    EXPECT(read_int(pointer) == 7);
    CUuuid uuid;
    EXPECT_OK(cuDeviceGetUuid(&uuid, 0));
    answer(uuid);
  }
}

}  // namespace

int main(int, char** arguments) {
  CUcontext context = nullptr;
  EXPECT_OK(cuInit(0));
  EXPECT_OK(cuDevicePrimaryCtxRetain(&context, 0));
  EXPECT_OK(cuCtxSetCurrent(context));
  const std::string what = arguments[1];
  if (what == "memory") use_memory();
  if (what == "pool") use_pool();
  if (what == "event") wait_for_event();
  if (what == "fill") fill_when_asked();
  if (what == "die") die_before_it_passes();
  return 0;
}
