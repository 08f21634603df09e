"""Graphs that kernels launch: beside the graph that launches them, beside its siblings, and behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_calls import Kernels, cu, name_of, ok, open_device

pytestmark = pytest.mark.emulated_only  # NVIDIA's NVRTC needs a linker and its library for such kernels

SOURCE = r"""
typedef unsigned long long Number;
// log[0] is a count, the rest what was noted.
extern "C" __global__ void note(int* log, Number value) { log[1 + atomicAdd(log, 1)] = (int)value; }
extern "C" __global__ void launch(int* error, Number graph, Number how) {
    *error = cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)how);
}
extern "C" __global__ void launch_all(int* error, const Number* graphs, Number count) {
    for (Number i = 0; i < count; ++i)
        error[i] = cudaGraphLaunch((cudaGraphExec_t)graphs[i], cudaStreamGraphFireAndForget);
}
extern "C" __global__ void set(int* flag) { atomicExch(flag, 1); }
extern "C" __global__ void wait(int* flag, int* started) {
    atomicExch(started, 1);
    while (atomicAdd(flag, 0) == 0) {
    }
}
extern "C" __global__ void again(int* count, Number times) {
    if (++*count < (int)times) cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}
extern "C" __global__ void current(Number* out) { *out = (Number)cudaGetCurrentGraphExec(); }
"""
TAIL, BESIDE, SIBLING = 1 << 56, 2 << 56, 3 << 56
FOR_DEVICE = int(cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
AUTO_FREE = int(cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
INVALID_VALUE, OUT_OF_RESOURCES = 1, 701


class Words:
    """Numbers that the host and kernels share, 0 at first."""

    def __init__(self, count: int, dtype: Any = np.int32) -> None:
        size = count * np.dtype(dtype).itemsize
        self.address = int(ok(cu.cuMemHostAlloc(size, 0)))
        view = (np.ctypeslib.ctypes.c_char * size).from_address(self.address)
        self.values = np.frombuffer(view, dtype)
        self.values[:] = 0


class Graphs:
    """Makes graphs of launches of one thread each, one after another."""

    def __init__(self) -> None:
        self.kernels = Kernels(SOURCE)
        self.stream = ok(cu.cuStreamCreate(1))

    def launch(self, name: str, *arguments: int) -> None:
        function = ok(cu.cuModuleGetFunction(self.kernels._module, name.encode()))
        values = [np.asarray(np.uint64(each)) for each in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, self.stream, pointers.ctypes.data, 0))

    def graph(self, *launches: tuple[Any, ...]) -> Any:
        ok(cu.cuStreamBeginCapture(self.stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        for each in launches:
            self.launch(*each)
        return ok(cu.cuStreamEndCapture(self.stream))

    def for_device(self, *launches: tuple[Any, ...]) -> int:
        """Return an executable that kernels may launch."""
        made = ok(cu.cuGraphInstantiate(self.graph(*launches), FOR_DEVICE))
        ok(cu.cuGraphUpload(made, self.stream))
        return int(made)

    def start(self, executable: int) -> None:
        ok(cu.cuGraphLaunch(cu.CUgraphExec(executable), self.stream))

    def run(self, *launches: tuple[Any, ...]) -> None:
        """Launch a graph that the host alone can launch, and wait for it."""
        self.start(int(ok(cu.cuGraphInstantiate(self.graph(*launches), 0))))
        ok(cu.cuStreamSynchronize(self.stream))


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    context = open_device()
    yield Graphs()
    ok(cu.cuCtxSynchronize())
    del context
    ok(cu.cuDevicePrimaryCtxRelease(0))


def noted(log: Words) -> list[int]:
    return log.values[1 : 1 + log.values[0]].tolist()


def test_a_graph_runs_beside_the_one_that_launches_it(graphs):
    flag, started, error = Words(1), Words(1), Words(1)
    beside = graphs.for_device(("set", flag.address))
    # The second kernel ends when the other graph has run.
    graphs.run(("launch", error.address, beside, BESIDE), ("wait", flag.address, started.address))
    assert error.values[0] == 0


def test_a_launch_has_ended_when_what_runs_beside_it_has(graphs):
    flag, started, error = Words(1), Words(1), Words(1)
    beside = graphs.for_device(("wait", flag.address, started.address))
    graphs.start(int(ok(cu.cuGraphInstantiate(graphs.graph(("launch", error.address, beside, BESIDE)), 0))))
    while started.values[0] == 0:
        pass
    assert name_of(cu.cuStreamQuery(graphs.stream)) == "NOT_READY"
    flag.values[0] = 1
    ok(cu.cuStreamSynchronize(graphs.stream))


def test_graphs_that_run_behind_others_come_in_order_each_with_its_own(graphs):
    log, error = Words(8), Words(3)
    first, second, third = error.address, error.address + 4, error.address + 8
    innermost = graphs.for_device(("note", log.address, 3))
    middle = graphs.for_device(("launch", third, innermost, TAIL), ("note", log.address, 2))
    last = graphs.for_device(("note", log.address, 4))
    graphs.run(("launch", first, middle, TAIL), ("launch", second, last, TAIL), ("note", log.address, 1))
    assert noted(log) == [1, 2, 3, 4]
    assert error.values.tolist() == [0, 0, 0]


def test_what_runs_behind_comes_after_what_runs_beside(graphs):
    log, flag, started, error = Words(4), Words(1), Words(1), Words(2)
    beside = graphs.for_device(("wait", flag.address, started.address), ("note", log.address, 1))
    behind = graphs.for_device(("note", log.address, 2))
    launches = ("launch", error.address, beside, BESIDE), ("launch", error.address + 4, behind, TAIL)
    graphs.start(int(ok(cu.cuGraphInstantiate(graphs.graph(*launches), 0))))
    while started.values[0] == 0:
        pass
    flag.values[0] = 1
    ok(cu.cuStreamSynchronize(graphs.stream))
    assert noted(log) == [1, 2]


def test_a_sibling_holds_up_nothing_behind_the_graph_that_launched_it(graphs):
    flag, started, error = Words(1), Words(1), Words(3)
    sibling = graphs.for_device(("wait", flag.address, started.address))
    behind = graphs.for_device(("set", flag.address))
    # `behind` sets what the sibling waits for: it never would if the launching graph ended after the sibling.
    launching = graphs.for_device(
        ("launch", error.address, sibling, SIBLING), ("launch", error.address + 4, behind, TAIL)
    )
    graphs.run(("launch", error.address + 8, launching, BESIDE))
    assert error.values.tolist() == [0, 0, 0]
    assert flag.values[0] == 1


def test_a_graph_launches_itself_again_and_again(graphs):
    count = Words(1)
    graphs.start(graphs.for_device(("again", count.address, 20_000)))
    ok(cu.cuStreamSynchronize(graphs.stream))
    assert count.values[0] == 20_000


def test_a_kernel_learns_which_graph_it_is_of(graphs):
    out = Words(3, np.uint64)
    executable = graphs.for_device(("current", out.address))
    graphs.start(executable)
    graphs.launch("current", out.address + 8)
    out.values[1:] = 1
    graphs.run(("current", out.address + 16))  # the device cannot launch this one
    assert out.values.tolist() == [executable, 0, 0]


def test_what_cannot_be_launched_by_the_device_is_an_invalid_value(graphs):
    log, error = Words(4), Words(5)
    error.values[:] = -1
    note = ("note", log.address, 1)
    not_uploaded = int(ok(cu.cuGraphInstantiate(graphs.graph(note), FOR_DEVICE)))
    for_host = int(ok(cu.cuGraphInstantiate(graphs.graph(note), 0)))
    good = graphs.for_device(note)
    places = [error.address + 4 * each for each in range(5)]
    graphs.run(
        ("launch", places[0], not_uploaded, BESIDE),
        ("launch", places[1], for_host, BESIDE),
        ("launch", places[2], 12345, BESIDE),
        ("launch", places[3], good, 0),
    )
    graphs.launch("launch", places[4], good, BESIDE)  # by no graph
    ok(cu.cuStreamSynchronize(graphs.stream))
    assert error.values.tolist() == [INVALID_VALUE] * 5
    assert noted(log) == []


def test_a_graph_is_not_launched_while_it_runs(graphs):
    flag, started, error = Words(1), Words(1), Words(2)
    beside = graphs.for_device(("wait", flag.address, started.address))
    graphs.run(
        ("launch", error.address, beside, BESIDE),
        ("launch", error.address + 4, beside, BESIDE),
        ("set", flag.address),
    )
    assert error.values.tolist() == [0, INVALID_VALUE]


def test_a_graph_launches_120_beside_itself_at_most(graphs):
    count = 121
    log, error, handles = Words(1 + count), Words(count), Words(count, np.uint64)
    handles.values[:] = [graphs.for_device(("note", log.address, each)) for each in range(count)]
    graphs.run(("launch_all", error.address, handles.address, count))
    assert error.values.tolist() == [0] * 120 + [OUT_OF_RESOURCES]
    assert sorted(noted(log)) == list(range(120))


def refusal(graph: Any, flags: int = FOR_DEVICE) -> tuple[str, str]:
    parameters = cu.CUDA_GRAPH_INSTANTIATE_PARAMS()
    parameters.flags = flags
    answer = cu.cuGraphInstantiateWithParams(graph, parameters)
    return name_of(answer), parameters.result_out.name.removeprefix("CUDA_GRAPH_INSTANTIATE_")


def test_graphs_of_other_nodes_are_not_made_for_the_device(graphs):
    graph = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddEmptyNode(graph, None, 0))
    assert refusal(graph) == ("INVALID_VALUE", "NODE_OPERATION_NOT_SUPPORTED")
    outer = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddChildGraphNode(outer, None, 0, graph))
    assert refusal(outer) == ("INVALID_VALUE", "NODE_OPERATION_NOT_SUPPORTED")
    copying = ok(cu.cuGraphCreate(0))
    pageable, device = np.zeros(64, np.uint8), ok(cu.cuMemAlloc(64))
    copy = cu.CUDA_MEMCPY3D()
    copy.srcMemoryType, copy.srcHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, pageable.ctypes.data
    copy.dstMemoryType, copy.dstDevice = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, device
    copy.WidthInBytes, copy.Height, copy.Depth = 64, 1, 1
    ok(cu.cuGraphAddMemcpyNode(copying, None, 0, copy, ok(cu.cuCtxGetCurrent())))
    assert refusal(copying) == ("INVALID_VALUE", "NODE_OPERATION_NOT_SUPPORTED")
    assert refusal(copying, 0) == ("CUDA_SUCCESS", "SUCCESS")
    log = Words(4)
    assert refusal(graphs.graph(("note", log.address, 1)), FOR_DEVICE | AUTO_FREE)[0] == "INVALID_VALUE"


def test_the_check_of_races_has_these_launches_refused(in_process):
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from driver_calls import open_device
        from test_device_graphs import BESIDE, Graphs, Words
        open_device()
        graphs, log, error = Graphs(), Words(4), Words(1)
        graphs.run(("launch", error.address, graphs.for_device(("note", log.address, 1)), BESIDE))
        print(int(error.values[0]), int(log.values[0]))
        """
    done = in_process(program, AIOCUDA_EMULATOR_CHECK="races")
    assert done.stdout.split() == ["801", "0"], done.stderr
