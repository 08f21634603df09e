"""Calls of ``cuda.bindings.runtime``: the same on a GPU and on the emulated driver, which aiocuda forwards them to."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

INVALID_DEVICE = 101


@pytest.fixture
def runtime():
    ac.select_driver()
    from cuda.bindings import runtime

    def call(name, *arguments):
        error, *values = getattr(runtime, name)(*arguments)
        assert error == runtime.cudaError_t.cudaSuccess, (name, error)
        return values[0] if len(values) == 1 else tuple(values)

    call.module = runtime
    call("cudaSetDevice", 0)
    return call


def test_bytes_go_to_a_device_and_back(runtime):
    kinds = runtime.module.cudaMemcpyKind
    sent = np.arange(256, dtype=np.int32)
    back = np.zeros_like(sent)
    address = runtime("cudaMalloc", sent.nbytes)
    runtime("cudaMemcpy", address, sent, sent.nbytes, kinds.cudaMemcpyHostToDevice)
    runtime("cudaMemcpy", back, address, back.nbytes, kinds.cudaMemcpyDeviceToHost)
    assert (back == sent).all()
    runtime("cudaMemset", address, 0x01, 4)
    runtime("cudaMemcpy", back.ctypes.data, address, 8, kinds.cudaMemcpyDefault)
    assert back[:2].tolist() == [0x01010101, 1]
    attributes = runtime("cudaPointerGetAttributes", address)
    assert attributes.type == runtime.module.cudaMemoryType.cudaMemoryTypeDevice
    assert attributes.device == 0
    runtime("cudaFree", address)


def test_streams_and_events_order_asynchronous_copies(runtime):
    kinds = runtime.module.cudaMemcpyKind
    stream, other = runtime("cudaStreamCreate"), runtime("cudaStreamCreate")
    event = runtime("cudaEventCreate")
    address = runtime("cudaMallocAsync", 1024, stream)
    back = np.zeros(1024, np.uint8)
    runtime("cudaMemsetAsync", address, 7, 1024, stream)
    runtime("cudaEventRecord", event, stream)
    runtime("cudaStreamWaitEvent", other, event, 0)
    runtime("cudaMemcpyAsync", back, address, 1024, kinds.cudaMemcpyDeviceToHost, other)
    runtime("cudaStreamSynchronize", other)
    assert set(back) == {7}
    runtime("cudaFreeAsync", address, other)
    runtime("cudaDeviceSynchronize")
    runtime("cudaEventDestroy", event)
    for each in (stream, other):
        runtime("cudaStreamDestroy", each)


def test_devices_are_told_as_the_driver_tells_them(runtime):
    from cuda.bindings import driver

    count = runtime("cudaGetDeviceCount")
    assert count == driver.cuDeviceGetCount()[1]
    properties = runtime("cudaGetDeviceProperties", 0)
    assert (properties.warpSize, properties.totalGlobalMem) == (32, driver.cuDeviceTotalMem(0)[1])
    assert runtime("cudaDeviceGetPCIBusId", 13, 0) == driver.cuDeviceGetPCIBusId(13, 0)[1]
    free, total = runtime("cudaMemGetInfo")
    assert 0 < free <= total


def test_a_device_that_is_not_there_is_an_error_which_is_kept(runtime):
    (error,) = runtime.module.cudaSetDevice(99)
    assert int(error) == INVALID_DEVICE
    assert int(runtime.module.cudaPeekAtLastError()[0]) == INVALID_DEVICE
    assert int(runtime.module.cudaGetLastError()[0]) == INVALID_DEVICE
    assert int(runtime.module.cudaGetLastError()[0]) == 0
    assert runtime("cudaGetDevice") == 0


def test_devices_of_cuda_core_synchronise_and_tell_their_bus(runtime):
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    device.sync()
    assert device.pci_bus_id.encode() == runtime("cudaDeviceGetPCIBusId", 13, 0).split(b"\0")[0]


@pytest.mark.emulated_only
def test_a_call_that_is_not_forwarded_names_itself_and_a_way_out(runtime):
    with pytest.raises(
        ac.errors.DriverError, match=r"cudaGraphKernelNodeGetParams: .*call cuGraphKernelNodeGetParams of"
    ):
        runtime.module.cudaGraphKernelNodeGetParams(0)
