// The attributes of functions and kernels: what is read from the compiled code, and what can be set.
#include "device.hpp"
#include "module.hpp"

namespace aiocuda::emulator {
namespace {

// A CPU has no such registers to share out; as many as never limit how many blocks fit.
constexpr int registers_per_thread = limits::registers_per_multiprocessor / limits::max_threads_per_multiprocessor;
constexpr int code_version = 10 * limits::compute_capability_major + limits::compute_capability_minor;

}  // namespace

FunctionAttributes::FunctionAttributes(const KernelDescription& kernel)
    : max_dynamic_shared_bytes(kernel.static_shared_bytes < limits::shared_per_block
                                   ? static_cast<int>(limits::shared_per_block - kernel.static_shared_bytes)
                                   : 0),
      cluster{static_cast<int>(kernel.cluster.x), static_cast<int>(kernel.cluster.y),
              static_cast<int>(kernel.cluster.z)} {}

CUresult get_attribute(const KernelDescription& kernel, const FunctionAttributes& attributes,
                       CUfunction_attribute attribute, int& value) {
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      value = kernel.max_threads_per_block;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      value = static_cast<int>(kernel.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      value = static_cast<int>(kernel.local_bytes_per_thread);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      value = registers_per_thread;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      value = code_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      value = attributes.max_dynamic_shared_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value = attributes.preferred_shared_carveout;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      value = attributes.cluster[static_cast<std::size_t>(attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)];
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      value = attributes.allows_non_portable_cluster ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      value = attributes.cluster_scheduling;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_attribute(const KernelDescription& kernel, FunctionAttributes& attributes, CUfunction_attribute attribute,
                       int value) {
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || kernel.static_shared_bytes + static_cast<std::size_t>(value) > limits::shared_per_block_optin) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      attributes.max_dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
        return CUDA_ERROR_INVALID_VALUE;
      attributes.preferred_shared_carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (kernel.cluster.x != 0) return CUDA_ERROR_NOT_PERMITTED;  // what the compiler was told stays
      if (value < 0) return CUDA_ERROR_INVALID_VALUE;
      attributes.cluster[static_cast<std::size_t>(attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)] = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      if (value != 0 && value != 1) return CUDA_ERROR_INVALID_VALUE;
      attributes.allows_non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
      attributes.cluster_scheduling = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace aiocuda::emulator
