"""Scheduled futures: nothing runs before somebody asks; then it runs where it was said."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native


def counted(calls: list[int]) -> ac.DeviceOp[int]:
    return ac.value(1).inspect(calls.append)


def test_scheduling_submits_nothing(device):
    calls: list[int] = []
    future = counted(calls).schedule(device)
    assert not future.done()
    assert not future.cancelled()
    assert "scheduled" in repr(future)
    assert calls == []


def test_awaiting_starts_it(run):
    calls: list[int] = []
    future = counted(calls).schedule(0)

    async def main() -> Any:
        return await future, await future

    assert run(main) == (1, 1)
    assert calls == [1]


@pytest.mark.parametrize("ask", ["sync", "result", "exception"])
def test_asking_for_the_result_starts_it(ask):
    calls: list[int] = []
    future = counted(calls).schedule(0)
    assert getattr(future, ask)() == (None if ask == "exception" else 1)
    assert calls == [1]
    assert future.done()


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_what_is_not_complete_at_once_has_started(ask, latch, stream):
    latch.hold(stream)
    future = ac.to_host(ac.ones(3)).schedule(stream)
    with pytest.raises(ac.ArgumentValueError, match=r"not complete.*\.sync\(\)"):
        getattr(future, ask)()
    assert "pending" in repr(future)
    latch.release()
    assert future.sync().sum() == 3


def test_a_callback_starts_it():
    calls: list[int] = []
    called = threading.Event()
    counted(calls).schedule(0).add_done_callback(lambda _: called.set())
    assert called.wait(60)
    assert calls == [1]


def test_an_error_at_the_start_is_the_callback_s_to_hear():
    errors: list[Any] = []
    called = threading.Event()

    def callback(future: Any) -> None:
        errors.append(future.exception())
        called.set()

    ac.value(1).then(lambda _: 1 / 0).schedule(0).add_done_callback(callback)
    assert called.wait(60)
    assert isinstance(errors[0], ZeroDivisionError)


def test_it_runs_on_the_stream_it_was_scheduled_on(latch, device, stream):
    latch.hold(stream)
    other = device.stream()
    with ac.use(stream):
        future = ac.to_host(ac.full(3, 4, np.int32)).schedule(other)
        np.testing.assert_array_equal(future.sync(timeout=60), [4, 4, 4])
        blocked = ac.to_host(ac.ones(3)).schedule(stream)
    with pytest.raises(TimeoutError):
        blocked.sync(timeout=0)
    assert latch.is_holding


def test_streams_of_others_are_targets(latch, device, stream):
    latch.hold(stream)
    other = device.stream()

    class Foreign:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, other.handle

    with ac.use(stream):
        assert ac.to_host(ac.ones(3)).schedule(Foreign()).sync(timeout=60).sum() == 3
    assert latch.is_holding


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("target", [1, "device"])
def test_it_runs_on_the_device_it_was_scheduled_on(target):
    target = ac.Device(1) if target == "device" else target
    there, here = ac.empty_host(3).sync(), ac.empty_host(3).sync()

    def submitted() -> list[int]:
        return [sum(map(_native.stream_submitted, _native.streams_of(ordinal))) for ordinal in range(2)]

    before = submitted()
    ac.copy(there, here).schedule(target).sync()  # it could be any device's work
    assert submitted() == [before[0], before[1] + 3]  # by way of its memory, which is made there


def test_what_is_no_target_is_an_error():
    with pytest.raises(ac.ArgumentTypeError, match=r"work is put on a device .*; 1\.5 was given"):
        ac.value(1).schedule(1.5)
    with pytest.raises(ac.ArgumentValueError, match="'somewhere' was given"):
        ac.value(1).schedule("somewhere")


def test_what_others_executed_is_there(device):
    op = ac.to_host(ac.ones(3))
    future = op.schedule(device)
    assert not future.done()
    result = op.sync()
    assert future.done()
    assert future.result() is result


def test_a_future_remembers_the_placement_in_which_it_was_made(latch, device, stream):
    """Operations behind a map go where the rest went, whoever asks, from anywhere."""
    held = device.stream()
    latch.hold(held)
    with ac.use(stream):
        future = ac.to_host(ac.to_device(ac.to_host(ac.ones(3)).map(lambda host: host + 1))).submit()
    with ac.use(held):
        np.testing.assert_array_equal(future.sync(timeout=60), [2, 2, 2])
    assert latch.is_holding


def test_a_stream_that_was_closed_after_the_submission_does_not_matter(run, device):
    stream = device.stream()
    with ac.use(stream):
        future = ac.ones(3).submit()
    future.sync()
    stream.close()
    _again = device.stream()  # takes the place of the one that is gone

    async def main() -> Any:
        return await future

    assert run(main) is future.sync()
    assert future.result().shape == (3,)


def test_a_stream_that_was_closed_before_the_start_is_the_asker_s_error(run, device):
    stream = device.stream()
    op = ac.to_host(ac.ones(3))
    future = op.schedule(stream)
    stream.close()
    _again = device.stream()  # takes the place of the one that is gone

    async def main() -> Any:
        return await future

    for ask in (future.sync, lambda: run(main)):
        with pytest.raises(ac.ClosedError, match=r"stream \d+ was closed before this use of it; use an open stream"):
            ask()
    assert op.sync().sum() == 3
    assert future.sync().sum() == 3


def test_a_stream_that_was_closed_before_the_start_is_told_to_callbacks(device):
    stream = device.stream()
    op = ac.to_host(ac.ones(3))
    future = op.schedule(stream)
    stream.close()
    _again = device.stream()  # takes the place of the one that is gone
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(60)
    assert isinstance(future.exception(), ac.ClosedError)
    with pytest.raises(ac.ClosedError, match=r"stream \d+ was closed before this use of it; use an open stream"):
        future.result()
    assert "failed" in repr(future)
    assert op.sync().sum() == 3
