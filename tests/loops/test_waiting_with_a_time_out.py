"""Waits for streams, events and devices end after a time, and say which streams still hold work."""

from __future__ import annotations

import math

import pytest

import aiocuda as ac
from aiocuda import _native

BAD = [-1, math.nan, "1", True, [1]]


def waits_of(lane):
    event = lane.stream.record()
    return {
        "stream": (lane.stream.synchronize(), f"synchronizing stream {lane.stream._number}"),
        "device": (lane.stream.device.synchronize(), f"synchronizing device {lane.stream.device.ordinal}"),
        "event": (event, f"an event on stream {lane.stream._number}"),
    }


@pytest.mark.parametrize("kind", ["stream", "device", "event"])
def test_a_wait_that_ends_in_time_is_as_any_other(run, lane, kind):
    waits = waits_of(lane)[kind][0]
    lane.release()

    async def main() -> None:
        assert await waits.within(60) is None
        assert await waits.within(math.inf) is None

    run(main)
    assert waits.sync(60) is None
    assert waits.sync(timeout=60) is None


@pytest.mark.parametrize("seconds", [0, 0.01])
@pytest.mark.parametrize("kind", ["stream", "device", "event"])
def test_a_time_out_says_what_still_ran(run, lane, kind, seconds):
    lane.op().submit()
    waits, title = waits_of(lane)[kind]

    async def main() -> None:
        await waits.within(seconds)

    for wait in (lambda: run(main), lambda: waits.sync(timeout=seconds)):
        others = [each for each in _native.streams_of(0) if each != lane.stream._index]
        while kind == "device" and _native.streams_at_work(others):
            pass  # what a wait before put into them passes by itself
        with pytest.raises(ac.DeviceTimeoutError) as caught:
            wait()
        error = caught.value
        assert isinstance(error, TimeoutError)
        assert title in error.operation
        assert error.waited_s >= 0.9 * seconds  # loops round
        named = f"stream {lane.stream._number} of device {lane.stream.device.ordinal} ("
        assert len(error.running) == 1  # the wait's own flags are no work
        assert error.running[0].startswith(named)
        assert "still running: stream" in str(error)
    lane.release()
    waits.sync(timeout=60)
    run(main)  # what has passed is there at once, also where there is no time at all


@pytest.mark.parametrize("seconds", BAD, ids=str)
def test_a_time_out_is_a_number_of_seconds(lane, seconds):
    for waits, _ in waits_of(lane).values():
        with pytest.raises(ac.ArgumentValueError, match="a number of seconds"):
            waits.within(seconds)
        with pytest.raises(ac.ArgumentValueError, match="a number of seconds"):
            waits.sync(seconds)


def test_waiting_for_an_operation_in_a_thread_says_what_was_running(lane):
    op = lane.op()
    future = op.submit()
    for wait in (op.sync, future.sync):
        with pytest.raises(ac.DeviceTimeoutError, match="still running: the launch of increment"):
            wait(timeout=0.01)
    lane.release()
    assert future.sync(timeout=60) is op.sync(timeout=60)
