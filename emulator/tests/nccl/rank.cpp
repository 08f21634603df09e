// Rank 1 of 2: joins the communicator whose id it is given, says so, calls one collective, and waits to be ended.
#include <unistd.h>

#include "nccl_functions.hpp"

int main() {
  ncclUniqueId id;
  CUcontext context = nullptr;
  ncclComm_t communicator = nullptr;
  if (read(STDIN_FILENO, &id, sizeof id) != sizeof id) return 1;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 2;
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 3;
  const ncclResult_t joined = ncclCommInitRankConfig(&communicator, 2, id, 1, nullptr);
  if (write(STDOUT_FILENO, &joined, sizeof joined) != sizeof joined) return 4;
  CUstream stream = nullptr;
  CUdeviceptr number = 0;
  if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS || cuMemAlloc(&number, 4) != CUDA_SUCCESS)
    return 6;
  auto* const data = reinterpret_cast<void*>(number);
  if (ncclAllReduce(data, data, 1, ncclInt32, ncclSum, communicator, stream) != ncclSuccess) return 7;
  char end = 0;
  return read(STDIN_FILENO, &end, 1) == 0 ? 0 : 5;
}
