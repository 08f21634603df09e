"""Calls about devices and the last error."""

from __future__ import annotations

from typing import Any, Final

from aiocuda._driver.forwarded_runtime.asking import INVALID_DEVICE, SUCCESS, Asking

__all__ = ["Devices"]

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


class Devices(Asking):
    """Devices, their flags, properties and peers, and the thread's last error."""

    # ---- errors

    def cudaGetLastError(self) -> tuple[Any, ...]:
        """Return the thread's last error, and forget it."""
        last, self._kept.error = self._kept.error, SUCCESS
        return (self._error(last),)

    def cudaPeekAtLastError(self) -> tuple[Any, ...]:
        """Return the thread's last error."""
        return (self._error(self._kept.error),)

    # ---- devices

    def cudaGetDeviceCount(self) -> tuple[Any, ...]:
        """Return how many devices there are."""
        (result,) = self._driver.cuInit(0)
        if int(result) != SUCCESS:
            return self._failed(int(result), 1)
        return self._ask(self._driver.cuDeviceGetCount, needs_context=False)

    def cudaGetDevice(self) -> tuple[Any, ...]:
        """Return the device of the current context, else the one that the thread chose."""
        result, context = self._driver.cuCtxGetCurrent()
        if int(result) == SUCCESS and int(context) != 0:
            return self._ask(self._driver.cuCtxGetDevice)
        return self._answer(self._kept.device)

    def cudaSetDevice(self, device: int) -> tuple[Any, ...]:
        """Choose the thread's device, and make its primary context current."""
        error, *count = self.cudaGetDeviceCount()
        if int(error) != SUCCESS:
            return (error,)
        if not 0 <= device < count[0]:
            return self._failed(INVALID_DEVICE)
        code = self._enter_device(device)
        if code != SUCCESS:
            return self._failed(code)
        self._kept.device = device
        return self._answer()

    def cudaInitDevice(self, device: int, deviceFlags: int, flags: int) -> tuple[Any, ...]:
        """Retain a device's primary context, without making it current."""
        error, *count = self.cudaGetDeviceCount()
        if int(error) != SUCCESS:
            return (error,)
        if not 0 <= device < count[0]:
            return self._failed(INVALID_DEVICE)
        code, _ = self._primary_context(device)
        return self._failed(code) if code != SUCCESS else self._answer()

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
        if int(error) != SUCCESS or not 0 <= device < count[0]:
            return (error, None) if int(error) != SUCCESS else self._failed(INVALID_DEVICE, 1)
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
        if code != SUCCESS:
            return self._failed(code)
        return self._ask(self._driver.cuCtxEnablePeerAccess, context, flags)

    def cudaDeviceDisablePeerAccess(self, peerDevice: int) -> tuple[Any, ...]:
        """Keep the current device from a peer's memory."""
        code, context = self._primary_context(peerDevice)
        if code != SUCCESS:
            return self._failed(code)
        return self._ask(self._driver.cuCtxDisablePeerAccess, context)
