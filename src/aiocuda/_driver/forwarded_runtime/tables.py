"""Which calls of the runtime are functions of the driver with the same arguments, and which types are alike."""

from __future__ import annotations

from typing import Final

__all__ = ["ALIKE", "FOR_CALLER", "FOR_DRIVER", "OF_THE_RUNTIME_ITSELF"]

# These speak of the runtime itself, and need no driver.
OF_THE_RUNTIME_ITSELF: Final = frozenset(
    {"cudaGetErrorName", "cudaGetErrorString", "cudaRuntimeGetVersion", "cudaCreateChannelDesc"}
)

# Calls whose arguments are those of a function of the driver's.
ALIKE: Final[dict[str, str]] = {
    "cudaCtxResetPersistingL2Cache": "cuCtxResetPersistingL2Cache",
    "cudaDeviceCanAccessPeer": "cuDeviceCanAccessPeer",
    "cudaDeviceGetAttribute": "cuDeviceGetAttribute",
    "cudaDeviceGetByPCIBusId": "cuDeviceGetByPCIBusId",
    "cudaDeviceGetCacheConfig": "cuCtxGetCacheConfig",
    "cudaDeviceGetDefaultMemPool": "cuDeviceGetDefaultMemPool",
    "cudaDeviceGetLimit": "cuCtxGetLimit",
    "cudaDeviceGetMemPool": "cuDeviceGetMemPool",
    "cudaDeviceGetP2PAttribute": "cuDeviceGetP2PAttribute",
    "cudaDeviceGetPCIBusId": "cuDeviceGetPCIBusId",
    "cudaDeviceGetStreamPriorityRange": "cuCtxGetStreamPriorityRange",
    "cudaDeviceSetCacheConfig": "cuCtxSetCacheConfig",
    "cudaDeviceSetLimit": "cuCtxSetLimit",
    "cudaDeviceSetMemPool": "cuDeviceSetMemPool",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaDriverGetVersion": "cuDriverGetVersion",
    "cudaEventCreateWithFlags": "cuEventCreate",
    "cudaEventDestroy": "cuEventDestroy",
    "cudaEventElapsedTime": "cuEventElapsedTime",
    "cudaEventQuery": "cuEventQuery",
    "cudaEventRecord": "cuEventRecord",
    "cudaEventRecordWithFlags": "cuEventRecordWithFlags",
    "cudaEventSynchronize": "cuEventSynchronize",
    "cudaFreeAsync": "cuMemFreeAsync",
    "cudaFreeHost": "cuMemFreeHost",
    "cudaGraphAddDependencies": "cuGraphAddDependencies",
    "cudaGraphAddEmptyNode": "cuGraphAddEmptyNode",
    "cudaGraphClone": "cuGraphClone",
    "cudaGraphCreate": "cuGraphCreate",
    "cudaGraphDestroy": "cuGraphDestroy",
    "cudaGraphDestroyNode": "cuGraphDestroyNode",
    "cudaGraphExecDestroy": "cuGraphExecDestroy",
    "cudaGraphGetEdges": "cuGraphGetEdges",
    "cudaGraphGetNodes": "cuGraphGetNodes",
    "cudaGraphGetRootNodes": "cuGraphGetRootNodes",
    "cudaGraphInstantiate": "cuGraphInstantiate",
    "cudaGraphLaunch": "cuGraphLaunch",
    "cudaGraphNodeGetDependencies": "cuGraphNodeGetDependencies",
    "cudaGraphNodeGetDependentNodes": "cuGraphNodeGetDependentNodes",
    "cudaGraphNodeGetType": "cuGraphNodeGetType",
    "cudaGraphUpload": "cuGraphUpload",
    "cudaHostAlloc": "cuMemHostAlloc",
    "cudaHostGetDevicePointer": "cuMemHostGetDevicePointer",
    "cudaHostGetFlags": "cuMemHostGetFlags",
    "cudaHostRegister": "cuMemHostRegister",
    "cudaLaunchHostFunc": "cuLaunchHostFunc",
    "cudaMallocAsync": "cuMemAllocAsync",
    "cudaMallocFromPoolAsync": "cuMemAllocFromPoolAsync",
    "cudaMallocHost": "cuMemAllocHost",
    "cudaMallocManaged": "cuMemAllocManaged",
    "cudaMemGetInfo": "cuMemGetInfo",
    "cudaMemPoolDestroy": "cuMemPoolDestroy",
    "cudaMemPoolGetAttribute": "cuMemPoolGetAttribute",
    "cudaMemPoolSetAttribute": "cuMemPoolSetAttribute",
    "cudaMemPoolTrimTo": "cuMemPoolTrimTo",
    "cudaProfilerStart": "cuProfilerStart",
    "cudaProfilerStop": "cuProfilerStop",
    "cudaStreamAddCallback": "cuStreamAddCallback",
    "cudaStreamBeginCapture": "cuStreamBeginCapture",
    "cudaStreamCreateWithFlags": "cuStreamCreate",
    "cudaStreamCreateWithPriority": "cuStreamCreateWithPriority",
    "cudaStreamDestroy": "cuStreamDestroy",
    "cudaStreamEndCapture": "cuStreamEndCapture",
    "cudaStreamGetCaptureInfo": "cuStreamGetCaptureInfo",
    "cudaStreamGetDevice": "cuStreamGetDevice",
    "cudaStreamGetFlags": "cuStreamGetFlags",
    "cudaStreamGetId": "cuStreamGetId",
    "cudaStreamGetPriority": "cuStreamGetPriority",
    "cudaStreamIsCapturing": "cuStreamIsCapturing",
    "cudaStreamQuery": "cuStreamQuery",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaStreamWaitEvent": "cuStreamWaitEvent",
    "cudaThreadExchangeStreamCaptureMode": "cuThreadExchangeStreamCaptureMode",
}

# The driver's types of arguments: enumerations with the same numbers, and functions.
FOR_DRIVER: Final[dict[str, str]] = {
    "cudaDeviceAttr": "CUdevice_attribute",
    "cudaDeviceP2PAttr": "CUdevice_P2PAttribute",
    "cudaFuncCache": "CUfunc_cache",
    "cudaHostFn_t": "CUhostFn",
    "cudaLimit": "CUlimit",
    "cudaMemPoolAttr": "CUmemPool_attribute",
    "cudaStreamCallback_t": "CUstreamCallback",
    "cudaStreamCaptureMode": "CUstreamCaptureMode",
}
# The runtime's types of what the driver answers.
FOR_CALLER: Final[dict[str, str]] = {
    "CUarray": "cudaArray_t",
    "CUmipmappedArray": "cudaMipmappedArray_t",
    "CUsurfObject": "cudaSurfaceObject_t",
    "CUtexObject": "cudaTextureObject_t",
    "CUevent": "cudaEvent_t",
    "CUfunc_cache": "cudaFuncCache",
    "CUgraph": "cudaGraph_t",
    "CUgraphExec": "cudaGraphExec_t",
    "CUgraphNode": "cudaGraphNode_t",
    "CUgraphNodeType": "cudaGraphNodeType",
    "CUmemoryPool": "cudaMemPool_t",
    "CUstream": "cudaStream_t",
    "CUstreamCaptureMode": "cudaStreamCaptureMode",
    "CUstreamCaptureStatus": "cudaStreamCaptureStatus",
}
