"""A stream never holds more than it may; who submits waits, and the event loop does not."""

from __future__ import annotations

import threading

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native


def held(stream: ac.Stream) -> int:
    return _native.stream_submitted(stream._index)


@pytest.fixture
def stream(device):
    return device.stream()


def test_awaits_wait_for_room_and_the_loop_goes_on(run, kernels, latch, stream):
    submitters = 3000
    arrays = [ac.zeros(1, np.int32).sync() for _ in range(8)]
    latch.hold(stream)
    before = held(stream)

    async def main():
        async def submit(i):
            with ac.use(stream):
                await kernels.increment(arrays[i % 8], 1, threads=1)

        async with anyio.create_task_group() as group:
            for i in range(submitters):
                group.start_soon(submit, i)
            for _ in range(50):  # the heart beats: the loop comes round again and again
                await anyio.lowlevel.checkpoint()
            assert latch.is_holding
            assert held(stream) - before <= 250
            latch.release()

    run(main)
    assert held(stream) - before == submitters
    assert sum(int(ac.to_host(x).sync()[0]) for x in arrays) == submitters


def test_a_lower_bound_is_kept(run, kernels, latch, stream):
    x = ac.zeros(1, np.int32).sync()
    latch.hold(stream)
    before = held(stream)

    async def main():
        async def submit():
            with ac.use(stream, max_in_flight=5):
                await kernels.increment(x, 1, threads=1)

        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(submit)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert held(stream) - before <= 5
            latch.release()

    run(main)
    assert ac.to_host(x).sync()[0] == 30


def test_a_long_chain_passes_through_a_narrow_stream(kernels, stream):
    op = ac.zeros(1, np.int32)
    for _ in range(700):
        op = kernels.increment(op, 1, threads=1)
    with ac.use(stream, max_in_flight=16):
        assert ac.to_host(op).sync()[0] == 700


def test_what_stands_behind_a_full_stream_does_not_go_first(kernels, latch, device):
    """The first branch finds its stream full: the second, which overwrites what it reads, waits too."""
    narrow, other = device.stream(), device.stream()
    x, y = ac.full(1, 1, np.int32).sync(), ac.zeros(1, np.int32).sync()
    latch.hold(narrow)
    first = kernels.accumulate(1, x, y, 1, threads=1).on(narrow)
    second = kernels.increment(x, 1, threads=1).on(other)
    both = ac.zip(first, second)

    def submit():
        with ac.use(max_in_flight=1):
            both.sync()

    thread = threading.Thread(target=submit)
    thread.start()
    before = held(other)
    for _ in range(20):
        ac.to_host(ac.ones(8)).sync_on(device.stream(), timeout=60)
    assert held(other) == before
    latch.release()
    thread.join()
    assert (ac.to_host(x).sync()[0], ac.to_host(y).sync()[0]) == (2, 1)


def test_submit_waits_with_the_gil_given_up(kernels, latch, stream):
    x = ac.zeros(1, np.int32).sync()
    latch.hold(stream)
    done = threading.Event()

    def submit():
        with ac.use(stream, max_in_flight=4):
            for _ in range(10):
                kernels.increment(x, 1, threads=1).submit()
        done.set()

    before = held(stream)
    thread = threading.Thread(target=submit)
    thread.start()
    while held(stream) - before < 3:  # this thread goes on
        pass
    assert not done.is_set()
    latch.release()
    thread.join()
    assert ac.to_host(x).sync()[0] == 10


def test_a_cancelled_wait_for_room_submits_nothing(run, kernels, latch, stream):
    x = ac.zeros(1, np.int32).sync()
    latch.hold(stream)
    before = held(stream)

    async def main():
        with ac.use(stream, max_in_flight=2):
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(wait)
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert held(stream) - before <= 2

    async def wait():
        await kernels.increment(x, 1, threads=1)

    run(main)
    latch.release()
    ran = held(stream) - before
    assert ac.to_host(x).sync()[0] == ran
