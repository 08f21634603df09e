"""`within` ends a wait after a time, says what was still running, and leaves the work as it is."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from decimal import Decimal
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import trio
import trio.testing

import aiocuda as ac
from aiocuda import _native

BAD = [-1, -0.001, math.nan, -math.inf, "1", None, True, 1j, [1]]


def within(thing: Any, seconds: float) -> Any:
    async def main() -> Any:
        return await thing.within(seconds)

    return main


@pytest.mark.parametrize(
    "seconds", [60, np.float32(60), math.inf, 1e15, 10**400], ids=["int", "numpy", "inf", "1e15", "huge"]
)
def test_what_completes_in_time_gives_its_result(run, lane, seconds):
    op = ac.to_host(lane.op(4))
    future = ac.to_host(lane.op(5)).submit()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            np.testing.assert_array_equal(await op.within(seconds), [5] * 4)
            np.testing.assert_array_equal(await future.within(seconds), [6] * 4)

    async def release() -> None:
        lane.release()

    run(main)


def test_the_error_says_what_was_running_where_and_for_how_long(run, lane):
    op, line = lane.op(), inspect.currentframe().f_lineno
    with pytest.raises(ac.DeviceTimeoutError) as caught:
        run(within(op, 0.01))
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert isinstance(error, ac.AiocudaError)
    assert error.operation == "the launch of increment"
    assert error.origin.startswith(inspect.getfile(type(lane)))
    assert error.running == (
        f"the launch of increment (built at {error.origin}) on stream {lane.stream._number} of device 0 "
        f"({_native.stream_in_flight(lane.stream._index)} in flight)",
    )
    assert error.waited_s >= 0.009
    assert error.in_flight >= 1
    assert f"stream {lane.stream._number} of device 0" in str(error)
    assert "it can be awaited again" in str(error)
    assert line > 0


@pytest.mark.parametrize("as_future", [False, True])
def test_it_looks_through_what_is_not_submitted_yet(run, lanes, as_future):
    """The root waits for a map, and two streams hold what the map needs."""
    one, two = lanes(2)
    op = ac.zip(*(lane.op().map(lambda array: array) for lane in (one, two))).then(lambda both: both)
    with pytest.raises(ac.DeviceTimeoutError) as caught:
        run(within(op.submit() if as_future else op, 0.01))
    assert caught.value.operation == "a then() callback"
    assert sorted(text.rpartition(" on ")[2] for text in caught.value.running) == sorted(
        f"stream {lane.stream._number} of device 0 ({_native.stream_in_flight(lane.stream._index)} in flight)"
        for lane in (one, two)
    )


def test_it_names_a_few_and_counts_the_rest(run, lane):
    op = ac.zip(*(lane.op().map(lambda array: array) for _ in range(9)))
    with pytest.raises(ac.DeviceTimeoutError, match="and 5 more; submissions in flight") as caught:
        run(within(op, 0.01))
    assert len(caught.value.running) == 9


def test_it_says_so_where_nothing_is_on_a_device(run):
    """Another thread is in the function that the operation waits for."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: Any) -> int:
        inside.set()
        assert go_on.wait(60)
        return 3

    op = ac.value(1).map(slow)
    thread = threading.Thread(target=op.sync)
    thread.start()
    inside.wait(60)
    try:
        with pytest.raises(ac.DeviceTimeoutError, match=r"nothing of it was on a device: .*a function of map\(\)"):
            run(within(op, 0.01))
    finally:
        go_on.set()
        thread.join()
    assert run(within(op, 60)) == 3


def test_the_work_goes_on_and_can_be_awaited_again(run, lanes, used_bytes):
    before = used_bytes()
    (lane,) = lanes(1)
    things = [ac.to_host(lane.op(7)), ac.to_host(lane.op(7)).submit()]

    async def main() -> None:
        for thing in (*things, *things):
            with pytest.raises(ac.DeviceTimeoutError):
                await thing.within(0.001)
        assert lane.latch.is_holding
        assert not things[1].cancelled()
        lane.release()
        np.testing.assert_array_equal(await things[0], [8] * 4)
        np.testing.assert_array_equal(await things[1].within(60), [8] * 4)

    run(main)
    things.clear()
    assert used_bytes() == before


def test_no_time_at_all_only_looks(run, lane):
    done = ac.value(3)
    done.sync()
    assert run(within(done, 0)) == 3
    assert run(within(done.submit(), 0)) == 3
    with pytest.raises(ac.DeviceTimeoutError):
        run(within(lane.op(), 0))


@pytest.mark.parametrize("seconds", BAD, ids=repr)
def test_a_time_that_cannot_be_is_an_error_before_anything_runs(seconds):
    op = ac.ones(3)
    for thing in (op, op.schedule(0)):
        with pytest.raises(ac.ArgumentValueError, match="a time-out is a number of seconds"):
            thing.within(seconds)
    assert "pending" in repr(op)


@pytest.mark.parametrize("timeout", ["1", True, 1j, Decimal(-1)], ids=repr)
def test_sync_s_timeout_is_checked_likewise(timeout):
    op = ac.ones(3)
    for thing in (op, op.schedule(0)):
        with pytest.raises(ac.ArgumentValueError, match="a time-out is a number of seconds"):
            thing.sync(timeout=timeout)
    assert "pending" in repr(op)


def test_nothing_runs_before_it_is_awaited():
    op = ac.ones(3)
    op.within(1).close()
    assert "pending" in repr(op)


def test_the_operation_s_own_error_comes_first(run):
    op = ac.to_host(ac.ones(3)).map(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(within(op, 60))


def test_a_future_that_is_cancelled_meanwhile_says_so(run, lane):
    future = lane.op().submit()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            with pytest.raises(ac.CancelledError):
                await future.within(60)

    async def cancel() -> None:
        await anyio.lowlevel.checkpoint()
        future.cancel()

    run(main)


def test_a_cancelled_wait_is_no_timeout(run, lane):
    op = lane.op()
    ended: list[str] = []

    async def wait() -> None:
        try:
            await op.within(60)
        except ac.DeviceTimeoutError:
            ended.append("timeout")
            raise
        finally:
            ended.append("end")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    run(main)
    assert ended == ["end"]


def test_it_goes_by_the_clock_of_trio_s_run(lane):
    """An hour on a clock that jumps when all tasks sleep."""
    op = lane.op()
    for thing in (op, op.submit()):
        with pytest.raises(ac.DeviceTimeoutError) as caught:
            trio.run(thing.within, 3600, clock=trio.testing.MockClock(autojump_threshold=0))
        assert caught.value.waited_s == pytest.approx(3600)


def test_no_timer_is_left_behind(lane):
    class Loop(asyncio.SelectorEventLoop):
        timers: list[asyncio.TimerHandle] = []

        def call_later(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            self.timers.append(super().call_later(*arguments, **options))
            return self.timers[-1]

    async def main() -> None:
        task = asyncio.ensure_future(lane.op().within(3600))
        await asyncio.sleep(0)
        lane.release()
        await task

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    assert [timer.cancelled() for timer in Loop.timers] == [True]


def test_a_dag_of_many_ways_is_looked_through_once(latch):
    """The error finds the last submission behind 60 maps, each of which uses the one before twice: 61 operations, 2**60
    ways to it.
    """
    latch.hold()
    op: Any = ac.to_host(ac.full(3, 7, np.int32))
    for _ in range(60):
        op = ac.zip(op, op).map(lambda both: both[0])
    with pytest.raises(ac.DeviceTimeoutError, match="in flight") as raised:
        op.sync(0.0)
    assert len(raised.value.running) == 1
    latch.release()
    np.testing.assert_array_equal(op.sync(60), [7, 7, 7])
