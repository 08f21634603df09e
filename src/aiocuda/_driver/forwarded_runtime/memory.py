"""Calls about memory: what is allocated, and what an address belongs to."""

from __future__ import annotations

from typing import Any

from aiocuda._driver.forwarded_runtime.asking import INVALID_VALUE, NOT_REGISTERED, SUCCESS, Asking, address_of

__all__ = ["Memory"]


class Memory(Asking):
    """Memory of devices and of the host, and pools."""

    def cudaMalloc(self, size: int) -> tuple[Any, ...]:
        """Allocate device memory; nothing, for no bytes, is at address 0."""
        if size == 0:
            return self._answer(0)
        return self._ask(self._driver.cuMemAlloc, size)

    def cudaMallocPitch(self, width: int, height: int) -> tuple[Any, ...]:
        """Allocate rows of device memory; return the address and the bytes from row to row."""
        error, address, pitch = self._padded(self._ask(self._driver.cuMemAllocPitch, width, height, 4), 2)
        return error, None if address is None else int(address), pitch

    def cudaMalloc3D(self, extent: Any) -> tuple[Any, ...]:
        """Allocate slices of rows of device memory."""
        error, address, pitch = self.cudaMallocPitch(extent.width, extent.height * extent.depth)
        if address is None:
            return error, None
        told = self._runtime.cudaPitchedPtr()
        told.ptr, told.pitch, told.xsize, told.ysize = address, pitch, extent.width, extent.height
        return error, told

    def cudaFree(self, devPtr: Any) -> tuple[Any, ...]:
        """Free device memory. To free nothing starts the runtime, as programs make use of."""
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code)
        address = address_of(devPtr)
        return self._ask(self._driver.cuMemFree, address) if address else self._answer()

    def cudaPointerGetAttributes(self, ptr: Any) -> tuple[Any, ...]:
        """Return which memory an address belongs to."""
        driver, kinds = self._driver, self._driver.CUpointer_attribute
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code, 1)
        address = address_of(ptr)
        told: dict[str, Any] = {
            name: value if int(result) == SUCCESS else None
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
        (error,) = self._ask(self._driver.cuMemHostUnregister, address_of(ptr))
        return self._failed(INVALID_VALUE) if int(error) == NOT_REGISTERED else (error,)

    def cudaMemPoolCreate(self, poolProps: Any) -> tuple[Any, ...]:
        """Make a memory pool."""
        return self._padded(self._ask(self._driver.cuMemPoolCreate, self._for_driver(poolProps)), 1)
