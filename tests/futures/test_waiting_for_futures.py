"""Waiting for one future from many threads and tasks at once."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest

import aiocuda as ac


def sevens() -> ac.DeviceOp[Any]:
    return ac.to_host(ac.full(3, 7, np.int32))


def test_many_threads_wait_for_one_future(held, settle, in_threads):
    calls: list[int] = []
    future = sevens().map(lambda host: calls.append(1) or host).submit()

    def release() -> None:
        settle()
        held.release()

    *found, _ = in_threads(*[future.sync] * 6, release)
    assert calls == [1]
    assert all(each is found[0] for each in found)
    np.testing.assert_array_equal(found[0], [7, 7, 7])


def test_a_thread_waits_while_a_task_awaits(run, held):
    future = sevens().submit()
    found: list[Any] = []

    async def wait() -> None:
        found.append(await future)

    async def wait_in_thread() -> None:
        found.append(await anyio.to_thread.run_sync(future.sync))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
                group.start_soon(wait_in_thread)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            assert found == []
            held.release()

    run(main)
    assert len(found) == 6
    assert all(each is found[0] for each in found)


def test_a_thread_waits_for_the_map_that_another_calls(in_threads):
    entered, go_on = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        entered.set()
        assert go_on.wait(60)
        return value + 1

    future = ac.value(1).map(slow).schedule(0)

    def second() -> int:
        entered.wait(60)
        with pytest.raises(TimeoutError):
            future.sync(timeout=0.01)
        go_on.set()
        return future.sync()

    assert in_threads(future.sync, second) == [2, 2]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_timeout_leaves_the_future_as_it_is(held, timeout):
    future = sevens().submit()
    with pytest.raises(TimeoutError, match=f"not complete after {timeout} s"):
        future.sync(timeout=timeout)
    assert held.is_holding
    assert not future.done()
    held.release()
    assert future.sync(timeout=60).sum() == 21


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_cannot_be_is_an_error(timeout):
    with pytest.raises(ac.ArgumentValueError, match="number of seconds"):
        ac.value(1).submit().sync(timeout=timeout)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_wait_and_leaves_the_future(held):
    future = sevens().submit()
    soon = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))

    def interrupted() -> None:
        soon.start()
        future.sync()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert held.is_holding
    held.release()
    assert future.sync().sum() == 21


def test_a_signal_s_handler_may_wait_for_the_same_future(held):
    future = sevens().submit()
    found: list[Any] = []

    def handler(*_: Any) -> None:
        held.release()
        found.append(future.sync())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        found.append(future.sync())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(found) == 2
    assert found[0] is found[1]


def test_an_error_is_the_same_object_for_every_asker(run, held, in_threads):
    future = sevens().map(lambda _: 1 / 0).submit()
    raised: list[Any] = []

    async def wait() -> None:
        try:
            await future
        except ZeroDivisionError as error:
            raised.append(error)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            held.release()

    run(main)
    raised += in_threads(future.sync, future.result, future.exception)
    assert len(raised) == 6
    assert all(each is raised[0] for each in raised)


def test_asking_whether_it_is_done_never_raises_the_operation_s_error(held, stream):
    future = sevens().map(lambda _: 1 / 0).submit()
    assert not future.done()
    held.release()
    stream.synchronize().sync()
    assert future.done()
    assert "failed" in repr(future)
    with pytest.raises(ZeroDivisionError):
        future.result()


def test_saying_what_it_is_submits_nothing(held, stream):
    calls: list[Any] = []
    future = sevens().map(calls.append).submit()
    held.release()
    stream.synchronize().sync()
    assert "pending" in repr(future)
    assert calls == []
