"""Cancelling an await is safe at every stage: nothing dangles, nothing leaks, others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac


async def ask(op: ac.DeviceOp[Any]) -> Any:
    return await op


def test_cancelled_before_it_started_submits_nothing(run):
    calls: list[int] = []
    op = ac.value(1).inspect(calls.append)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            await op

    run(main)
    assert calls == []
    assert "pending" in repr(op)


def test_cancelled_in_flight_the_work_goes_on(run, latch):
    array = ac.zeros(4, np.int32).sync()
    latch.hold()
    writing = ac.copy(array, np.full(4, 9, np.int32))

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, writing)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        latch.release()

    run(main)
    assert "submitted" in repr(writing)
    np.testing.assert_array_equal(ac.to_host(array).sync(), [9, 9, 9, 9])


def test_cancelled_in_flight_its_memory_outlives_the_work(run, latch, used_bytes):
    before = used_bytes()
    latch.hold()

    async def work() -> None:
        await ac.to_host(ac.full(1000, 3, np.int32))

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        # These must not get memory that the cancelled work still uses.
        others = [ac.full(1000, i, np.int32) for i in range(5)]
        results = [ac.to_host(other).submit() for other in others]
        latch.release()
        for i, result in enumerate(results):
            assert (await result == i).all()

    run(main)
    assert used_bytes() == before


def test_cancelling_one_task_leaves_the_other_that_awaits_the_same(run, latch):
    latch.hold()
    op = ac.to_host(ac.full(3, 5, np.int32))
    results: list[Any] = []

    async def other() -> None:
        results.append(await op)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as cancelled:
                    cancelled.start_soon(ask, op)
                    await anyio.lowlevel.checkpoint()
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
            assert results == []
            latch.release()

    run(main)
    np.testing.assert_array_equal(results, [[5, 5, 5]])


def test_what_was_cancelled_can_be_awaited_again(run, latch):
    latch.hold()
    op = ac.to_host(ac.full(3, 5, np.int32))

    async def main() -> Any:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, op)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        latch.release()
        return await op

    np.testing.assert_array_equal(run(main), [5, 5, 5])


def test_cancelled_in_front_of_a_map_the_rest_is_not_submitted(run, latch):
    latch.hold()
    calls: list[Any] = []
    op = ac.to_host(ac.ones(3)).map(calls.append).then(calls.append)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, op)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        latch.release()
        await ac.to_host(ac.ones(1))

    run(main)
    assert calls == []
    assert "pending" in repr(op)


def test_completions_of_cancelled_waits_are_dropped_by_the_loop(run_asyncio, latch):
    latch.hold()

    async def main() -> None:
        ops = [ac.to_host(ac.ones(3)) for _ in range(50)]
        tasks = [asyncio.ensure_future(ask(op)) for op in ops]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        latch.release()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in done[::2])
        assert all(result.sum() == 3 for result in done[1::2])

    run_asyncio(main)


def test_wait_for_with_a_timeout_that_has_passed(run_asyncio, latch):
    latch.hold()
    op = ac.to_host(ac.full(2, 6, np.int32))

    async def main() -> Any:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(op), 0.01)
        latch.release()
        return await op

    np.testing.assert_array_equal(run_asyncio(main), [6, 6])


@pytest.mark.parametrize("cancels_first", [False, True])
def test_cancelled_while_the_device_is_lost_the_others_are_told(in_process, cancels_first):
    """On each loop, in a process of its own: a fault and a cancellation meet, in either order."""
    for options in ({}, {"backend_options": {"use_uvloop": True}}, {"backend": "trio"}):
        done = in_process(
            f"""
            import anyio, anyio.lowlevel, numpy as np, aiocuda as ac
            source = r'''
            extern "C" __global__ void hold(unsigned long long flag) {{ while (*(volatile int*)flag == 0) {{}} }}
            extern "C" __global__ void illegal(int* x) {{ *(volatile int*)8 = 1; }}'''
            hold, illegal = ac.kernel(source, "hold"), ac.kernel(source, "illegal")
            illegal.compile()
            flag = ac.empty_host(1, np.int32).sync()
            flag.numpy()[0] = 0
            told = []
            async def wait(name, op):
                try:
                    await op
                except ac.DeviceLostError:
                    told.append(name)
            async def main():
                stream = ac.Device(0).stream()
                with ac.use(stream):
                    hold(flag.address, grid=1, block=1).submit()
                    op = illegal(ac.zeros(1, np.int32), grid=1, block=1)
                    async with anyio.create_task_group() as others:
                        others.start_soon(wait, "another", op)
                        others.start_soon(wait, "a future", op.submit())
                        with anyio.CancelScope() as scope:
                            async with anyio.create_task_group() as group:
                                group.start_soon(wait, "cancelled", op)
                                for _ in range(5):
                                    await anyio.lowlevel.checkpoint()
                                if {not cancels_first}:
                                    flag.numpy()[0] = 1
                                scope.cancel()
                        flag.numpy()[0] = 1
            anyio.run(main, **{options!r})
            if not {cancels_first}:  # it may have been told just before
                told = [name for name in told if name != "cancelled"]
            print(sorted(told))
            """
        )
        assert (done.returncode, done.stdout) == (0, "['a future', 'another']\n"), done.stderr
