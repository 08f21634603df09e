"""Calls about kernels of libraries, and about the driver's own functions."""

from __future__ import annotations

from typing import Any, Final

from aiocuda._driver.forwarded_runtime.asking import SUCCESS, Asking

__all__ = ["Libraries"]

# Fields of cudaFuncAttributes and the attributes of the driver's that say them, less their common beginning.
_ATTRIBUTES: Final[dict[str, str]] = {
    "binaryVersion": "BINARY_VERSION",
    "cacheModeCA": "CACHE_MODE_CA",
    "constSizeBytes": "CONST_SIZE_BYTES",
    "localSizeBytes": "LOCAL_SIZE_BYTES",
    "maxDynamicSharedSizeBytes": "MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "maxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "nonPortableClusterSizeAllowed": "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
    "numRegs": "NUM_REGS",
    "preferredShmemCarveout": "PREFERRED_SHARED_MEMORY_CARVEOUT",
    "ptxVersion": "PTX_VERSION",
    "requiredClusterDepth": "REQUIRED_CLUSTER_DEPTH",
    "requiredClusterHeight": "REQUIRED_CLUSTER_HEIGHT",
    "requiredClusterWidth": "REQUIRED_CLUSTER_WIDTH",
    "sharedSizeBytes": "SHARED_SIZE_BYTES",
}


class Libraries(Asking):
    """Attributes and occupancy of kernels, and entry points of the driver."""

    def _of_function(self, function: Any, func: Any, *before: Any, behind: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Ask about a function, which the runtime's caller may name by a library's kernel."""
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code)
        result, found = self._driver.cuKernelGetFunction(self._driver.CUkernel(int(func)))
        asked = found if int(result) == SUCCESS else self._driver.CUfunction(int(func))
        return self._ask(function, *map(self._for_driver, before), asked, *map(self._for_driver, behind))

    def cudaFuncGetAttributes(self, func: Any) -> tuple[Any, ...]:
        """Return what the driver says of a function."""
        driver, told = self._driver, self._runtime.cudaFuncAttributes()
        for field, name in _ATTRIBUTES.items():
            asked = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            error, *value = self._of_function(driver.cuFuncGetAttribute, func, asked)
            if int(error) != SUCCESS:
                return error, None
            setattr(told, field, value[0])
        return self._answer(told)

    def cudaFuncSetAttribute(self, func: Any, attr: Any, value: int) -> tuple[Any, ...]:
        """Set an attribute of a function."""
        return self._of_function(self._driver.cuFuncSetAttribute, func, behind=(attr, value))

    def cudaFuncSetCacheConfig(self, func: Any, cacheConfig: Any) -> tuple[Any, ...]:
        """Set what of its cache a function would rather have as shared memory."""
        return self._of_function(self._driver.cuFuncSetCacheConfig, func, behind=(cacheConfig,))

    def cudaKernelSetAttributeForDevice(self, kernel: Any, attr: Any, value: int, device: int) -> tuple[Any, ...]:
        """Set an attribute of a library's kernel for one device."""
        asked = (self._for_driver(attr), value, self._for_driver(kernel), device)
        return self._ask(self._driver.cuKernelSetAttribute, *asked)

    def cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        self, func: Any, blockSize: int, dynamicSMemSize: int
    ) -> tuple[Any, ...]:
        """Return how many blocks of a function one multiprocessor takes."""
        asked = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return self._padded(self._of_function(asked, func, behind=(blockSize, dynamicSMemSize)), 1)

    def cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, func: Any, blockSize: int, dynamicSMemSize: int, flags: int
    ) -> tuple[Any, ...]:
        """Return how many blocks of a function one multiprocessor takes."""
        asked = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        return self._padded(self._of_function(asked, func, behind=(blockSize, dynamicSMemSize, flags)), 1)

    def cudaOccupancyAvailableDynamicSMemPerBlock(self, func: Any, numBlocks: int, blockSize: int) -> tuple[Any, ...]:
        """Return the dynamic shared memory that so many blocks of a multiprocessor leave each other."""
        asked = self._driver.cuOccupancyAvailableDynamicSMemPerBlock
        return self._padded(self._of_function(asked, func, behind=(numBlocks, blockSize)), 1)

    def cudaGetDriverEntryPoint(self, symbol: bytes, flags: int) -> tuple[Any, ...]:
        """Return the address of a function of the driver, as the runtime's own version of CUDA has it."""
        version = self._runtime.cudaRuntimeGetVersion()[1]
        return self._padded(self._ask(self._driver.cuGetProcAddress, symbol, version, flags), 2)
