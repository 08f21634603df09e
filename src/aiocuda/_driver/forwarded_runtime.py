"""The calls of ``cuda.bindings.runtime``, answered by the emulated driver.

The CUDA runtime inside ``cuda.bindings`` starts on NVIDIA's driver alone. Where the emulated driver is chosen, the
common calls of that module are therefore calls of the driver, in Python; a call that is not among them raises, and
names a way out. A thread's device, its primary context and its last error are kept as the runtime keeps them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from aiocuda.errors import DriverError

__all__ = ["forward"]

# These speak of the runtime itself, and need no driver.
_OF_THE_RUNTIME_ITSELF: Final = frozenset(
    {"cudaGetErrorName", "cudaGetErrorString", "cudaRuntimeGetVersion", "cudaCreateChannelDesc"}
)

_SUCCESS: Final = 0
_INVALID_VALUE: Final = 1
_NOT_INITIALISED: Final = 3
_INVALID_DEVICE: Final = 101
_NOT_READY: Final = 600
_NOT_REGISTERED: Final = 713
_UNKNOWN: Final = 999
_EDGE_BYTES: Final = 8  # of the data of a graph's edge, which both sides lay out alike

# Calls whose arguments are those of a function of the driver's.
_ALIKE: Final[dict[str, str]] = {
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
_FOR_DRIVER: Final[dict[str, str]] = {
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
_FOR_CALLER: Final[dict[str, str]] = {
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

# Fields of cudaDeviceProp and the attributes of the driver's that say them, less their common beginning.
_PROPERTIES: Final[dict[str, str]] = {
    "ECCEnabled": "ECC_ENABLED",
    "accessPolicyMaxWindowSize": "MAX_ACCESS_POLICY_WINDOW_SIZE",
    "asyncEngineCount": "ASYNC_ENGINE_COUNT",
    "canMapHostMemory": "CAN_MAP_HOST_MEMORY",
    "canUseHostPointerForRegisteredMem": "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    "clusterLaunch": "CLUSTER_LAUNCH",
    "computePreemptionSupported": "COMPUTE_PREEMPTION_SUPPORTED",
    "concurrentKernels": "CONCURRENT_KERNELS",
    "concurrentManagedAccess": "CONCURRENT_MANAGED_ACCESS",
    "cooperativeLaunch": "COOPERATIVE_LAUNCH",
    "globalL1CacheSupported": "GLOBAL_L1_CACHE_SUPPORTED",
    "hostNativeAtomicSupported": "HOST_NATIVE_ATOMIC_SUPPORTED",
    "hostRegisterSupported": "HOST_REGISTER_SUPPORTED",
    "integrated": "INTEGRATED",
    "l2CacheSize": "L2_CACHE_SIZE",
    "localL1CacheSupported": "LOCAL_L1_CACHE_SUPPORTED",
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "managedMemory": "MANAGED_MEMORY",
    "maxBlocksPerMultiProcessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "maxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "maxThreadsPerMultiProcessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "memPitch": "MAX_PITCH",
    "memoryBusWidth": "GLOBAL_MEMORY_BUS_WIDTH",
    "memoryPoolsSupported": "MEMORY_POOLS_SUPPORTED",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "pageableMemoryAccess": "PAGEABLE_MEMORY_ACCESS",
    "pciBusID": "PCI_BUS_ID",
    "pciDeviceID": "PCI_DEVICE_ID",
    "pciDomainID": "PCI_DOMAIN_ID",
    "regsPerBlock": "MAX_REGISTERS_PER_BLOCK",
    "regsPerMultiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "reservedSharedMemPerBlock": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "sharedMemPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "sharedMemPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "sharedMemPerMultiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "streamPrioritiesSupported": "STREAM_PRIORITIES_SUPPORTED",
    "surfaceAlignment": "SURFACE_ALIGNMENT",
    "textureAlignment": "TEXTURE_ALIGNMENT",
    "texturePitchAlignment": "TEXTURE_PITCH_ALIGNMENT",
    "totalConstMem": "TOTAL_CONSTANT_MEMORY",
    "unifiedAddressing": "UNIFIED_ADDRESSING",
    "warpSize": "WARP_SIZE",
}


def forward() -> None:
    """Have the emulated driver answer the calls of ``cuda.bindings.runtime`` in this process.

    To be called once, when the emulated driver is loaded. What took a function out of that module before keeps the one
    that it took.

    Notes
    -----
    *Stream*: none. *Blocks*: no; it imports ``cuda.bindings``.
    """
    from cuda.bindings import driver, runtime

    answers = _Answers(driver, runtime)
    kind = type(runtime.cudaMalloc)
    for name in [each for each in vars(runtime) if each.startswith("cuda")]:
        if isinstance(getattr(runtime, name), kind) and name not in _OF_THE_RUNTIME_ITSELF:
            setattr(runtime, name, answers.of(name))


class _Kept(threading.local):
    """What the runtime keeps for each thread: the device it chose, and its last error."""

    device = 0
    error = _SUCCESS


class _Answers:
    """The runtime's calls, by their names; each answers a tuple of an error and values, as ``cuda.bindings`` does.

    Parameters
    ----------
    driver, runtime
        The modules of ``cuda.bindings``.
    """

    def __init__(self, driver: Any, runtime: Any) -> None:
        self._driver = driver
        self._runtime = runtime
        self._kept = _Kept()
        self._primary: dict[int, Any] = {}  # contexts by device, retained until the process ends
        self._lock = threading.Lock()

    def of(self, name: str) -> Callable[..., Any]:
        """Return the function that answers a call: by the driver, or with an error that names a way out."""
        own = getattr(self, name, None)
        answer = own if own is not None else self._alike(name) if name in _ALIKE else self._refused(name)

        def call(*arguments: Any, **named: Any) -> Any:
            return answer(*arguments, **named)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = getattr(self._runtime, name).__doc__
        call.__module__ = "cuda.bindings.runtime"
        return call

    def _alike(self, name: str) -> Callable[..., Any]:
        function = getattr(self._driver, _ALIKE[name])

        def answer(*arguments: Any) -> Any:
            return self._ask(function, *map(self._for_driver, arguments))

        return answer

    def _refused(self, name: str) -> Callable[..., Any]:
        alike = f"cu{name.removeprefix('cuda')}"
        instead = f"{alike} of cuda.bindings.driver" if hasattr(self._driver, alike) else "cuda.bindings.driver"

        def refuse(*_: Any, **__: Any) -> Any:
            raise DriverError(
                "cudaErrorNotSupported",
                801,
                f"on the emulated driver, cuda.bindings.runtime has the common calls alone; call {instead}",
                name,
            )

        return refuse

    # ---- how the driver is asked

    def _ask(self, function: Any, *arguments: Any, needs_context: bool = True) -> tuple[Any, ...]:
        code = self._enter() if needs_context else _SUCCESS
        if code != _SUCCESS:
            return self._failed(code)
        result, *values = function(*arguments)
        if int(result) != _SUCCESS:
            return self._failed(int(result), len(values))
        return (self._runtime.cudaError_t.cudaSuccess, *map(self._for_caller, values))

    def _answer(self, *values: Any) -> tuple[Any, ...]:
        return (self._runtime.cudaError_t.cudaSuccess, *values)

    def _failed(self, code: int, values: int = 0) -> tuple[Any, ...]:
        if code != _NOT_READY:
            self._kept.error = code
        return (self._error(code), *(None,) * values)

    def _error(self, code: int) -> Any:
        try:
            return self._runtime.cudaError_t(code)  # the driver's numbers are the runtime's
        except ValueError:
            return self._runtime.cudaError_t(_UNKNOWN)

    def _for_driver(self, argument: Any) -> Any:
        kind = _FOR_DRIVER.get(type(argument).__name__)
        return argument if kind is None else getattr(self._driver, kind)(int(argument))

    def _for_caller(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._for_caller(each) for each in value]
        name = type(value).__name__
        if name in {"CUdevice", "CUdeviceptr"}:
            return int(value)
        if name == "CUgraphEdgeData":
            edge = self._runtime.cudaGraphEdgeData()
            ctypes.memmove(edge.getPtr(), value.getPtr(), _EDGE_BYTES)
            return edge
        return getattr(self._runtime, _FOR_CALLER[name])(int(value)) if name in _FOR_CALLER else value

    def _enter(self) -> int:
        """Make the thread's device current, as the runtime does before each of its calls; return an error's code."""
        result, context = self._driver.cuCtxGetCurrent()
        if int(result) == _NOT_INITIALISED:
            (result,) = self._driver.cuInit(0)
            if int(result) == _SUCCESS:
                result, context = self._driver.cuCtxGetCurrent()
        if int(result) != _SUCCESS:
            return int(result)
        return self._enter_device(self._kept.device) if int(context) == 0 else _SUCCESS

    def _enter_device(self, device: int) -> int:
        code, context = self._primary_context(device)
        if code == _SUCCESS:
            code = int(self._driver.cuCtxSetCurrent(context)[0])
        return code

    def _primary_context(self, device: int) -> tuple[int, Any]:
        with self._lock:
            known = self._primary.get(device)
        if known is not None:
            return _SUCCESS, known
        result, context = self._driver.cuDevicePrimaryCtxRetain(device)
        if int(result) == _SUCCESS:
            with self._lock:
                self._primary[device] = context
        return int(result), context

    # ---- errors

    def cudaGetLastError(self) -> tuple[Any, ...]:
        """Return the thread's last error, and forget it."""
        last, self._kept.error = self._kept.error, _SUCCESS
        return (self._error(last),)

    def cudaPeekAtLastError(self) -> tuple[Any, ...]:
        """Return the thread's last error."""
        return (self._error(self._kept.error),)

    # ---- devices

    def cudaGetDeviceCount(self) -> tuple[Any, ...]:
        """Return how many devices there are."""
        (result,) = self._driver.cuInit(0)
        if int(result) != _SUCCESS:
            return self._failed(int(result), 1)
        return self._ask(self._driver.cuDeviceGetCount, needs_context=False)

    def cudaGetDevice(self) -> tuple[Any, ...]:
        """Return the device of the current context, else the one that the thread chose."""
        result, context = self._driver.cuCtxGetCurrent()
        if int(result) == _SUCCESS and int(context) != 0:
            return self._ask(self._driver.cuCtxGetDevice)
        return self._answer(self._kept.device)

    def cudaSetDevice(self, device: int) -> tuple[Any, ...]:
        """Choose the thread's device, and make its primary context current."""
        error, *count = self.cudaGetDeviceCount()
        if int(error) != _SUCCESS:
            return (error,)
        if not 0 <= device < count[0]:
            return self._failed(_INVALID_DEVICE)
        code = self._enter_device(device)
        if code != _SUCCESS:
            return self._failed(code)
        self._kept.device = device
        return self._answer()

    def cudaInitDevice(self, device: int, deviceFlags: int, flags: int) -> tuple[Any, ...]:
        """Retain a device's primary context, without making it current."""
        error, *count = self.cudaGetDeviceCount()
        if int(error) != _SUCCESS:
            return (error,)
        if not 0 <= device < count[0]:
            return self._failed(_INVALID_DEVICE)
        code, _ = self._primary_context(device)
        return self._failed(code) if code != _SUCCESS else self._answer()

    def cudaDeviceReset(self) -> tuple[Any, ...]:
        """Reset the primary context of the thread's device."""
        device = self.cudaGetDevice()[1]
        with self._lock:
            retained = self._primary.pop(device, None)
        answer = self._ask(self._driver.cuDevicePrimaryCtxReset, device, needs_context=False)
        if retained is not None:
            self._driver.cuDevicePrimaryCtxRelease(device)
        return answer

    def cudaGetDeviceFlags(self) -> tuple[Any, ...]:
        """Return the flags of the current context."""
        return self._ask(self._driver.cuCtxGetFlags)

    def cudaSetDeviceFlags(self, flags: int) -> tuple[Any, ...]:
        """Set the flags of the primary context of the thread's device."""
        device = self.cudaGetDevice()[1]
        return self._ask(self._driver.cuDevicePrimaryCtxSetFlags, device, flags)

    def cudaGetDeviceProperties(self, device: int) -> tuple[Any, ...]:
        """Return what the driver says of a device."""
        error, *count = self.cudaGetDeviceCount()
        if int(error) != _SUCCESS or not 0 <= device < count[0]:
            return (error, None) if int(error) != _SUCCESS else self._failed(_INVALID_DEVICE, 1)
        driver = self._driver
        properties = self._runtime.cudaDeviceProp()

        def said(name: str) -> Any:
            attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return driver.cuDeviceGetAttribute(attribute, device)[1]

        for field, name in _PROPERTIES.items():
            setattr(properties, field, said(name))
        properties.maxThreadsDim = [said(f"MAX_BLOCK_DIM_{axis}") for axis in "XYZ"]
        properties.maxGridSize = [said(f"MAX_GRID_DIM_{axis}") for axis in "XYZ"]
        properties.name = driver.cuDeviceGetName(256, device)[1].split(b"\0")[0].ljust(256, b"\0")
        properties.totalGlobalMem = driver.cuDeviceTotalMem(device)[1]
        uuid = driver.cuDeviceGetUuid(device)[1]
        properties.uuid = self._runtime.cudaUUID_t(uuid.getPtr())
        return self._answer(properties)

    def cudaDeviceEnablePeerAccess(self, peerDevice: int, flags: int) -> tuple[Any, ...]:
        """Let the current device use a peer's memory."""
        code, context = self._primary_context(peerDevice)
        if code != _SUCCESS:
            return self._failed(code)
        return self._ask(self._driver.cuCtxEnablePeerAccess, context, flags)

    def cudaDeviceDisablePeerAccess(self, peerDevice: int) -> tuple[Any, ...]:
        """Keep the current device from a peer's memory."""
        code, context = self._primary_context(peerDevice)
        if code != _SUCCESS:
            return self._failed(code)
        return self._ask(self._driver.cuCtxDisablePeerAccess, context)

    # ---- memory

    def cudaMalloc(self, size: int) -> tuple[Any, ...]:
        """Allocate device memory; nothing, for no bytes, is at address 0."""
        if size == 0:
            return self._answer(0)
        return self._ask(self._driver.cuMemAlloc, size)

    def cudaMallocPitch(self, width: int, height: int) -> tuple[Any, ...]:
        """Allocate rows of device memory; return the address and the bytes from row to row."""
        error, address, pitch = self._padded(self._ask(self._driver.cuMemAllocPitch, width, height, 4), 2)
        return error, None if address is None else int(address), pitch

    def cudaFree(self, devPtr: Any) -> tuple[Any, ...]:
        """Free device memory. To free nothing starts the runtime, as programs make use of."""
        code = self._enter()
        if code != _SUCCESS:
            return self._failed(code)
        address = _address(devPtr)
        return self._ask(self._driver.cuMemFree, address) if address else self._answer()

    def cudaPointerGetAttributes(self, ptr: Any) -> tuple[Any, ...]:
        """Return which memory an address belongs to."""
        driver, kinds = self._driver, self._driver.CUpointer_attribute
        code = self._enter()
        if code != _SUCCESS:
            return self._failed(code, 1)
        address = _address(ptr)
        told: dict[str, Any] = {
            name: value if int(result) == _SUCCESS else None
            for name in ("MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL", "DEVICE_POINTER", "HOST_POINTER")
            for result, value in [driver.cuPointerGetAttribute(getattr(kinds, f"CU_POINTER_ATTRIBUTE_{name}"), address)]
        }
        attributes = self._runtime.cudaPointerAttributes()
        if told["MEMORY_TYPE"] is None:  # ordinary memory of the host
            attributes.device = -2
            attributes.hostPointer = address
            return self._answer(attributes)
        is_managed = bool(told["IS_MANAGED"])
        attributes.type = self._runtime.cudaMemoryType(3 if is_managed else int(told["MEMORY_TYPE"]))
        attributes.device = int(told["DEVICE_ORDINAL"])
        attributes.devicePointer = int(told["DEVICE_POINTER"] or 0)
        if is_managed or int(told["MEMORY_TYPE"]) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST):
            attributes.hostPointer = int(told["HOST_POINTER"] or address)
        return self._answer(attributes)

    def cudaHostUnregister(self, ptr: Any) -> tuple[Any, ...]:
        """Let go of memory of the host's; the runtime calls memory that was not registered an invalid value."""
        (error,) = self._ask(self._driver.cuMemHostUnregister, _address(ptr))
        return self._failed(_INVALID_VALUE) if int(error) == _NOT_REGISTERED else (error,)

    def cudaMemPoolCreate(self, poolProps: Any) -> tuple[Any, ...]:
        """Make a memory pool."""
        driver = self._driver
        given = driver.CUmemPoolProps()
        given.allocType = driver.CUmemAllocationType(int(poolProps.allocType))
        given.handleTypes = driver.CUmemAllocationHandleType(int(poolProps.handleTypes))
        given.location.type = driver.CUmemLocationType(int(poolProps.location.type))
        given.location.id = poolProps.location.id
        given.maxSize = poolProps.maxSize
        return self._padded(self._ask(driver.cuMemPoolCreate, given), 1)

    # ---- copies and fills

    def cudaMemcpy(self, dst: Any, src: Any, count: int, kind: Any) -> tuple[Any, ...]:
        """Copy bytes; it blocks until they are there."""
        return self._copy(dst, src, count, kind)

    def cudaMemcpyAsync(self, dst: Any, src: Any, count: int, kind: Any, stream: Any) -> tuple[Any, ...]:
        """Copy bytes in the order of a stream."""
        return self._copy(dst, src, count, kind, stream)

    def _copy(self, dst: Any, src: Any, count: int, kind: Any, *stream: Any) -> tuple[Any, ...]:
        ways = {0: "", 1: "HtoD", 2: "DtoH", 3: "DtoD", 4: ""}
        if int(kind) not in ways:
            return self._failed(21)  # cudaErrorInvalidMemcpyDirection
        function = getattr(self._driver, f"cuMemcpy{ways[int(kind)]}{'Async' if stream else ''}")
        to, of = (_address(dst), _address(src))
        return self._ask(function, to, of, count, *stream) if count else self._answer()

    def cudaMemcpy2D(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes; it blocks until they are there."""
        asked = self._pitched(dst, dpitch, src, spitch, width, height, kind)
        return self._ask(self._driver.cuMemcpy2D, asked) if width and height else self._answer()

    def cudaMemcpy2DAsync(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any, stream: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes in the order of a stream."""
        asked = self._pitched(dst, dpitch, src, spitch, width, height, kind)
        return self._ask(self._driver.cuMemcpy2DAsync, asked, stream) if width and height else self._answer()

    def _pitched(self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any) -> Any:
        asked = self._between(self._driver.CUDA_MEMCPY2D(), dst, src, kind)
        asked.dstPitch, asked.srcPitch, asked.WidthInBytes, asked.Height = dpitch, spitch, width, height
        return asked

    def _between(self, asked: Any, dst: Any, src: Any, kind: Any) -> Any:
        """Fill in the ends of a copy that the driver is asked for."""
        types = self._driver.CUmemorytype
        unified = (types.CU_MEMORYTYPE_UNIFIED, types.CU_MEMORYTYPE_UNIFIED)
        host, device = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_DEVICE
        ends = {0: (host, host), 1: (host, device), 2: (device, host), 3: (device, device)}.get(int(kind), unified)
        asked.srcMemoryType, asked.dstMemoryType = ends
        if ends[0] == host:
            asked.srcHost = _address(src)
        else:
            asked.srcDevice = _address(src)
        if ends[1] == host:
            asked.dstHost = _address(dst)
        else:
            asked.dstDevice = _address(dst)
        return asked

    def cudaMemcpyPeer(self, dst: Any, dstDevice: int, src: Any, srcDevice: int, count: int) -> tuple[Any, ...]:
        """Copy bytes between devices; it blocks until they are there."""
        return self._copy_peer(dst, dstDevice, src, srcDevice, count)

    def cudaMemcpyPeerAsync(
        self,
        dst: Any,
        dstDevice: int,
        src: Any,
        srcDevice: int,
        count: int,
        stream: Any,
    ) -> tuple[Any, ...]:
        """Copy bytes between devices in the order of a stream."""
        return self._copy_peer(dst, dstDevice, src, srcDevice, count, stream)

    def _copy_peer(self, dst: Any, to: int, src: Any, of: int, count: int, *stream: Any) -> tuple[Any, ...]:
        contexts = []
        for device in (to, of):
            code, context = self._primary_context(device)
            if code != _SUCCESS:
                return self._failed(code)
            contexts.append(context)
        function = self._driver.cuMemcpyPeerAsync if stream else self._driver.cuMemcpyPeer
        return self._ask(function, _address(dst), contexts[0], _address(src), contexts[1], count, *stream)

    def cudaMemset(self, devPtr: Any, value: int, count: int) -> tuple[Any, ...]:
        """Fill bytes."""
        return self._ask(self._driver.cuMemsetD8, _address(devPtr), value & 0xFF, count)

    def cudaMemsetAsync(self, devPtr: Any, value: int, count: int, stream: Any) -> tuple[Any, ...]:
        """Fill bytes in the order of a stream."""
        return self._ask(self._driver.cuMemsetD8Async, _address(devPtr), value & 0xFF, count, stream)

    # ---- streams and events

    def cudaStreamCreate(self) -> tuple[Any, ...]:
        """Make a stream that the legacy default stream waits for."""
        return self._ask(self._driver.cuStreamCreate, 0)

    def cudaEventCreate(self) -> tuple[Any, ...]:
        """Make an event with timing."""
        return self._ask(self._driver.cuEventCreate, 0)

    # ---- graphs

    def cudaGraphAddMemcpyNode1D(
        self, graph: Any, pDependencies: Any, numDependencies: int, dst: Any, src: Any, count: int, kind: Any
    ) -> tuple[Any, ...]:
        """Add a node that copies bytes."""
        asked = self._between(self._driver.CUDA_MEMCPY3D(), dst, src, kind)
        asked.WidthInBytes, asked.Height, asked.Depth = count, 1, 1
        function = self._driver.cuGraphAddMemcpyNode
        return self._in_context(function, graph, pDependencies, numDependencies, asked)

    def cudaGraphAddMemsetNode(
        self, graph: Any, pDependencies: Any, numDependencies: int, pMemsetParams: Any
    ) -> tuple[Any, ...]:
        """Add a node that fills rows of elements."""
        asked = self._driver.CUDA_MEMSET_NODE_PARAMS()
        asked.dst = _address(pMemsetParams.dst)
        for field in ("pitch", "value", "elementSize", "width", "height"):
            setattr(asked, field, getattr(pMemsetParams, field))
        function = self._driver.cuGraphAddMemsetNode
        return self._in_context(function, graph, pDependencies, numDependencies, asked)

    def cudaGraphConditionalHandleCreate(self, graph: Any, defaultLaunchValue: int, flags: int) -> tuple[Any, ...]:
        """Make the handle of a condition."""
        code = self._enter()
        if code != _SUCCESS:
            return self._failed(code, 1)
        context = self._driver.cuCtxGetCurrent()[1]
        return self._ask(self._driver.cuGraphConditionalHandleCreate, graph, context, defaultLaunchValue, flags)

    def _in_context(self, function: Any, *arguments: Any) -> tuple[Any, ...]:
        """Ask a function that also takes the current context, last."""
        code = self._enter()
        if code != _SUCCESS:
            return self._failed(code, 1)
        return self._ask(function, *arguments, self._driver.cuCtxGetCurrent()[1])

    @staticmethod
    def _padded(answer: tuple[Any, ...], values: int) -> tuple[Any, ...]:
        return answer + (None,) * (1 + values - len(answer))


def _address(given: Any) -> int:
    """Return the address that a caller gives: a number, a handle of ``cuda.bindings``, or an object with a buffer."""
    if given is None:
        return 0
    if hasattr(given, "__int__") and not isinstance(given, np.ndarray):
        return int(given)
    return int(np.frombuffer(given, np.uint8).ctypes.data)
