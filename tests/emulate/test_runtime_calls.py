"""Calls of ``cuda.bindings.runtime``: the same on a GPU and on the emulated driver, which aiocuda forwards them to."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

INVALID_DEVICE = 101


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


def test_rows_are_copied_and_graphs_replay_what_was_captured(runtime):
    kinds = runtime.module.cudaMemcpyKind
    address, pitch = runtime("cudaMallocPitch", 6, 4)
    rows = np.arange(24, dtype=np.uint8).reshape(4, 6)
    back = np.zeros_like(rows)
    stream = runtime("cudaStreamCreate")
    runtime("cudaStreamBeginCapture", stream, runtime.module.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed)
    runtime("cudaMemcpy2DAsync", address, pitch, rows, 6, 6, 4, kinds.cudaMemcpyHostToDevice, stream)
    status, *_ = runtime("cudaStreamGetCaptureInfo", stream)
    assert status == runtime.module.cudaStreamCaptureStatus.cudaStreamCaptureStatusActive
    graph = runtime("cudaStreamEndCapture", stream)
    copies, count = runtime("cudaGraphGetNodes", graph, 2)
    assert (count, type(copies[0]).__name__) == (1, "cudaGraphNode_t")
    parameters = runtime.module.cudaMemsetParams()
    parameters.dst, parameters.pitch, parameters.value = address + 1, pitch, 9
    parameters.elementSize, parameters.width, parameters.height = 1, 1, 4
    runtime("cudaGraphAddMemsetNode", graph, copies[:1], 1, parameters)
    executable = runtime("cudaGraphInstantiate", graph, 0)
    runtime("cudaGraphLaunch", executable, stream)
    runtime("cudaStreamSynchronize", stream)
    runtime("cudaMemcpy2D", back, 6, address, pitch, 6, 4, kinds.cudaMemcpyDeviceToHost)
    rows[:, 1] = 9
    assert (back == rows).all()
    runtime("cudaGraphExecDestroy", executable)
    runtime("cudaGraphDestroy", graph)
    runtime("cudaStreamDestroy", stream)
    runtime("cudaFree", address)


def test_a_callback_and_a_host_function_run_in_the_streams_order(runtime):
    import ctypes

    told = []
    stream = runtime("cudaStreamCreate")
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda _, status, data: told.append((status, data))
    )
    launched = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(told.append)
    pointer = lambda function: ctypes.cast(function, ctypes.c_void_p).value  # noqa: E731
    runtime("cudaStreamAddCallback", stream, runtime.module.cudaStreamCallback_t(pointer(called)), 7, 0)
    runtime("cudaLaunchHostFunc", stream, runtime.module.cudaHostFn_t(pointer(launched)), 8)
    runtime("cudaStreamSynchronize", stream)
    assert told == [(0, 7), 8]
    runtime("cudaStreamDestroy", stream)


def test_a_memory_pool_is_made_and_gives_memory(runtime):
    properties = runtime.module.cudaMemPoolProps()
    properties.allocType = runtime.module.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.location.type = runtime.module.cudaMemLocationType.cudaMemLocationTypeDevice
    pool = runtime("cudaMemPoolCreate", properties)
    stream = runtime("cudaStreamCreate")
    address = runtime("cudaMallocFromPoolAsync", 4096, pool, stream)
    used = runtime.module.cudaMemPoolAttr.cudaMemPoolAttrUsedMemCurrent
    assert int(runtime("cudaMemPoolGetAttribute", pool, used)) == 4096
    runtime("cudaFreeAsync", address, stream)
    runtime("cudaStreamSynchronize", stream)
    runtime("cudaStreamDestroy", stream)
    runtime("cudaMemPoolDestroy", pool)


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
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("cudaDeviceGetTexture1DLinearMaxWidth", "call cuDeviceGetTexture1DLinearMaxWidth of cuda.bindings.driver"),
        ("cudaMemcpyToArray", "call cuda.bindings.driver"),
        ("cudaGraphicsMapResources", "the emulated driver has no graphics"),
        ("cudaImportExternalMemory", "the emulated driver has no external memory"),
    ],
)
def test_a_call_that_is_not_forwarded_names_itself_and_a_way_out(runtime, name, way):
    if not hasattr(runtime.module, name):
        pytest.skip(f"this cuda.bindings has no {name}")
    with pytest.raises(ac.errors.DriverError, match=f"{name}: .*{way}"):
        getattr(runtime.module, name)(0)


FETCH = r"""
extern "C" __global__ void fetch(unsigned long long t, const float* x, const float* y, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = tex2D<float>(t, x[i], y[i]);
}
extern "C" __global__ void twice(unsigned long long s, int width, int height) {
    for (int i = 0; i < width * height; ++i) {
        float old = surf2Dread<float>(s, i % width * 4, i / width);
        surf2Dwrite(2 * old, s, i % width * 4, i / width);
    }
}
"""


def resource_of(runtime, array):
    resource = runtime.module.cudaResourceDesc()
    resource.resType = runtime.module.cudaResourceType.cudaResourceTypeArray
    resource.res.array.array = array
    return resource


def test_an_array_is_filled_fetched_and_written_through_a_texture_and_a_surface(runtime):
    module, kinds = runtime.module, runtime.module.cudaMemcpyKind
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    float32 = runtime("cudaCreateChannelDesc", 32, 0, 0, 0, module.cudaChannelFormatKind.cudaChannelFormatKindFloat)
    array = runtime("cudaMallocArray", float32, 4, 3, module.cudaArraySurfaceLoadStore)
    runtime("cudaMemcpy2DToArray", array, 0, 0, values, 16, 16, 3, kinds.cudaMemcpyHostToDevice)
    desc, extent, flags = runtime("cudaArrayGetInfo", array)
    assert (desc.x, desc.y, int(desc.f)) == (32, 0, 2)
    assert (extent.width, extent.height, flags) == (4, 3, module.cudaArraySurfaceLoadStore)

    described = module.cudaTextureDesc()
    described.addressMode = [module.cudaTextureAddressMode.cudaAddressModeClamp] * 3
    described.filterMode = module.cudaTextureFilterMode.cudaFilterModeLinear
    described.readMode = module.cudaTextureReadMode.cudaReadModeElementType
    texture = runtime("cudaCreateTextureObject", resource_of(runtime, array), described, None)
    x, y = np.float32([0.5, 1, 3.5, 9]), np.float32([0.5, 0.5, 2, 9])
    kernels = ac.Module.from_source(FETCH)
    out = ac.zeros(4, np.float32).sync()
    kernels.kernel("fetch")(int(texture), ac.to_device(x), ac.to_device(y), out, 4, grid=1, block=1).sync()
    assert ac.to_host(out).sync().tolist() == [0, 0.5, 9, 11]

    view = module.cudaResourceViewDesc()
    view.width, view.height = 4, 3
    view.format = module.cudaResourceViewFormat.cudaResViewFormatFloat1
    seen = runtime("cudaCreateTextureObject", resource_of(runtime, array), described, view)
    out = ac.zeros(4, np.float32).sync()
    kernels.kernel("fetch")(int(seen), ac.to_device(x), ac.to_device(y), out, 4, grid=1, block=1).sync()
    assert ac.to_host(out).sync().tolist() == [0, 0.5, 9, 11]
    runtime("cudaDestroyTextureObject", seen)

    surface = runtime("cudaCreateSurfaceObject", resource_of(runtime, array))
    kernels.kernel("twice")(int(surface), 4, 3, grid=1, block=1).sync()
    back = np.zeros_like(values)
    runtime("cudaMemcpy2DFromArray", back, 16, array, 0, 0, 16, 3, kinds.cudaMemcpyDeviceToHost)
    assert np.array_equal(back, 2 * values)
    runtime("cudaDestroyTextureObject", texture)
    runtime("cudaDestroySurfaceObject", surface)
    runtime("cudaFreeArray", array)


def test_a_part_of_an_array_of_three_dimensions_is_copied_in_its_elements(runtime):
    module = runtime.module
    values = np.arange(2 * 3 * 4 * 2, dtype=np.int16).reshape(2, 3, 4, 2)
    pairs = runtime("cudaCreateChannelDesc", 16, 16, 0, 0, module.cudaChannelFormatKind.cudaChannelFormatKindSigned)
    extent = module.cudaExtent()
    extent.width, extent.height, extent.depth = 4, 3, 2
    array = runtime("cudaMalloc3DArray", pairs, extent, 0)
    copy = module.cudaMemcpy3DParms()
    copy.srcPtr.ptr, copy.srcPtr.pitch, copy.srcPtr.ysize = values.ctypes.data, 16, 3
    copy.dstArray, copy.extent = array, extent
    copy.kind = module.cudaMemcpyKind.cudaMemcpyHostToDevice
    runtime("cudaMemcpy3D", copy)
    part = np.zeros((2, 2, 3, 2), np.int16)
    copy = module.cudaMemcpy3DParms()
    copy.srcArray = array
    copy.srcPos.x, copy.srcPos.y = 1, 1
    copy.dstPtr.ptr, copy.dstPtr.pitch, copy.dstPtr.ysize = part.ctypes.data, 12, 2
    extent.width, extent.height = 3, 2
    copy.extent, copy.kind = extent, module.cudaMemcpyKind.cudaMemcpyDeviceToHost
    runtime("cudaMemcpy3D", copy)
    assert np.array_equal(part, values[:, 1:, 1:])
    runtime("cudaFreeArray", array)


def test_channels_that_no_array_has_are_an_error(runtime):
    three = runtime.module.cudaCreateChannelDesc(
        *(32, 32, 32, 0), runtime.module.cudaChannelFormatKind.cudaChannelFormatKindFloat
    )[1]
    error, array = runtime.module.cudaMallocArray(three, 4, 4, 0)
    assert int(error) == int(runtime.module.cudaError_t.cudaErrorInvalidChannelDescriptor)
    assert array is None
    runtime.module.cudaGetLastError()
