"""`wait` returns the done and the pending futures, when enough are done or the time is up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac


def failing(lane: Any) -> ac.DeviceFuture[Any]:
    # Scheduled: where the lane is fast, submitting would call the function at once.
    return ac.to_host(lane.op()).map(lambda _: 1 / 0).schedule(ac.Device(0))


def test_all_are_waited_for_where_nothing_is_said(run, lanes):
    held = lanes(2)
    futures = [lane.op().submit() for lane in held]

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            return await ac.wait(futures)

    async def release() -> None:
        for lane in held:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            lane.release()

    assert run(main) == (set(futures), set())


def test_the_first_is_enough(run, lanes):
    first, second = lanes(2)
    futures = [first.op().submit(), second.op().submit()]

    async def main() -> Any:
        second.release()
        return await ac.wait(futures, return_when=ac.FIRST_COMPLETED)

    assert run(main) == ({futures[1]}, {futures[0]})
    assert first.latch.is_holding


def test_what_is_done_too_comes_along(run, lane):
    done = [ac.value(i).submit() for i in range(3)]
    held = lane.op().submit()

    async def main() -> Any:
        return await ac.wait([held, *done], return_when=ac.FIRST_COMPLETED)

    assert run(main) == (set(done), {held})


def test_an_error_is_enough_where_that_is_said(run, lanes):
    held, free = lanes(2)
    free.release()
    fine, bad, pending = free.op().submit(), failing(free), held.op().submit()
    cancelled = held.op().submit()
    cancelled.cancel()

    async def main() -> Any:
        return await ac.wait([fine, cancelled, bad, pending], return_when=ac.FIRST_EXCEPTION)

    done, left = run(main)
    assert bad in done
    assert left - {fine} == {pending}  # that it is complete may not be known yet
    with pytest.raises(ZeroDivisionError):
        bad.result()


def test_without_an_error_all_are_waited_for(run, lane):
    cancelled = lane.op().submit()
    cancelled.cancel()
    future = lane.op().submit()
    lane.release()

    async def main() -> Any:
        return await ac.wait([cancelled, future], return_when="FIRST_EXCEPTION")

    assert run(main) == ({cancelled, future}, set())


def test_the_time_passing_is_no_error_and_leaves_the_work(run, lanes):
    held, free = lanes(2)
    free.release()
    op, done = held.op(7), free.op().submit()
    done.sync()

    async def main() -> None:
        finished, pending = await ac.wait([op, done], timeout_s=0.01)
        assert finished == {done}
        assert held.latch.is_holding
        held.release()
        (future,) = pending
        assert list(await ac.to_host(await future)) == [8] * 4

    run(main)


def test_no_time_at_all_only_looks(run, lane):
    held, done = lane.op().submit(), ac.value(1).submit()

    async def main() -> Any:
        return await ac.wait([held, done], timeout_s=0)

    assert run(main) == ({done}, {held})


def test_nothing_to_wait_for_is_done(run):
    async def main() -> Any:
        return await ac.wait([])

    assert run(main) == (set(), set())


def test_one_that_is_given_twice_is_one(run):
    future = ac.value(1).submit()

    async def main() -> Any:
        return await ac.wait([future, future])

    assert run(main) == ({future}, set())


def test_one_that_is_given_twice_is_not_pending_once_it_is_done(run, lane):
    done, held = ac.value(1).submit(), lane.op().submit()

    async def main() -> Any:
        return await ac.wait([done, held, done, held], return_when=ac.FIRST_COMPLETED)

    assert run(main) == ({done}, {held})


def test_an_iterable_that_fails_fails_the_wait_before_anything_runs(run):
    op = ac.ones(3)

    def ops() -> Iterator[Any]:
        yield op
        raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await ac.wait(ops())
        with pytest.raises(ac.ArgumentTypeError, match="operations and futures are waited for; 'no' is neither"):
            await ac.wait([op, "no"])  # type: ignore[list-item]

    run(main)
    assert "pending" in repr(op)


def test_taking_what_is_done_leaves_the_loop_its_turns(run, turn_us):
    """A few futures are taken at once, and many are not taken in one step."""
    turn_us(0)
    futures = [ac.value(number).submit() for number in range(1000)]
    turns = 0

    async def main() -> Any:
        is_over = False

        async def count() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(count)
            found = await ac.wait(futures)
            is_over = True
        return found

    assert run(main) == (set(futures), set())
    assert 50 < turns < 1000


@pytest.mark.parametrize("is_enough", [ac.FIRST_COMPLETED, ac.FIRST_EXCEPTION, ac.ALL_COMPLETED])
def test_futures_that_are_cancelled_meanwhile_are_done(run, lanes, is_enough):
    """The last of a stream is one of them: those before it are told of all the same."""
    held = lanes(2)
    futures = [lane.op().submit() for lane in held for _ in range(3)]

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            return await ac.wait(futures, return_when=is_enough)

    async def cancel() -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        for future in (futures[2], futures[4]):
            assert future.cancel()
        for lane in held:
            lane.release()

    done, pending = run(main)
    assert done >= {futures[2]}
    assert done | pending == set(futures)
    if is_enough is not ac.FIRST_COMPLETED:
        assert pending == set()


@pytest.mark.parametrize("name", ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"])
def test_asyncio_s_constants_are_as_good(run, name):
    assert getattr(ac, name) == getattr(asyncio, name)

    async def main() -> Any:
        return await ac.wait([ac.value(1)], return_when=getattr(asyncio, name))

    done, _ = run(main)
    assert [future.result() for future in done] == [1]


def test_another_return_when_is_an_error_before_anything_runs(run):
    op = ac.ones(3)

    async def main() -> None:
        with pytest.raises(ac.ArgumentValueError, match="one of ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION"):
            await ac.wait([op], return_when="SOMETIMES")

    run(main)
    assert "pending" in repr(op)


@pytest.mark.parametrize("timeout_s", [-1, -0.001, math.nan, "1", True, 1j], ids=repr)
def test_a_timeout_that_cannot_be_is_an_error_before_anything_runs(run, timeout_s):
    op = ac.ones(3)

    async def main() -> None:
        with pytest.raises(ac.ArgumentValueError, match="a time-out is a number of seconds"):
            await ac.wait([op], timeout_s=timeout_s)

    run(main)
    assert "pending" in repr(op)


def test_cancelling_it_leaves_what_was_submitted(run, lanes, used_bytes):
    before = used_bytes()
    (lane,) = lanes(1)
    ops = [lane.op(1) for _ in range(3)]

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ac.wait, ops)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        lane.release()
        for op in ops:
            np.testing.assert_array_equal(await ac.to_host(await op), [2] * 4)

    run(main)
    ops.clear()
    assert used_bytes() == before
