"""Which memory each copy and fill of the driver takes, and which it refuses: the same on an H100."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from driver_calls import cu, ok, open_device

BYTES = 64
HOST, DEVICE, UNIFIED = (getattr(cu.CUmemorytype, f"CU_MEMORYTYPE_{each}") for each in ("HOST", "DEVICE", "UNIFIED"))
AT_DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
AT_HOST = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
AT_NODE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA


class Memory:
    """Memory of one kind."""

    def __init__(self, kind: str) -> None:
        self._free: list[Callable[[], Any]] = []
        self.address = int(getattr(self, f"_{kind.split(' ')[0]}")(kind))

    def __enter__(self) -> int:
        return self.address

    def __exit__(self, *_: object) -> None:
        for each in self._free:
            ok(each())

    def _allocated(self, _: str) -> Any:
        address = ok(cu.cuMemAlloc(BYTES))
        self._free.append(lambda: cu.cuMemFree(address))
        return address

    def _managed(self, _: str) -> Any:
        flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
        address = ok(cu.cuMemAllocManaged(BYTES, flags))
        self._free.append(lambda: cu.cuMemFree(address))
        return address

    def _locked(self, _: str) -> Any:
        address = ok(cu.cuMemHostAlloc(BYTES, 0))
        self._free.append(lambda: cu.cuMemFreeHost(address))
        return address

    def _registered(self, _: str) -> Any:
        self._values = np.zeros(4096, np.uint8)
        ok(cu.cuMemHostRegister(self._values.ctypes.data, self._values.nbytes, 0))
        self._free.append(lambda: cu.cuMemHostUnregister(self._values.ctypes.data))
        return self._values.ctypes.data

    def _pageable(self, _: str) -> Any:
        self._values = np.zeros(BYTES, np.uint8)
        return self._values.ctypes.data

    def _pool(self, kind: str) -> Any:
        asked = cu.CUmemPoolProps()
        asked.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        asked.location.type = {"device": AT_DEVICE, "host": AT_HOST, "node": AT_NODE}[kind.split(" ")[2]]
        asked.location.id = 0
        pool = ok(cu.cuMemPoolCreate(asked))
        if kind.endswith("for the device"):
            access = cu.CUmemAccessDesc()
            access.location.type, access.location.id = AT_DEVICE, 0
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            ok(cu.cuMemPoolSetAccess(pool, [access], 1))
        address = ok(cu.cuMemAllocFromPoolAsync(BYTES, pool, 0))
        self._free += [
            lambda: cu.cuMemFreeAsync(address, 0),
            lambda: cu.cuStreamSynchronize(0),
            lambda: cu.cuMemPoolDestroy(pool),
        ]
        return address


def rows(to: tuple[int, Any], source: tuple[int, Any]) -> Any:
    """Copy one row, told of which type each side's memory is."""
    asked = cu.CUDA_MEMCPY2D()
    asked.WidthInBytes, asked.Height, asked.srcPitch, asked.dstPitch = BYTES, 1, BYTES, BYTES
    asked.dstMemoryType, asked.srcMemoryType = to[1], source[1]
    asked.dstHost, asked.srcHost = to[0], source[0]
    asked.dstDevice, asked.srcDevice = to[0], source[0]
    return cu.cuMemcpy2D(asked)


# Each is given memory of the kind, memory of a device, and pageable memory.
AS_ANY = {
    "copy from": lambda x, device, _: cu.cuMemcpy(device, x, BYTES),
    "copy to": lambda x, device, _: cu.cuMemcpy(x, device, BYTES),
    "copy in a stream": lambda x, device, _: cu.cuMemcpyAsync(device, x, BYTES, 0),
    "copy from the host": lambda x, device, _: cu.cuMemcpyHtoD(device, x, BYTES),
    "copy to the host": lambda x, device, _: cu.cuMemcpyDtoH(x, device, BYTES),
    "copy rows of either": lambda x, device, _: rows((device, DEVICE), (x, UNIFIED)),
    "copy rows of the host": lambda x, device, _: rows((device, DEVICE), (x, HOST)),
}
AS_DEVICE = {
    "copy from a device": lambda x, _, host: cu.cuMemcpyDtoH(host, x, BYTES),
    "copy from a device in a stream": lambda x, _, host: cu.cuMemcpyDtoHAsync(host, x, BYTES, 0),
    "copy to a device": lambda x, _, host: cu.cuMemcpyHtoD(x, host, BYTES),
    "copy to a device in a stream": lambda x, _, host: cu.cuMemcpyHtoDAsync(x, host, BYTES, 0),
    "copy between devices": lambda x, device, _: cu.cuMemcpyDtoD(device, x, BYTES),
    "copy rows of a device": lambda x, device, _: rows((device, DEVICE), (x, DEVICE)),
}
FILLS = {
    "fill": lambda x, *_: cu.cuMemsetD32(x, 1, BYTES // 4),
    "fill in a stream": lambda x, *_: cu.cuMemsetD32Async(x, 1, BYTES // 4, 0),
}
# A kind of memory: may it be called a device's, may it be filled?
KINDS = {
    "allocated": (True, True),
    "managed": (True, True),
    "locked": (True, True),
    "registered": (True, True),
    "pageable": (False, False),
    "pool of device": (True, True),
    "pool of host": (False, False),
    "pool of host for the device": (False, True),
    "pool of node": (False, False),
    "pool of node for the device": (False, True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_memory(kind):
    open_device()
    as_device, fillable = KINDS[kind]
    expected = {**dict.fromkeys(AS_ANY, True), **dict.fromkeys(AS_DEVICE, as_device), **dict.fromkeys(FILLS, fillable)}
    calls: dict[str, Callable[[int, int, int], Any]] = {**AS_ANY, **AS_DEVICE, **FILLS}
    with Memory(kind) as memory, Memory("allocated") as device, Memory("pageable") as host:
        answers = {}
        for name, call in calls.items():
            answers[name] = call(memory, device, host)[0]
            ok(cu.cuStreamSynchronize(0))
    refused = cu.CUresult.CUDA_ERROR_INVALID_VALUE
    assert answers == {name: cu.CUresult.CUDA_SUCCESS if taken else refused for name, taken in expected.items()}
