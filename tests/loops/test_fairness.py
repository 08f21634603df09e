"""A flood of operations leaves other tasks their turns, and urgent ones go first; in turns and submissions, not times.

Always true: the other task's operation goes to a stream of its own, where nothing waits. The flood is far larger than
what may go before that operation, so a flood that goes first fails the test.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import sniffio

import aiocuda as ac

FLOOD = 10_000
TURN = 128  # operations that one step of an await submits
TURN_OF_A_WAIT = 96  # the same of `wait` and `as_completed`


def submitted() -> int:
    return ac.statistics().submitted


@pytest.fixture
def fills(device) -> Callable[..., list[ac.DeviceOp[Any]]]:
    """Make so many operations, of some streams in turn."""

    def make(count: int, streams: int = 16) -> list[ac.DeviceOp[Any]]:
        places = [(device.stream(), ac.zeros(8, np.int32).sync()) for _ in range(streams)]
        return [ac.fill(x, i).on(stream) for i, (stream, x) in zip(range(count), itertools.cycle(places), strict=False)]

    return make


async def one_dag(ops: list[ac.DeviceOp[Any]]) -> None:
    await ac.zip(*ops)


async def one_future(ops: list[ac.DeviceOp[Any]]) -> None:
    await ac.zip(*ops).schedule(ac.Device(0))


async def one_dag_among_others(ops: list[ac.DeviceOp[Any]]) -> None:
    await ac.wait([ac.value(1), ac.zip(*ops)])


def in_hundreds(ops: list[ac.DeviceOp[Any]]) -> list[ac.DeviceOp[Any]]:
    return [ac.zip(*ops[i : i + 100]) for i in range(0, len(ops), 100)]


async def wait_for_dags(ops: list[ac.DeviceOp[Any]]) -> None:
    """Each of them is submitted whole, as it has less than a turn's."""
    done, pending = await ac.wait(in_hundreds(ops))
    assert (len(done), len(pending)) == (FLOOD // 100, 0)


async def dags_as_completed(ops: list[ac.DeviceOp[Any]]) -> None:
    assert len([future async for future in ac.as_completed(in_hundreds(ops))]) == FLOOD // 100


async def dags_behind_functions(ops: list[ac.DeviceOp[Any]]) -> None:
    """All of them have more to submit at once, when they have begun."""
    await ac.wait([ac.value(0).map(lambda _: None).then(lambda _, op=op: op) for op in in_hundreds(ops)])


async def wait(ops: list[ac.DeviceOp[Any]]) -> None:
    done, pending = await ac.wait(ops)
    assert (len(done), len(pending)) == (FLOOD, 0)


async def as_completed(ops: list[ac.DeviceOp[Any]]) -> None:
    assert len([future async for future in ac.as_completed(ops)]) == FLOOD


@pytest.mark.parametrize(
    "flood",
    [
        one_dag,
        one_future,
        one_dag_among_others,
        wait,
        as_completed,
        wait_for_dags,
        dags_as_completed,
        dags_behind_functions,
    ],
    ids=lambda flood: flood.__name__,
)
def test_one_task_s_flood_goes_before_another_s_operation_by_a_turn_at_most(run, device, fills, flood):
    x = ac.zeros(8, np.int32).sync()
    before_it: list[int] = []
    in_a_turn: list[int] = []
    loop = ""

    async def main() -> None:
        nonlocal loop
        loop = sniffio.current_async_library()
        is_over = False

        async def send() -> None:
            nonlocal is_over
            await flood(fills(FLOOD))
            is_over = True

        async def look() -> None:
            while not is_over:
                before = submitted()
                await anyio.lowlevel.checkpoint()
                in_a_turn.append(submitted() - before)

        stream = device.stream()
        async with anyio.create_task_group() as group:
            first = submitted()
            group.start_soon(look)
            group.start_soon(send)
            while submitted() == first:
                await anyio.lowlevel.checkpoint()
            while submitted() - first < FLOOD and not is_over:
                begun = submitted()
                with ac.use(stream):
                    await ac.fill(x, 1).inspect(lambda _, begun=begun: before_it.append(submitted() - begun))

    run(main)
    assert before_it
    # While an await waits for its turn, the flood may end one turn and begin another. Trio runs the tasks of one round
    # in a random order, so there one task may have several rounds before another.
    if loop != "trio":
        assert max(before_it) <= 2 * TURN + 2
    assert max(in_a_turn) <= 2 * TURN + 2


def test_ten_thousand_tasks_go_before_another_s_operation_by_a_few(run, turn_us, device):
    """One await goes on in each turn of the loop; they are served one by one, and the late one in between."""
    turn_us(0)
    x = ac.zeros(8, np.int32).sync()
    stream = device.stream()
    done = 0
    before_it: list[int] = []

    async def one() -> None:
        nonlocal done
        await ac.value(1)
        done += 1

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(FLOOD):
                group.start_soon(one)
            while done < 3:
                await anyio.lowlevel.checkpoint()
            for _ in range(20):
                begun = done
                with ac.use(stream):
                    await ac.fill(x, 1).inspect(lambda _, begun=begun: before_it.append(done - begun))
            group.cancel_scope.cancel()

    run(main)
    assert max(before_it) <= 4, before_it


def test_a_thread_that_sends_a_flood_lets_another_thread_submit(device, fills):
    """The flood's streams have room for all of it, so it never waits for the device."""
    x = ac.zeros(8, np.int32).sync()
    stream = device.stream()
    first = submitted()
    seen: list[int] = []
    asks = threading.Event()

    def one() -> None:
        asks.set()
        with ac.use(stream):
            ac.fill(x, 1).inspect(lambda _: seen.append(submitted() - first)).sync()

    other = threading.Thread(target=one)

    def begin(_: object) -> None:
        other.start()
        asks.wait()

    ops = fills(FLOOD, streams=48)
    for i in range(TURN, FLOOD, TURN // 2):
        ops[i] = ops[i].inspect(lambda _: time.sleep(0))  # gives up the GIL, and not the right to submit
    ops[0] = ops[0].inspect(begin)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # a thread that has wanted the GIL for so long gets it when it is next given up
    try:
        ac.zip(*ops).sync()
    finally:
        sys.setswitchinterval(interval_s)
    other.join()
    assert seen[0] < FLOOD // 2


def test_a_blocked_thread_s_time_out_is_heard_between_turns(fills):
    """A flood that need not wait for the device is given up when its time is over."""
    ops = fills(FLOOD)
    turned = 0

    def count(_: object) -> None:
        nonlocal turned
        turned += 1

    whole = ac.zip(*(op.inspect(count) for op in ops))
    with pytest.raises(ac.errors.DeviceTimeoutError, match="0 s"):
        whole.sync(0)
    assert turned <= 2 * TURN
    whole.sync()
    assert turned == FLOOD


def test_urgent_tasks_go_first_in_a_loop_s_line(run, turn_us):
    turn_us(0)
    order: list[int] = []

    async def main() -> None:
        async def one(priority: int) -> None:
            with ac.use(priority=priority):
                await ac.value(1)
            order.append(priority)

        async with anyio.create_task_group() as group:
            for priority in (0, 0, 0, -1, 2, 1):
                group.start_soon(one, priority)

    run(main)
    # Those that came first may have gone on before the urgent ones came.
    begun = order.index(2)
    assert order[begun:] == sorted(order[begun:], reverse=True)
    assert begun <= 2


def test_urgent_operations_go_first_where_a_stream_is_full(run, latch, device, kernels):
    stream, order = device.stream(), []
    x = ac.zeros(1, np.int32).sync()
    waits = ac.statistics().waits_for_room
    latch.hold(stream)

    async def main() -> None:
        async def one(priority: int) -> None:
            with ac.use(stream, max_in_flight=1, priority=priority):
                await kernels.increment(x, 1, threads=1).inspect(lambda _: order.append(priority))

        async with anyio.create_task_group() as group:
            for count, priority in enumerate((0, -3, 1, 7), 1):
                group.start_soon(one, priority)
                while ac.statistics().waits_for_room < waits + count:
                    await anyio.lowlevel.checkpoint()
            assert order == []
            latch.release()

    run(main)
    assert order == [7, 1, 0, -3]


def test_a_flood_of_urgent_operations_leaves_one_turn_in_eight_to_who_has_waited_longest(run, device):
    """On a stream that holds one operation: the flood stands in its line again as soon as one of it is done."""
    stream, x = device.stream(), ac.zeros(8, np.int32).sync()
    done, before_it = 0, -1

    async def main() -> None:
        nonlocal before_it

        async def send() -> None:
            nonlocal done
            with ac.use(stream, max_in_flight=1, priority=5):
                while before_it < 0 and done < FLOOD:
                    await ac.fill(x, 1)
                    done += 1

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(send)
            while done < 20:
                await anyio.lowlevel.checkpoint()
            begun = done
            with ac.use(stream, max_in_flight=1, priority=0):
                await ac.fill(x, 2)
            before_it = done - begun

    run(main)
    # Eight go before it in the stream's line, and as many in its loop's. Those of a turn of the loop are done together.
    assert before_it <= 5 * 20


def test_urgent_operations_go_first_where_memory_is_short(run):
    size, order = 1 << 20, []

    async def main() -> None:
        with ac.memory_limit(ac.Device(0).memory_info().used_bytes + size, wait=True):
            held = await ac.zeros(size, np.uint8)
            waits = ac.statistics().waits_for_room

            async def one(priority: int) -> None:
                with ac.use(priority=priority):
                    x = await ac.zeros(size, np.uint8)
                order.append(priority)
                x.close()

            async with anyio.create_task_group() as group:
                for count, priority in enumerate((0, -1, 4), 1):
                    group.start_soon(one, priority)
                    while ac.statistics().waits_for_room < waits + count:
                        await anyio.lowlevel.checkpoint()
                held.close()

    run(main)
    assert order == [4, 0, -1]


def test_urgent_threads_go_first_too(latch, device, kernels):
    stream, order = device.stream(), []
    x = ac.zeros(1, np.int32).sync()
    waits = ac.statistics().waits_for_room
    latch.hold(stream)

    def one(priority: int) -> None:
        with ac.use(stream, max_in_flight=1, priority=priority):
            kernels.increment(x, 1, threads=1).inspect(lambda _: order.append(priority)).sync()

    threads = [threading.Thread(target=one, args=(priority,)) for priority in (0, 5)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while ac.statistics().waits_for_room < waits + count:
            pass
    latch.release()
    for thread in threads:
        thread.join()
    assert order == [5, 0]


def test_awaits_are_as_they_were_without_a_flood(run, fills):
    """What has as many operations as a turn is submitted in one step, and what has one more in two."""
    steps: list[int] = []

    async def main() -> None:
        async def look(is_done: Callable[[], bool]) -> None:
            while not is_done():
                steps.append(submitted())
                await anyio.lowlevel.checkpoint()

        async def measure(awaited: Awaitable[Any]) -> int:
            steps.clear()
            done = False
            async with anyio.create_task_group() as group:
                first = submitted()
                group.start_soon(look, lambda: done)
                await awaited
                done = True
            return len({each - first for each in steps if each - first > 0})

        assert await measure(ac.zip(*fills(TURN - 1))) <= 1
        # trio may let the other task look after every second step alone
        assert await measure(ac.zip(*fills(8 * TURN))) >= 3

    run(main)


def test_a_wait_submits_fewer_in_a_turn_than_an_await(run, fills):
    """Each of its operations takes longer."""
    begun: list[int] = []

    async def main() -> None:
        first, second = fills(FLOOD), fills(FLOOD)
        before = submitted()
        arrivals = ac.as_completed(first)
        begun.append(submitted() - before)
        del arrivals
        async with anyio.create_task_group() as group:
            before = submitted()
            group.start_soon(ac.wait, second)
            while submitted() == before:
                await anyio.lowlevel.checkpoint()
            begun.append(submitted() - before)
            group.cancel_scope.cancel()

    run(main)
    assert begun == [TURN_OF_A_WAIT, TURN_OF_A_WAIT]
