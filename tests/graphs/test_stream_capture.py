"""Stream capture, as cuda.core's graph builders and programs with calls of their own use it, on the driver in force."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

ac.devices()  # chooses the driver, before anything of cuda.* is imported

from cuda.bindings import driver  # noqa: E402
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch  # noqa: E402
from cuda.core.graph import Graph, GraphBuilder  # noqa: E402

SOURCE = r"""
extern "C" __global__ void add(int* x, int a) { *x += a; }
extern "C" __global__ void multiply(int* x, int a) { *x *= a; }
"""
ONE = LaunchConfig(grid=1, block=1)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    result, *values = function(*arguments)
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return values[0] if len(values) == 1 else values


class Numbers:
    """Two integers that the host and the device see."""

    def __init__(self) -> None:
        self.buffer = LegacyPinnedMemoryResource().allocate(8)
        self.host = np.from_dlpack(self.buffer).view(np.int32)
        self.host[:] = 0

    def address(self, index: int = 0) -> int:
        return int(self.buffer.handle) + 4 * index


@pytest.fixture
def gpu() -> Device:
    device = Device(0)
    device.set_current()
    return device


@pytest.fixture(scope="module")
def code() -> Any:
    Device(0).set_current()
    options = ProgramOptions(arch=f"sm_{Device(0).arch}")
    return Program(SOURCE, "c++", options=options).compile("cubin")


@pytest.fixture
def add(code: Any) -> Any:
    return code.get_kernel("add")


@pytest.fixture
def multiply(code: Any) -> Any:
    return code.get_kernel("multiply")


@pytest.fixture
def numbers(gpu: Device) -> Numbers:
    return Numbers()


@pytest.fixture
def stream(gpu: Device) -> Iterator[Any]:
    made = gpu.create_stream()
    yield made
    made.sync()


def run(graph: Graph, stream: Any) -> None:
    graph.launch(stream)
    stream.sync()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_what_a_builder_records_runs_with_each_launch(gpu, add, multiply, numbers, stream, mode):
    builder = gpu.create_graph_builder().begin_building(mode)
    assert builder.is_building
    launch(builder, ONE, add, numbers.address(), np.int32(3))
    launch(builder, ONE, multiply, numbers.address(), np.int32(5))
    graph = builder.end_building().complete()
    assert numbers.host[0] == 0
    run(graph, stream)
    assert numbers.host[0] == 15
    run(graph, stream)
    assert numbers.host[0] == 90


def test_split_builders_work_apart_until_they_are_joined(gpu, add, multiply, numbers, stream):
    builder = gpu.create_graph_builder().begin_building()
    launch(builder, ONE, add, numbers.address(), np.int32(1))
    left, right = builder.split(2)
    assert right.is_join_required
    launch(left, ONE, add, numbers.address(), np.int32(10))
    launch(right, ONE, add, numbers.address(1), np.int32(100))
    joined = GraphBuilder.join(left, right)
    launch(joined, ONE, multiply, numbers.address(), np.int32(2))
    launch(joined, ONE, multiply, numbers.address(1), np.int32(3))
    run(joined.end_building().complete(), stream)
    assert numbers.host.tolist() == [22, 300]


def test_a_graph_is_updated_from_another_capture(gpu, add, numbers, stream):
    def build(value: int) -> GraphBuilder:
        builder = gpu.create_graph_builder().begin_building()
        launch(builder, ONE, add, numbers.address(), np.int32(value))
        return builder.end_building()

    graph = build(7).complete()
    graph.update(build(9))
    run(graph, stream)
    assert numbers.host[0] == 9


def test_callbacks_are_called_in_their_place(gpu, add, numbers, stream):
    seen: list[int] = []
    builder = gpu.create_graph_builder().begin_building()
    launch(builder, ONE, add, numbers.address(), np.int32(4))
    builder.callback(lambda: seen.append(int(numbers.host[0])))
    launch(builder, ONE, add, numbers.address(), np.int32(5))
    graph = builder.end_building().complete()
    run(graph, stream)
    run(graph, stream)
    assert seen == [4, 13]


def test_a_builder_embeds_another(gpu, add, multiply, numbers, stream):
    inner = gpu.create_graph_builder().begin_building()
    launch(inner, ONE, multiply, numbers.address(), np.int32(10))
    inner.end_building()
    outer = gpu.create_graph_builder().begin_building()
    launch(outer, ONE, add, numbers.address(), np.int32(2))
    outer.embed(inner)
    launch(outer, ONE, add, numbers.address(), np.int32(1))
    run(outer.end_building().complete(), stream)
    assert numbers.host[0] == 21


def test_a_stream_s_own_builder_and_its_buffers(gpu, add, numbers, stream):
    """Copies and fills of cuda.core's buffers are captured like launches."""
    source, target = Numbers(), Numbers()
    builder = stream.create_graph_builder().begin_building()
    target.buffer.copy_from(source.buffer, stream=builder)
    launch(builder, ONE, add, target.address(), np.int32(1))
    graph = builder.end_building().complete()
    source.host[:] = [40, 50]
    run(graph, stream)
    assert target.host.tolist() == [41, 50]


def test_a_builder_that_is_closed_ends_its_capture(gpu, stream):
    builder = gpu.create_graph_builder().begin_building("global")
    builder.close()
    call(driver.cuMemFree, call(driver.cuMemAlloc, 16))  # which a capture in this mode would prohibit


@pytest.mark.parametrize("mode", list(driver.CUstreamCaptureMode))
def test_plain_calls_capture_memory_of_the_graph_s_own(gpu, stream, numbers, mode):
    """As torch and CuPy capture: allocations inside, and a result that is read outside."""
    handle = driver.CUstream(int(stream.handle))
    call(driver.cuStreamBeginCapture, handle, mode)
    status, capture_id, graph, _, _, count = call(driver.cuStreamGetCaptureInfo, handle)
    assert status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert int(capture_id) > 0
    assert count == 0
    memory = call(driver.cuMemAllocAsync, 8, handle)
    call(driver.cuMemsetD32Async, memory, 6, 2, handle)
    call(driver.cuMemcpyDtoHAsync, numbers.host.ctypes.data, memory, 8, handle)
    call(driver.cuMemFreeAsync, memory, handle)
    captured = call(driver.cuStreamEndCapture, handle)
    assert int(captured) == int(graph)
    executable = call(driver.cuGraphInstantiate, captured, 0)
    call(driver.cuGraphLaunch, executable, handle)
    call(driver.cuStreamSynchronize, handle)
    assert numbers.host.tolist() == [6, 6]
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, captured)


@pytest.mark.driver_refuses("cuEventQuery", "cuStreamEndCapture")
def test_events_fork_and_join_plain_streams(gpu, numbers):
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    origin, branch = (call(driver.cuStreamCreate, flags) for _ in range(2))
    fork, join = (call(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DISABLE_TIMING) for _ in range(2))
    call(driver.cuStreamBeginCapture, origin, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    call(driver.cuEventRecord, fork, origin)
    call(driver.cuStreamWaitEvent, branch, fork, 0)
    call(driver.cuMemsetD32Async, numbers.address(0), 1, 1, origin)
    call(driver.cuMemsetD32Async, numbers.address(1), 2, 1, branch)
    call(driver.cuEventRecord, join, branch)
    assert driver.cuEventQuery(join) == (driver.CUresult.CUDA_ERROR_CAPTURED_EVENT,)
    result, graph = driver.cuStreamEndCapture(origin)
    assert result == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    assert graph is None
    assert numbers.host.tolist() == [0, 0]
    for event in (fork, join):
        call(driver.cuEventDestroy, event)
    for each in (origin, branch):
        call(driver.cuStreamDestroy, each)


def test_a_c_callback_keeps_its_data(gpu, stream):
    """The builder copies what it is given for a function of C."""
    seen: list[int] = []
    function_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    look = function_type(lambda data: seen.append(ctypes.cast(data, ctypes.POINTER(ctypes.c_ubyte))[0]))
    builder = gpu.create_graph_builder().begin_building()
    builder.callback(look, user_data=b"\x2a")
    run(builder.end_building().complete(), stream)
    assert seen == [42]


def test_a_condition_decides_whether_a_body_that_was_captured_runs(gpu, add, numbers, stream):
    """The body is a graph of its own, which a stream is captured into."""
    builder = gpu.create_graph_builder().begin_building()
    for index, value in enumerate((1, 0)):
        body = builder.if_then(builder.create_condition(default_value=value))
        body.begin_building()
        launch(body, ONE, add, numbers.address(index), np.int32(5))
        body.end_building()
    run(builder.end_building().complete(), stream)
    assert numbers.host.tolist() == [5, 0]
