"""Awaits that complete without suspending: they leave the loop its turns, and each other theirs.

Always true: no time is measured. A test that fails by starving does not end, and the time-out of the suite ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import trio
import trio.testing

import aiocuda as ac
from aiocuda import _loops

ENOUGH = 20  # turns that another task has got: it is not left out


class Counter:
    """A task that counts its turns, and says when it has had enough."""

    def __init__(self) -> None:
        self.turns = 0

    async def __call__(self) -> None:
        while self.turns < ENOUGH:
            await anyio.lowlevel.checkpoint()
            self.turns += 1

    @property
    def has_enough(self) -> bool:
        return self.turns >= ENOUGH


def array() -> Any:
    return ac.zeros(8).sync()


async def await_operation(x: Any) -> None:
    await ac.fill(x, 1)


async def await_value(_: Any) -> None:
    await ac.value(1)


async def await_within(x: Any) -> None:
    await ac.fill(x, 1).within(60)


async def await_future(x: Any) -> None:
    await ac.fill(x, 1).submit()


async def await_done_future(x: Any) -> None:
    future = ac.value(1).submit()
    for _ in range(100):
        await future


async def await_future_within(x: Any) -> None:
    await ac.fill(x, 1).submit().within(60)


async def await_as_completed(x: Any) -> None:
    async for future in ac.as_completed([ac.value(1), ac.value(2)]):
        future.result()


async def await_wait(x: Any) -> None:
    await ac.wait([ac.fill(x, 1)])


async def await_stream(x: Any) -> None:
    await ac.Device(0).stream().synchronize()


async def await_stream_within(x: Any) -> None:
    await ac.Device(0).stream().synchronize().within(60)


async def await_event(x: Any) -> None:
    await EVENTS[0]


async def await_event_within(x: Any) -> None:
    await EVENTS[0].within(60)


async def await_mapped(x: Any) -> None:
    await ac.fill(x, 1).then(lambda filled: ac.fill(filled, 2))


async def await_chunks(x: Any) -> None:
    async for _ in ac.stream_chunks([np.zeros(4)]):
        pass


EVENTS: list[Any] = []
AWAITS = [
    await_operation, await_value, await_within, await_future, await_done_future, await_future_within,
    await_as_completed, await_wait, await_stream, await_stream_within, await_event, await_event_within,
    await_mapped, await_chunks,
]  # fmt: skip


@pytest.fixture
def passed_event() -> Iterator[None]:
    EVENTS[:] = [ac.Device(0).stream().record()]
    EVENTS[0].sync()
    yield
    EVENTS.clear()


@pytest.mark.parametrize("once", AWAITS, ids=lambda once: once.__name__)
def test_another_task_gets_turns(run, passed_event, once):
    """Also where each await is complete at once: a spin as long as one may be."""

    async def main() -> None:
        x, counter = array(), Counter()
        async with anyio.create_task_group() as group:
            group.start_soon(counter)
            with ac.use(spin_us=100_000):
                while not counter.has_enough:
                    await once(x)

    run(main)


@pytest.mark.parametrize("once", AWAITS, ids=lambda once: once.__name__)
def test_a_time_out_fires(run, passed_event, once):
    async def main() -> bool:
        x = array()
        with ac.use(spin_us=100_000), anyio.move_on_after(0.05) as scope:
            while True:
                await once(x)
        return scope.cancelled_caught

    assert run(main)


def test_asyncios_own_time_out_fires(run_asyncio):
    async def fill(x: Any) -> None:
        async with asyncio.timeout(0.05):
            while True:
                await ac.fill(x, 1)

    async def main() -> None:
        with ac.use(spin_us=100_000), pytest.raises(TimeoutError):
            await fill(array())

    run_asyncio(main)


def test_a_task_that_never_suspends_by_itself_can_be_cancelled(run):
    async def main() -> int:
        x, count, counter = array(), 0, Counter()

        async def fill() -> None:
            nonlocal count
            with ac.use(spin_us=100_000):
                while True:
                    await ac.fill(x, 1)
                    count += 1

        async with anyio.create_task_group() as group:
            group.start_soon(fill)
            await counter()
            group.cancel_scope.cancel()
        return count

    assert run(main) > 0


def test_cancelled_in_line_an_operation_is_not_submitted(run, turn_us):
    turn_us(0)

    async def main() -> None:
        x = array()
        op = ac.fill(x, 1)
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await op

            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert op._state == "pending"
        assert (await ac.to_host(op))[0] == 1  # and can be awaited by others

    run(main)


def test_a_time_out_passes_in_line(run, turn_us):
    """A result that is there is given all the same. Others may be late, and can be awaited again."""
    turn_us(0)

    async def main() -> None:
        x = array()
        done, future = ac.fill(x, 1), ac.fill(x, 2).submit()
        await done
        await future
        assert await done.within(0) is await done
        assert await future.within(0) is await future
        late = ac.fill(x, 3)
        with contextlib.suppress(ac.DeviceTimeoutError):  # uvloop may have called it before it looks at the time
            await late.within(0)
        assert (await ac.to_host(late))[0] == 3

    run(main)


def start_eagerly(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """As asyncio's factory does, whichever options the loop gives: uvloop gives one that Python 3.13.0's refuses."""
    return asyncio.Task(coroutine, loop=loop, **{**options, "eager_start": True})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from Python 3.12 on")
def test_tasks_that_start_eagerly_leave_the_loop_its_turns(run_asyncio):
    """Each of them runs within the step of another task, until it suspends."""

    async def main() -> None:
        loop, x, counter = asyncio.get_running_loop(), array(), Counter()
        loop.set_task_factory(start_eagerly)
        counting = asyncio.create_task(counter())

        async def fill() -> None:
            await ac.fill(x, 1)

        with ac.use(spin_us=100_000):
            while not counter.has_enough:
                await asyncio.gather(*(asyncio.create_task(fill()) for _ in range(100)))
        await counting

    run_asyncio(main)


def test_many_tasks_are_not_woken_in_herds(run, turn_us):
    """Each of ten thousand is told to come once or twice, and not whenever the loop comes round."""
    turn_us(100)

    async def main() -> int:
        async with anyio.create_task_group() as group:
            for number in range(10_000):
                group.start_soon(ask, ac.value(number))
        return _loops.current_port().native.turn_calls

    assert 5_000 < run(main) < 20_000


def test_awaits_that_came_together_take_turns_with_later_ones(run, turn_us):
    """Not those who come while others are in line, and could go on at once: one of the others goes before each."""
    turn_us(0)
    order: list[int] = []

    async def main() -> None:
        x = array()

        async def fill(number: int) -> None:
            for _ in range(3):
                await ac.fill(x, number)
                order.append(number)

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(fill, number)

    with ac.use(spin_us=1_000_000):  # one that goes on is done before the next one does
        run(main)
    last_first = max(order.index(number) for number in range(5))
    assert all(one != other for one, other in itertools.pairwise(order[: last_first + 1]))


def test_an_await_dropped_in_line_holds_up_nobody(run_asyncio, turn_us):
    turn_us(0)

    async def main() -> None:
        x = array()
        first = ac.fill(x, 1).__await__()
        first.send(None)  # in line
        del first
        gc.collect()
        assert (await ac.to_host(ac.fill(x, 2)))[0] == 2

    run_asyncio(main)


def test_a_loop_that_ends_with_awaits_in_line_lets_go_of_them(run_asyncio, turn_us):
    turn_us(0)
    left: list[Any] = []

    async def main() -> None:
        left.append(ac.fill(array(), 1).__await__())
        left[0].send(None)

    run_asyncio(main)
    left.clear()
    gc.collect()
    assert run_asyncio(lambda: ask(ac.value(3))) == 3


async def ask(op: Awaitable[Any]) -> Any:
    return await op


def test_under_trio_what_is_done_is_a_checkpoint():
    """As trio's rules ask: others get a turn, and a cancellation is heard."""
    op, future = ac.value(1), ac.value(2).submit()
    op.sync()
    event = ac.Device(0).stream().record()
    event.sync()

    async def main() -> None:
        for done in (op, future, event, ac.Device(0).stream().synchronize(), ac.wait([future])):
            with trio.testing.assert_checkpoints():
                await done
        for done in (op, future, event):
            with trio.move_on_after(0) as scope:
                await done
            assert scope.cancelled_caught

    trio.run(main)


def test_under_trio_a_cancelled_await_submits_nothing():
    async def main() -> None:
        op = ac.fill(array(), 1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await op
        assert scope.cancelled_caught
        assert op._state == "pending"

    trio.run(main)
