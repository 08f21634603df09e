// A process that ends while the driver is at work: kernels spinning, work queued, a host function
// waiting. It must end at once, with the status it asks for. Asked for "lost", it first loses the context
// to a kernel's fault while the others go on spinning; asked for "no-device", it ends with what cuInit
// answers.
#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void require(CUresult result) {
  if (result != CUDA_SUCCESS) std::_Exit(2);
}

}  // namespace

int main(int, char** arguments) {
  CUcontext context;
  CUmodule module;
  CUfunction wait_for;
  CUstream streams[3];
  void* memory = nullptr;
  const CUresult initialised = cuInit(0);
  if (std::strcmp(arguments[1], "no-device") == 0) return initialised;
  require(initialised);
  require(cuDevicePrimaryCtxRetain(&context, 0));
  require(cuCtxSetCurrent(context));
  require(cuModuleLoad(&module, TEST_MODULE_PATH));
  require(cuModuleGetFunction(&wait_for, module, "wait_for"));
  require(cuMemAllocHost(&memory, 4096));
  std::memset(memory, 0, 4096);
  int* flag = static_cast<int*>(memory);
  int* started = flag + 1;
  std::array<void*, 2> parameters{&flag, &started};
  for (CUstream& stream : streams) {
    require(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    require(cuLaunchKernel(wait_for, 4, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr));
    for (int each = 0; each < 100; ++each) {
      require(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(memory) + 64, 1, 8, stream));
    }
  }
  require(cuStreamWaitValue32(CU_STREAM_PER_THREAD, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  while (std::atomic_ref<int>(*started).load() == 0) std::this_thread::yield();
  if (std::strcmp(arguments[1], "lost") == 0) {
    CUfunction store;
    CUstream faulting;
    int* nowhere = nullptr;
    int value = 1;
    std::array<void*, 2> arguments_of_store{&nowhere, &value};
    require(cuModuleGetFunction(&store, module, "store"));
    require(cuStreamCreate(&faulting, CU_STREAM_NON_BLOCKING));
    require(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, faulting, arguments_of_store.data(), nullptr));
    if (cuStreamSynchronize(faulting) != CUDA_ERROR_ILLEGAL_ADDRESS) std::_Exit(3);
  }
  if (std::strcmp(arguments[1], "exit") != 0) return 0;
  std::exit(0);
}
