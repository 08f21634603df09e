// cuFile's public types and numbers, as programs that were built for cuFile 1.15 pass them.
#pragma once
#include <cuda.h>
#include <sys/types.h>

#include <cstddef>

inline constexpr int cufile_version = 1150;  // 1.15

enum CUfileOpError : int {
  CU_FILE_SUCCESS = 0,
  CU_FILE_DRIVER_NOT_INITIALIZED = 5001,
  CU_FILE_IO_NOT_SUPPORTED = 5008,
  CU_FILE_CUDA_DRIVER_ERROR = 5011,
  CU_FILE_INVALID_FILE_TYPE = 5018,
  CU_FILE_INVALID_VALUE = 5022,
  CU_FILE_HANDLE_NOT_REGISTERED = 5027
};

struct CUfileError_t {
  CUfileOpError err;
  CUresult cu_err;
};

enum CUfileFileHandleType : int {
  CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1,
  CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
  CU_FILE_HANDLE_TYPE_USERSPACE_FS = 3
};

struct CUfileDescr_t {
  CUfileFileHandleType type;
  union {
    int fd;
    void* handle;
  } handle;
  const void* fs_ops;
};

using CUfileHandle_t = void*;

// The module nvidia-fs, which the emulated driver has no need of: all zero. Sizes are in KiB.
struct CUfileDrvProps_t {
  struct {
    unsigned major_version;
    unsigned minor_version;
    std::size_t poll_thresh_size;
    std::size_t max_direct_io_size;
    unsigned dstatusflags;
    unsigned dcontrolflags;
  } nvfs;
  unsigned fflags;
  unsigned max_device_cache_size;
  unsigned per_buffer_cache_size;
  unsigned max_device_pinned_mem_size;
  unsigned max_batch_io_size;
  unsigned max_batch_io_timeout_msecs;
};
