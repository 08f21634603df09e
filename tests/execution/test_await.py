"""Awaiting: on every kind of loop, without blocking it, from many tasks, loops and threads."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import trio

import aiocuda as ac


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def ask(op: ac.DeviceOp[Any]) -> Any:
    return await op


async def cancelled_in_flight(op: ac.DeviceOp[Any]) -> None:
    """Await an operation, and be cancelled when it is on the device."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, op)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            scope.cancel()


def test_await_gives_the_result(run):
    async def main() -> Any:
        return await ac.to_host(ac.full(3, 7, np.int32))

    np.testing.assert_array_equal(run(main), [7, 7, 7])


def test_await_of_a_value_does_not_need_the_device(run):
    async def main() -> Any:
        return await ac.value(5)

    assert run(main) == 5


def test_await_of_what_has_run_gives_its_result_at_once(run):
    op = ac.to_host(ac.ones(2))
    op.sync()

    async def main() -> Any:
        return await op

    assert run(main) is op.sync()


def test_await_behind_a_latch_lets_the_loop_go_on(run, latch):
    """The loop itself releases the latch: a blocked loop would never end."""
    latch.hold()
    op = ac.to_host(ac.full(3, 7, np.int32))
    turns: list[int] = []

    async def others() -> None:
        for turn in range(100):
            turns.append(turn)
            await anyio.lowlevel.checkpoint()
        assert latch.is_holding
        latch.release()

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(others)
            result = await op
            assert len(turns) == 100
        return result

    np.testing.assert_array_equal(run(main), [7, 7, 7])


def test_submit_then_await_many_times_from_many_tasks(run, latch):
    latch.hold()
    results: list[Any] = []

    async def wait_for(future: ac.DeviceFuture[Any]) -> None:
        results.append(await future)

    async def main() -> None:
        future = ac.to_host(ac.ones(5)).submit()
        assert not future.done()
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(wait_for, future)
            await anyio.lowlevel.checkpoint()
            latch.release()
        results.append(await future)
        assert future.done()

    run(main)
    assert len(results) == 11
    assert all(result is results[0] for result in results)


def test_gather_of_a_thousand_awaits(run_asyncio, kernels):
    async def one(i: int) -> int:
        op = kernels.increment(ac.full(4, i, np.int32), 4, threads=4)
        return int((await ac.to_host(op))[0])

    async def main() -> list[int]:
        return await asyncio.gather(*(one(i) for i in range(1000)))

    assert run_asyncio(main) == list(range(1, 1001))


def test_operations_are_awaitables_of_asyncio(run_asyncio):
    async def wait(op: ac.DeviceOp[Any]) -> Any:
        return await op

    async def main() -> Any:
        future = ac.value(1).submit()
        return await asyncio.gather(wait(ac.value(2)), asyncio.wait_for(future, 60))

    assert run_asyncio(main) == [2, 1]


def test_an_error_is_raised_in_every_task_that_awaits(run):
    op = ac.to_host(ac.ones(2)).map(lambda _: 1 / 0)
    raised: list[BaseException] = []

    async def wait_for_it() -> None:
        try:
            await op
        except ZeroDivisionError as error:
            raised.append(error)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(wait_for_it)

    run(main)
    assert len(raised) == 5


def test_maps_in_the_middle_are_awaited_without_blocking(run, latch):
    latch.hold()
    op = ac.to_host(ac.ones(3)).map(lambda host: host + 1)
    op = ac.to_host(ac.to_device(op)).map(lambda host: host + 1)

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            return await op

    async def release() -> None:
        latch.release()

    np.testing.assert_array_equal(run(main), [3, 3, 3])


def test_several_loops_in_several_threads_at_once(kernels):
    found: dict[int, int] = {}
    barrier = threading.Barrier(6)

    async def main(i: int) -> None:
        barrier.wait()
        total = 0
        for k in range(20):
            op = kernels.increment(ac.full(8, i * 100 + k, np.int32), 8, threads=8)
            total += int((await ac.to_host(op))[7])
        found[i] = total

    def on_a_loop(i: int) -> None:
        if i % 2:
            trio.run(main, i)
        else:
            asyncio.run(main(i))

    threads = [threading.Thread(target=on_a_loop, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: sum(i * 100 + k + 1 for k in range(20)) for i in range(6)}


def test_one_operation_awaited_on_two_loops(latch):
    latch.hold()
    op = ac.to_host(ac.ones(3))
    waiting = threading.Barrier(3)
    results: list[Any] = []

    async def main() -> None:
        task = asyncio.ensure_future(ask(op))
        await asyncio.sleep(0)
        await asyncio.to_thread(waiting.wait)
        results.append(await task)

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    waiting.wait()
    latch.release()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0] is results[1]


def test_loops_leave_no_file_open(run, latches):
    async def main() -> None:
        latch = latches()
        latch.hold()
        future = ac.to_host(ac.ones(3)).submit()
        latch.release()
        await future

    for _ in range(3):
        run(main)
    gc.collect()
    before = open_files()
    for _ in range(66):
        run(main)
    gc.collect()
    assert open_files() <= before


def test_a_loop_that_ends_with_work_in_flight_leaves_the_work(run, latch, used_bytes):
    before = used_bytes()
    latch.hold()
    ops = [ac.to_host(ac.full(3, 4, np.int32))]
    run(cancelled_in_flight, ops[0])
    gc.collect()
    latch.release()
    np.testing.assert_array_equal(ops[0].sync(), [4, 4, 4])
    ops.clear()
    assert used_bytes() == before


def test_loops_that_end_with_work_in_flight_leave_no_file_open(run, latches):
    def one_loop() -> None:
        latch = latches()
        latch.hold()
        op = ac.to_host(ac.ones(3))
        run(cancelled_in_flight, op)
        latch.release()
        op.sync()

    for _ in range(3):
        one_loop()
    ac.Device(0).memory_info()
    gc.collect()
    before = open_files()
    for _ in range(30):
        one_loop()
    ac.Device(0).memory_info()
    gc.collect()
    assert open_files() <= before + 1  # the last completion may still be on its way


def test_a_loop_closed_while_a_task_waits_disturbs_nobody(latch):
    latch.hold()
    op = ac.to_host(ac.full(3, 4, np.int32))

    loop = asyncio.new_event_loop()
    task = loop.create_task(ask(op))
    loop.call_soon(loop.stop)
    loop.run_forever()
    task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    del task, loop
    gc.collect()
    latch.release()
    np.testing.assert_array_equal(asyncio.run(ask(op)), [4, 4, 4])


def test_what_a_closed_loop_was_told_is_dropped(latch):
    """The completion comes when the loop is gone: its future must not stay for ever."""

    def futures() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())

    before = futures()
    latch.hold()
    op = ac.to_host(ac.ones(3))

    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(ask(op)) for _ in range(10)]
    loop.call_soon(loop.stop)
    loop.run_forever()
    for task in tasks:
        task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    del tasks, task, loop
    gc.collect()
    latch.release()
    op.sync()
    ac.Device(0).synchronize().sync()
    ac.Device(0).memory_info()
    assert futures() == before


def test_await_without_a_loop_is_a_clear_error():
    op = ac.to_host(ac.ones(3))

    async def main() -> Any:
        return await op

    coroutine = main()
    with pytest.raises(ac.AiocudaError, match=r"no event loop runs.*\.sync\(\)"):
        coroutine.send(None)
    np.testing.assert_array_equal(op.sync(), [1, 1, 1])


def test_the_first_use_of_a_process_may_be_a_value(in_process):
    done = in_process("import aiocuda as ac; print(ac.value(3).map(str).sync())")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_process_with_work_in_flight_ends(in_process):
    done = in_process(
        """
        import asyncio, numpy as np, aiocuda as ac
        async def main():
            keep.append(ac.to_host(ac.ones(1 << 20)).submit())
            await ac.to_host(ac.ones(1 << 20))
        keep = []
        asyncio.run(main())
        print("end")
        """
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
