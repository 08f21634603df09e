"""Groups of devices of one process."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda._driver import nccl
from aiocuda.collective import Group, unique_id
from aiocuda.errors import CollectiveError

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.needs_devices(2)


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group.local([0, 1]) as made:
        yield made


@pytest.fixture
def short_lived() -> Iterator[Group]:
    with Group.local([0, 1]) as made:
        yield made


def on_devices(parts: list[np.ndarray[Any, Any]]) -> list[Any]:
    return [ac.to_device(part, device).sync() for device, part in enumerate(parts)]


def on_host(ops: Any) -> list[Any]:
    return [ac.to_host(op).sync(60) for op in ops]


DTYPES = [
    np.int8,
    np.uint8,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
]


@st.composite
def parts(draw: Any) -> list[np.ndarray[Any, Any]]:
    dtype = draw(st.sampled_from(DTYPES))
    shape = (2 * draw(st.integers(1, 40)), *draw(st.lists(st.integers(1, 5), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return [rng.integers(0, 5, shape).astype(dtype) for _ in range(2)]


@given(parts(), st.sampled_from(["sum", "prod", "max", "min"]))
def test_all_collectives_give_what_numpy_gives(group, xs, op):
    join = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    joined = join(xs[0], xs[1]).astype(xs[0].dtype)
    arrays = on_devices(xs)
    for found in on_host(group.all_reduce(arrays, op)):
        np.testing.assert_array_equal(found, joined)
    for found in on_host(group.all_gather(arrays)):
        np.testing.assert_array_equal(found, np.stack(xs))
    half = len(xs[0]) // 2
    for found, expected in zip(on_host(group.reduce_scatter(arrays, op)), (joined[:half], joined[half:]), strict=True):
        np.testing.assert_array_equal(found, expected)
    for rank, found in enumerate(on_host(group.all_to_all(arrays))):
        mine = slice(rank * half, (rank + 1) * half)
        np.testing.assert_array_equal(found, np.concatenate([x[mine] for x in xs]))
    none, at_root = group.reduce(arrays, 1, op)
    assert none.sync(60) is None
    np.testing.assert_array_equal(ac.to_host(at_root).sync(60), joined)
    for found in on_host(group.broadcast(arrays, 1)):
        np.testing.assert_array_equal(found, xs[1])


def test_averages(group):
    for dtype, expected in ((np.float32, 1.5), (np.int32, 1)):
        ops = group.all_reduce([ac.full(5, each + 1, dtype, device=each) for each in range(2)], "avg")
        assert [each.tolist() for each in on_host(ops)] == [[expected] * 5] * 2


def test_dtypes_that_nccl_does_not_know_are_moved_and_not_reduced(group):
    xs = [np.array([True, False]), np.array([False, True])]
    assert [each.tolist() for each in on_host(group.all_gather(on_devices(xs)))] == [[[True, False], [False, True]]] * 2
    with pytest.raises(ac.ArgumentTypeError, match="NCCL does not reduce bool"):
        group.all_reduce(on_devices(xs))[0].sync(60)
    on_host(group.all_gather(on_devices(xs)))  # the group goes on


def test_results_go_where_out_says_and_arrays_may_be_empty(group):
    arrays = on_devices([np.ones(4, np.float32), np.ones(4, np.float32)])
    ops = group.all_reduce(arrays, out=arrays)
    assert [op.sync(60) is array for op, array in zip(ops, arrays, strict=True)] == [True, True]
    assert on_host(arrays)[0].tolist() == [2] * 4
    assert [len(each) for each in on_host(group.all_reduce(on_devices([np.ones(0, np.float32)] * 2)))] == [0, 0]


def test_small_arrays_go_out_together(group):
    rows = [[ac.full(n, device + 1.0, device=device) for n in (1, 2, 3)] for device in range(2)]
    made = group.all_reduce(rows)
    for row in made:
        assert [each.tolist() for each in on_host(row)] == [[3.0], [3.0] * 2, [3.0] * 3]
    assert sum("Group.all_reduce" in line for line in str(ac.zip(*made[0], *made[1]).explain()).splitlines()) <= 1


@pytest.mark.parametrize("kind", ["local", "processes"])
def test_a_list_of_arrays_is_one_group_of_nccls(group, monkeypatch, kind):
    """It is no faster than one array after the other otherwise."""
    made = group if kind == "local" else Group.init(0, 1, unique_id())
    devices = [each.ordinal for each in made.devices]
    lists = [[ac.full(3, number, device=each).sync() for number in range(20)] for each in devices]
    given = lists if kind == "local" else lists[0]
    done = []
    bindings = nccl._bindings()

    def noted(name: str, call: Any, *arguments: Any) -> Any:
        done.append(name)
        return call(*arguments)

    for name in ("group_start", "all_reduce", "group_end"):
        monkeypatch.setattr(bindings, name, functools.partial(noted, name, getattr(bindings, name)))
    summed = made.all_reduce(given, out=given)
    (summed[0][0] if kind == "local" else summed[0]).sync(60)  # all are parts of one operation
    assert done == ["group_start", *["all_reduce"] * 20 * len(devices), "group_end"]
    if kind == "processes":
        made.close()


def test_the_list_is_of_parts_of_one_operation(group):
    ops = group.all_reduce([ac.ones(3, device=each) for each in range(2)])
    ops[1].sync(60)
    assert ops[0].sync(60) is not None
    assert "submitted" in repr(ops[0])


def test_collectives_stand_between_what_comes_before_and_after(group, kernels, latch):
    xs = [ac.zeros(64, np.int32, device=each).sync() for each in range(2)]
    held = ac.Device(1).stream()
    latch_stream = ac.Device(0).stream()
    latch.hold(latch_stream)
    kernels.increment(xs[0], 64, threads=64).on(latch_stream).submit()
    kernels.increment(xs[1], 64, threads=64).on(held).submit()
    sums = group.all_reduce(xs)
    futures = [ac.to_host(kernels.increment(each, 64, threads=64)).submit() for each in sums]
    assert not futures[0].done()
    assert not futures[1].done()
    # Kernels on other streams go on.
    assert ac.to_host(ac.ones(5, device=1)).sync(60).tolist() == [1] * 5
    latch.release()
    assert [each.sync(60).tolist() for each in futures] == [[3] * 64] * 2


def test_they_are_submitted_in_the_order_in_which_they_were_built(group):
    xs = [ac.full(2, 1.0, device=each).sync() for each in range(2)]
    first = group.all_reduce(xs, out=xs)
    second = group.all_reduce(xs, "max", out=xs)
    second[0].sync(60)  # and the first one before it
    assert on_host(xs)[0].tolist() == [2.0, 2.0]
    assert first[0].sync(60) is xs[0]


def test_one_that_nobody_has_takes_no_part(group):
    xs = [ac.full(2, 1.0, device=each).sync() for each in range(2)]
    dropped = group.all_reduce(xs, out=xs)
    del dropped
    group.barrier().sync(60)
    assert on_host(xs)[0].tolist() == [1.0, 1.0]


def test_they_are_awaited_cancelled_and_timed_out(group, run, latches):
    async def main() -> None:
        xs = [await ac.full(3, each + 1.0, device=each) for each in range(2)]
        assert [(await ac.to_host(each)).tolist() for each in group.all_reduce(xs)] == [[3.0] * 3] * 2
        latch = latches()
        stream = ac.Device(0).stream()
        latch.hold(stream)
        ac.fill(xs[0], 5).on(stream).submit()
        with pytest.raises(ac.DeviceTimeoutError):
            await group.all_reduce(xs)[0].within(0.05)
        assert "all_reduce of float32(3,)" in group.waits_for()
        latch.release()
        await group.barrier()

    run(main)


def test_a_cancelled_await_leaves_what_was_not_submitted(group, latches):
    async def main() -> None:
        xs = [await ac.full(3, 1.0, device=each) for each in range(2)]
        latch = latches()
        stream = ac.Device(0).stream()
        latch.hold(stream)
        ac.fill(xs[0], 3).on(stream).submit()
        looked = []
        by_the_host = ac.to_host(xs[0]).map(lambda value: looked.append(1) or value)  # waits for the latch
        made = group.all_reduce([ac.to_device(by_the_host, 0), xs[1]])
        task = asyncio.ensure_future(ac.as_coroutine(made[0]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        latch.release()
        assert not looked
        assert [(await ac.to_host(each)).tolist() for each in made] == [[4.0] * 3] * 2

    asyncio.run(main())


def test_graphs_have_them(group):
    xs = [ac.full(4, each + 1.0, device=each).sync() for each in range(2)]
    graph = ac.zip(*group.all_reduce(xs, out=xs)).graph()
    for expected in (3.0, 6.0, 12.0):
        graph.launch().sync(60)
        assert [each.tolist() for each in on_host(xs)] == [[expected] * 4] * 2
    group.all_reduce(xs, "max", out=xs)[0].sync(60)  # and others between launches
    graph.launch().sync(60)
    assert on_host(xs)[0].tolist() == [24.0] * 4
    graph.close()


@pytest.mark.parametrize(("end", "error"), [("close", ac.ClosedError), ("abort", CollectiveError)])
def test_a_graph_does_not_outlive_its_group(run, end, error):
    """Nor does one that has it as a part, nor a launch that was built before."""
    group = Group.local([0, 1])
    xs = [ac.full(4, each + 1.0, device=each).sync() for each in range(2)]
    graph = ac.zip(*group.all_reduce(xs, out=xs)).graph()
    around = ac.zip(graph.launch(), ac.fill(xs[1], 5.0)).graph()
    built = graph.launch()
    graph.launch().sync(60)
    getattr(group, end)()
    words = "the group was closed" if end == "close" else "rank 0 aborted the group"
    for launch in (built, graph.launch(), around.launch()):
        with pytest.raises(error, match=words):
            launch.sync(60)

    async def main() -> None:
        await graph.launch()

    with pytest.raises(error, match=words):
        run(main)
    assert [each.tolist() for each in on_host(xs)] == [[3.0] * 4] * 2


def test_a_graph_keeps_a_group_that_was_dropped(recwarn):
    xs = [ac.full(4, each + 1.0, device=each).sync() for each in range(2)]
    graph = ac.zip(*Group.local([0, 1]).all_reduce(xs, out=xs)).graph()
    gc.collect()
    assert not recwarn.list
    graph.launch().sync(60)
    assert on_host(xs)[0].tolist() == [3.0] * 4


def test_bad_input_is_an_error_and_nothing_is_lost(group):
    xs = [ac.ones(4, device=each).sync() for each in range(2)]
    for make, error, words in (
        (lambda: group.all_reduce(xs[0]), ac.ArgumentTypeError, "a list of 2 arrays, one for each device"),
        (lambda: group.all_reduce(xs, "mean"), ac.ArgumentValueError, "op is one of sum, prod"),
        (lambda: group.all_reduce([xs[0], 7]), ac.ArgumentTypeError, "arrays and operations"),
        (lambda: group.broadcast(xs, 2), ac.ArgumentValueError, "root"),
        (lambda: group.all_reduce([[xs[0], xs[0]], [xs[1]]]), ac.ArgumentValueError, "different lengths"),
        (lambda: group.send(xs, 1), ac.ArgumentValueError, "for groups of processes"),
        (lambda: group.reduce_scatter([each[:3] for each in xs]), ac.ArgumentValueError, "cut into 2 parts"),
        (lambda: group.all_reduce(xs[::-1])[0].sync(60), ac.DeviceMismatchError, "rank 0 of the group is device 0"),
        (lambda: group.all_reduce([xs[0], xs[1][:2]])[0].sync(60), ac.ArgumentValueError, "do not do the same"),
        (
            lambda: group.all_reduce([xs[0], ac.ones(4, np.int32, device=1)])[0].sync(60),
            ac.ArgumentValueError,
            "rank 0 calls all_reduce of float32(4,), sum, rank 1 all_reduce of int32(4,)",
        ),
        (lambda: group.all_reduce(xs, out=[each[:2] for each in xs])[0].sync(60), ac.ArgumentValueError, "each of 2"),
        (lambda: group.all_reduce([each[::2] for each in xs])[0].sync(60), ac.ArgumentValueError, "not in one piece"),
    ):
        with pytest.raises(error) as caught:
            make()
        assert words in str(caught.value)
        assert [each.tolist() for each in on_host(group.all_reduce(xs))] == [[2.0] * 4] * 2
    with pytest.raises(ac.ArgumentValueError, match="different devices"):
        Group.local([0, 0])


@pytest.mark.parametrize("op", [None, "", "sum?", b"sum", 0, []])
def test_an_operator_that_is_none_does_not_reach_nccl(group, op):
    xs = [ac.ones(4, device=each).sync() for each in range(2)]
    for make in (group.all_reduce, group.reduce_scatter, lambda xs, op: group.reduce(xs, 0, op)):
        with pytest.raises(ac.ArgumentValueError, match="op is one of sum, prod, max, min, avg, not"):
            make(xs, op)
    assert [each.tolist() for each in on_host(group.all_reduce(xs))] == [[2.0] * 4] * 2


@pytest.mark.parametrize("root", [None, "0", True, 1.0, -1, 2])
def test_a_root_that_is_no_rank_does_not_reach_nccl(group, root):
    xs = [ac.ones(4, device=each).sync() for each in range(2)]
    for make in (group.broadcast, group.reduce):
        with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="root is a whole number"):
            make(xs, root)
    assert [each.tolist() for each in on_host(group.all_reduce(xs))] == [[2.0] * 4] * 2


def test_a_root_may_be_a_number_of_numpys(group):
    xs = [ac.full(4, each, device=each).sync() for each in range(2)]
    assert [each.tolist() for each in on_host(group.broadcast(xs, np.int64(1)))] == [[1.0] * 4] * 2


def test_what_is_shared_is_not_written(group):
    xs = [ac.ones(4, device=each).sync() for each in range(2)]
    shared = xs[0].share()
    with pytest.raises(ac.OwnershipError, match="was shared"):
        group.all_reduce(xs, out=[shared, xs[1]])[0].sync(60)


def test_a_group_that_was_closed_says_so():
    group = Group.local([0])
    group.close()
    group.close()
    with pytest.raises(ac.ClosedError, match="the group was closed"):
        group.all_reduce([ac.ones(1)])
    assert "closed" in repr(group)


@pytest.mark.parametrize("execute", [lambda op: op.sync(60), lambda op: op.graph()])
@pytest.mark.parametrize("built", ["all_reduce", "barrier"])
@pytest.mark.parametrize(("end", "error"), [("close", ac.ClosedError), ("abort", CollectiveError)])
def test_what_was_built_before_the_end_of_a_group_names_the_group(execute, built, end, error):
    group = Group.local([0, 1])
    made = group.barrier() if built == "barrier" else ac.zip(*group.all_reduce([ac.ones(1), ac.ones(1, device=1)]))
    getattr(group, end)()
    with pytest.raises(error, match="the group was closed" if end == "close" else "rank 0 aborted the group"):
        execute(made)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_what_is_kept_of_a_group_that_has_ended_holds_no_other_up(end):
    group = Group.local([0, 1])
    kept = group.all_reduce([ac.ones(1, device=each) for each in range(2)])
    getattr(group, end)()
    with Group.local([0, 1]) as other:
        sums = other.all_reduce([ac.ones(1, device=each) for each in range(2)])
        assert [each.tolist() for each in on_host(sums)] == [[2.0]] * 2
    del kept


def test_results_outlive_their_group():
    group = Group.local([0, 1])
    sums = group.all_reduce([ac.ones(1, device=each) for each in range(2)])
    barrier = group.barrier()
    barrier.submit()
    group.close()
    barrier.sync(60)
    assert [each.tolist() for each in on_host(sums)] == [[2.0]] * 2


def test_after_an_abort_all_fails_that_had_not_ended(run, latches):
    """The collective, what was made of it, and later uses; what has nothing to do with it goes on."""

    async def main() -> None:
        group = Group.local([0, 1])
        xs = [await ac.ones(4, device=each) for each in range(2)]
        before = await group.all_reduce(xs)[0]
        latch = latches()
        stream = ac.Device(1).stream()
        latch.hold(stream)
        ac.fill(xs[1], 2).on(stream).submit()
        sums = group.all_reduce(xs)
        made_of_it = ac.to_host(sums[0])
        future, other = made_of_it.submit(), ac.to_host(ac.ones(3)).submit()
        group.abort()
        latch.release()
        for late in (sums[0], future, made_of_it, ac.zip(sums[0], sums[1])):
            with pytest.raises(CollectiveError, match="rank 0 aborted the group"):
                await late
        array = sums[1]
        with pytest.raises(CollectiveError, match="aborted"):
            await ac.to_host(array)
        with pytest.raises(CollectiveError, match="make a new group"):
            group.all_reduce(xs)
        assert (await other).tolist() == [1] * 3
        assert (await ac.to_host(before)).tolist() == [2] * 4
        group.close()
        with Group.local([0, 1]) as again:
            assert (await ac.to_host(again.all_reduce(xs)[0])).tolist() == [3] * 4

    run(main)
