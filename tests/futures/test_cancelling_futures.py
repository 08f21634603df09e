"""Cancelling a future: its waiters are woken at once, its operation stays everybody else's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import threading
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac


def sevens() -> ac.DeviceOp[Any]:
    return ac.to_host(ac.full(3, 7, np.int32))


def test_what_is_there_is_not_cancelled():
    future = sevens().submit()
    future.sync()
    assert not future.cancel()
    assert not future.cancelled()
    np.testing.assert_array_equal(future.result(), [7, 7, 7])


def test_what_is_there_is_not_cancelled_though_nobody_has_asked_for_it(stream):
    with ac.use(stream):
        future = ac.full(3, 7, np.int32).submit()
    stream.synchronize().sync()
    assert not future.cancel()
    assert future.result().shape == (3,)


def test_what_has_failed_is_not_cancelled():
    op = ac.value(1).map(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        op.sync()
    future = op.schedule(0)
    assert not future.cancel()
    assert isinstance(future.exception(), ZeroDivisionError)


def test_a_cancelled_future_is_done_and_says_so(held):
    future = sevens().submit()
    assert future.cancel()
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    assert "cancelled" in repr(future)
    assert held.is_holding


def test_every_question_to_a_cancelled_future_is_the_same_error(run, held):
    op, line = ac.to_host(ac.ones(3)), inspect.currentframe().f_lineno
    future = op.submit()
    future.cancel()

    async def main() -> None:
        await future

    for ask in (future.result, future.exception, future.sync, lambda: future.sync(timeout=0), lambda: run(main)):
        with pytest.raises(ac.CancelledError, match=rf"a copy to the host \(built at .*{line}\) was cancelled"):
            ask()


def test_the_error_is_the_future_s_and_not_a_cancelled_task_s():
    assert issubclass(ac.CancelledError, ac.AiocudaError)
    assert issubclass(ac.CancelledError, concurrent.futures.CancelledError)
    assert not issubclass(ac.CancelledError, asyncio.CancelledError)


def test_the_error_does_not_grow(held):
    future = sevens().submit()
    future.cancel()

    def depth() -> int:
        with pytest.raises(ac.CancelledError) as caught:
            future.sync()
        return len(caught.traceback)

    early = depth()
    assert {depth() for _ in range(20)} == {early}


def test_all_tasks_that_await_it_are_woken_at_once(run, held):
    raised: list[BaseException] = []
    future = sevens().submit()

    async def wait() -> None:
        try:
            await future
        except ac.CancelledError as error:
            raised.append(error)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            assert future.cancel()
        assert held.is_holding

    run(main)
    assert len(raised) == 10


def test_a_task_is_woken_by_another_thread_s_cancelling(run, held):
    future = sevens().submit()
    waiting = threading.Event()

    def cancel() -> None:
        waiting.wait(60)
        future.cancel()

    async def main() -> None:
        thread = threading.Thread(target=cancel)
        thread.start()

        async def release() -> None:
            await anyio.lowlevel.checkpoint()
            waiting.set()

        async with anyio.create_task_group() as group:
            group.start_soon(release)
            with pytest.raises(ac.CancelledError):
                await future
        thread.join()
        assert held.is_holding

    run(main)


def test_threads_that_wait_for_it_are_woken_at_once(held, settle, in_threads):
    future = sevens().submit()

    def cancel() -> None:
        settle()  # by now the others wait
        future.cancel()

    found = in_threads(future.sync, future.sync, lambda: future.sync(timeout=600), cancel)
    assert [type(each) for each in found[:3]] == [ac.CancelledError] * 3
    assert held.is_holding


def test_the_operation_can_still_be_awaited(run, held):
    op = sevens()
    future = op.submit()
    future.cancel()
    held.release()

    async def main() -> Any:
        return await op

    np.testing.assert_array_equal(run(main), [7, 7, 7])


def test_another_future_of_the_operation_is_not_cancelled(run, held):
    op = sevens()
    futures = [op.submit(), op.submit(), op.schedule(0)]
    found: list[Any] = []

    async def wait(future: ac.DeviceFuture[Any]) -> None:
        found.append(await future)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, futures[1])
            group.start_soon(wait, futures[2])
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            assert futures[0].cancel()
            assert found == []
            held.release()

    run(main)
    assert len(found) == 2
    assert not futures[1].cancelled()


def test_cancelling_a_task_cancels_only_its_await(run, held):
    future = sevens().submit()
    found: list[Any] = []

    async def wait() -> None:
        found.append(await future)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(wait)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                cancelled.cancel_scope.cancel()
            assert not future.cancelled()
            assert not future.done()
            held.release()

    run(main)
    assert len(found) == 1


def test_what_stands_behind_a_map_is_not_submitted(run, held, settle):
    calls: list[str] = []
    op = sevens().map(lambda host: calls.append("map") or host).then(lambda host: calls.append("then") or host)
    future = op.submit()

    async def wait() -> None:
        with pytest.raises(ac.CancelledError):
            await future

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            future.cancel()

    run(main)
    held.release()
    settle()
    assert future.done()
    assert calls == []
    np.testing.assert_array_equal(op.sync(), [7, 7, 7])
    assert calls == ["map", "then"]


def test_what_was_scheduled_and_cancelled_never_starts():
    calls: list[int] = []
    op = ac.value(1).inspect(calls.append)
    future = op.schedule(0)
    assert future.cancel()
    with pytest.raises(ac.CancelledError):
        future.sync()
    assert calls == []
    assert "pending" in repr(op)
    assert op.sync() == 1


def test_memory_of_cancelled_work_outlives_the_work(held, device, used_bytes):
    array = ac.zeros(1000, np.int32).sync_on(device.stream())
    source = ac.full(1000, 5, np.int32).sync_on(device.stream())
    future = ac.copy(array, source).submit()
    future.cancel()
    del future, source
    gc.collect()
    others = [ac.full(1000, i, np.int32).sync_on(device.stream()) for i in range(5)]
    assert held.is_holding
    held.release()
    assert (ac.to_host(array).sync() == 5).all()
    for i, other in enumerate(others):
        assert (ac.to_host(other).sync() == i).all()


def test_cancelling_against_completion_has_one_outcome(device, in_threads):
    """In any order, all askers see the same end, and `cancel` says which."""
    seen = set()
    for _ in range(60):
        future = ac.to_host(ac.ones(64)).submit()
        *asked, cancelled = in_threads(future.sync, future.sync, future.cancel)
        assert cancelled is future.cancelled()
        for each in asked:
            assert isinstance(each, ac.CancelledError) is cancelled, (each, cancelled)
        seen.add(cancelled)
    assert seen <= {True, False}


def test_a_finalizer_may_cancel_the_future_it_belongs_to(held):
    class Owner:
        def __init__(self) -> None:
            self.future = sevens().submit()
            self.itself = self

        def __del__(self) -> None:
            cancelled.append(self.future.cancel())

    cancelled: list[bool] = []
    for _ in range(3):
        Owner()
    gc.collect()
    assert cancelled == [True] * 3
