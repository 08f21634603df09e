// Types and functions of CUDA 13.1 to 13.5 that the driver has and that an older cuda.h of CUDA 13 does not declare.
// The driver builds with any of them. Their values and layouts are part of the driver's interface. A newer cuda.h
// declares the same functions again, and the compiler compares.
#pragma once
#include <cstddef>

#include "api.hpp"

#if CUDA_VERSION < 13010
struct CU_DEV_SM_RESOURCE_GROUP_PARAMS {
  unsigned int smCount;
  unsigned int coscheduledSmCount;
  unsigned int preferredCoscheduledSmCount;
  unsigned int flags;
  unsigned int reserved[12];
};
#endif
#if CUDA_VERSION < 13050
enum CUtensorMapAllocClass {
  CU_TENSOR_MAP_ALLOC_CLASS_AUTO = 0,
  CU_TENSOR_MAP_ALLOC_CLASS_SMALL = 1,
  CU_TENSOR_MAP_ALLOC_CLASS_LARGE = 2,
};
#endif

namespace aiocuda::emulator {

// CUhostTaskSyncMode: how a thread waits for the turn of a host function. All of this driver's block.
inline constexpr unsigned host_task_blocking = 0;
inline constexpr unsigned host_task_spin_wait = 1;
inline bool is_host_task_mode(unsigned mode) noexcept { return mode <= host_task_spin_wait; }

// CUDA_HOST_NODE_PARAMS_v2, which has grown since CUDA 13.0.
struct HostNodeParameters {
  CUhostFn function;
  void* user_data;
  unsigned sync_mode;
  CUcontext preferred;
};

// What CUdevResource has in its union: CUdevSmResource, which has grown since CUDA 13.0, and
// CUdevWorkqueueConfigResource.
struct MultiprocessorResource {
  unsigned count;
  unsigned least_group;
  unsigned together;  // how many are sure to run one cluster
  unsigned flags;
  unsigned locality_domain;
};
struct WorkqueueConfiguration {
  CUdevice device;
  unsigned concurrency;
  int scope;
};
// CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG, CU_DEV_RESOURCE_TYPE_WORKQUEUE
inline constexpr int workqueue_configuration_type = 1000, workqueue_type = 10000;
inline constexpr int least_workqueue_scope = 0, greatest_workqueue_scope = 1;
inline constexpr unsigned group_backfill = 1;  // CU_DEV_SM_RESOURCE_GROUP_BACKFILL

}  // namespace aiocuda::emulator

#pragma GCC visibility push(default)
extern "C" {
CUresult cuDevSmResourceSplit(CUdevResource* result, unsigned int count, const CUdevResource* input,
                              CUdevResource* remainder, unsigned int flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS* groups);
CUresult cuFuncGetParamCount(CUfunction function, std::size_t* count);
CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, std::size_t count, CUgraphNodeParams* parameters);
CUresult cuGraphExecGetId(CUgraphExec executable, unsigned int* id);
CUresult cuGraphGetId(CUgraph graph, unsigned int* id);
CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph* graph);
CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned int* id);
CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* parameters);
CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long* id);
CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* parameters);
CUresult cuKernelGetParamCount(CUkernel kernel, std::size_t* count);
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void* user_data, unsigned int mode);
CUresult cuMemGetLocationInfo(CUdeviceptr address, std::size_t bytes, std::size_t summary_bytes,
                              std::size_t sampling_bytes, CUmemLocation* locations);
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* operation, unsigned long long flags, CUstream stream);
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream);
CUresult cuStreamGetDevResource(CUstream stream, CUdevResource* resource, CUdevResourceType type);
CUresult cuTensorMapSetAllocationClass(CUtensorMap* map, CUtensorMapAllocClass asked, CUtensorMapAllocClass* effective);
}
#pragma GCC visibility pop
