"""An execution that had to stop goes on where it stopped: how often walks look at operations grows with their number.

Always true: visits are counted, and not time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native

LONG = 100_000


@contextmanager
def at_most(visits: float) -> Iterator[None]:
    """Say that what is done looks at operations so many times at most."""
    before = _native.walk_visits()
    yield
    assert _native.walk_visits() - before <= visits


def plus_one(value: int) -> int:
    return value + 1


def first_of(values: np.ndarray) -> int:
    return int(values[0])


def chain_of(grow: Callable[[Any], Any], n: int) -> Any:
    op: Any = ac.value(0)
    for _ in range(n):
        op = grow(op)
    return op


async def ask(op: Any) -> Any:
    return await op


EXECUTIONS: dict[str, Callable[[Any], Any]] = {
    "sync": lambda op: op.sync(),
    "await": lambda op: asyncio.run(ask(op)),
    "within": lambda op: asyncio.run(ask(op.within(60))),
    "future": lambda op: asyncio.run(ask(op.schedule(0))),
    "sync of a future": lambda op: op.schedule(0).sync(60),
}


@pytest.mark.parametrize("execute", EXECUTIONS.values(), ids=EXECUTIONS)
def test_a_chain_of_maps_is_visited_a_few_times_for_each(execute):
    n = 2_000
    op = chain_of(lambda before: before.map(plus_one), n)
    with at_most(5 * n + 10):
        assert execute(op) == n


@pytest.mark.parametrize(
    "grow",
    [
        lambda op: op.map(plus_one),
        lambda op: op.then(plus_one),
        lambda op: ac.zip(op, 1).first(),
    ],
    ids=["map", "then", "zip and pick"],
)
def test_a_chain_of_a_hundred_thousand_is_built_runs_and_ends(grow):
    op = chain_of(grow, LONG)
    with at_most(10 * LONG):
        assert op.sync() in (0, LONG)
    del op
    gc.collect()


def test_a_future_that_is_asked_again_and_again_goes_on():
    n = 2_000
    future = chain_of(lambda before: before.map(plus_one), n).schedule(0)
    with at_most(5 * n + 10):
        future.add_done_callback(lambda _: None)
        assert future.sync(60) == n
    with at_most(0):
        assert future.done()


def test_a_zip_of_maps_is_visited_once_for_each_map_that_it_waits_for():
    width = 2_000
    parts = [ac.value(i).map(plus_one) for i in range(width)]
    with at_most(6 * width):
        assert ac.zip(*parts).sync() == tuple(range(1, width + 1))


def test_chains_of_unequal_depth_do_not_visit_one_another():
    """Some chains end in each round. Looking at all of them in every round would take n * n visits."""
    width = 100
    chains = [chain_of(lambda before: before.map(plus_one), depth) for depth in range(width)]
    operations = width * (width + 1) / 2
    with at_most(6 * operations):
        assert ac.zip(*chains).sync() == tuple(range(width))


def test_maps_of_work_on_many_streams_are_visited_once_for_each(kernels, device):
    width = 200
    streams = [device.stream() for _ in range(8)]
    with at_most(16 * width):  # five operations each, three visits at most
        ops = [
            ac.to_host(kernels.increment(ac.full(1, i, np.int32), 1, threads=1).on(streams[i % 8])).map(first_of)
            for i in range(width)
        ]
        assert ac.zip(*ops).sync() == tuple(range(1, width + 1))
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_fan_of_picks_is_linear(is_mapped):
    whole: Any = ac.zip(*range(LONG))
    if is_mapped:
        whole = whole.map(lambda values: values)
    picks = whole.unzip(LONG)
    with at_most(6 * LONG):
        assert ac.zip(*picks).sync() == tuple(range(LONG))


def test_an_attempt_to_enter_a_full_stream_costs_the_same_for_few_and_for_many(kernels, held, stream):
    array = ac.zeros(1, np.int32).sync_on(ac.Device(0).stream())
    costs, futures = [], []
    with ac.use(max_in_flight=4):
        while not futures or futures[-1].done():
            futures.append(kernels.increment(array, 1, threads=1).schedule(stream))
            with pytest.raises(ac.DeviceTimeoutError):
                futures[-1].sync(0)
            if len(futures) == 4:
                break
        for n in (10, 1_000):
            op: Any = array
            for _ in range(n):
                op = kernels.increment(op, 1, threads=1)
            futures.append(op.schedule(stream))
            with pytest.raises(ac.DeviceTimeoutError):
                futures[-1].sync(0)  # it stops where the stream is full
            before = _native.walk_visits()
            for _ in range(10):
                with pytest.raises(ac.DeviceTimeoutError):
                    futures[-1].sync(0)
            costs.append(_native.walk_visits() - before)
    assert held.is_holding
    assert costs[0] == costs[1]
    assert 10 <= costs[0] <= 50
    held.release()
    for future in futures:
        future.sync(60)
    assert ac.to_host(array).sync()[0] == 1_000 + 10 + len(futures) - 2


def test_what_maps_are_shared_by_several_is_done_once():
    calls: list[str] = []

    def named(name: str) -> Any:
        return ac.value(name).map(lambda value: (calls.append(value), value)[1])

    a, b, c = named("a"), named("b"), named("c")
    assert ac.zip(ac.zip(b, c), b, c, a).sync() == (("b", "c"), "b", "c", "a")
    assert calls == ["b", "c", "a"]
    d, e, f = named("d").map(str.upper), named("e"), named("f").map(str.upper)
    assert ac.zip(ac.zip(e, f), e, d, ac.zip(f, d)).sync() == (("e", "F"), "e", "D", ("F", "D"))
    assert sorted(calls[3:]) == ["d", "e", "f"]


def test_two_executions_that_stop_in_the_same_operations_disturb_nobody(held):
    """Each has a path of its own, and each of them is stopped in the middle while the other goes on."""
    shared = ac.to_host(ac.full(2, 3, np.int32)).map(lambda values: int(values.sum()))
    first, second = shared.map(plus_one), ac.zip(shared, shared.map(str))

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(ask(op)) for op in (first, second, first)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert held.is_holding
        held.release()
        return [await task for task in tasks]

    assert asyncio.run(main()) == [7, (6, "6"), 7]


def test_an_operation_that_a_function_returns_and_that_waits_for_itself_is_an_error():
    """It is found also behind a map, where what waits for itself was parked before."""
    made: list[Any] = []
    inner = ac.value(1).map(plus_one).then(lambda _: outer_of(made))
    made.append(inner.map(plus_one))

    def outer_of(held: list[Any]) -> Any:
        return held[0]

    with pytest.raises(ac.ArgumentValueError, match="waits for itself"):
        made[0].sync()
    made.clear()


def test_an_operation_is_not_taken_for_its_own_ancestor_while_another_thread_stops_in_it(in_threads):
    is_called, may_go_on = threading.Event(), threading.Event()

    def wait(value: int) -> int:
        is_called.set()
        assert may_go_on.wait(60)
        return value + 1

    op = ac.value(1).map(wait).map(plus_one)
    found: list[int] = []

    def later() -> None:
        assert is_called.wait(60)
        future = op.submit()
        may_go_on.set()
        found.append(future.sync(60))

    in_threads(lambda: found.append(op.sync()), later)
    assert found == [3, 3]


def test_an_execution_that_is_dropped_in_the_middle_leaves_nothing_behind(held):
    op = ac.to_host(ac.full(2, 3, np.int32)).map(lambda values: int(values.sum())).map(plus_one)
    waiting = ask(op)

    async def main() -> None:
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    held.release()
    assert op.sync() == 7


class Node:
    """Something of a user's that holds a future."""


def test_a_cycle_through_a_paused_execution_is_collected(held):
    def in_a_cycle() -> weakref.ref[Node]:
        node = Node()
        node.future = ac.to_host(ac.full(1, 1, np.int32)).map(lambda _: node).submit()
        assert not node.future.done()  # it has walked to the map, and stopped there
        return weakref.ref(node)

    seen = in_a_cycle()
    gc.collect()
    assert seen() is None
    assert held.is_holding
