"""Graphs of operations: what they are made of, what they compute, what becomes of the operations."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import aiocuda as ac

N = 64


def host(op):
    return ac.to_host(op).sync()


def edges(graph):
    """The nodes by kind and name, and the edges, as (from, to) by number from 1 on."""
    dot = graph.to_dot()
    return sorted((int(a), int(b)) for a, b in re.findall(r"n(\d+) -> n(\d+);", dot))


def labels(graph):
    return re.findall(r'n\d+ \[label="\d+: ([^\\"]*)', graph.to_dot())


def test_a_graph_runs_nothing_and_a_launch_runs_it(kernels):
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph()
    assert host(x).tolist() == [0] * N
    for i in range(1, 4):
        assert graph.launch().sync() is graph.result
        assert host(x).tolist() == [i] * N
    assert graph.result is x
    assert graph.statistics().launches == 3


def test_a_launch_is_awaited(kernels, run):
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph()

    async def main():
        for _ in range(5):
            await graph.launch()
        return await ac.to_host(x)

    assert run(main).tolist() == [5] * N


def test_what_is_made_inside_is_made_anew_by_each_launch(kernels):
    op = kernels.increment(kernels.increment(ac.full(N, 7, np.int32), N, threads=N), N, threads=N)
    graph = op.graph()
    assert labels(graph) == ["fill", "kernel increment", "kernel increment"]
    assert edges(graph) == [(1, 2), (2, 3)]
    for _ in range(3):
        assert host(graph.launch()).tolist() == [9] * N


def test_branches_have_no_edges_between_them(kernels):
    x = ac.ones(N).sync()
    branches = [kernels.scale(float(i), x, ac.empty(N), N, threads=N) for i in range(4)]
    total = branches[0]
    for branch in branches[1:]:
        total = kernels.add(total, branch, ac.empty(N), N, threads=N)
    graph = total.graph()
    by_name = labels(graph)
    scales = [i + 1 for i, name in enumerate(by_name) if name == "kernel scale"]
    assert len(scales) == 4
    assert not [edge for edge in edges(graph) if edge[1] in scales]
    assert host(graph.launch()).tolist() == [6.0] * N


def test_edges_are_no_more_than_the_data_needs(kernels):
    """A read after a read needs none; what an edge implies is not drawn again."""
    x = ac.zeros(N, np.int32).sync()
    first = kernels.increment(x, N, threads=N)
    ops = [first, kernels.look(x, threads=1), kernels.look(x, threads=1), kernels.increment(x, N, threads=N)]
    graph = ac.zip(*ops).graph()
    assert edges(graph) == [(1, 2), (1, 3), (2, 4), (3, 4)]


def test_disjoint_slices_are_not_ordered(kernels):
    x = ac.zeros(N, np.int32).sync()
    half = N // 2
    left, right = kernels.increment(x[:half], half, threads=half), kernels.increment(x[half:], half, threads=half)
    graph = ac.zip(left, right, kernels.increment(x, N, threads=N)).graph()
    assert edges(graph) == [(1, 3), (2, 3)]
    graph.launch().sync()
    assert host(x).tolist() == [2] * N


def test_views_of_what_is_made_inside(kernels):
    def build(array):
        return ac.zip(kernels.increment(array[: N // 2], N // 2, threads=N // 2), array.reshape(2, -1)[:, ::2])

    graph = ac.zeros(N, np.int32).then(build).graph()
    first, strided = graph.launch().sync()
    assert host(first).tolist() == [1] * (N // 2)
    assert host(strided).tolist() == [[1] * (N // 4), [0] * (N // 4)]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.complex128])
def test_fills_of_every_item_size(dtype):
    value = np.array(0x0102030405060708 % (1 << (8 * min(np.dtype(dtype).itemsize, 7) - 1)), dtype)
    graph = ac.full((3, 5), value, dtype).graph()
    assert np.array_equal(host(graph.launch()), np.full((3, 5), value))


def test_copies_of_every_kind():
    data = np.arange(24, dtype=np.int32).reshape(4, 6)
    x = ac.to_device(data).sync()
    graph = ac.zip(
        ac.dup(x),
        ac.dup(x[:, 1:4]),
        ac.dup(x[::2, ::3]),
        ac.copy(ac.zeros((4, 3), np.int32), x[:, ::2]),
        ac.to_device(data * 2),
    ).graph()
    results = [host(result) for result in graph.launch().sync()]
    for result, expected in zip(results, [data, data[:, 1:4], data[::2, ::3], data[:, ::2], data * 2], strict=True):
        assert np.array_equal(result, expected)


def test_host_data_is_read_when_the_graph_is_made():
    data = np.arange(8)
    graph = ac.to_device(data).graph()
    data[:] = 0
    assert host(graph.launch()).tolist() == list(range(8))


def test_to_host_gives_each_launch_its_own_array(kernels):
    x = ac.zeros(N, np.int32).sync()
    graph = ac.to_host(kernels.increment(x, N, threads=N)).graph()
    first, second = graph.launch().sync(), graph.launch().sync()
    assert (first.tolist(), second.tolist()) == ([1] * N, [2] * N)
    assert isinstance(graph.result, ac.HostArray)


def test_maps_at_the_end_run_for_each_launch(kernels):
    x = ac.zeros(N, np.int32).sync()
    calls = []

    def total(array):
        calls.append(array)
        return int(array.sum())

    op = ac.to_host(kernels.increment(x, N, threads=N)).map(total)
    graph = ac.zip(op, x, op.map(lambda n: -n)).graph()
    assert calls == []
    assert [graph.launch().sync() for _ in range(2)] == [(N, x, -N), (2 * N, x, -2 * N)]
    assert len(calls) == 2


def test_a_map_in_the_middle_is_an_error(kernels):
    x = ac.zeros(N, np.int32).sync()
    back = ac.to_host(x).map(lambda data: data + 1).then(ac.to_device)
    with pytest.raises(ac.CaptureError, match=r"map.*host"):
        back.graph()
    n = ac.value(N).map(lambda n: n)
    with pytest.raises(ac.CaptureError, match="map"):
        kernels.increment(x, n, threads=N).graph()


def test_functions_are_called_once_when_the_graph_is_made(kernels):
    seen = []

    def build(array):
        seen.append(array.shape)
        return {"more": kernels.increment(array, N, threads=N), "n": 3}

    graph = ac.zeros(N, np.int32).inspect(lambda array: seen.append(array.dtype)).then(build).graph()
    assert seen == [np.int32, (N,)]
    for _ in range(2):
        result = graph.launch().sync()
        assert host(result["more"]).tolist() == [1] * N
        assert result["n"] == 3
    assert len(seen) == 2


def test_the_operations_belong_to_the_graph(kernels):
    made = ac.zeros(N, np.int32)
    op = kernels.increment(made, N, threads=N)
    graph = op.graph()
    for gone in (op, made, kernels.increment(op, N, threads=N)):
        with pytest.raises(ac.CaptureError, match=r"recorded into the graph made at .*test_graphs\.py"):
            gone.sync()
    with pytest.raises(ac.CaptureError, match="recorded"):
        op.graph()
    assert host(graph.launch()).tolist() == [1] * N


def test_what_has_run_is_a_constant(kernels):
    made = ac.zeros(N, np.int32)
    made.sync()
    graph = kernels.increment(made, N, threads=N).graph()
    graph.launch().sync()
    assert host(made).tolist() == [1] * N
    with pytest.raises(ac.ArgumentValueError, match="has run already"):
        made.graph()
    with pytest.raises(ac.ArgumentTypeError, match="a graph is made of an operation, not of 3"):
        ac.DeviceOp.graph(3)


def test_an_operation_that_failed_raises_its_error(kernels):
    op = ac.zeros(N, np.int32).then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        op.sync()
    with pytest.raises(ZeroDivisionError):
        op.then(lambda x: x).graph()


def test_an_error_leaves_what_has_no_function_as_it_was(kernels):
    x = ac.zeros(N, np.int32)
    op = kernels.increment(x, N, threads=N)
    bad = op.then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bad.graph()
    with pytest.raises(ZeroDivisionError):
        bad.sync()
    assert host(op).tolist() == [1] * N


def test_executing_in_a_function_of_a_graph_is_an_error(kernels):
    def build(array):
        return kernels.increment(ac.zeros(N, np.int32), N, threads=N).sync()

    with pytest.raises(ac.CaptureError, match="recorded"):
        ac.zeros(N, np.int32).then(build).graph()
    assert host(ac.zeros(N, np.int32)).tolist() == [0] * N


def test_what_is_inside_is_used_by_nobody_else(kernels):
    kept = []
    op = kernels.increment(ac.zeros(N, np.int32).inspect(kept.append), N, threads=N)
    graph = ac.dup(op).graph()
    for use in (lambda: kernels.increment(kept[0], N, threads=N).sync(), lambda: ac.to_host(kept[0]).sync()):
        with pytest.raises(ac.CaptureError, match="inside the graph"):
            use()
    with pytest.raises(ac.CaptureError, match="close the graph"):
        kept[0].close()
    assert host(graph.launch()).tolist() == [1] * N


def test_memory_inside_is_used_for_one_array_after_another(kernels):
    x = ac.zeros(N, np.int32).sync()
    for _ in range(20):
        x = ac.dup(x)
    graph = x.graph()
    counts = graph.statistics()
    assert counts.asked_bytes == 20 * N * 4
    assert counts.shared_bytes == 2 * N * 4
    assert counts.output_bytes == N * 4
    assert host(graph.launch()).tolist() == [0] * N


def test_memory_is_not_shared_by_what_may_run_together(kernels):
    x = ac.ones(N).sync()
    branches = []
    for i in range(4):
        branch = kernels.scale(float(i + 1), x, ac.empty(N), N, threads=N)
        branches.append(kernels.scale(2.0, branch, ac.empty(N), N, threads=N))
    graph = ac.zip(*(ac.dup(branch) for branch in branches)).graph()
    assert graph.statistics().shared_bytes == 4 * 2 * N * 4
    results = [host(result) for result in graph.launch().sync()]
    assert [result.tolist() for result in results] == [[2.0 * (i + 1)] * N for i in range(4)]


def test_a_graph_holds_what_it_uses(kernels, used_bytes):
    before = used_bytes()
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph()
    del x
    gc.collect()
    graph.launch().sync()
    assert host(graph.result).tolist() == [1] * N
    del graph
    assert used_bytes() == before


def test_a_graph_is_dropped_while_it_runs(kernels, latch, used_bytes):
    before = used_bytes()
    graph = ac.dup(ac.dup(ac.full(N, 5, np.int32))).graph()
    latch.hold()
    future = ac.to_host(graph.launch()).submit()
    del graph
    gc.collect()
    latch.release()
    assert future.sync().tolist() == [5] * N
    del future
    assert used_bytes() == before


def test_close(kernels):
    x = ac.zeros(N, np.int32).sync()
    with kernels.increment(x, N, threads=N).graph() as graph:
        pending = graph.launch()
        graph.launch().sync()
    assert graph.is_closed
    assert "closed" in repr(graph)
    graph.close()
    with pytest.raises(ac.ClosedError, match="graph"):
        pending.sync()
    with pytest.raises(ac.ClosedError, match="graph"):
        graph.launch()
    assert host(x).tolist() == [1] * N


def test_a_constant_that_was_closed_is_an_error_at_the_launch(kernels):
    x, y = ac.zeros(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    graph = ac.zip(kernels.increment(x, N, threads=N), kernels.increment(y, N, threads=N)).graph()
    graph.launch().sync()
    x.close()
    with pytest.raises(ac.ClosedError, match=r"closed at .*test_graphs\.py"):
        graph.launch().sync()
    assert host(y).tolist() == [1] * N


def test_a_constant_that_was_shared_is_an_error_where_it_is_written(kernels):
    x = ac.zeros(N, np.int32).sync()
    writes, reads = kernels.increment(x, N, threads=N).graph(), ac.dup(x).graph()
    shared = x.share()
    reads.launch().sync()
    with pytest.raises(ac.OwnershipError, match="shared"):
        writes.launch().sync()
    shared.close()
    del shared
    x.unwrap()
    writes.launch().sync()
    assert host(x).tolist() == [1] * N


def test_an_empty_graph():
    graph = ac.value(3).then(lambda n: n + 1).graph()
    assert graph.statistics().nodes == 0
    assert [graph.launch().sync() for _ in range(2)] == [4, 4]


def test_empty_arrays_and_launches(kernels):
    graph = kernels.increment(ac.zeros(0, np.int32), 0, threads=0).graph()
    assert host(graph.launch()).shape == (0,)


def test_arguments_wider_than_a_word():
    kernel = ac.kernel(
        "#include <aiocuda/tile.cuh>\n"
        'extern "C" __global__ void twice(aiocuda::View<const int, 2> x, aiocuda::Partition<int, 2> y) {\n'
        "    const auto tile = y.tile();\n"
        "    const int i = threadIdx.y, j = threadIdx.x;\n"
        "    if (tile.contains(i, j)) tile(i, j) = 2 * x(tile.origin(0) + i, tile.origin(1) + j);\n"
        "}"
    )
    data = np.arange(48, dtype=np.int32).reshape(6, 8)
    x = ac.to_device(data).sync()
    y = ac.zeros((6, 4), np.int32).sync()
    tiles = y.partition((4, 3))
    graph = kernel(x[:, ::2], tiles, block=(3, 4)).graph()
    graph.launch().sync()
    tiles.unpartition()
    assert np.array_equal(host(y), 2 * data[:, ::2])


def test_a_graph_on_a_stream(kernels, device):
    stream = device.stream()
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph_on(stream)
    assert f"stream {stream._number} " in graph.launch().explain()
    graph.launch().sync()
    assert host(x).tolist() == [1] * N
    stream.close()
    with pytest.raises(ac.ClosedError, match=r"stream \d+ of device \d was closed before this use of it"):
        graph.launch()


def test_upload(kernels, device):
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph()
    graph.upload(device.default_stream)
    graph.launch().sync()
    assert host(x).tolist() == [1] * N


def test_explain_says_what_a_launch_is(kernels):
    x = ac.zeros(N, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph(x=x)
    text = graph.launch(x=ac.zeros(N, np.int32)).explain()
    assert re.search(
        r"launch the graph of 1 nodes made at .*test_graphs\.py:\d+ on device 0, with 1 inputs replaced", text
    )


def test_the_picture_names_kernels_inputs_sizes_and_places(kernels):
    x = ac.zeros(N, np.int32).sync()
    dot = kernels.increment(x, N, threads=N, block=32).graph(x=x).to_dot()
    assert dot.startswith("digraph")
    assert "kernel increment" in dot
    assert "grid 2x1x1, block 32x1x1" in dot
    assert "writes x (256 bytes)" in dot
    assert "test_graphs.py:" in dot


def test_the_picture_escapes_what_graphviz_would_take_for_its_own():
    names = {"ac": ac, "x": ac.zeros(N, np.int32).sync()}
    exec(compile("graph = ac.dup(x).graph()", 'a "quoted" and \\back.py', "exec"), names)
    assert ', a \\"quoted\\" and \\\\back.py:1"];' in names["graph"].to_dot()


def test_an_input_that_a_graph_without_inputs_is_given_is_an_error_that_says_how_to_name_some():
    graph = ac.dup(ac.zeros(N, np.int32)).graph()
    with pytest.raises(ac.ArgumentValueError, match=r"no input 'x'; it has none: name them as in op\.graph\(x=x\)"):
        graph.launch(x=ac.zeros(N, np.int32))


def test_a_graph_of_more_nodes_than_are_added_at_once(kernels):
    x = ac.zeros(1, np.int32).sync()
    op = x
    for _ in range(300):
        op = kernels.increment(op, 1, grid=1, block=1)
    graph = op.graph()
    graph.launch().sync()
    assert ac.to_host(x).sync()[0] == 300
    counts = graph.statistics()
    assert (counts.nodes, counts.edges, counts.instantiations) == (300, 299, 1)
