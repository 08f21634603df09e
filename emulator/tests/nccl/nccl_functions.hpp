// NCCL's functions that the tests call, as nccl.h declares them.
#pragma once
#include "nccl/nccl_api.hpp"

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommInitAll(ncclComm_t* made, int devices, const int* ordinals);
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error);
const char* ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, CUstream stream);
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      CUstream stream);
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      CUstream stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
}

namespace nccl_test {

inline ncclConfig_t config_of(bool blocks, bool shares = false) {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = config_magic;
  config.version = nccl_version;
  config.blocking = blocks ? 1 : 0;
  config.splitShare = shares ? 1 : 0;
  return config;
}

}  // namespace nccl_test
