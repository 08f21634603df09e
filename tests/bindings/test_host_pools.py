"""Memory pools of the host, on the node that a device says is nearest to it."""

from __future__ import annotations

import os

import numpy as np
import pytest
from driver_calls import cu, is_emulated, ok, open_device


def test_the_hosts_node_of_a_device_has_pools_that_other_processes_may_open():
    open_device()
    node = ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0))
    if node < 0 and not is_emulated():
        pytest.skip("the machine's devices name no node of the host")
    asked = cu.CUmemPoolProps()
    asked.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    asked.location.type, asked.location.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA, node
    pool = ok(cu.cuMemPoolCreate(asked))
    os.close(ok(cu.cuMemPoolExportToShareableHandle(pool, asked.handleTypes, 0)))
    address = int(ok(cu.cuMemAllocFromPoolAsync(64, pool, 0)))
    ok(cu.cuMemsetD32Async(address, 7, 16, 0))
    ok(cu.cuStreamSynchronize(0))
    values = np.zeros(16, np.int32)
    ok(cu.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes))
    assert (values == 7).all()
    ok(cu.cuMemFreeAsync(address, 0))
    ok(cu.cuMemPoolDestroy(pool))
