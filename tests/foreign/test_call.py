"""`call`: work of other libraries takes part in a DAG, ordered by what it is said to read and write."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac

N = 64


def fill(stream: ac.Stream, x: ac.DeviceArray, value: int) -> None:
    """Put a fill of an array on a stream, as another library would."""
    assert driver.cuMemsetD32Async(x.address, value, x.size, stream.handle) == (driver.CUresult.CUDA_SUCCESS,)


def copy(stream: ac.Stream, to: ac.DeviceArray, source: ac.DeviceArray) -> None:
    result = driver.cuMemcpyAsync(to.address, source.address, source.nbytes, stream.handle)
    assert result == (driver.CUresult.CUDA_SUCCESS,)


def host(x: Any) -> list[int]:
    return list(ac.to_host(x).sync(60)[:2])


@pytest.fixture
def increment(kernels) -> Callable[[Any], ac.DeviceOp]:
    return lambda x: kernels.increment(x, N, threads=N)


def zeros() -> ac.DeviceArray:
    return ac.zeros(N, np.int32).sync()


def test_what_is_enqueued_stands_between_what_comes_before_and_after(increment):
    x = increment(ac.zeros(N, np.int32))
    assert host(increment(ac.call(fill, x, 5, writes=[x]))) == [6, 6]


def test_nothing_is_called_before_it_is_executed_and_then_once(increment):
    calls: list[Any] = []
    op = ac.call(lambda *given: calls.append(given))
    op.explain()
    assert calls == []
    ac.zip(op, op.map(lambda _: 1)).sync(60)
    op.sync(60)
    assert len(calls) == 1
    assert isinstance(calls[0][0], ac.Stream)


def test_it_gives_back_what_it_writes_unless_the_function_returns_something():
    x, y = zeros(), zeros()
    assert ac.call(fill, x, 1, writes=[x]).sync(60) is x
    assert ac.call(lambda stream: None, writes=[x, y]).sync(60) == (x, y)
    assert ac.call(lambda stream: None, reads=[x]).sync(60) is None
    assert ac.call(lambda stream: "mine", writes=[x]).sync(60) == "mine"


def test_what_the_function_returns_is_there_when_its_work_is(latch, device, settle):
    x = zeros()
    latch.hold(0)
    future = ac.call(lambda stream: fill(stream, x, 7) or "mine", writes=[x]).submit()
    settle()
    assert not future.done()
    latch.release()
    assert future.sync(60) == "mine"


def test_operations_are_accepted_as_arguments_reads_and_writes(increment):
    x, y = increment(ac.zeros(N, np.int32)), ac.zeros(N, np.int32)
    op = ac.call(copy, y, x, reads=[x], writes=[y])
    assert host(increment(op)) == [2, 2]
    nested = ac.call(fill, ac.call(fill, y, 3, writes=[y]), increment(zeros()).map(lambda _: 4), writes=[y])
    assert host(nested) == [4, 4]


def test_it_runs_on_the_stream_it_is_put_on_or_that_is_in_force(device):
    streams: list[ac.Stream] = []
    own, forced = device.stream(), device.stream()
    ac.call(streams.append).on(own).sync(60)
    with ac.use(forced):
        ac.call(streams.append).sync(60)
    ac.call(streams.append).sync_on(forced, 60)
    assert streams == [own, forced, forced]
    assert streams[0].__cuda_stream__() == (0, own.handle)


@pytest.mark.needs_devices(2)
def test_it_runs_on_the_device_of_what_it_writes_else_of_what_it_reads_else_in_force():
    x = ac.zeros(N, np.int32, device=1).sync()
    devices: list[Any] = []

    def where(stream: ac.Stream) -> None:
        result, current = driver.cuCtxGetDevice()
        devices.append((stream.device.ordinal, int(current), int(result)))

    ac.call(where, writes=[x]).sync(60)
    ac.call(where, reads=[x]).sync(60)
    ac.call(where).on(1).sync(60)
    with ac.use(1):
        ac.call(where).sync(60)
    ac.call(where).sync(60)
    assert devices == [(1, 1, 0)] * 4 + [(0, 0, 0)]
    with pytest.raises(ac.DeviceMismatchError, match="device 0"):
        ac.call(where, reads=[zeros()], writes=[x]).sync(60)


def test_who_reads_what_it_writes_waits_for_it_and_who_reads_what_it_reads_does_not(latch, device, settle, increment):
    x, y = zeros(), zeros()
    held, other = device.stream(), device.stream()
    latch.hold(held)
    call = ac.call(copy, y, x, reads=[x], writes=[y]).on(held).submit()
    assert list(ac.to_host(x).sync_on(other, 60)[:2]) == [0, 0]
    assert not call.done()
    reading = ac.dup(y).on(other).submit()
    overwriting = increment(x).on(device.stream()).submit()
    settle()
    assert not reading.done()
    assert not overwriting.done()
    latch.release()
    overwriting.sync(60)
    assert host(y) == [0, 0]


def test_it_waits_for_who_writes_what_it_reads(latch, device, settle, increment):
    x, y = zeros(), zeros()
    held = device.stream()
    latch.hold(held)
    increment(x).on(held).submit()
    call = ac.call(copy, y, x, reads=[x], writes=[y]).on(device.stream()).submit()
    settle()
    assert not call.done()
    latch.release()
    call.sync(60)
    assert host(y) == [1, 1]


def test_a_part_of_what_is_declared_may_be_passed():
    x = zeros()
    assert host(ac.call(fill, x[N // 2 :], 3, writes=[x])) == [0, 0]
    assert list(ac.to_host(x).sync(60)[[0, -1]]) == [0, 3]


def test_only_the_part_that_is_declared_is_waited_for(latch, device, increment):
    x = ac.zeros(2 * N, np.int32).sync()
    latch.hold(0)
    held = ac.call(fill, x[:N], 1, writes=[x[:N]]).submit()
    ac.call(fill, x[N:], 2, writes=[x[N:]]).on(device.stream()).sync(60)
    assert not held.done()


# --- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [None, 1, "fill"])
def test_what_cannot_be_called_is_an_error(function):
    with pytest.raises(ac.ArgumentTypeError, match="takes a function"):
        ac.call(function)


@pytest.mark.parametrize("name", ["reads", "writes"])
def test_reads_and_writes_are_lists_of_arrays(name):
    x = zeros()
    with pytest.raises(ac.ArgumentTypeError, match=rf"{name}= takes a list of arrays.*write \[array\]"):
        ac.call(fill, x, 1, **{name: x})
    with pytest.raises(ac.ArgumentTypeError, match="takes a list of arrays"):
        ac.call(fill, x, 1, **{name: ac.dup(x)})
    with pytest.raises(ac.ArgumentTypeError, match="not None"):
        ac.call(fill, x, 1, **{name: None})
    with pytest.raises(ac.ArgumentTypeError, match=r"external\(\)"):
        ac.call(fill, x, 1, **{name: [np.zeros(3)]})


def test_what_an_operation_yields_must_be_an_array_to_be_written():
    with pytest.raises(ac.ArgumentTypeError, match="what is written is an array"):
        ac.call(fill, writes=[ac.value(3)]).sync(60)


def test_an_array_that_is_not_declared_is_an_error_and_nothing_is_called():
    x, y = zeros(), zeros()
    calls: list[Any] = []
    for op in (
        ac.call(lambda *given: calls.append(given), x, reads=[y]),
        ac.call(lambda *given: calls.append(given), x, writes=[x[: N // 2]]),
        ac.call(lambda *given: calls.append(given), ac.dup(x), reads=[x]),
    ):
        with pytest.raises(ac.ArgumentValueError, match="neither in reads= nor in writes="):
            op.sync(60)
    assert calls == []


def test_a_strided_view_that_is_not_declared_is_an_error():
    x, y = zeros(), zeros()
    with pytest.raises(ac.ArgumentValueError, match="neither in reads= nor in writes="):
        ac.call(lambda stream, array: None, x[::2], reads=[y]).sync(60)


def test_parts_of_what_is_named_are_told_from_parts_of_nothing_however_many():
    named = [ac.zeros(8).sync() for _ in range(50)]
    parts = [each[2 * n : 2 * n + 2] for each in named for n in range(4)]

    def nothing(*_: object) -> None:
        pass

    ac.call(nothing, *parts, *named, reads=[*named, *parts]).sync()
    halves = [each[:4] for each in named]
    ac.call(nothing, *[each[n : n + 2] for each in named for n in range(3)], reads=halves, writes=parts[:2]).sync()
    for wrong in (named[31][2:6], named[0], ac.zeros(8).sync()):  # it begins within a half, and ends beyond it
        with pytest.raises(ac.ArgumentValueError, match="neither in reads= nor in writes="):
            ac.call(nothing, *halves, wrong, reads=halves).sync()


def test_writing_what_is_shared_or_closed_is_an_error():
    x = zeros()
    shared = x.share()
    with pytest.raises(ac.OwnershipError, match="shared at"):
        ac.call(fill, x, 1, writes=[x]).sync(60)
    assert ac.call(lambda stream, array: array.shape, shared, reads=[shared]).sync(60) == (N,)
    y = zeros()
    op = ac.call(fill, y, 1, writes=[y])
    y.close()
    with pytest.raises(ac.ClosedError, match=r"call: what is written: the array of .* was closed at"):
        op.sync(60)


# --- functions that raise -------------------------------------------------------------------------------------------


def test_what_the_function_raises_is_the_operations_error_and_what_it_enqueued_completes(increment, used_bytes, let_go):
    gc.collect()
    before = used_bytes()
    x = zeros()

    def fails(stream: ac.Stream, array: ac.DeviceArray) -> None:
        fill(stream, array, 5)
        raise ZeroDivisionError("mine")

    op = ac.call(fails, x, writes=[x])
    after = increment(op)
    for each in (after, op, after):
        with pytest.raises(ZeroDivisionError, match="mine"):
            each.sync(60)
    assert host(x) == [5, 5]
    assert host(increment(x)) == [6, 6]
    del x, op, after, each
    assert let_go(lambda: used_bytes() == before)


def test_later_work_is_ordered_behind_what_a_function_enqueued_before_it_raised(latch, device, settle, increment):
    x = zeros()
    held = device.stream()
    latch.hold(held)

    def fails(stream: ac.Stream, array: ac.DeviceArray) -> None:
        fill(stream, array, 5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ac.call(fails, x, writes=[x]).on(held).submit()
    later = increment(x).on(device.stream()).submit()
    settle()
    assert not later.done()
    latch.release()
    later.sync(60)
    assert host(x) == [6, 6]


def test_memory_that_a_failed_function_uses_is_not_used_again_before(latch, device):
    held = device.stream()
    latch.hold(held)
    out = zeros()

    def fails(stream: ac.Stream, to: ac.DeviceArray, source: ac.DeviceArray) -> None:
        copy(stream, to, source)
        raise ZeroDivisionError

    x = ac.full(N, 7, np.int32).sync()
    op = ac.call(fails, out, x, reads=[x], writes=[out]).on(held)
    with pytest.raises(ZeroDivisionError):
        op.submit()
    del x, op
    gc.collect()
    others = [ac.full(N, i, np.int32).sync_on(device.stream(), 60) for i in range(4)]
    latch.release()
    assert host(out) == [7, 7]
    assert [host(other)[0] for other in others] == [0, 1, 2, 3]


def test_an_error_reaches_whoever_awaits(run):
    def fails(stream: ac.Stream) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await ac.call(fails)
        assert (await ac.to_host(ac.ones(3)))[0] == 1

    run(main)


# --- lifetime -------------------------------------------------------------------------------------------------------


class Resource:
    """Something that the enqueued work needs."""


def test_arguments_and_results_live_until_the_work_has_passed(latch, device, let_go):
    held = device.stream()
    latch.hold(held)
    argument, result = Resource(), Resource()
    seen = [weakref.ref(argument), weakref.ref(result)]

    def function(stream: ac.Stream, _: Resource, result: Any = [result]) -> Resource:  # noqa: B006 - taken out
        return result.pop()

    op = ac.call(function, argument).on(held)
    op.submit()
    seen.append(weakref.ref(function))
    del argument, result, function, op
    gc.collect()
    assert [ref() is None for ref in seen] == [False, False, False]
    latch.close()
    assert let_go(lambda: [ref() for ref in seen] == [None, None, None])


def test_arguments_live_until_the_work_has_passed_that_came_after_what_the_function_submitted(
    latch, device, let_go, increment
):
    stream, x = device.stream(), zeros()
    argument, inner = Resource(), []
    seen = weakref.ref(argument)

    def function(_: ac.Stream, __: Resource) -> None:
        inner.append(increment(x).on(stream).submit())
        latch.hold(stream)

    ac.call(function, argument).on(stream).submit()
    del argument
    inner[0].sync(60)
    zeros()
    gc.collect()
    assert seen() is not None
    latch.close()
    assert let_go(lambda: seen() is None)


def test_what_a_failed_function_was_given_lives_until_its_work_has_passed(latch, device, let_go):
    held = device.stream()
    latch.hold(held)
    argument = Resource()
    seen = weakref.ref(argument)

    def fails(stream: ac.Stream, _: Resource) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ac.call(fails, argument).on(held).submit()
    del argument
    gc.collect()
    assert seen() is not None
    latch.close()
    assert let_go(lambda: seen() is None)


def test_memory_of_a_call_comes_back(used_bytes):
    gc.collect()
    before = used_bytes()
    for _ in range(20):
        x = ac.zeros(1000, np.int32)
        ac.call(fill, x, 1, writes=[x]).submit()
    del x
    assert used_bytes() == before


def test_a_function_may_submit_more(increment):
    x, y = zeros(), zeros()

    def function(stream: ac.Stream, array: ac.DeviceArray) -> None:
        fill(stream, array, 2)
        increment(y).submit()

    assert host(increment(ac.call(function, x, writes=[x]))) == [3, 3]
    assert host(y) == [1, 1]


def test_explain_shows_it(increment):
    x = zeros()
    text = ac.call(fill, x, 1, writes=[x]).explain()
    assert "call fill on device 0" in text
    assert f"writes int32({N},)" in text
