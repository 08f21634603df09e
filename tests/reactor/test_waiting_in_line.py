"""Operations that find a stream full stand in line. They are first come first served, and are woken when there is room,
not before.

A stream is held by a latch, or drips: each of its launches waits until the host has let so many pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine.placement import MOST_IN_FLIGHT

DRIP = ac.kernel(
    r"""
extern "C" __global__ void drip(unsigned long long passing, int* count) {
    int mine = (*count)++;
    while (*(volatile int*)passing <= mine) {}
}""",
    "drip",
)


class Drip:
    """A stream whose launches pass as the host lets them."""

    def __init__(self, stream: ac.Stream) -> None:
        self.stream = stream
        self._flag = ac.empty_host(1, np.int32).sync()
        self._passing = self._flag.numpy()
        self._passing[0] = 0
        self._count = ac.zeros(1, np.int32).sync_on(stream)
        self._before = _native.stream_submitted(stream._index)

    def op(self) -> ac.DeviceOp[Any]:
        return DRIP(self._flag.address, self._count, grid=1, block=1)

    @property
    def submitted(self) -> int:
        return _native.stream_submitted(self.stream._index) - self._before

    def let_pass(self, count: int) -> None:
        self._passing[0] = count


@pytest.fixture
def drip(device) -> Iterator[Drip]:
    DRIP.compile(device)
    made = Drip(device.stream())
    yield made
    made.let_pass(1 << 30)


@pytest.mark.parametrize("kind", ["await", "future", "as_completed"])
def test_a_stream_that_drips_wakes_those_for_whom_there_is_room(run, drip, waits, kind):
    """Not the whole line for each drop: what is tried again and again would be counted."""
    tasks, most = 10_000 if kind == "await" else 3000, MOST_IN_FLIGHT
    drop = most * 3 // 5  # more than half, at which the next are called

    async def one() -> None:
        with ac.use(drip.stream, spin_us=0):
            await (drip.op() if kind == "await" else drip.op().schedule(drip.stream))

    async def all_of_them() -> None:
        with ac.use(drip.stream, spin_us=0):
            assert len([each async for each in ac.as_completed([drip.op() for _ in range(tasks)])]) == tasks

    async def main() -> None:
        async with anyio.create_task_group() as group:
            if kind == "as_completed":
                group.start_soon(all_of_them)
            else:
                for _ in range(tasks):
                    group.start_soon(one)
            for passed in range(0, tasks, drop):
                drip.let_pass(passed)
                while drip.submitted < min(tasks, passed + most):
                    await anyio.lowlevel.checkpoint()
                assert drip.submitted <= passed + most
            # They are in line by now, or have been. as_completed() begins 128 in a turn, and some of those find room.
            assert waits() >= (tasks // 2 if kind == "as_completed" else tasks - most)
            drip.let_pass(tasks)

    run(main)
    assert drip.submitted == tasks
    # On a busy machine a task that was called comes late. Others are called in its place, and stand in line
    # again. To wake the whole line for each drop would take nine waits for each of 3,000 tasks, 32 for each of 10,000.
    assert waits() <= 4 * tasks


@pytest.mark.parametrize("policy", [ac.Dataflow(4), ac.RoundRobin(4), ac.LeastLoaded(4)], ids=repr)
def test_a_line_for_each_stream_and_work_of_several_steps(run, kernels, latch, waits, policy, turns):
    """Called for one stream, an operation may go to another, where those who came before it still go first."""
    tasks = 600

    async def one(i: int) -> None:
        with ac.use(policy, max_in_flight=8):
            assert list(await ac.to_host(kernels.increment(ac.full(4, i, np.int32), 4, threads=4))) == [i + 1] * 4

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for i in range(tasks):
                group.start_soon(one, i)
            await turns()
            latch.release()

    with ac.use(policy):
        latch.hold()
    run(main)
    assert waits() <= 8 * tasks  # three submissions each, on four streams


def test_first_come_first_served(run, latch, stream, order, turns):
    arrived: list[int] = []

    async def one(i: int) -> None:
        with ac.use(stream, max_in_flight=1):
            arrived.append(i)
            await order.op(i)

    async def main() -> None:
        latch.hold(stream)
        async with anyio.create_task_group() as group:
            for i in range(50):
                group.start_soon(one, i)
            await turns()
            assert latch.is_holding
            latch.release()

    run(main)
    assert order.submitted == arrived


@pytest.mark.parametrize("kind", ["await", "future", "within", "wait"])
def test_who_is_cancelled_leaves_the_line(run, latch, stream, order, waits, kind, turns):
    """Most are cancelled while they wait; their turns come to nobody, and the others' do."""
    tasks, kept = 150, 10

    def waiting(i: int) -> Any:
        op = order.op(i)
        return {"await": lambda: op, "future": lambda: op.schedule(stream), "within": lambda: op.within(3600),
                "wait": lambda: ac.wait([op])}[kind]()  # fmt: skip

    async def one(i: int) -> None:
        with ac.use(stream, max_in_flight=1):
            await waiting(i)

    async def main() -> None:
        latch.hold(stream)
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as cancelled:
                for i in range(tasks):
                    (group if i % (tasks // kept) == 3 else cancelled).start_soon(one, i)
                    await anyio.lowlevel.checkpoint()
                await turns()
                cancelled.cancel_scope.cancel()
            assert latch.is_holding
            assert _native.pending_count() <= kept + 4  # nobody else is left in line
            latch.release()

    run(main)
    assert order.submitted[-kept:] == list(range(3, tasks, tasks // kept))
    assert waits() <= tasks + 2 * kept


def test_a_future_that_is_cancelled_leaves_the_line(run, latch, stream, order, turns):
    async def main() -> None:
        latch.hold(stream)
        with ac.use(stream, max_in_flight=1):
            futures = [order.op(i).schedule(stream) for i in range(40)]
            for future in futures:
                future.add_done_callback(lambda future: told.append(future))
            await turns()
            for future in futures[:-3]:
                assert future.cancel()
            assert _native.pending_count() <= 3 + 4
            latch.release()
            for future in futures[-3:]:
                await future
            while len(told) < len(futures):
                await anyio.lowlevel.checkpoint()

    told: list[Any] = []
    run(main)
    assert order.submitted == [37, 38, 39]


def test_who_awaits_a_future_that_is_cancelled_leaves_the_line(run, latch, stream, order, turns):
    async def wait(future: Any) -> None:
        with pytest.raises(ac.CancelledError):
            await future

    async def main() -> None:
        latch.hold(stream)
        with ac.use(stream, max_in_flight=1):
            futures = [order.op(i).schedule(stream) for i in range(40)]
            async with anyio.create_task_group() as group:
                for future in futures[:-1]:
                    group.start_soon(wait, future)
                await turns()
                for future in futures[:-1]:
                    future.cancel()
                assert _native.pending_count() <= 4
            latch.release()
            await futures[-1]

    run(main)
    assert order.submitted[-1] == 39
    assert len(order.submitted) <= 2  # the stream has room for one at once


def test_a_call_to_who_has_been_cancelled_is_handed_on(run, latch, stream, order, turns):
    """The call is out, and its loop has not come round yet."""

    async def one(i: int) -> None:
        with ac.use(stream, max_in_flight=1):
            await order.op(i)

    async def main() -> None:
        latch.hold(stream)
        async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
            for i in range(30):
                (group if i == 29 else cancelled).start_soon(one, i)
                await anyio.lowlevel.checkpoint()
            await turns()
            latch.release()
            stream.synchronize().sync()  # what was watched for has passed before that
            cancelled.cancel_scope.cancel()

    run(main)
    assert order.submitted == [29]


@pytest.mark.parametrize("as_part", [False, True])
def test_who_stands_in_line_for_what_others_submit_is_told(run, latch, stream, device, order, waits, as_part, turns):
    op = order.op("shared")
    whole = ac.zip(op, ac.value(2)) if as_part else op

    async def wait() -> None:
        with ac.use(stream, max_in_flight=1):
            await op

    async def main() -> None:
        latch.hold(stream)
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await turns()
            assert waits() == 1
            with ac.use(device.stream()):
                await whole
        assert latch.is_holding

    run(main)
    assert order.submitted == ["shared"]


def test_an_operation_that_is_dropped_leaves_the_line(latch, stream, order):
    """Its coroutine is never finished."""
    latch.hold(stream)
    loop = asyncio.new_event_loop()

    async def one(name: str) -> None:
        with ac.use(stream, max_in_flight=1):
            await order.op(name)

    async def main() -> None:
        dropped = one("dropped")
        task = asyncio.ensure_future(one("kept"))
        with pytest.raises(RuntimeError, match="dropped"):
            await asyncio.gather(task, throwing(dropped))
        latch.release()
        await task

    async def throwing(coroutine: Any) -> None:
        coroutine.send(None)
        coroutine.close()
        raise RuntimeError("dropped")

    loop.run_until_complete(main())
    loop.close()
    assert order.submitted == ["kept"]
