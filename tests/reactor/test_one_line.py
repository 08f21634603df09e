"""Loops and threads in one line: each comes in its turn, and one that cannot come holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
import uvloop

import aiocuda as ac
from aiocuda import _native

RUNNERS: dict[str, Callable[..., Any]] = {
    "asyncio": lambda function, *arguments: asyncio.run(function(*arguments)),
    "uvloop": lambda function, *arguments: uvloop.run(function(*arguments)),
    "trio": trio.run,
}


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


def test_loops_and_threads_stand_in_one_line(latch, stream, order, waits):
    """They come one after another; each loop awaits several, and threads wait and submit."""
    latch.hold(stream)
    names = [f"{kind} {i}" for i in range(3) for kind in (*RUNNERS, "sync", "submit", "sync of a future")]
    come = {name: threading.Event() for name in names}

    async def one(name: str) -> None:
        await anyio.to_thread.run_sync(come[name].wait)
        with ac.use(stream, max_in_flight=1):
            await order.op(name)

    async def main(kind: str) -> None:
        async with anyio.create_task_group() as group:
            for name in names:
                if name.startswith(f"{kind} "):
                    group.start_soon(one, name)

    def in_thread(name: str) -> None:
        come[name].wait()
        with ac.use(stream, max_in_flight=1):
            op = order.op(name)
            if name.startswith("sync of"):
                op.schedule(stream).sync()
            elif name.startswith("sync"):
                op.sync()
            else:
                op.submit()

    with ThreadPoolExecutor(len(names)) as threads:
        done = [threads.submit(RUNNERS[kind], main, kind) for kind in RUNNERS]
        done += [threads.submit(in_thread, name) for name in names if name.startswith(("sync", "submit"))]
        for name in names:
            already = waits()
            come[name].set()
            wait_until(lambda already=already: waits() > already)
        assert latch.is_holding
        assert order.submitted == []
        latch.release()
        for each in done:
            each.result(60)
    assert order.submitted == names


def test_a_loop_that_stands_still_holds_nobody_up(latch, stream, order, turns):
    """Its tasks are at the head of the line, and nobody runs it any more."""
    loop = asyncio.new_event_loop()

    async def one(name: str) -> None:
        with ac.use(stream, max_in_flight=2):
            await order.op(name)

    latch.hold(stream)
    tasks = [loop.create_task(one(f"left {i}")) for i in range(20)]
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for i in range(20):
                group.start_soon(one, f"{i}")
            await turns()
            latch.release()

    for run_loop in RUNNERS.values():
        run_loop(main)
    assert len([name for name in order.submitted if not name.startswith("left")]) == 60
    loop.run_until_complete(asyncio.gather(*tasks))
    assert len(order.submitted) == 80
    loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_was_closed_holds_nobody_up(latch, stream, order, new_loop):
    loop = new_loop()
    loop.set_exception_handler(lambda *_: None)  # it complains, rightly, of tasks that it had to drop

    async def one(name: str) -> None:
        with ac.use(stream, max_in_flight=2):
            await order.op(name)

    latch.hold(stream)
    tasks = [loop.create_task(one(f"left {i}")) for i in range(20)]
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    latch.release()
    for run_loop in RUNNERS.values():
        run_loop(one, "another")
    assert [name for name in order.submitted if name == "another"] == ["another"] * 3
    del tasks


@pytest.mark.parametrize("kind", ["sync", "submit", "sync of a future"])
def test_a_call_that_blocks_its_loop_goes_before_the_loop_s_tasks(run, latch, stream, order, waits, kind, turns):
    """They could not come while it blocks; there are so many that the line cannot be waited out."""
    tasks = 4000

    def release() -> None:
        in_line = waits()
        is_ready.set()
        wait_until(lambda: waits() > in_line)
        latch.release()

    async def one(i: int) -> None:
        with ac.use(stream, max_in_flight=2):
            await order.op(i)

    async def main() -> None:
        latch.hold(stream)
        async with anyio.create_task_group() as group:
            for i in range(tasks):
                group.start_soon(one, i)
            await turns()
            thread = threading.Thread(target=release)
            thread.start()
            is_ready.wait()
            with ac.use(stream, max_in_flight=2):
                op = order.op("blocks")
                if kind == "submit":
                    op.submit()
                elif kind == "sync":
                    op.sync()
                else:
                    op.schedule(stream).sync()
            assert order.submitted.index("blocks") <= 1
            thread.join()

    is_ready = threading.Event()
    run(main)
    assert len(order.submitted) == tasks + 1


def test_a_function_that_submits_within_a_submission_does_not_stand_in_line(latch, stream, device, order):
    """Those in line wait for the submission to end."""
    latch.hold(stream)

    def submit() -> None:
        with ac.use(stream, max_in_flight=2):
            order.op("in line").sync()

    def inside(_: Any) -> int:
        is_inside.set()
        with ac.use(stream, max_in_flight=2):
            order.op("inside").sync()
        return 3

    def release() -> None:
        is_inside.wait()
        latch.release()

    is_inside = threading.Event()
    before = ac.statistics().waits_for_room
    with ac.use(stream, max_in_flight=2):
        order.op("first").submit()
    threads = [threading.Thread(target=submit) for _ in range(4)] + [threading.Thread(target=release)]
    for thread in threads:
        thread.start()
    wait_until(lambda: ac.statistics().waits_for_room >= before + 4)
    assert ac.value(1).then(inside).sync_on(device.stream()) == 3
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert order.submitted == ["first", "inside"] + ["in line"] * 4


def test_asking_a_future_does_not_wait_for_room(latch, stream, order, waits):
    latch.hold(stream)
    with ac.use(stream, max_in_flight=1):
        future = order.op(1).schedule(stream)
        for _ in range(3):
            with pytest.raises(ac.ArgumentValueError, match="not complete"):
                future.result()
            assert not future.done()
    assert waits() == 0
    latch.release()
    stream.synchronize().sync()
    future.done()  # it goes on when it is asked
    stream.synchronize().sync()
    assert future.done()


def test_a_time_that_is_up_gives_the_place_up(latch, stream, order, waits):
    latch.hold(stream)
    with ac.use(stream, max_in_flight=1):
        op = order.op("late")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                op.sync(timeout=0.001)
        assert waits() == 3
        assert _native.pending_count() <= 2
        latch.release()
        op.sync()
    assert order.submitted == ["late"]
