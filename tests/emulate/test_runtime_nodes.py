"""Calls of ``cuda.bindings.runtime`` about graphs, libraries and pools, on a GPU and on the emulated driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

ADD = 'extern "C" __global__ void add(int* x, int n, int much) { if (threadIdx.x < n) x[threadIdx.x] += much; }'
INTS = 16


def image_of(source: str) -> bytes:
    from cuda.core import Program, ProgramOptions

    return bytes(Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin").code)


@pytest.fixture
def ints(runtime):
    """Device memory of 16 integers, all 1."""
    address = runtime("cudaMalloc", 4 * INTS)
    ones = np.ones(INTS, np.int32)
    runtime("cudaMemcpy", address, ones, ones.nbytes, runtime.module.cudaMemcpyKind.cudaMemcpyHostToDevice)
    yield address
    runtime("cudaFree", address)


def held(runtime, address, count=INTS, dtype=np.int32):
    back = np.empty(count, dtype)
    runtime("cudaMemcpy", back, address, back.nbytes, runtime.module.cudaMemcpyKind.cudaMemcpyDeviceToHost)
    return back.tolist()


@pytest.fixture
def kernel(runtime):
    library = runtime("cudaLibraryLoadData", image_of(ADD), None, None, 0, None, None, 0)
    yield runtime("cudaLibraryGetKernel", library, b"add")
    runtime("cudaLibraryUnload", library)


@pytest.fixture
def graph(runtime):
    made = runtime("cudaGraphCreate", 0)
    yield made
    runtime("cudaGraphDestroy", made)


def replay(runtime, executable):
    stream = runtime("cudaStreamCreate")
    runtime("cudaGraphLaunch", executable, stream)
    runtime("cudaStreamSynchronize", stream)
    runtime("cudaStreamDestroy", stream)


def launch(runtime, kernel, address, much, threads=INTS):
    asked = runtime.module.cudaKernelNodeParams()
    asked.func = kernel
    asked.gridDim.x = asked.gridDim.y = asked.gridDim.z = 1
    asked.blockDim.x, asked.blockDim.y, asked.blockDim.z = threads, 1, 1
    asked.kernelParams = ((address, INTS, much), (ctypes.c_void_p, ctypes.c_int, ctypes.c_int))
    return asked


def test_kernels_of_libraries_are_nodes_whose_parameters_change(runtime, ints, kernel, graph):
    node = runtime("cudaGraphAddKernelNode", graph, None, 0, launch(runtime, kernel, ints, 2))
    # The runtime tells only kernels that nvcc has linked into the program.
    unknown = runtime.module.cudaError_t.cudaErrorInvalidDeviceFunction
    assert runtime.module.cudaGraphKernelNodeGetParams(node)[0] == unknown
    assert runtime.module.cudaGetLastError() == (unknown,)
    executable = runtime("cudaGraphInstantiateWithFlags", graph, 0)
    replay(runtime, executable)
    assert held(runtime, ints) == [3] * INTS
    runtime("cudaGraphExecKernelNodeSetParams", executable, node, launch(runtime, kernel, ints, 10, 4))
    replay(runtime, executable)
    assert held(runtime, ints) == [13] * 4 + [3] * (INTS - 4)
    runtime("cudaGraphNodeSetEnabled", executable, node, 0)
    assert runtime("cudaGraphNodeGetEnabled", executable, node) == 0
    replay(runtime, executable)
    assert held(runtime, ints)[0] == 13
    runtime("cudaGraphNodeSetEnabled", executable, node, 1)
    runtime("cudaGraphKernelNodeSetParams", node, launch(runtime, kernel, ints, 100))
    info = runtime("cudaGraphExecUpdate", executable, graph)
    assert int(info.result) == int(runtime.module.cudaGraphExecUpdateResult.cudaGraphExecUpdateSuccess)
    replay(runtime, executable)
    assert held(runtime, ints)[-1] == 103
    runtime("cudaGraphExecDestroy", executable)


def test_functions_tell_their_attributes_and_occupancy(runtime, kernel):
    module = runtime.module
    attributes = runtime("cudaFuncGetAttributes", kernel)
    assert (attributes.maxThreadsPerBlock, attributes.sharedSizeBytes) == (1024, 0)
    runtime("cudaFuncSetAttribute", kernel, module.cudaFuncAttribute.cudaFuncAttributeMaxDynamicSharedMemorySize, 65536)
    assert runtime("cudaFuncGetAttributes", kernel).maxDynamicSharedSizeBytes == 65536
    few = runtime("cudaOccupancyMaxActiveBlocksPerMultiprocessor", kernel, 128, 65536)
    many = runtime("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", kernel, 128, 0, 0)
    assert 1 <= few < many
    assert runtime("cudaOccupancyAvailableDynamicSMemPerBlock", kernel, 2, 128) > 0


def test_libraries_come_from_files_and_tell_their_kernels_and_variables(runtime, tmp_path: Path):
    path = tmp_path / "image"
    path.write_bytes(image_of("__device__ int kept = 7;" + ADD))
    library = runtime("cudaLibraryLoadFromFile", bytes(path), None, None, 0, None, None, 0)
    assert runtime("cudaLibraryGetKernelCount", library) == 1
    assert len(runtime("cudaLibraryEnumerateKernels", 1, library)) == 1
    address, size = runtime("cudaLibraryGetGlobal", library, b"kept")
    assert (size, held(runtime, address, 1)) == (4, [7])
    runtime("cudaLibraryUnload", library)


def test_copies_of_rows_are_nodes(runtime, ints, graph):
    module = runtime.module
    rows = np.arange(8, dtype=np.int32).reshape(2, 4)
    copy = module.cudaMemcpy3DParms()
    copy.srcPtr.ptr, copy.srcPtr.pitch, copy.srcPtr.ysize = rows.ctypes.data, 16, 2
    copy.dstPtr.ptr, copy.dstPtr.pitch, copy.dstPtr.ysize = ints, 32, 2
    copy.extent.width, copy.extent.height, copy.extent.depth = 16, 2, 1
    copy.kind = module.cudaMemcpyKind.cudaMemcpyHostToDevice
    node = runtime("cudaGraphAddMemcpyNode", graph, None, 0, copy)
    told = runtime("cudaGraphMemcpyNodeGetParams", node)
    assert (told.extent.width, told.extent.height, told.dstPtr.pitch, told.kind) == (16, 2, 32, copy.kind)
    assert (int(told.srcPtr.ptr), int(told.dstPtr.ptr)) == (rows.ctypes.data, int(ints))
    executable = runtime("cudaGraphInstantiate", graph, 0)
    replay(runtime, executable)
    assert held(runtime, ints)[:12] == [0, 1, 2, 3, 1, 1, 1, 1, 4, 5, 6, 7]
    runtime("cudaGraphExecDestroy", executable)


def test_copies_of_bytes_are_nodes_whose_ends_change(runtime, ints, graph):
    kind = runtime.module.cudaMemcpyKind.cudaMemcpyHostToDevice
    given = np.arange(20, 24, dtype=np.int32)
    node = runtime("cudaGraphAddMemcpyNode1D", graph, None, 0, ints, given, 16, kind)
    executable = runtime("cudaGraphInstantiate", graph, 0)
    runtime("cudaGraphExecMemcpyNodeSetParams1D", executable, node, ints, given, 8, kind)
    replay(runtime, executable)
    assert held(runtime, ints)[:4] == [20, 21, 1, 1]
    runtime("cudaGraphMemcpyNodeSetParams1D", node, ints + 8, given, 8, kind)
    runtime("cudaGraphExecUpdate", executable, graph)
    replay(runtime, executable)
    assert held(runtime, ints)[:5] == [20, 21, 20, 21, 1]
    runtime("cudaGraphExecDestroy", executable)


def test_fills_functions_and_graphs_inside_are_nodes(runtime, ints, graph):
    module = runtime.module
    told = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(told.append)
    host = module.cudaHostNodeParams()
    host.fn, host.userData = module.cudaHostFn_t(ctypes.cast(function, ctypes.c_void_p).value), 9
    inner = runtime("cudaGraphCreate", 0)
    runtime("cudaGraphAddHostNode", inner, None, 0, host)
    child = runtime("cudaGraphAddChildGraphNode", graph, None, 0, inner)
    fill = module.cudaGraphNodeParams()
    fill.type = module.cudaGraphNodeType.cudaGraphNodeTypeMemset
    fill.memset.dst, fill.memset.value, fill.memset.elementSize = ints, 5, 4
    fill.memset.width, fill.memset.height = INTS, 1
    node = runtime("cudaGraphAddNode", graph, [child], None, 1, fill)
    assert runtime("cudaGraphMemsetNodeGetParams", node).value == 5
    asked = module.cudaGraphInstantiateParams()
    executable = runtime("cudaGraphInstantiateWithParams", graph, asked)
    assert asked.result_out == module.cudaGraphInstantiateResult.cudaGraphInstantiateSuccess
    replay(runtime, executable)
    assert (told, held(runtime, ints)) == ([9], [5] * INTS)
    runtime("cudaGraphExecDestroy", executable)
    runtime("cudaGraphDestroy", inner)


def test_memory_of_a_graph_is_allocated_and_freed_by_nodes(runtime, graph):
    module = runtime.module
    asked = module.cudaMemAllocNodeParams()
    asked.poolProps.allocType = module.cudaMemAllocationType.cudaMemAllocationTypePinned
    asked.poolProps.location.type = module.cudaMemLocationType.cudaMemLocationTypeDevice
    asked.bytesize = 4096
    node = runtime("cudaGraphAddMemAllocNode", graph, None, 0, asked)
    address = runtime("cudaGraphMemAllocNodeGetParams", node).dptr
    assert int(address) != 0
    runtime("cudaGraphAddMemFreeNode", graph, [node], 1, address)
    executable = runtime("cudaGraphInstantiate", graph, 0)
    replay(runtime, executable)
    runtime("cudaGraphExecDestroy", executable)
    runtime("cudaDeviceGraphMemTrim", 0)


def test_slices_of_rows_are_allocated_and_filled(runtime):
    module = runtime.module
    extent = module.cudaExtent()
    extent.width, extent.height, extent.depth = 6, 3, 2
    slices = runtime("cudaMalloc3D", extent)
    assert slices.ysize == 3
    runtime("cudaMemset2D", slices.ptr, slices.pitch, 1, 6, 6)
    extent.width, extent.height = 2, 1
    runtime("cudaMemset3D", slices, 9, extent)
    values = np.array(held(runtime, slices.ptr, 6 * slices.pitch, np.uint8)).reshape(2, 3, -1)[:, :, :6]
    expected = np.ones((2, 3, 6))
    expected[:, 0, :2] = 9
    assert (values == expected).all()
    runtime("cudaFree", slices.ptr)


def test_managed_memory_is_advised_and_prefetched(runtime):
    module = runtime.module
    device = module.cudaMemLocation()
    device.type, device.id = module.cudaMemLocationType.cudaMemLocationTypeDevice, 0
    address = runtime("cudaMallocManaged", 4096, module.cudaMemAttachGlobal)
    runtime("cudaMemAdvise", address, 4096, module.cudaMemoryAdvise.cudaMemAdviseSetReadMostly, device)
    read_mostly = module.cudaMemRangeAttribute.cudaMemRangeAttributeReadMostly
    assert runtime("cudaMemRangeGetAttribute", 4, read_mostly, address, 4096) == 1
    runtime("cudaMemPrefetchAsync", address, 4096, device, 0, 0)
    runtime("cudaStreamSynchronize", 0)
    runtime("cudaFree", address)


def test_pools_tell_who_may_use_them_and_streams_keep_attributes(runtime):
    module = runtime.module
    properties = module.cudaMemPoolProps()
    properties.allocType = module.cudaMemAllocationType.cudaMemAllocationTypePinned
    properties.handleTypes = module.cudaMemAllocationHandleType.cudaMemHandleTypePosixFileDescriptor
    properties.location.type = module.cudaMemLocationType.cudaMemLocationTypeDevice
    pool = runtime("cudaMemPoolCreate", properties)
    access = module.cudaMemAccessDesc()
    access.location.type, access.location.id = module.cudaMemLocationType.cudaMemLocationTypeDevice, 0
    access.flags = module.cudaMemAccessFlags.cudaMemAccessFlagsProtReadWrite
    runtime("cudaMemPoolSetAccess", pool, [access], 1)
    assert runtime("cudaMemPoolGetAccess", pool, access.location) == access.flags
    stream, other = runtime("cudaStreamCreate"), runtime("cudaStreamCreate")
    policy = module.cudaStreamAttrID.cudaLaunchAttributeSynchronizationPolicy
    value = module.cudaStreamAttrValue()
    value.syncPolicy = module.cudaSynchronizationPolicy.cudaSyncPolicyYield
    runtime("cudaStreamSetAttribute", stream, policy, value)
    runtime("cudaStreamCopyAttributes", other, stream)
    assert runtime("cudaStreamGetAttribute", other, policy).syncPolicy == value.syncPolicy
    for each in (stream, other):
        runtime("cudaStreamDestroy", each)
    runtime("cudaMemPoolDestroy", pool)


def test_the_drivers_own_functions_are_found(runtime):
    address, status = runtime("cudaGetDriverEntryPointByVersion", b"cuInit", 13000, 0)
    assert int(address) != 0
    assert int(status) == 0
    error, address, _ = runtime.module.cudaGetDriverEntryPoint(b"cuMemAlloc", 0)
    if runtime("cudaRuntimeGetVersion") <= runtime("cudaDriverGetVersion"):
        assert (int(error), int(address) != 0) == (0, True)
    else:  # it asks for its own version of the function, which an older driver does not have
        assert error == runtime.module.cudaError_t.cudaErrorInvalidValue


def test_a_copy_from_array_to_array_keeps_rows_and_the_format_is_told(runtime):
    module, kinds = runtime.module, runtime.module.cudaMemcpyKind
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    desc = runtime("cudaCreateChannelDesc", 32, 0, 0, 0, module.cudaChannelFormatKind.cudaChannelFormatKindFloat)
    first, second = (runtime("cudaMallocArray", desc, 4, 3, 0) for _ in range(2))
    runtime("cudaMemcpy2DToArray", first, 0, 0, values, 16, 16, 3, kinds.cudaMemcpyHostToDevice)
    runtime("cudaMemcpy2DArrayToArray", second, 0, 0, first, 0, 0, 16, 3, kinds.cudaMemcpyDeviceToDevice)
    back = np.zeros_like(values)
    runtime("cudaMemcpy2DFromArray", back, 16, second, 0, 0, 16, 3, kinds.cudaMemcpyDeviceToHost)
    assert np.array_equal(back, values)
    found = runtime("cudaGetChannelDesc", second)
    assert (found.x, found.y, found.f) == (32, 0, desc.f)
    for each in (first, second):
        runtime("cudaFreeArray", each)


@pytest.mark.emulated_only  # else the runtime itself takes them
def test_nodes_of_kernels_and_copies_have_calls_of_their_own(runtime, graph):
    asked = runtime.module.cudaGraphNodeParams()
    asked.type = runtime.module.cudaGraphNodeType.cudaGraphNodeTypeKernel
    error, node = runtime.module.cudaGraphAddNode(graph, None, None, 0, asked)
    assert (error, node) == (runtime.module.cudaError_t.cudaErrorNotSupported, None)
    runtime.module.cudaGetLastError()


def test_graphs_and_nodes_have_ids(runtime):
    if not hasattr(runtime.module, "cudaGraphGetId") or runtime("cudaDriverGetVersion") < 13010:
        pytest.skip("graphs have ids since CUDA 13.1")
    graph = runtime("cudaGraphCreate", 0)
    nodes = [runtime("cudaGraphAddEmptyNode", graph, None, 0) for _ in range(2)]
    assert [runtime("cudaGraphNodeGetLocalId", node) for node in nodes] == [0, 1]
    assert len({runtime("cudaGraphNodeGetToolsId", node) for node in nodes}) == 2
    assert int(runtime("cudaGraphNodeGetContainingGraph", nodes[1])) == int(graph)
    executable = runtime("cudaGraphInstantiate", graph, 0)
    assert runtime("cudaGraphExecGetId", executable) != runtime("cudaGraphGetId", graph)
    runtime("cudaGraphExecDestroy", executable)
    runtime("cudaGraphDestroy", graph)


def test_one_copy_takes_attributes(runtime, ints):
    if not hasattr(runtime.module, "cudaMemcpyWithAttributesAsync") or runtime("cudaDriverGetVersion") < 13020:
        pytest.skip("single copies have attributes since CUDA 13.2")
    numbers = np.arange(INTS, dtype=np.int32)
    attributes = runtime.module.cudaMemcpyAttributes()
    attributes.srcAccessOrder = runtime.module.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderDuringApiCall
    stream = runtime("cudaStreamCreate")
    runtime("cudaMemcpyWithAttributesAsync", ints, numbers.ctypes.data, numbers.nbytes, attributes, stream)
    runtime("cudaStreamSynchronize", stream)
    assert held(runtime, ints) == numbers.tolist()
    runtime("cudaStreamDestroy", stream)
