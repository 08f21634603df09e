// The table of libcuda's functions this library calls, resolved at run time: nothing is linked.
#pragma once
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

namespace aiocuda::driver {

// name in libcuda, and the type cuda.h gives it
#define AIOCUDA_DRIVER_FUNCTIONS(F)              \
  F(cuCtxGetCurrent)                             \
  F(cuCtxSetCurrent)                             \
  F(cuStreamCreateWithPriority)                  \
  F(cuStreamDestroy)                             \
  F(cuMemPoolTrimTo)                             \
  F(cuStreamQuery)                               \
  F(cuStreamSynchronize)                         \
  F(cuStreamWaitEvent)                           \
  F(cuStreamWriteValue32)                        \
  F(cuStreamWaitValue32)                         \
  F(cuEventCreate)                               \
  F(cuEventDestroy)                              \
  F(cuEventRecord)                               \
  F(cuEventQuery)                                \
  F(cuEventElapsedTime)                          \
  F(cuLaunchHostFunc)                            \
  F(cuLaunchKernel)                              \
  F(cuLaunchKernelEx)                            \
  F(cuFuncGetAttribute)                          \
  F(cuFuncSetAttribute)                          \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  F(cuOccupancyMaxActiveClusters)                \
  F(cuMemAllocFromPoolAsync)                     \
  F(cuMemFreeAsync)                              \
  F(cuMemHostAlloc)                              \
  F(cuMemFreeHost)                               \
  F(cuMemHostUnregister)                         \
  F(cuMemAlloc)                                  \
  F(cuMemAllocManaged)                           \
  F(cuMemFree)                                   \
  F(cuMemAdvise)                                 \
  F(cuMemPrefetchAsync)                          \
  F(cuIpcGetMemHandle)                           \
  F(cuIpcOpenMemHandle)                          \
  F(cuIpcCloseMemHandle)                         \
  F(cuIpcGetEventHandle)                         \
  F(cuIpcOpenEventHandle)                        \
  F(cuMemcpyAsync)                               \
  F(cuMemcpy2DAsync)                             \
  F(cuDeviceGet)                                 \
  F(cuDeviceCanAccessPeer)                       \
  F(cuMemPoolSetAccess)                          \
  F(cuPointerGetAttribute)                       \
  F(cuMemsetD8Async)                             \
  F(cuMemsetD16Async)                            \
  F(cuMemsetD32Async)                            \
  F(cuMemsetD2D8Async)                           \
  F(cuMemsetD2D16Async)                          \
  F(cuMemsetD2D32Async)                          \
  F(cuStreamBeginCapture)                        \
  F(cuStreamEndCapture)                          \
  F(cuStreamIsCapturing)                         \
  F(cuStreamGetId)                               \
  F(cuThreadExchangeStreamCaptureMode)           \
  F(cuLibraryUnload)                             \
  F(cuModuleGetLoadingMode)                      \
  F(cuGraphCreate)                               \
  F(cuGraphDestroy)                              \
  F(cuGraphGetNodes)                             \
  F(cuGraphNodeGetType)                          \
  F(cuGraphChildGraphNodeGetGraph)               \
  F(cuGraphMemcpyNodeGetParams)                  \
  F(cuGraphAddKernelNode)                        \
  F(cuGraphAddMemcpyNode)                        \
  F(cuGraphAddMemsetNode)                        \
  F(cuGraphAddChildGraphNode)                    \
  F(cuGraphAddEmptyNode)                         \
  F(cuGraphKernelNodeSetAttribute)               \
  F(cuGraphInstantiateWithFlags)                 \
  F(cuGraphUpload)                               \
  F(cuGraphLaunch)                               \
  F(cuGraphExecDestroy)                          \
  F(cuGraphExecKernelNodeSetParams)              \
  F(cuGraphExecMemcpyNodeSetParams)              \
  F(cuGraphExecMemsetNodeSetParams)              \
  F(cuGraphExecChildGraphNodeSetParams)

// Functions that an older driver may lack: null there. Both are of CUDA 12.3.
#define AIOCUDA_NEWER_DRIVER_FUNCTIONS(F) \
  F(cuGraphConditionalHandleCreate)       \
  F(cuGraphAddNode)

struct Table {
#define F(name) decltype(&::name) name = nullptr;
  AIOCUDA_DRIVER_FUNCTIONS(F)
  AIOCUDA_NEWER_DRIVER_FUNCTIONS(F)
#undef F
};

// A call that the driver refused.
class Refusal : public std::runtime_error {
 public:
  Refusal(CUresult answer, const char* called)
      : std::runtime_error(std::string(called) + " failed: " + std::to_string(answer)),
        result(answer),
        function(called) {}
  Refusal(CUresult answer, const char* called, std::int32_t of) : Refusal(answer, called) { device = of; }
  static Refusal of_host_memory(CUresult answer, const char* called, std::uint64_t asked_bytes) {
    Refusal refusal(answer, called);
    refusal.asked_host_bytes = asked_bytes;
    return refusal;
  }
  CUresult result;
  const char* function;
  std::int32_t device = -2;            // whose context refused, where that is known
  std::uint64_t asked_host_bytes = 0;  // of page-locked memory that the engine wanted for itself
};

// After one of these answers a context does nothing more (CUDA driver API, "CUresult": "This leaves the process in an
// inconsistent state and any further CUDA work will return the same error").
inline bool breaks_context(int answer) {
  static constexpr int broken[] = {4,   46,  214, 220, 226, 700, 702, 708, 709, 710,
                                   714, 715, 716, 717, 718, 719, 721, 911, 999};
  return std::find(std::begin(broken), std::end(broken), answer) != std::end(broken);
}

inline void check(CUresult answer, const char* called) {
  if (answer != CUDA_SUCCESS) throw Refusal(answer, called);
}

// Resolves every function through cuGetProcAddress of the libcuda that is loaded already (the NVIDIA
// driver's or the emulated one). Throws std::runtime_error naming what is missing.
Table load_table();

}  // namespace aiocuda::driver
