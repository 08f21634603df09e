// NCCL's public types and numbers, as programs that were built for NCCL 2.28 pass them.
#pragma once
#include <cuda.h>

#include <climits>
#include <cstddef>

struct ncclComm;
using ncclComm_t = ncclComm*;

inline constexpr int nccl_version = 22809;  // 2.28.9

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
};

// Numbers from ncclNumOps on name operators that a communicator has made.
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5 };

enum ncclScalarResidence_t { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

struct ncclUniqueId {
  char internal[128];
};

// The first fields, which all versions have. Most of them, and all behind them, tune a GPU's links and mean nothing
// here.
struct ncclConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
};

inline constexpr unsigned config_magic = 0xcafebeef;
inline constexpr int undefined_number = INT_MIN;
inline constexpr int no_color = -1;
