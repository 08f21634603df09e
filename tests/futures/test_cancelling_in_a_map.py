"""A `map` whose function has returned: what follows it is submitted only if somebody still wants it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import sniffio
import trio

import aiocuda as ac
from aiocuda import _native


class Chain:
    """A value, a map, and work behind it: a copy to the device, an increment, a function at submission."""

    def __init__(self, kernels: Any, stream: ac.Stream, during: Callable[[], object] = lambda: None) -> None:
        self.during = during  # called by the map's function
        self.calls: list[str] = []
        self.stream = stream
        mapped = ac.value(np.full(4, 6, np.int32)).map(self._map)
        self.op = ac.to_host(kernels.increment(ac.to_device(mapped), 4, threads=4).inspect(self._follow))
        self._before = _native.stream_submitted(stream._index)

    def _map(self, host: Any) -> Any:
        self.calls.append("map")
        self.during()
        return host

    def _follow(self, _: Any) -> None:
        self.calls.append("follow")

    def assert_stopped(self) -> None:
        """The map's function was called, and nothing after it; the operation can still be executed."""
        assert self.calls == ["map"]
        assert _native.stream_submitted(self.stream._index) == self._before
        assert "pending" in repr(self.op)
        np.testing.assert_array_equal(self.op.sync_on(self.stream), [7] * 4)
        self.assert_ran()

    def assert_ran(self) -> None:
        assert self.calls == ["map", "follow"]


@pytest.fixture
def chain(kernels, stream):
    with ac.use(stream):
        yield Chain(kernels, stream)


def test_a_future_that_its_function_cancels(run, chain):
    future = chain.op.schedule(chain.stream)
    chain.during = future.cancel

    async def main() -> None:
        with pytest.raises(ac.CancelledError):
            await future

    run(main)
    chain.assert_stopped()


@pytest.mark.parametrize("as_future", [False, True])
def test_a_task_that_its_function_cancels(run, chain, as_future):
    async def main() -> None:
        with anyio.CancelScope() as scope:
            chain.during = scope.cancel
            await (chain.op.schedule(chain.stream) if as_future else chain.op)
        assert scope.cancelled_caught

    run(main)
    chain.assert_stopped()


def test_a_task_that_its_function_cancels_as_asyncio_does(run_asyncio, chain):
    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        chain.during = task.cancel
        await chain.op

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(wait())

    run_asyncio(main)
    chain.assert_stopped()


@pytest.mark.parametrize("as_future", [False, True])
def test_a_task_that_another_thread_cancels_meanwhile(run, chain, as_future):
    entered, has_cancelled = threading.Event(), threading.Event()

    def during() -> None:
        entered.set()
        assert has_cancelled.wait(60)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            if sniffio.current_async_library() == "trio":
                call_soon = trio.lowlevel.current_trio_token().run_sync_soon
            else:
                call_soon = asyncio.get_running_loop().call_soon_threadsafe

            def cancel() -> None:
                assert entered.wait(60)
                call_soon(scope.cancel)
                has_cancelled.set()

            thread = threading.Thread(target=cancel)
            thread.start()
            await (chain.op.schedule(chain.stream) if as_future else chain.op)
        assert scope.cancelled_caught
        thread.join(60)

    chain.during = during
    run(main)
    chain.assert_stopped()


def test_a_cancellation_in_the_same_turn_of_trio_s_loop():
    """Trio takes what is due in one turn in an order of its own, another one each time."""
    calls: list[str] = []

    async def main() -> None:
        call_soon = trio.lowlevel.current_trio_token().run_sync_soon
        for _ in range(20):
            with trio.CancelScope() as scope:
                op = ac.value(1).map(lambda _, scope=scope: call_soon(scope.cancel))
                await op.inspect(lambda _: calls.append("follow"))
            assert scope.cancelled_caught
            await trio.lowlevel.checkpoint()

    trio.run(main)
    assert calls == []


def test_a_time_that_passed_meanwhile_in_asyncio(run_asyncio, chain):
    async def wait() -> None:
        async with asyncio.timeout(3600) as limit:
            chain.during = lambda: limit.reschedule(asyncio.get_running_loop().time())
            await chain.op

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await wait()

    run_asyncio(main)
    chain.assert_stopped()


def test_a_time_that_passed_meanwhile_in_trio(chain):
    async def main() -> None:
        with trio.move_on_after(3600) as scope:

            def during() -> None:
                scope.deadline = trio.current_time()

            chain.during = during
            await chain.op
        assert scope.cancelled_caught

    trio.run(main)
    chain.assert_stopped()


@pytest.mark.parametrize("as_future", [False, True])
def test_a_wait_whose_time_is_up(run, chain, as_future):
    async def main() -> None:
        with pytest.raises(ac.DeviceTimeoutError):
            await (chain.op.schedule(chain.stream) if as_future else chain.op).within(0)

    run(main)
    chain.assert_stopped()


def test_a_thread_whose_time_is_up(chain):
    with pytest.raises(TimeoutError):
        chain.op.sync(timeout=0)
    chain.assert_stopped()


def test_a_thread_whose_time_is_up_waiting_for_a_future(chain):
    future = chain.op.schedule(chain.stream)
    with pytest.raises(TimeoutError):
        future.sync(timeout=0)
    chain.assert_stopped()
    assert list(future.sync(timeout=0)) == [7] * 4


@pytest.mark.parametrize("as_future", [False, True])
def test_a_thread_whose_time_passes_in_a_later_function(as_future):
    """Should it pass earlier, on a slow machine, that is as good."""
    called: list[float] = []

    def slow(value: int) -> int:
        while time.monotonic() <= until:
            pass
        return value

    op = ac.value(1).map(lambda value: value).map(slow).map(called.append)
    until = time.monotonic() + 0.1
    with pytest.raises(TimeoutError):
        (op.schedule(0) if as_future else op).sync(timeout=0.05)
    assert called == []
    op.sync()
    assert called == [1]


def test_a_future_that_is_waited_for_in_a_thread_and_cancelled_by_another(chain, in_threads):
    entered, has_cancelled = threading.Event(), threading.Event()
    future = chain.op.schedule(chain.stream)

    def during() -> None:
        entered.set()
        assert has_cancelled.wait(60)

    def cancel() -> bool:
        assert entered.wait(60)
        is_cancelled = future.cancel()
        has_cancelled.set()
        return is_cancelled

    chain.during = during
    found, is_cancelled = in_threads(future.sync, cancel)
    assert isinstance(found, ac.CancelledError)
    assert is_cancelled
    chain.assert_stopped()


@pytest.mark.parametrize("ask", ["done", "exception", "result"])
def test_a_future_that_is_only_asked(chain, ask):
    future = chain.op.schedule(chain.stream)
    future._is_started = True  # as one that was submitted; its map would have been called by `submit`
    chain.during = future.cancel
    if ask == "done":
        assert future.done()
    else:
        with pytest.raises(ac.CancelledError):
            getattr(future, ask)()
    assert future.cancelled()
    chain.assert_stopped()


def test_a_future_with_callbacks_goes_no_further_by_itself(run, chain):
    async def main() -> None:
        future = chain.op.schedule(chain.stream)
        chain.during = future.cancel
        told = anyio.Event()
        future.add_done_callback(lambda _: told.set())
        await told.wait()
        assert future.cancelled()

    run(main)
    chain.assert_stopped()


@pytest.mark.parametrize("how", ["as_completed", "wait"])
def test_one_of_many(run, chain, how):
    async def main() -> None:
        future = chain.op.schedule(chain.stream)
        chain.during = future.cancel
        if how == "wait":
            assert await ac.wait([future]) == ({future}, set())
        else:
            assert [each async for each in ac.as_completed([future])] == [future]
        assert future.cancelled()

    run(main)
    chain.assert_stopped()


@pytest.mark.parametrize("how", ["as_completed", "wait"])
def test_a_task_that_waits_for_many(run, chain, how):
    async def main() -> None:
        with anyio.CancelScope() as scope:
            chain.during = scope.cancel
            if how == "wait":
                await ac.wait([chain.op])
            else:
                async for _ in ac.as_completed([chain.op]):
                    raise AssertionError("nothing completes")
        assert scope.cancelled_caught

    run(main)
    chain.assert_stopped()


def test_a_wait_for_many_whose_time_is_up(run, chain):
    async def main() -> None:
        done, pending = await ac.wait([chain.op], timeout_s=0)
        assert (len(done), len(pending)) == (0, 1)

    run(main)
    chain.assert_stopped()


@pytest.mark.parametrize("as_future", [False, True])
def test_what_others_wait_for_goes_on(run, chain, as_future):
    future = chain.op.schedule(chain.stream)
    found: list[Any] = []

    async def wait() -> None:
        found.append(await (chain.op.schedule(chain.stream) if as_future else chain.op))

    async def give_up() -> None:
        with pytest.raises(ac.CancelledError):
            await future

    async def main() -> None:
        chain.during = future.cancel
        async with anyio.create_task_group() as group:
            for task in (give_up, wait, wait):
                group.start_soon(task)

    run(main)
    assert [list(each) for each in found] == [[7] * 4] * 2
    chain.assert_ran()


def test_what_another_thread_waits_for_goes_on(chain, in_threads):
    entered = threading.Event()
    future = chain.op.schedule(chain.stream)

    def during() -> None:
        entered.set()
        future.cancel()

    def second() -> Any:
        assert entered.wait(60)
        return chain.op.sync_on(chain.stream)

    chain.during = during
    found, result = in_threads(future.sync, second)
    assert isinstance(found, ac.CancelledError)
    np.testing.assert_array_equal(result, [7] * 4)
    chain.assert_ran()


def test_each_of_several_maps_in_a_row_may_be_the_last(run, stream):
    calls: list[int] = []
    op: ac.DeviceOp[Any] = ac.value(0)

    async def main() -> None:
        nonlocal op
        for i in range(6):
            op = op.map(lambda value, i=i: (calls.append(i), scope.cancel() if i == 3 else None, value + 1)[-1])
        with anyio.CancelScope() as scope:
            await op
        assert calls == [0, 1, 2, 3]
        assert await op == 6
        assert calls == [0, 1, 2, 3, 4, 5]

    run(main)


def test_the_library_s_own_functions_are_no_place_to_stop():
    """A copy to the host ends in one; the copies of several are one step."""
    op = ac.zip(*(ac.to_host(ac.full(3, i, np.int32).sync()) for i in range(4))).first()
    with pytest.raises(TimeoutError):
        ac.value(1).map(lambda value: value).map(lambda value: value).sync(timeout=0)
    ac.Device(0).synchronize().sync()
    op.submit()
    ac.Device(0).synchronize().sync()
    assert list(op.sync(timeout=0)) == [0, 0, 0]
