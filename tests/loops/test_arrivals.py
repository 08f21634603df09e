"""`as_completed` and `wait` are native: one waiter for each step that waits, and no Python for each future."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiocuda as ac


async def release(lane: Any) -> None:
    await anyio.lowlevel.checkpoint()
    lane.release()


def test_iterating_what_is_done_runs_no_python_of_aiocudas(run_asyncio, frames):
    futures = [ac.value(number).submit() for number in range(50)]

    async def main() -> Any:
        await futures[0]  # the loop's port is made
        arrivals = ac.as_completed(futures)
        with frames() as counted:
            found = [future async for future in arrivals]
        assert found == futures
        return counted

    assert run_asyncio(main).codes == set()


def test_a_step_that_waits_runs_two_frames_of_aiocudas_at_most(run, lanes, frames):
    first, second = lanes(2)
    futures = [first.op().submit(), second.op().submit()]
    first.release()

    async def main() -> Any:
        arrivals = ac.as_completed(futures)
        assert await anext(arrivals) is futures[0]
        async with anyio.create_task_group() as group:
            group.start_soon(release, second)
            with frames() as counted:
                assert await anext(arrivals) is futures[1]
        with pytest.raises(StopAsyncIteration):
            await anext(arrivals)
        return counted

    with ac.use(spin_us=0):
        counted = run(main)
    assert len(counted.codes) <= 2, counted.codes


def test_a_wait_for_many_runs_as_much_python_of_aiocudas_as_one_for_few(run_asyncio, frames, turn_us):
    turn_us(10**9)  # none of them has to wait for a turn of the loop

    async def main() -> list[int]:
        calls = []
        for count in (1, 1, 100):
            futures = [ac.value(number).submit() for number in range(count)]
            with frames() as counted:
                done, pending = await ac.wait(futures)
            assert (done, pending) == (set(futures), set())
            calls.append(counted.calls)
        return calls

    _, few, many = run_asyncio(main)
    assert few == many


def test_a_step_makes_one_waiter_and_is_woken_once(run_asyncio, lane, turn_us):
    turn_us(10**9)  # it never has to wait for a turn of the loop
    future = lane.op().submit()

    async def main() -> None:
        waiting = anext(ac.as_completed([future])).__await__()
        told = waiting.send(None)
        assert asyncio.isfuture(told)
        woken = asyncio.Event()
        told.add_done_callback(lambda _: woken.set())
        lane.release()
        await woken.wait()
        with pytest.raises(StopIteration) as ended:
            waiting.send(None)
        assert ended.value.value is future

    run_asyncio(main)


def test_an_iteration_that_is_left_holds_no_future(run_asyncio, lane):
    async def main() -> weakref.ref[Any]:
        future = lane.op().submit()
        arrivals = ac.as_completed([future])
        task = asyncio.ensure_future(anext(arrivals))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(future)

    seen = run_asyncio(main)
    gc.collect()
    assert seen() is None
    assert lane.latch.is_holding


def test_what_waits_for_one_another_in_a_cycle_is_collected(run_asyncio, lane):
    class Node:
        pass

    async def main() -> weakref.ref[Node]:
        node: Any = Node()
        node.arrivals = ac.as_completed([ac.value(1).then(lambda _: node).schedule(0), lane.op().submit()])
        return weakref.ref(node)

    seen = run_asyncio(main)
    ac.ones(1).sync()  # by now aiocuda knows that the function's stream holds nothing
    gc.collect()
    lane.release()
    assert seen() is None
