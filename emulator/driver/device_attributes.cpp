// cuDeviceGetAttribute: every attribute that cuda.h numbers has an answer. This list has everything that the emulator
// can do. The emulator lacks a capability that is not listed, and its attribute reads 0.
#include <unistd.h>

#include <algorithm>

#include "device.hpp"

using namespace aiocuda::emulator;

namespace {

int level_2_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<int>(std::min<long>(bytes, 1 << 30)) : 0;
}

int attribute_value(CUdevice_attribute attribute, CUdevice device) {
  switch (static_cast<int>(attribute)) {
    // Shapes and sizes
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return limits::max_threads_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return limits::max_block_dim_x;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return limits::max_block_dim_y;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return limits::max_block_dim_z;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return static_cast<int>(limits::max_grid_dim_x);
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      return static_cast<int>(limits::max_grid_dim_y);
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return static_cast<int>(limits::max_grid_dim_z);
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return limits::warp_size;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return multiprocessor_count();
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return limits::max_threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return limits::max_blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return limits::registers_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return limits::shared_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return limits::shared_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return limits::shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return limits::shared_reserved_per_block;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return level_2_cache_bytes();
    // Textures and surfaces: an H100's
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH:
      return 131072;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT:
      return 65000;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH:
      return 2097120;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
      return 1 << 28;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH:
      return 16384;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH:
      return 32768;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS:
      return 2046;
    // Nominal: a CPU has no such numbers, and programs divide by them.
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1'000'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 64;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return 2;
    // Identity
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return limits::compute_capability_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return limits::compute_capability_minor;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      return device;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG:
      return CU_DEVICE_NUMA_CONFIG_NONE;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
      return -1;
    // Node 0, which every host has for pools. Device memory is on no node in particular.
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return 0;
    // Concurrency
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      return 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    // Memory: device memory is host memory, so each can reach the other's. Not "pageable memory access":
    // memory of malloc is no device memory to memsets and to advice.
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    default:
      return 0;
  }
}

// Of CUDA 13.5, whatever cuda.h this was built with. Those that it does not name are 0: none of them is supported.
constexpr int newest_attribute = 161;

}  // namespace

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute <= 0 || attribute > newest_attribute) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute_value(attribute, device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = limits::compute_capability_major;
  *minor = limits::compute_capability_minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = CUdevprop{};
  properties->maxThreadsPerBlock = limits::max_threads_per_block;
  properties->maxThreadsDim[0] = limits::max_block_dim_x;
  properties->maxThreadsDim[1] = limits::max_block_dim_y;
  properties->maxThreadsDim[2] = limits::max_block_dim_z;
  properties->maxGridSize[0] = static_cast<int>(limits::max_grid_dim_x);
  properties->maxGridSize[1] = static_cast<int>(limits::max_grid_dim_y);
  properties->maxGridSize[2] = static_cast<int>(limits::max_grid_dim_z);
  properties->sharedMemPerBlock = static_cast<int>(limits::shared_per_block);
  properties->totalConstantMemory = attribute_value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device);
  properties->SIMDWidth = limits::warp_size;
  properties->memPitch = attribute_value(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device);
  properties->regsPerBlock = limits::registers_per_multiprocessor;
  properties->clockRate = attribute_value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
  properties->textureAlign = attribute_value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
  return CUDA_SUCCESS;
}
