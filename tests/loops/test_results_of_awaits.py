"""An await gives back its result whole, whatever the result is, to whoever drives it: as a generator does."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest

import aiocuda as ac
from aiocuda._loops import current_tasks


class Thing:
    """Something that a weak reference can be made to."""


RESULTS = [
    None, 0, "", (), (1,), (1, 2), [1], (None,), ValueError("a result"), ValueError, StopIteration(7), StopIteration,
    ((ValueError(), 3),),
]  # fmt: skip


def of(result: Any) -> ac.DeviceOp[Any]:
    return ac.value(None).map(lambda _: result)


@pytest.mark.parametrize("is_future", [False, True])
@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_any_result_comes_through_whole(run, result, is_future):
    async def main() -> Any:
        op = of(result)
        return await (op.submit() if is_future else op), await ac.as_coroutine(op)

    first, second = run(main)
    assert first is result
    assert second is result


def by_next(waiting: Any) -> Any:
    return next(waiting)


def by_method(waiting: Any) -> Any:
    return waiting.__next__()


def by_send(waiting: Any) -> Any:
    return waiting.send(None)


DRIVERS: list[Callable[[Any], Any]] = [by_next, by_method, by_send]


async def done_by(drive_once: Callable[[Any], Any], op: ac.DeviceOp[Any]) -> Any:
    """Drive awaits of a result that is there, in a turn of the loop for each, until one ends at once.

    On a machine that has much else to do, a turn may have no time left, so that an await first gives up the loop.
    """
    await op
    for _ in range(1000):
        await asyncio.sleep(0)
        if (found := drive_once(op.__await__())) is not None:
            return found
    raise AssertionError


def stop_of(op: ac.DeviceOp[Any], drive: Callable[[Any], Any]) -> Coroutine[Any, Any, StopIteration]:
    """Give the exception by which an await of a result that is there ends."""

    def drive_once(waiting: Any) -> StopIteration | None:
        try:
            drive(waiting)
        except StopIteration as stop:
            return stop
        waiting.close()
        return None

    return done_by(drive_once, op)


@pytest.mark.parametrize("drive", DRIVERS)
@pytest.mark.parametrize("result", RESULTS, ids=repr)
def test_who_drives_it_by_hand_gets_a_stop_iteration_with_the_result(run_asyncio, result, drive):
    ended = run_asyncio(lambda: stop_of(of(result), drive))
    assert type(ended) is StopIteration
    assert ended.value is result
    assert ended.args == (() if result is None and drive is not by_send else (result,))


def test_a_generator_yields_from_it(run_asyncio):
    def through(op: Any) -> Generator[Any, Any, Any]:
        return (yield from op.__await__())

    class Wrapped:
        def __await__(self) -> Any:
            return through(of((1, 2)))

    async def main() -> Any:
        return await Wrapped()

    assert run_asyncio(main) == (1, 2)


@pytest.mark.parametrize("drive", DRIVERS)
def test_a_stop_iteration_that_somebody_keeps_is_nobody_else_s(run_asyncio, drive):
    """One that nobody has seen is used again."""

    async def main() -> list[StopIteration]:
        ended = []
        for number in range(4):
            ended.append(await stop_of(of(number), drive))
            await of("another")
        return ended

    ended = run_asyncio(main)
    assert len({id(each) for each in ended}) == 4
    assert [each.value for each in ended] == [0, 1, 2, 3]
    assert [each.args for each in ended] == [(0,), (1,), (2,), (3,)]


def test_what_was_said_of_one_that_was_dropped_is_said_of_no_other(run_asyncio):
    async def main() -> StopIteration:
        for op in (of(1), of(2)):
            found = await stop_of(op, by_next)
            if found.value == 1:
                found.add_note("a note")
                found.__cause__ = ValueError()
                found.mark = 3  # type: ignore[attr-defined]
                del found
        return found

    ended = run_asyncio(main)
    assert ended.value == 2
    assert not hasattr(ended, "__notes__")
    assert not hasattr(ended, "mark")
    assert ended.__cause__ is None
    assert not ended.__suppress_context__


@pytest.mark.parametrize("is_future", [False, True])
def test_a_result_that_was_taken_is_held_by_nobody(run, is_future):
    async def main() -> weakref.ref[Thing]:
        op = ac.value(None).map(lambda _: Thing())
        return weakref.ref(await (op.submit() if is_future else op))

    seen = run(main)
    gc.collect()
    assert seen() is None


def test_a_result_that_was_taken_by_hand_is_held_by_nobody(run_asyncio):
    async def main() -> weakref.ref[Thing]:
        return weakref.ref((await stop_of(ac.value(None).map(lambda _: Thing()), by_next)).value)

    seen = run_asyncio(main)
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("drive", DRIVERS)
def test_nothing_holds_the_frames_of_who_took_a_result_by_hand(run_asyncio, drive):
    """An exception that was caught refers to frames, and they to all that was there, and to the iterator."""

    def drive_once(waiting: Any) -> weakref.ref[Thing] | None:
        thing = Thing()
        try:
            drive(waiting)
        except StopIteration:
            return weakref.ref(thing)
        waiting.close()
        return None

    seen = run_asyncio(lambda: done_by(drive_once, of(3)))
    gc.collect()
    assert seen() is None


def test_a_debugger_sees_each_result(run_asyncio):
    """A function that is told of exceptions may keep them: they stay as they are."""
    seen: list[tuple[StopIteration, Any]] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if event == "exception" and isinstance(argument[1], StopIteration):
            seen.append((argument[1], argument[1].value))
        return trace

    async def main() -> list[Any]:
        ops = [of((number,)) for number in range(3)]
        for op in ops:
            await op
        return [await op for op in ops]

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        results = run_asyncio(main)
    finally:
        sys.settrace(before)
    assert results == [(0,), (1,), (2,)]
    assert all(any(value is each for _, value in seen) for each in results)
    assert all(stop.value is value for stop, value in seen)


class Stubborn(asyncio.Future[Any]):
    """A future of a loop whose wait takes an error that is thrown into it for its end."""

    def __await__(self) -> Any:
        try:
            return (yield from super().__await__())
        except ZeroDivisionError:
            return "the wait is over"

    __iter__ = __await__


@pytest.mark.parametrize("result", [None, (3, 4), ValueError()], ids=repr)
def test_a_result_that_is_there_when_an_error_is_thrown_in_comes_through_whole(lane, result):
    """The loop's future swallows the error, and by then the device has come to the end."""

    class Loop(asyncio.SelectorEventLoop):
        def create_future(self) -> Any:
            return Stubborn(loop=self)

    async def main() -> Any:
        op = lane.op().map(lambda _: result)
        waiting: Any = op.__await__()
        waiting.send(None)
        lane.release()
        await asyncio.to_thread(op.sync)
        with pytest.raises(StopIteration) as ended:
            waiting.throw(ZeroDivisionError())
        return ended.value.value

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(main()) is result


def stops(_: object) -> None:
    raise StopIteration(7)


def stopped(latch: Any) -> Any:
    """Return a future that will raise. Its stream is held until it is there: else `submit` may be what raises."""
    stream = ac.Device(0).stream()
    latch.hold(stream)
    future = ac.zeros(1).on(stream).map(stops).submit()
    latch.release()
    return future


@pytest.mark.parametrize("is_future", [False, True])
def test_an_operation_that_raises_a_stop_iteration_is_no_result(run, is_future, latch):
    async def main() -> None:
        op = stopped(latch) if is_future else ac.zeros(1).map(stops)
        with pytest.raises(RuntimeError, match="the operation raised StopIteration") as caught:
            await op
        assert isinstance(caught.value.__cause__, StopIteration)
        assert caught.value.__cause__.value == 7

    run(main)


@pytest.mark.parametrize("drive", DRIVERS)
def test_an_operation_that_raises_a_stop_iteration_is_no_result_for_who_drives_by_hand(run_asyncio, drive, latch):
    async def main() -> None:
        failed = stopped(latch)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await failed
        with pytest.raises(RuntimeError, match="the operation raised StopIteration"):
            await done_by(drive, failed)

    run_asyncio(main)


def test_an_error_that_futures_refuse_ends_what_waits_for_it(run):
    async def main() -> None:
        waiter = current_tasks().make_waiter()
        waiter.set_error(StopIteration(7))
        with anyio.fail_after(5), pytest.raises(RuntimeError, match="raised StopIteration") as caught:
            await waiter.wait()
        assert isinstance(caught.value.__cause__, StopIteration)

    run(main)
