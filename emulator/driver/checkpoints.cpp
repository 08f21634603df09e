// Checkpoints of processes, which the emulated devices cannot make. The calls are about any process, so they need no
// driver that was initialised in this one.
#include "api.hpp"

#define NEVER_SUPPORTED(name, ...) \
  CUresult name(__VA_ARGS__) { return CUDA_ERROR_NOT_SUPPORTED; }

NEVER_SUPPORTED(cuCheckpointProcessGetRestoreThreadId, int, int*)
NEVER_SUPPORTED(cuCheckpointProcessGetState, int, CUprocessState*)
NEVER_SUPPORTED(cuCheckpointProcessLock, int, CUcheckpointLockArgs*)
NEVER_SUPPORTED(cuCheckpointProcessCheckpoint, int, CUcheckpointCheckpointArgs*)
NEVER_SUPPORTED(cuCheckpointProcessRestore, int, CUcheckpointRestoreArgs*)
NEVER_SUPPORTED(cuCheckpointProcessUnlock, int, CUcheckpointUnlockArgs*)
