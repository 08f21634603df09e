"""Waits end through flags or by asking, spin when that pays, and cost nothing when there are none."""

from __future__ import annotations

import asyncio
import time

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native


def one(kernels):
    return kernels.increment(ac.zeros(4, np.int32), 4, threads=4)


def test_an_await_ends_through_a_flag(run, kernels, latch, device):
    stream = device.stream()
    latch.hold(stream)
    before = ac.statistics()

    async def main():
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            while ac.statistics().pending < before.pending + 1:
                await anyio.lowlevel.checkpoint()
            latch.release()

    async def wait():
        with ac.use(stream, spin_us=0):
            await one(kernels)

    run(main)
    after = ac.statistics()
    assert after.completed > before.completed
    assert after.without_flag == before.without_flag
    assert after.batches > before.batches
    assert sum(after.latencies) >= sum(before.latencies) + after.completed - before.completed


def test_without_spinning_nothing_spins(run, kernels):
    async def main():
        with ac.use(spin_us=0):
            for _ in range(20):
                await one(kernels)

    before = ac.statistics()
    run(main)
    assert ac.statistics().spins == before.spins


def test_long_waits_are_not_spun_for(run, kernels, latches, device):
    """A wait that took long makes the next one go to the reactor at once."""

    async def main():
        stream = device.stream()
        latch = latches()
        latch.hold(stream)
        with ac.use(stream):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                while ac.statistics().pending == 0:
                    await anyio.lowlevel.checkpoint()
                begin = time.monotonic()
                while time.monotonic() - begin < 0.02:  # so long is long, against 20 microseconds
                    await anyio.lowlevel.checkpoint()
                latch.release()
            before = ac.statistics()
            again = latches()
            again.hold(stream)
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                while ac.statistics().pending == 0:
                    await anyio.lowlevel.checkpoint()
                assert ac.statistics().spins == before.spins
                again.release()

    async def wait():
        await one(kernels)

    run(main)


def test_a_wait_for_the_past_is_not_a_wait_for_the_present(kernels, latch, device):
    """Work that was submitted before the stream was held completes while it is held."""
    stream = device.stream()
    with ac.use(stream):
        first = one(kernels).submit()
    latch.hold(stream)
    with ac.use(stream):
        second = one(kernels).submit()
    assert first.sync(timeout=60) is not None
    assert latch.is_holding
    assert not second.done()


def test_an_idle_reactor_uses_no_processor(kernels, device):
    one(kernels).sync()
    while ac.statistics().pending:
        device.synchronize().sync()
    parked = ac.statistics()
    for _ in range(200_000):
        pass
    after = ac.statistics()
    assert (after.sleeps, after.batches) == (parked.sleeps, parked.batches)


def test_slots_that_are_used_up_are_no_end(run, kernels, device):
    """More streams than flags: about the others the driver is asked."""
    count = 1100
    before = ac.statistics()
    streams = [device.stream() for _ in range(count)]
    x = [ac.zeros(1, np.int32).sync() for _ in range(4)]

    async def main():
        async def wait(stream, i):
            with ac.use(stream, spin_us=0):
                await kernels.increment(x[i % 4], 1, threads=1)

        async with anyio.create_task_group() as group:
            for i, stream in enumerate(streams):
                group.start_soon(wait, stream, i)

    run(main)
    assert sum(int(ac.to_host(each).sync()[0]) for each in x) == count
    assert ac.statistics().without_flag > before.without_flag
    for stream in streams:
        stream.close()
    # The slots of the streams that are gone serve others.
    again = ac.statistics()
    with ac.use(device.stream(), spin_us=0):
        one(kernels).sync()
    assert ac.statistics().without_flag == again.without_flag


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("spin_us", -1, ac.ArgumentValueError),
        ("spin_us", 1.5, ac.ArgumentTypeError),
        ("max_in_flight", 0, ac.ArgumentValueError),
        ("max_in_flight", 513, ac.ArgumentValueError),
    ],
)
def test_numbers_out_of_range_are_errors(name, value, error):
    with pytest.raises(error, match=name), ac.use(**{name: value}):
        pass


def test_a_closed_stream_keeps_its_flag_until_all_is_written_there(kernels, latch, device):
    """Otherwise the flag's next user would see a late number that is not its own."""
    held, stream = device.stream(), device.stream()
    latch.hold(held)
    stream.wait(held)  # nothing that it was given to do has not passed, and what it writes next comes late
    index = stream._index

    async def main() -> None:
        waiting = asyncio.ensure_future(ac.as_coroutine(stream.synchronize()))
        await asyncio.sleep(0)
        assert not waiting.done()  # it has a flag
        stream.close()
        _native.collect()
        assert index in _native.streams_of(0)
        latch.release()
        await waiting

    asyncio.run(main())
    one(kernels).sync()  # what is closed goes with memory that is freed
    _native.collect()
    assert index not in _native.streams_of(0)


def test_what_was_submitted_does_not_wait_for_later_work_to_come_to_the_host(run, device, latches):
    """A function of its value is called when that is there, though the stream goes on with something else."""
    first, second = latches(), latches()
    stream = device.stream()
    first.hold(stream)
    with ac.use(stream):
        landed = ac.to_host(ac.full(2, 8, np.int32)).submit()
    second.hold(stream)

    async def main():
        with ac.use(spin_us=0):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.lowlevel.checkpoint()
                first.release()

    async def wait():
        assert list(await landed) == [8, 8]
        assert second.is_holding

    run(main)
