// Functions of NCCL up to 2.30 that are not emulated. They are there because PyTorch's libraries do not load without
// them. Each refuses, and ncclGetLastError names it.
#include <string>

#include "group.hpp"

#define NOT_EMULATED(name)                                                                                 \
  extern "C" [[gnu::visibility("default")]] ncclResult_t name() {                                          \
    return aiocuda::emulator::nccl::refuse({ncclInvalidUsage, #name " is not part of the emulated NCCL"}); \
  }

NOT_EMULATED(ncclCommGetUniqueId)
NOT_EMULATED(ncclCommGrow)
NOT_EMULATED(ncclCommMemStats)
NOT_EMULATED(ncclCommQueryProperties)
NOT_EMULATED(ncclCommResume)
NOT_EMULATED(ncclCommRevoke)
NOT_EMULATED(ncclCommShrink)
NOT_EMULATED(ncclCommSuspend)
NOT_EMULATED(ncclCommWindowDeregister)
NOT_EMULATED(ncclCommWindowRegister)
NOT_EMULATED(ncclDevCommCreate)
NOT_EMULATED(ncclDevCommDestroy)
NOT_EMULATED(ncclGetLsaMultimemDevicePointer)
NOT_EMULATED(ncclGetPeerDevicePointer)
NOT_EMULATED(ncclGroupSimulateEnd)
NOT_EMULATED(ncclPutSignal)
NOT_EMULATED(ncclSignal)
NOT_EMULATED(ncclWaitSignal)
NOT_EMULATED(ncclWinGetUserPtr)
