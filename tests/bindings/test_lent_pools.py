"""Memory pools, of devices and of the host's node that a device names: other processes open their memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_calls import cu, is_emulated, ok, open_device

DESCRIPTOR = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
NODE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA


def place(kind: Any) -> int:
    """Return the id of the place: device 0, or the host's node that it names."""
    open_device()
    if kind == DEVICE:
        return 0
    node = int(ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0)))
    if node < 0 and not is_emulated():
        pytest.skip("the devices of this machine name no node of the host")
    return node


def lent(kind: Any, *arguments: str) -> list[int]:
    """Lend 16 integers, all 21, of a pool to another process; return what they are when it has ended."""
    asked = cu.CUmemPoolProps()
    asked.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.handleTypes = DESCRIPTOR
    asked.location.type, asked.location.id = kind, place(kind)
    pool = ok(cu.cuMemPoolCreate(asked))
    access = cu.CUmemAccessDesc()
    access.location.type, access.location.id = DEVICE, 0
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemPoolSetAccess(pool, [access], 1))
    address = int(ok(cu.cuMemAllocFromPoolAsync(64, pool, 0)))
    ok(cu.cuMemsetD32Async(address, 21, 16, 0))
    ok(cu.cuStreamSynchronize(0))
    descriptor = int(ok(cu.cuMemPoolExportToShareableHandle(pool, DESCRIPTOR, 0)))
    data = ok(cu.cuMemPoolExportPointer(address))
    exported = ctypes.string_at(data.getPtr(), 64)  # all of a CUmemPoolPtrExportData
    script = Path(__file__).parent / "imports_from_a_pool.py"
    done = subprocess.run(
        [sys.executable, script, str(descriptor), exported.hex(), *arguments],
        pass_fds=[descriptor],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    os.close(descriptor)
    assert done.returncode == 0, done.stderr
    values = np.empty(16, np.int32)
    ok(cu.cuMemcpy(values.ctypes.data, address, values.nbytes))  # also where the memory is the host's
    ok(cu.cuMemFreeAsync(address, 0))
    ok(cu.cuStreamSynchronize(0))
    ok(cu.cuMemPoolDestroy(pool))
    held: list[int] = values.tolist()
    return held


@pytest.mark.parametrize("kind", [DEVICE, NODE])
def test_memory_of_a_pool_is_opened_before_a_context_is_current(kind):
    assert lent(kind) == [42] * 16


@pytest.mark.emulated_only
@pytest.mark.parametrize("kind", [DEVICE, NODE])
def test_opened_memory_that_is_freed_stays_until_the_next_synchronisation(kind):
    assert lent(kind, "16") == [43] * 16
