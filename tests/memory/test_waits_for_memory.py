"""Memory that the driver takes long to give is got by another thread, while the event loop goes on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import background

MIB = 1 << 20


class HeldDriver:
    """Holds what asks the driver for memory."""

    def __init__(self, get: Any) -> None:
        self._get = get
        self._begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, memory: Any) -> None:
        self.threads.append(threading.current_thread())
        self._begun.release()
        assert self.released.wait(60)
        self._get(memory)

    async def until_begun(self) -> None:
        with anyio.fail_after(60):
            while not self._begun.acquire(blocking=False):
                await anyio.lowlevel.checkpoint()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDriver]:
    held = HeldDriver(background._get)
    monkeypatch.setattr(background, "_get", held)
    yield held
    held.released.set()


_sizes = itertools.count(start=23 * MIB, step=MIB)  # blocks are whole MiB: each test has a size of its own


@pytest.fixture
def x() -> Iterator[Any]:
    """Make an array; of host and managed memory of its size no block is kept, so the driver must be asked for one."""
    size = next(_sizes)
    ac.Device(0).trim_memory()  # managed memory
    held = []  # the page-locked blocks that tests before this one left, and one that the driver gave
    while True:
        _, kept_before = _native.page_locked_memory()
        held.append(ac.empty_host(size, np.int8).sync())
        _, kept = _native.page_locked_memory()
        if kept == kept_before:
            break
    yield ac.full(size, 5, np.int8).sync()
    held.clear()


MADE = {
    "empty_host": lambda x: ac.empty_host(x.size, np.int8),
    "to_host": ac.to_host,
    "managed": lambda x: ac.zeros(x.size, np.int8, managed=True),
    "in a function": lambda x: ac.dup(x).then(ac.to_host),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
def test_the_loop_and_the_operations_of_others_go_on(run, driver, x, made):
    other = ac.ones(8, np.int32).sync()
    found = []

    async def program():
        async def wait() -> None:
            found.append(await made(x))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await driver.until_begun()
            for _ in range(3):
                await ac.fill(other, 2)
            assert not found
            driver.released.set()

    run(program)
    assert len(driver.threads) == 1
    assert driver.threads[0] is not threading.current_thread()
    assert found[0].shape == x.shape
    if isinstance(found[0], np.ndarray):
        assert (found[0] == 5).all()


def test_what_is_got_for_an_await_that_was_cancelled_is_there_for_the_next(run, driver, x):
    async def program():
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await ac.to_host(x)

            group.start_soon(wait)
            await driver.until_begun()
            group.cancel_scope.cancel()
        driver.released.set()
        driver.threads[0].join()
        return await ac.to_host(x)

    assert (run(program) == 5).all()
    assert len(driver.threads) == 1


def test_a_time_out_ends_the_wait(run, driver, x):
    op = ac.to_host(x)

    async def program():
        with pytest.raises(ac.DeviceTimeoutError, match="was not complete after"):
            await op.within(0.01)
        driver.released.set()
        return await op

    assert (run(program) == 5).all()


def test_what_touches_the_same_memory_comes_behind(run_asyncio, driver, x):
    found = []

    async def program():
        async def read() -> None:
            found.append(await ac.to_host(x))

        async def write() -> None:
            await ac.fill(x, 7)

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await driver.until_begun()
            group.start_soon(write)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            driver.released.set()

    run_asyncio(program)
    assert (found[0] == 5).all()
    assert (ac.to_host(x).sync() == 7).all()


def test_where_the_other_thread_gets_none_the_operation_asks_itself(run, x, driver, monkeypatch):
    monkeypatch.setattr(background, "_get", lambda memory: None)

    async def program():
        return await ac.to_host(x)

    assert (run(program) == 5).all()


def test_a_thread_that_blocks_asks_the_driver_itself(driver, x):
    assert (ac.to_host(x).sync() == 5).all()
    assert (ac.to_host(ac.dup(x)).submit().sync() == 5).all()
    assert not driver.threads


def test_the_rings_of_copies_from_and_to_numpy(in_process):
    program = """
import asyncio, threading
import numpy as np
import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import background
begun, released = threading.Event(), threading.Event()
get = background._get
def held(memory):
    begun.set()
    assert released.wait(60)
    get(memory)
background._get = held
there = np.arange(300_000, dtype=np.int32)
async def main():
    other = await ac.zeros(8)
    copied = asyncio.create_task(ac.as_coroutine(ac.to_device(there)))
    while not begun.is_set(): await asyncio.sleep(0)
    for _ in range(3): await ac.fill(other, 1)
    assert not copied.done()
    released.set()
    array = await copied
    back = np.empty_like(there)
    await ac.to_host(array, out=back)
    print((back == there).all())
asyncio.run(main())
"""
    assert in_process(program).stdout == "True\n"
