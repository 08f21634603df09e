"""Launches of graphs: what they replace, how they are ordered, composed, cancelled, and what their faults say."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import aiocuda as ac

N = 64


def host(op):
    return ac.to_host(op).sync()


def full(value, n=N):
    return ac.full(n, value, np.int32).sync()


@pytest.fixture
def accumulating(kernels):
    """A graph of y = 3 y + a x, all of which can be replaced; and its arrays."""
    x, y, a = full(1), full(0), ac.value(2)
    return kernels.accumulate(a, x, y, N, threads=N).graph(x=x, y=y, a=a), x, y


def test_arrays_and_numbers_are_replaced(accumulating):
    graph, _, y = accumulating
    assert graph.inputs == ("x", "y", "a")
    other = full(10)
    graph.launch().sync()
    assert host(y).tolist() == [2] * N
    graph.launch(x=full(5), y=other, a=7).sync()
    assert host(other).tolist() == [65] * N
    assert host(y).tolist() == [2] * N


def test_what_is_not_named_is_as_the_graph_was_made_with(accumulating):
    graph, _, y = accumulating
    graph.launch(a=100, x=full(3)).sync()
    graph.launch().sync()
    assert host(y).tolist() == [3 * 300 + 2] * N


def test_only_what_differs_is_set(accumulating):
    graph, x, y = accumulating
    other = full(4)
    for bindings, sets in (
        ({}, 0),
        ({"x": x}, 0),
        ({"x": other}, 1),
        ({"x": other, "y": y}, 1),
        ({}, 2),
        ({"a": 2}, 2),
    ):
        graph.launch(**bindings).sync()
        assert graph.statistics().parameter_sets == sets


def test_operations_are_replaced_too(accumulating):
    graph, _, _ = accumulating
    result = graph.launch(x=ac.full(N, 6, np.int32), y=ac.zeros(N, np.int32), a=ac.value(3).then(lambda n: n + 1))
    result.sync()
    assert graph.statistics().parameter_sets == 1


def test_a_replaced_output_is_found_in_what_was_given(kernels, accumulating):
    graph, _, _ = accumulating
    y = full(1)
    behind = kernels.increment(graph.launch(y=y).then(lambda _: y), N, threads=N)
    assert host(behind).tolist() == [6] * N


@pytest.mark.parametrize(
    ("name", "given", "error", "words"),
    [
        ("z", 1, ac.ArgumentValueError, "no input 'z'; it has x, y, a"),
        ("x", 3, ac.ArgumentTypeError, "x: an array is expected"),
        ("x", np.zeros(N, np.int32), ac.ArgumentTypeError, "to_device"),
        ("a", 2.5, ac.ArgumentTypeError, "a"),
        ("a", 1 << 40, ac.ArgumentRangeError, "does not fit int32"),
    ],
)
def test_what_does_not_fit_is_an_error_when_the_launch_is_built(accumulating, name, given, error, words):
    with pytest.raises(error, match=words):
        accumulating[0].launch(**{name: given})


def test_a_launch_that_was_refused_holds_nothing(kernels, used_bytes):
    before = used_bytes()
    x = full(0)
    graph = kernels.increment(x, N, threads=N).graph(x=x)
    other = full(0, 2 * N)
    with pytest.raises(
        ac.ArgumentValueError, match=r"launch: x: the graph was made with int32\(64,\) .*, int32\(128,\) .* was given"
    ):
        graph.launch(x=other)
    del graph, x, other
    assert used_bytes() == before


@pytest.mark.parametrize("make", [lambda: full(0, N + 1), lambda: ac.zeros(N).sync(), lambda: full(0, 2 * N)[::2]])
def test_an_array_that_is_not_alike(accumulating, make):
    with pytest.raises(ac.ArgumentValueError, match=r"x: the graph was made with int32\(64,\) in device 0.*was given"):
        accumulating[0].launch(x=make())


def test_an_array_for_a_number(accumulating):
    with pytest.raises(ac.ArgumentTypeError, match="a: a number is expected"):
        accumulating[0].launch(a=full(0))


def test_an_operation_that_yields_what_does_not_fit(accumulating):
    with pytest.raises(ac.ArgumentValueError, match="was given"):
        accumulating[0].launch(x=ac.zeros(N + 1, np.int32)).sync()
    with pytest.raises(ac.ArgumentTypeError, match="an array is expected"):
        accumulating[0].launch(x=ac.value(1).then(lambda n: n)).sync()


def test_arrays_that_lie_upon_one_another(accumulating):
    graph, x, y = accumulating
    whole = full(0, 2 * N)
    with pytest.raises(ac.ArgumentValueError, match="the array given for x lies upon the array given for y"):
        graph.launch(x=whole[:N], y=whole[N // 2 : N // 2 + N]).sync()
    with pytest.raises(ac.ArgumentValueError, match="lies upon"):
        graph.launch(x=y).sync()
    graph.launch(x=whole[:N], y=whole[N:]).sync()
    graph.launch(x=y, y=x).sync()  # in turn they are apart again


def test_inputs_of_a_graph_lie_apart(kernels):
    x = full(0, 2 * N)
    with pytest.raises(ac.ArgumentValueError, match="the inputs a and b lie upon one another"):
        kernels.accumulate(1, x[:N], x[N:], N, threads=N).graph(a=x[: N + 1], b=x[N:])
    graph = kernels.accumulate(1, x[:N], x[N:], N, threads=N).graph(a=x[:N], b=x[N:])
    y = full(2, N)
    graph.launch(b=y).sync()
    assert host(y).tolist() == [6] * N


def test_a_part_of_an_input(kernels):
    x = full(0)
    half = N // 2
    graph = ac.zip(kernels.increment(x[:half], half, threads=half), kernels.increment(x, N, threads=N)).graph(x=x)
    other = full(10)
    graph.launch(x=other).sync()
    assert host(other).tolist() == [12] * half + [11] * half
    assert host(x).tolist() == [0] * N


def test_memory_that_is_partly_an_input(kernels):
    x = full(0, 2 * N)
    with pytest.raises(ac.CaptureError, match="lies partly in the input x"):
        kernels.increment(x, 2 * N, threads=2 * N).graph(x=x[:N])


def test_a_strided_input():
    x = ac.to_device(np.arange(2 * N, dtype=np.int32)).sync()
    graph = ac.dup(x[::2]).graph(x=x[::2])
    assert host(graph.launch()).tolist() == list(range(0, 2 * N, 2))
    assert host(graph.launch(x=x[1::2])).tolist() == list(range(1, 2 * N, 2))
    with pytest.raises(ac.CaptureError, match="does not lie in one piece"):
        ac.dup(x[::2][2:6]).graph(x=x[::2])


def test_two_dimensional_copies_are_replaced():
    """The driver cannot set them in an executable graph: it is made anew."""
    data = np.arange(48, dtype=np.int32).reshape(6, 8)
    x, y = ac.to_device(data).sync(), ac.to_device(data * 3).sync()
    graph = ac.dup(x[:, 2:5]).graph(x=x[:, 2:5])
    for source, expected in ((x, data), (y, data * 3), (x, data)):
        assert np.array_equal(host(graph.launch(x=source[:, 2:5])), expected[:, 2:5])
    assert graph.statistics().instantiations == 3


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, ac.ArgumentTypeError, r"ac\.value\(number\)"),
        (np.zeros(N, np.int32), ac.ArgumentTypeError, "an array that exists"),
        (ac.zeros(N, np.int32), ac.ArgumentTypeError, "an array that exists"),
        (ac.value(5), ac.ArgumentValueError, "nothing in the graph uses the input x"),
    ],
)
def test_what_is_no_input(kernels, given, error, words):
    with pytest.raises(error, match=words):
        kernels.increment(full(0), N, threads=N).graph(x=given)


def test_an_array_that_is_not_used_is_no_input(kernels):
    with pytest.raises(ac.ArgumentValueError, match="nothing in the graph uses the input x"):
        kernels.increment(full(0), N, threads=N).graph(x=full(0))


def test_a_number_that_a_function_sees_is_no_input(kernels):
    a, x, y = ac.value(2), full(1), full(0)
    op = a.then(lambda n: kernels.accumulate(n, x, y, N, threads=N))
    with pytest.raises(ac.CaptureError, match="something other than a kernel's parameter"):
        op.graph(a=a)


def test_a_number_for_parameters_of_several_types(kernels):
    x, n = full(0), ac.value(N)
    other = ac.ones(N).sync()
    graph = ac.zip(kernels.increment(x, n, threads=N), kernels.scale(n, other, ac.empty(N), N, threads=N)).graph(n=n)
    _, scaled = graph.launch(n=3).sync()
    assert host(x).tolist() == [1, 1, 1] + [0] * (N - 3)
    assert host(scaled).tolist() == [3.0] * N


# --- order


def test_launches_follow_one_another(kernels, latch):
    """Many in flight, on several streams: each sees what the one before it did, and its own numbers."""
    x, y, a = full(1), full(0), ac.value(1)
    graph = kernels.accumulate(a, x, y, N, threads=N).graph(x=x, a=a)
    arrays = [full(i) for i in range(8)]
    latch.hold()
    futures = [graph.launch(x=array, a=i + 1).submit() for i, array in enumerate(arrays)]
    assert not any(future.done() for future in futures)
    latch.release()
    expected = 0
    for i in range(8):
        expected = 3 * expected + (i + 1) * i
    assert host(y).tolist() == [expected] * N


def test_a_launch_is_ordered_after_what_it_reads_and_before_what_follows(kernels, latch):
    x = full(0)
    graph = ac.dup(x).graph(x=x)
    latch.hold()
    kernels.increment(x, N, threads=N).submit()
    copied = ac.to_host(graph.launch()).submit()
    kernels.increment(x, N, threads=N).submit()
    latch.release()
    assert copied.sync().tolist() == [1] * N
    assert host(x).tolist() == [2] * N


def test_what_is_replaced_is_not_waited_for(kernels, latch, device):
    """A launch with another array does not wait for the one that the graph was made with."""
    x = full(0)
    graph = kernels.increment(x, N, threads=N).graph(x=x)
    stream = device.stream()
    latch.hold(stream)
    held = kernels.increment(x, N, threads=N).on(stream).submit()
    other = full(5)
    graph.launch(x=other).sync()
    assert host(other).tolist() == [6] * N
    assert not held.done()
    latch.release()
    held.sync()


def test_tasks_share_a_graph(kernels, run_asyncio):
    x = full(0)
    graph = kernels.increment(x, N, threads=N).graph(x=x)

    async def main():
        arrays = [await ac.full(N, i, np.int32) for i in range(50)]

        async def work(array):
            for _ in range(4):
                await graph.launch(x=array)

        await asyncio.gather(*(work(array) for array in arrays))
        return [await ac.to_host(array) for array in arrays]

    assert [result.tolist() for result in run_asyncio(main)] == [[i + 4] * N for i in range(50)]


def test_a_launch_in_the_middle_of_a_dag(kernels):
    x = full(0)
    graph = kernels.increment(x, N, threads=N).graph(x=x)
    made = kernels.increment(ac.full(N, 3, np.int32), N, threads=N)
    launched = graph.launch(x=made)
    assert host(ac.zip(launched, made).last()).tolist() == [5] * N


def test_a_graph_in_a_graph(kernels):
    x, a = full(0), ac.value(1)
    inner = ac.zip(kernels.accumulate(a, full(2), x, N, threads=N), ac.dup(x)).graph(x=x, a=a)
    b = ac.value(5)

    def twice(array):
        return ac.zip(inner.launch(x=array, a=b), inner.launch(x=array)).then(lambda _: array)

    y = full(1)
    outer = kernels.increment(ac.value(y).then(twice), N, threads=N).graph(y=y, b=b)
    outer.launch().sync()
    assert host(y).tolist() == [(1 * 3 + 10) * 3 + 2 + 1] * N
    z = full(0)
    outer.launch(y=z, b=7).sync()
    assert host(z).tolist() == [14 * 3 + 2 + 1] * N
    assert host(x).tolist() == [0] * N
    inner.launch().sync()
    assert host(x).tolist() == [2] * N


async def _awaiting(op):
    return await op


def test_cancelling_an_await_of_a_launch(kernels, latch, run_asyncio, used_bytes):
    before = used_bytes()
    x = full(0)
    graph = kernels.increment(x, N, threads=N).graph()

    async def main():
        latch.hold()
        task = asyncio.ensure_future(_awaiting(graph.launch()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        latch.release()
        return await ac.to_host(x)

    assert run_asyncio(main).tolist() == [1] * N
    x.close()
    graph.close()
    assert used_bytes() == before


# --- another operation of the same shape


def test_update(kernels):
    x, y = full(0), full(10)
    graph = kernels.accumulate(2, kernels.increment(ac.dup(x), N, threads=N), y, N, threads=N).graph()
    graph.launch().sync()
    z = full(100)
    before = graph.statistics()
    graph.update(kernels.accumulate(5, kernels.increment(ac.dup(x), N // 2, threads=N // 2), z, N, threads=N))
    assert graph.result is z
    graph.launch().sync()
    assert host(y).tolist() == [32] * N
    assert host(z).tolist() == [305] * (N // 2) + [300] * (N // 2)
    assert graph.statistics().instantiations == before.instantiations


def test_update_leaves_what_was_launched(kernels, latch):
    y, z = full(0), full(7)
    graph = kernels.increment(ac.dup(y), N, threads=N).graph()
    latch.hold()
    first = ac.to_host(graph.launch()).submit()
    graph.update(kernels.increment(ac.dup(z), N, threads=N))
    second = ac.to_host(graph.launch()).submit()
    latch.release()
    assert (first.sync().tolist(), second.sync().tolist()) == ([1] * N, [8] * N)


def test_a_launch_that_was_built_before_an_update(kernels):
    graph = ac.to_host(kernels.increment(ac.dup(full(0)), N, threads=N)).graph()
    launch = graph.launch()
    graph.update(ac.to_host(kernels.increment(ac.dup(full(7)), N, threads=N)))
    with pytest.raises(ac.CaptureError, match="was updated after this launch of it was built"):
        launch.sync()
    assert graph.launch().sync().tolist() == [8] * N


def test_late_values_of_a_launch_before_an_update_or_a_close(kernels, latch):
    graph = ac.to_host(kernels.increment(ac.dup(full(0)), N, threads=N)).graph()
    other = kernels.increment(ac.dup(full(7)), N, threads=N)
    latch.hold()
    first = graph.launch().submit()
    graph.update(ac.to_host(other))
    second = graph.launch().submit()
    graph.close()
    latch.release()
    assert (first.sync().tolist(), second.sync().tolist()) == ([1] * N, [8] * N)


def test_update_with_inputs(kernels):
    x, a = full(0), ac.value(1)
    graph = kernels.accumulate(a, full(1), x, N, threads=N).graph(x=x, a=a)
    y, b = full(5), ac.value(2)
    graph.update(kernels.accumulate(b, full(1), y, N, threads=N), x=y, a=b)
    graph.launch().sync()
    graph.launch(x=x, a=9).sync()
    assert (host(y).tolist(), host(x).tolist()) == ([17] * N, [9] * N)
    with pytest.raises(ac.CaptureError, match=r"input 1 is x in the graph, and z"):
        graph.update(kernels.accumulate(ac.value(1), full(1), y, N, threads=N), z=y)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda k, x: ac.dup(x), "node 1 is a launch of increment in the graph, and a copy in what was given"),
        (lambda k, x: k.look(x, threads=1), "a launch of increment in the graph, and a launch of look"),
        (
            lambda k, x: k.increment(k.increment(k.increment(x, N, threads=N), N, threads=N), N, threads=N),
            "the graph has 2 nodes, and what was given 3: the first more is a launch of increment",
        ),
        (
            lambda k, x: ac.zip(k.increment(x, N, threads=N), k.increment(full(0), N, threads=N)),
            "node 2 is a launch of increment after 1 in the graph, and after none",
        ),
    ],
)
def test_update_with_another_shape(kernels, build, words):
    x = full(0)
    graph = kernels.increment(kernels.increment(x, N, threads=N), N, threads=N).graph()
    with pytest.raises(ac.CaptureError, match=words):
        graph.update(build(kernels, x))
    graph.launch().sync()
    assert host(x).tolist() == [2] * N


def test_update_of_a_closed_graph(kernels):
    graph = kernels.increment(full(0), N, threads=N).graph()
    graph.close()
    with pytest.raises(ac.ClosedError, match=r"update: the graph made at .* was closed"):
        graph.update(kernels.increment(full(0), N, threads=N))


def test_a_launch_runs_no_function_of_python(accumulating):
    graph, x, y = accumulating
    launch, called = graph.launch, []

    def note(frame, event, _):
        if event == "call" and Path(ac.__file__).parent in Path(frame.f_code.co_filename).parents:
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        made = [graph.launch(), launch(), graph.launch(x=y, y=x, a=5)]
    finally:
        sys.setprofile(None)
    assert called == []
    assert all(__file__ in repr(op) for op in made)
    assert [op.sync() is graph.result for op in made] == [True] * 3


def test_a_launch_is_documented_and_refused_as_python_would(accumulating):
    graph, _, _ = accumulating
    assert list(inspect.signature(ac.CudaGraph.launch).parameters) == ["self", "bindings"]
    assert list(inspect.signature(graph.launch).parameters) == ["bindings"]
    assert inspect.getdoc(ac.CudaGraph.launch).startswith("Make an operation that runs the graph")
    with pytest.raises(TypeError, match=r"launch\(\) takes 1 positional argument but 2 were given"):
        graph.launch(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'self'"):
        ac.CudaGraph.launch()
    with pytest.raises(ac.ArgumentValueError, match="no input '\\\\udc00'"):
        graph.launch(**{"\udc00": 1})


def test_more_replacements_than_an_operation_keeps_in_itself(kernels):
    count = 12
    given = [(full(i), full(0), ac.value(1)) for i in range(count)]
    inputs = {f"{name}{i}": each for i, row in enumerate(given) for name, each in zip("xya", row, strict=True)}
    graph = ac.zip(*(kernels.accumulate(a, x, y, N, threads=N) for x, y, a in given)).graph(**inputs)
    for turn in range(3):
        outputs = [full(0) for _ in range(count)]
        replaced = {f"y{i}": outputs[i] for i in reversed(range(count))}
        graph.launch(**replaced, **{f"a{i}": ac.value(i + turn) if i % 2 else i + turn for i in range(count)}).sync()
        assert [host(each).tolist() for each in outputs] == [[i * (i + turn)] * N for i in range(count)]


def test_launches_go_to_the_graphs_stream_and_are_refused_when_it_is_closed(kernels, device):
    stream, y = device.stream(), full(0)
    graph = kernels.increment(y, N, threads=N).graph_on(stream)
    assert graph.launch().explain() == graph.launch().on(stream).explain()
    for _ in range(3):
        graph.launch().sync()
    assert host(y).tolist() == [3] * N
    stream.close()
    with pytest.raises(ac.ClosedError, match="closed"):
        graph.launch()


def test_launches_leave_no_references_behind(accumulating):
    graph, x, y = accumulating

    def counts():
        gc.collect()
        return [sys.getrefcount(each) for each in (graph, graph._native, x, y)]

    before = counts()
    for a in range(1000, 1050):
        graph.launch(x=x, y=y, a=a).sync()
        graph.launch(x=x)  # never executed
        for wrong in ({"x": 1}, {"x": x, "z": y}, {"x": x, "y": x[: N // 2]}, {"y": y, "a": "one"}):
            with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="launch: "):
                graph.launch(**wrong)
    del wrong
    assert counts() == before
