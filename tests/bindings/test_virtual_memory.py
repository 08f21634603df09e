"""Addresses, memory and the mappings between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_calls import cu, is_emulated, name_of, ok, open_device

G = 2 << 20
READ_WRITE = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
READ = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
DESCRIPTOR = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def properties() -> Any:
    asked = cu.CUmemAllocationProp()
    asked.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.location.type, asked.location.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    asked.requestedHandleTypes = DESCRIPTOR
    return asked


def allow(address: int, size: int, flags: Any = READ_WRITE) -> Any:
    asked = properties()  # its parts are its own: they end with it
    access = cu.CUmemAccessDesc()
    access.location, access.flags = asked.location, flags
    return cu.cuMemSetAccess(address, size, [access], 1)


def flags_at(address: int) -> int:
    asked = properties()
    return int(ok(cu.cuMemGetAccess(asked.location, address)))


def first_int(address: int) -> int:
    value = np.zeros(1, np.int32)
    ok(cu.cuMemcpyDtoH(value.ctypes.data, address, 4))
    return int(value[0])


@pytest.fixture
def reserved() -> Iterator[int]:
    """Four times the granularity of addresses."""
    open_device()
    address = int(ok(cu.cuMemAddressReserve(4 * G, 0, 0, 0)))
    yield address
    ok(cu.cuMemUnmap(address, 4 * G))
    ok(cu.cuMemAddressFree(address, 4 * G))


@pytest.fixture
def memory() -> Iterator[int]:
    open_device()
    handle = ok(cu.cuMemCreate(2 * G, properties(), 0))
    yield handle
    ok(cu.cuMemRelease(handle))


def test_sizes_are_multiples_of_the_granularity():
    open_device()
    for option in cu.CUmemAllocationGranularity_flags:
        assert ok(cu.cuMemGetAllocationGranularity(properties(), option)) == G
    assert name_of(cu.cuMemCreate(G + 1, properties(), 0)) == "INVALID_VALUE"
    assert name_of(cu.cuMemCreate(0, properties(), 0)) == "INVALID_VALUE"
    assert name_of(cu.cuMemAddressReserve(G + 1, 0, 0, 0)) == "INVALID_VALUE"
    assert name_of(cu.cuMemAddressReserve(G, 3, 0, 0)) == "INVALID_VALUE"


def test_memory_is_where_it_is_mapped_and_twice_if_it_is_mapped_twice(reserved, memory):
    assert name_of(cu.cuMemMap(reserved + 4096, 2 * G, 0, memory, 0)) == "INVALID_VALUE"
    assert name_of(cu.cuMemMap(reserved, G, 0, memory, 0)) == "NOT_SUPPORTED"
    ok(cu.cuMemMap(reserved, 2 * G, 0, memory, 0))
    assert name_of(cu.cuMemMap(reserved + G, 2 * G, 0, memory, 0)) == "INVALID_VALUE"
    ok(cu.cuMemMap(reserved + 2 * G, 2 * G, 0, memory, 0))
    assert flags_at(reserved) == 0
    assert name_of(cu.cuMemsetD32(reserved, 1, 4)) == "INVALID_VALUE"
    assert name_of(allow(reserved, G)) == "INVALID_VALUE"
    ok(allow(reserved, 2 * G))
    ok(allow(reserved + 2 * G, 2 * G))
    assert flags_at(reserved) == 3
    ok(cu.cuMemsetD32(reserved, 7, 1))
    assert first_int(reserved + 2 * G) == 7
    # Two mappings side by side are one piece of memory.
    both = np.full(G, 3, np.int32)
    ok(cu.cuMemcpyHtoD(reserved, both.ctypes.data, 4 * G))
    assert first_int(reserved + 4 * G - 4) == 3
    assert [int(each) for each in ok(cu.cuMemGetAddressRange(reserved + G))] == [reserved, 2 * G]
    assert name_of(cu.cuMemFree(reserved)) == "INVALID_VALUE"
    assert name_of(cu.cuMemUnmap(reserved, G)) == "INVALID_VALUE"
    assert name_of(cu.cuMemAddressFree(reserved, 4 * G)) == "INVALID_VALUE"


def test_memory_for_reading_is_not_written(reserved, memory):
    ok(cu.cuMemMap(reserved, 2 * G, 0, memory, 0))
    ok(allow(reserved, 2 * G))
    ok(cu.cuMemsetD32(reserved, 7, 1))
    ok(cu.cuCtxSynchronize())  # neither this nor unmapping waits for the device
    ok(allow(reserved, 2 * G, READ))
    assert first_int(reserved) == 7
    assert name_of(cu.cuMemsetD32(reserved, 1, 1)) == "INVALID_VALUE"


def test_memory_lives_as_long_as_a_handle_or_a_mapping(reserved):
    before = ok(cu.cuMemGetInfo())[0]
    handle = ok(cu.cuMemCreate(2 * G, properties(), 0))
    assert not is_emulated() or ok(cu.cuMemGetInfo())[0] == before - 2 * G  # others use a GPU, too
    ok(cu.cuMemMap(reserved, 2 * G, 0, handle, 0))
    ok(allow(reserved, 2 * G))
    ok(cu.cuMemRelease(handle))
    assert name_of(cu.cuMemRelease(handle)) == "INVALID_VALUE"
    ok(cu.cuMemsetD32(reserved, 7, 1))
    ok(cu.cuCtxSynchronize())
    again = ok(cu.cuMemRetainAllocationHandle(reserved + 5))
    assert int(ok(cu.cuMemGetAllocationPropertiesFromHandle(again)).location.id) == 0
    ok(cu.cuMemUnmap(reserved, 2 * G))
    ok(cu.cuMemMap(reserved, 2 * G, 0, again, 0))
    ok(allow(reserved, 2 * G))
    assert first_int(reserved) == 7
    ok(cu.cuMemUnmap(reserved, 2 * G))
    ok(cu.cuMemRelease(again))
    assert not is_emulated() or ok(cu.cuMemGetInfo())[0] == before


def test_a_descriptor_stands_for_the_memory(reserved, memory):
    descriptor = int(ok(cu.cuMemExportToShareableHandle(memory, DESCRIPTOR, 0)))
    other = ok(cu.cuMemImportFromShareableHandle(descriptor, DESCRIPTOR))
    os.close(descriptor)
    ok(cu.cuMemMap(reserved, 2 * G, 0, memory, 0))
    ok(cu.cuMemMap(reserved + 2 * G, 2 * G, 0, other, 0))
    ok(cu.cuMemRelease(other))
    ok(allow(reserved, 4 * G))
    ok(cu.cuMemsetD32(reserved, 9, 1))
    assert first_int(reserved + 2 * G) == 9
    with Path(os.devnull).open() as nothing:
        assert name_of(cu.cuMemImportFromShareableHandle(nothing.fileno(), DESCRIPTOR)) != "CUDA_SUCCESS"


def test_a_kernel_without_access_faults(in_process):
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from driver_calls import Kernels, cu, ok, open_device
        from test_virtual_memory import G, properties
        open_device()
        kernels = Kernels('extern "C" __global__ void poke(int* p) {{ *p = 5; }}')
        address = int(ok(cu.cuMemAddressReserve(G, 0, 0, 0)))
        ok(cu.cuMemMap(address, G, 0, ok(cu.cuMemCreate(G, properties(), 0)), 0))
        try:
            kernels("poke", address)
        except AssertionError as error:
            print(str(error).split()[0])
        """
    done = in_process(program)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stderr
