"""Threads: any of them builds, submits, awaits on its own loop, waits and drops, with nothing to prepare."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import trio

import aiocuda as ac


def in_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result(60)


def asyncio_run(function: Callable[..., Any], *arguments: Any) -> Any:
    return asyncio.run(function(*arguments))


def test_a_thread_that_never_touched_the_device_just_works(kernels):
    def everything() -> Any:
        array = kernels.increment(ac.zeros(8, np.int32), 8, threads=8).submit().sync()
        stream = ac.Device(0).stream()
        return ac.to_host(array).sync_on(stream), ac.Device(0).memory_info().used_bytes > 0

    host, uses = in_new_thread(everything)
    np.testing.assert_array_equal(host, np.ones(8))
    assert uses


@pytest.mark.needs_devices(2)
def test_a_thread_goes_from_device_to_device(kernels):
    def everything() -> list[int]:
        found = []
        for ordinal in (1, 0, 1):
            with ac.use(ordinal):
                op = kernels.increment(ac.full(4, ordinal, np.int32), 4, threads=4)
                found.append(int(ac.to_host(op).sync()[3]))
        return found

    assert in_new_thread(everything) == [2, 1, 2]


def test_what_one_thread_builds_another_submits_and_a_third_awaits(kernels):
    op = in_new_thread(lambda: kernels.increment(ac.zeros(8, np.int32), 8, threads=8))
    future = in_new_thread(lambda: ac.to_host(op).submit())

    async def main() -> Any:
        return await future

    for loop in (asyncio_run, trio.run):
        np.testing.assert_array_equal(in_new_thread(lambda loop=loop: loop(main)), np.ones(8))


def test_loops_in_several_threads_share_arrays(kernels):
    """Each adds to all arrays, over streams of its own: nothing is lost, whatever the order."""
    arrays = [ac.zeros(64, np.int32).sync() for _ in range(3)]
    barrier = threading.Barrier(4)
    rounds = 15

    async def main(seed: int) -> None:
        stream = ac.Device(0).stream()
        barrier.wait(60)
        for k in range(rounds):
            array = arrays[(seed + k) % 3]
            with ac.use(stream):
                op = kernels.increment(array, 64, threads=64)
                if k % 3 == 0:
                    await op
                elif k % 3 == 1:
                    op.submit()
                else:
                    assert (await ac.to_host(op)).min() > 0

    threads = [
        threading.Thread(target=(asyncio_run, trio.run)[seed % 2], args=(main, seed), name=str(seed))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    total = sum(ac.to_host(array).sync().astype(int) for array in arrays)
    np.testing.assert_array_equal(total, np.full(64, 4 * rounds))


def test_a_chain_handed_from_thread_to_thread_is_in_order(kernels):
    """Each thread takes the array where the one before left it, on a stream of its own, with nothing waited for."""
    array = ac.zeros(32, np.int32).sync()
    source = ac.ones(32, np.int32).sync()
    turns = [threading.Event() for _ in range(6)]
    turns[0].set()

    def take_turn(turn: int) -> None:
        assert turns[turn].wait(60)
        with ac.use(ac.Device(0).stream()):
            kernels.accumulate(turn, source, array, 32, threads=32).submit()
        if turn + 1 < len(turns):
            turns[turn + 1].set()

    threads = [threading.Thread(target=take_turn, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = 0
    for turn in range(6):
        expected = 3 * expected + turn
    np.testing.assert_array_equal(ac.to_host(array).sync(), np.full(32, expected))


@pytest.mark.parametrize("method", ["then", "inspect", "map"])
def test_the_collector_frees_arrays_in_the_middle_of_a_submission(method, kernels, latch, device, used_bytes):
    """Garbage in cycles, whose arrays the device still uses, is collected by a callback within the walk."""
    before = used_bytes()
    stream = device.stream()
    latch.hold(stream)

    class Cycle:
        def __init__(self) -> None:
            self.itself = self
            with ac.use(stream):
                x = ac.full(256, 3, np.int32)
                self.future = kernels.increment(x, 256, threads=256).submit()
                self.array = ac.zeros(256, np.int32).submit()

    gc.disable()
    try:
        for _ in range(10):
            Cycle()
        collected: list[int] = []
        op = getattr(ac.full(16, 1, np.int32), method)(lambda array: (collected.append(gc.collect()), array)[1])
        with ac.use(device.stream()):
            after = kernels.increment(ac.full(16, 1, np.int32), 16, threads=16)
            host = ac.zip(op, ac.to_host(after)).sync(timeout=60)[1]
            np.testing.assert_array_equal(host, np.full(16, 2))
    finally:
        gc.enable()
    assert collected[0] >= 10
    assert latch.is_holding
    latch.release()
    del op, after
    assert used_bytes() == before


def test_the_collector_on_any_thread_frees_while_others_submit(kernels, used_bytes):
    before = used_bytes()
    stop = threading.Event()

    def litter() -> None:
        while not stop.is_set():
            cycle: dict[str, Any] = {"array": ac.full(64, 1, np.int32).submit()}
            cycle["itself"] = cycle
            del cycle
            gc.collect()

    async def work(seed: int) -> None:
        for k in range(30):
            op = kernels.increment(ac.full(64, seed + k, np.int32), 64, threads=64)
            host = await ac.to_host(op.then(lambda array: (gc.collect(0), array)[1]))
            assert (host == seed + k + 1).all()

    litterers = [threading.Thread(target=litter) for _ in range(2)]
    workers = [threading.Thread(target=(asyncio_run, trio.run)[i % 2], args=(work, 1000 * i)) for i in range(3)]
    for thread in litterers + workers:
        thread.start()
    for thread in workers:
        thread.join(120)
    stop.set()
    for thread in litterers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in litterers + workers)
    assert used_bytes() == before
