"""`await op` runs no Python of aiocuda's where it does not wait, and little where it does."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from collections.abc import Iterator
from typing import Any

import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import held_up


async def ask(op: Any) -> Any:
    return await op


def test_an_await_that_spins_runs_no_python_of_aiocudas(run, kernels, turn_us, frames):
    turn_us(10**9)  # none of them has to let the loop come round
    array = ac.zeros(4, np.int32).sync()
    ops = [kernels.increment(array, 4, threads=4) for _ in range(6)]

    async def main() -> Any:
        await ops[0]  # the loop's port is made
        with ac.use(spin_us=10**6):
            await ops[1]  # what waits took of late says that it pays
            with frames() as counted:
                for op in ops[2:]:
                    await op
        return counted

    assert run(main).codes == set()
    assert ac.to_host(array).sync()[0] == 6


def test_an_await_of_a_future_that_spins_runs_no_python_of_aiocudas(run, kernels, turn_us, frames):
    turn_us(10**9)  # none of them has to let the loop come round
    array = ac.zeros(4, np.int32).sync()

    async def main() -> Any:
        await futures[0]
        with frames() as counted:
            for future in futures[1:]:
                await future
        return counted

    with ac.use(spin_us=10**6):
        futures = [kernels.increment(array, 4, threads=4).schedule(0) for _ in range(6)]
    assert run(main).codes == set()
    assert all(future.done() for future in futures)


def test_an_await_of_what_is_done_runs_no_python_of_aiocudas(run_asyncio, frames):
    op = ac.to_host(ac.ones(3))

    async def main() -> Any:
        await op
        with frames() as counted:
            await op
        return counted

    assert run_asyncio(main).codes == set()


@pytest.mark.parametrize("is_future", [False, True])
def test_an_await_that_waits_runs_two_frames_of_aiocudas_at_most(run, lanes, turn_us, is_future, frames):
    turn_us(10**9)  # it never has to wait for a turn of the loop
    first = lanes(2)
    ops: list[Any] = [each.op().submit() if is_future else each.op() for each in first]

    async def release(lane: Any) -> None:
        await anyio.lowlevel.checkpoint()
        lane.release()

    async def main() -> Any:
        with ac.use(spin_us=0):
            first[0].release()
            await ops[0]  # the loop's port is made
            async with anyio.create_task_group() as group:
                group.start_soon(release, first[1])
                with frames() as counted:
                    await ops[1]
        return counted

    counted = run(main)
    assert len(counted.codes) <= 2, counted.codes


class Counted:
    """An await of an operation, that counts how often it gives up the loop."""

    def __init__(self, op: Any) -> None:
        self._op = op
        self.waits = 0

    def __await__(self) -> Any:
        step, answer = self._op.__await__(), None
        while True:
            try:
                asked = step.send(answer)
            except StopIteration as end:
                return end.value
            self.waits += 1
            answer = yield asked


@pytest.fixture
def drives() -> Iterator[list[Any]]:
    """List the operations that were driven, one for each drive: each is told of, however short it was."""
    driven: list[Any] = []
    _native.set_held_up(lambda op, _: driven.append(op), -1)
    yield driven
    held_up.restore(held_up._watching)  # as it was


@pytest.mark.parametrize("is_future", [False, True])
def test_an_await_that_waits_drives_once_makes_one_waiter_and_is_woken_once(run, lanes, drives, turn_us, is_future):
    """The wake carries the outcome: nothing is driven, armed or waited for a second time."""
    turn_us(10**9)  # it never has to wait for a turn of the loop
    first = lanes(2)

    async def release(lane: Any, counted: Counted) -> None:
        while not counted.waits:
            await anyio.lowlevel.checkpoint()
        lane.release()

    async def main() -> tuple[Counted, Any, Any]:
        with ac.use(spin_us=0):
            first[0].release()
            await first[0].op()  # the loop's port is made
            op = first[1].op()
            counted = Counted(op.schedule(0) if is_future else op)
            before = ac.statistics()
            drives.clear()
            async with anyio.create_task_group() as group:
                group.start_soon(release, first[1], counted)
                await counted
            return counted, before, ac.statistics()

    counted, before, after = run(main)
    assert len(drives) == 1
    assert counted.waits == 1
    assert after.completed - before.completed == 1
    assert after.pending == before.pending
    assert after.spins == before.spins


def test_the_time_out_of_an_await_is_no_work_of_the_result(run, lane):
    op = lane.op()

    async def main() -> Any:
        with pytest.raises(ac.DeviceTimeoutError):
            await op.within(0)
        lane.release()
        return await op.within(60)

    assert run(main) is op.sync()


def test_an_await_is_used_once(run):
    op = ac.to_host(ac.ones(3))
    used: list[Any] = []

    class Kept:
        def __await__(self) -> Any:
            used.append(op.__await__())
            return used[0]

    async def main() -> Any:
        return await Kept()

    assert run(main).sum() == 3
    with pytest.raises(RuntimeError, match="cannot reuse an await that has ended"):
        used[0].send(None)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        used[0].throw(ValueError)
    used[0].close()
    assert run(ask, op).sum() == 3


def test_an_error_that_is_thrown_in_before_it_begins_comes_out():
    op = ac.to_host(ac.ones(3))
    waiting = op.__await__()
    with pytest.raises(ZeroDivisionError):
        waiting.throw(ZeroDivisionError())
    with pytest.raises(TypeError, match="exception"):
        op.__await__().throw(3)
    assert "pending" in repr(op)


@pytest.mark.parametrize("how", ["throw", "close", "drop"])
def test_an_await_that_is_left_gives_its_place_away(run_asyncio, lane, how):
    """A coroutine is driven by hand up to its first wait, inside of a loop, and left."""
    op = ac.to_host(lane.op())

    async def main() -> None:
        coroutine = ask(op)
        future = coroutine.send(None)
        assert asyncio.isfuture(future)
        if how == "throw":
            with pytest.raises(ZeroDivisionError):
                coroutine.throw(ZeroDivisionError())
        elif how == "close":
            coroutine.close()
        del coroutine
        lane.release()
        np.testing.assert_array_equal(await op, [1] * 4)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not future.done() or future.cancelled()

    run_asyncio(main)


def test_a_future_that_is_cancelled_wakes_its_awaits_once(run_asyncio, lane):
    """The device comes to its end later, and tells awaits that are gone."""
    future = ac.to_host(lane.op()).submit()

    async def main() -> None:
        tasks = [asyncio.ensure_future(ask(future)) for _ in range(3)]
        await asyncio.sleep(0)
        assert future.cancel()
        for task in tasks:
            with pytest.raises(ac.CancelledError):
                await task
        lane.release()
        await ac.Device(0).synchronize()
        with pytest.raises(ac.CancelledError):
            await future

    run_asyncio(main)


def test_an_await_that_was_cancelled_holds_nothing(run_asyncio, lane):
    """Its token is still with the reactor, and keeps neither the operation nor its result."""

    async def main() -> weakref.ref[Any]:
        op = ac.to_host(lane.op())
        task = asyncio.ensure_future(ask(op))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(op)

    seen = run_asyncio(main)
    gc.collect()
    assert seen() is None


def test_tools_see_what_is_awaited(run_asyncio, lane):
    op = ac.to_host(lane.op())
    assert inspect.isawaitable(op)
    assert not inspect.iscoroutine(op)
    assert not asyncio.isfuture(op)

    async def main() -> None:
        coroutine = ask(op)
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        waiting: Any = coroutine.cr_await
        assert "await of <DeviceOp: a copy" in repr(waiting)
        assert waiting.gi_frame is None
        assert not waiting.gi_running
        assert waiting.gi_yieldfrom is not None
        assert "ask" in str(task.get_stack())
        lane.release()
        await task
        assert "ended" in repr(waiting)

    run_asyncio(main)


def test_a_cycle_through_an_await_is_collected(run_asyncio, lane):
    class Node:
        pass

    async def main() -> weakref.ref[Node]:
        node = Node()
        op = ac.value(1).then(lambda _: node)
        node.waiting = op.__await__()  # type: ignore[attr-defined]
        return weakref.ref(node)

    seen = run_asyncio(main)
    gc.collect()
    assert seen() is None


def test_an_await_without_a_loop_says_so():
    op = ac.to_host(ac.ones(3))
    for go_on in (lambda: op.__await__().send(None), lambda: next(op.__await__())):
        with pytest.raises(ac.AiocudaError, match=r"^no event loop runs in this thread"):
            go_on()
    assert op.sync().sum() == 3


def test_an_await_that_ended_in_the_middle_of_its_wait_may_be_part_of_a_cycle(run_asyncio, latch, kernels, device):
    """The garbage collector clears it, which must not end its wait a second time."""
    stream = device.stream()
    array = ac.zeros(4, np.int32).sync_on(stream)
    latch.hold(stream)
    seen = []

    async def main() -> None:
        op = kernels.increment(array, 4, threads=4).on(stream)
        awaiting = op.__await__()
        awaiting.send(None)  # it waits for the device
        awaiting.close()
        latch.release()
        await op
        for _ in range(3):
            await anyio.lowlevel.checkpoint()  # its token comes out
        cycle = [awaiting, Cycle()]
        seen.append(weakref.ref(cycle[1]))
        cycle.append(cycle)

    run_asyncio(main)
    gc.collect()
    assert seen[0]() is None


class Cycle:
    """Something that a weak reference can be made to."""
