"""Waits for streams, devices and events are native awaits: one waiter, one wake, and an event makes no stream."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiocuda as ac
from aiocuda import _native

KINDS = ["stream", "device", "event"]


def wait_of(kind: str, lane: Any) -> Any:
    lane.op().submit()
    if kind == "stream":
        return lane.stream.synchronize()
    return lane.stream.record() if kind == "event" else lane.stream.device.synchronize()


async def ask(waiting: Any) -> Any:
    return await waiting


async def release(lane: Any) -> None:
    await anyio.lowlevel.checkpoint()
    lane.release()


@pytest.mark.parametrize("kind", KINDS)
def test_an_await_of_what_has_passed_runs_no_python_of_aiocudas(run_asyncio, lane, frames, kind):
    waiting = wait_of(kind, lane)
    lane.release()
    waiting.sync()

    async def main() -> Any:
        await waiting  # the loop's port is made
        with frames() as counted:
            assert await waiting is None
        return counted

    assert run_asyncio(main).codes == set()


@pytest.mark.parametrize("kind", KINDS)
def test_an_await_that_waits_runs_two_frames_of_aiocudas_at_most(run, lanes, frames, kind):
    first, second = lanes(2)
    first.release()

    async def main() -> Any:
        await wait_of(kind, first) if kind != "device" else await first.stream.synchronize()
        waiting = wait_of(kind, second)
        with ac.use(spin_us=0):
            async with anyio.create_task_group() as group:
                group.start_soon(release, second)
                with frames() as counted:
                    await waiting
        return counted

    counted = run(main)
    assert len(counted.codes) <= 2, counted.codes


@pytest.mark.parametrize("kind", KINDS)
def test_an_await_that_waits_makes_one_waiter_and_is_woken_once(run_asyncio, lane, kind, monkeypatch):
    """Driven by hand: it gives out one future, and ends at the step behind the one wake."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting = wait_of(kind, lane).__await__()
        with ac.use(spin_us=0):
            future = waiting.send(None)
        assert asyncio.isfuture(future)
        woken = asyncio.Event()
        future.add_done_callback(lambda _: woken.set())
        pending = ac.statistics().pending
        assert pending >= 1
        lane.release()
        await woken.wait()
        with pytest.raises(StopIteration) as ended:
            waiting.send(None)
        assert ended.value.value is None
        assert loop.is_running()

    run_asyncio(main)


def test_waiting_for_events_makes_no_stream(run, lane):
    """It makes no stream, neither one that aiocuda knows nor one of the driver's: the reactor asks about the event."""
    events = [lane.stream.record() for _ in range(20)]
    streams = set(_native.streams_of(0))
    flags = ac.statistics()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for event in events:
                group.start_soon(ask, event)
            group.start_soon(ask, events[0].within(60))
            while ac.statistics().pending < flags.pending + len(events):
                await anyio.lowlevel.checkpoint()
            assert set(_native.streams_of(0)) <= streams
            lane.release()

    with ac.use(spin_us=0):
        run(main)
    lane.stream.record().sync()
    assert set(_native.streams_of(0)) <= streams
    assert all(event.done() for event in events)


def test_an_event_ends_its_wait_when_it_passes_whoever_waits_for_a_later_one(run, latches, device):
    """Also of the same stream, where the later one is awaited first."""
    stream = device.stream()
    first_latch, second_latch = latches(), latches()
    first_latch.hold(stream)
    first = stream.record()
    second_latch.hold(stream)
    second = stream.record()
    told: list[str] = []

    async def note(name: str, event: ac.Event) -> None:
        await event
        told.append(name)
        if name == "first":
            assert second_latch.is_holding
            second_latch.release()

    async def main() -> None:
        before = ac.statistics().pending
        async with anyio.create_task_group() as group:
            group.start_soon(note, "second", second)
            while ac.statistics().pending < before + 1:
                await anyio.lowlevel.checkpoint()
            group.start_soon(note, "first", first)
            while ac.statistics().pending < before + 2:
                await anyio.lowlevel.checkpoint()
            first_latch.release()

    with ac.use(spin_us=0):
        run(main)
    assert told == ["first", "second"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_wait_ends_at_once_and_another_goes_on(run, lane, kind):
    waiting = wait_of(kind, lane)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, waiting)
            with anyio.move_on_after(0.01) as scope:
                await waiting
            assert scope.cancelled_caught
            lane.release()
        await waiting

    with ac.use(spin_us=0):
        run(main)


@pytest.mark.parametrize("kind", ["stream", "event"])
def test_a_cancelled_wait_holds_nothing(run_asyncio, lane, kind):
    """Its token is taken back, so what it waited for can go though the device has not come to it."""

    class Waiting(_native.StreamWait):
        pass

    async def main() -> weakref.ref[Any]:
        lane.op().submit()
        waiting: Any = Waiting([lane.stream._index], "a test") if kind == "stream" else None
        if kind == "event":
            event = lane.stream.record()
            waiting = event.__await__()
        task = asyncio.ensure_future(ask(waiting))
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(waiting) if kind == "stream" else weakref.ref(task)

    with ac.use(spin_us=0):
        seen = run_asyncio(main)
    gc.collect()
    assert seen() is None
    assert lane.latch.is_holding


def test_an_event_that_is_dropped_while_the_device_is_asked_about_it_goes_later(run_asyncio, lane):
    async def main() -> None:
        waiting = lane.stream.record().__await__()
        waiting.send(None)
        waiting.close()
        del waiting
        gc.collect()
        lane.release()
        await lane.stream.synchronize()

    with ac.use(spin_us=0):
        run_asyncio(main)
    while ac.statistics().pending:
        lane.stream.synchronize().sync()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_loops_wait_for_the_same(run, lane, kind):
    waiting = wait_of(kind, lane)
    threads = [threading.Thread(target=waiting.sync) for _ in range(3)]
    before = ac.statistics().pending
    for thread in threads:
        thread.start()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask, waiting)
            while ac.statistics().pending == before:
                await anyio.lowlevel.checkpoint()
            lane.release()

    run(main)
    for thread in threads:
        thread.join()


def test_waits_without_a_loop_say_so(lane):
    for kind in KINDS:
        with pytest.raises(ac.AiocudaError, match="no event loop runs in this thread"):
            wait_of(kind, lane).__await__().send(None)
