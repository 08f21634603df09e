"""Operations leave a thread's current context alone: CUDA's runtime, and so PyTorch, takes it for the user's choice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import aiocuda as ac
from aiocuda._driver import runtime

pytestmark = pytest.mark.needs_devices(2)


async def awaited(ordinal: int) -> None:
    await ac.fill(await ac.zeros(3, device=ordinal), 1)


WAYS: dict[str, Callable[[int], Any]] = {
    "sync": lambda ordinal: ac.zeros(3, device=ordinal).sync(60),
    "submit": lambda ordinal: ac.zeros(3, device=ordinal).submit().sync(60),
    "await": lambda ordinal: asyncio.run(awaited(ordinal)),
    "memory_info": lambda ordinal: ac.Device(ordinal).memory_info(),
    "synchronize": lambda ordinal: ac.Device(ordinal).synchronize().sync(60),
    "stream": lambda ordinal: ac.Device(ordinal).stream().close(),
}


def contexts_after(use: Callable[[int], Any], first: int | None, then: int) -> tuple[int, int]:
    """Return the current context before and after a device is used, in a thread that has the first device's or none."""
    from cuda.bindings import driver

    found: list[int] = []

    def run() -> None:
        if first is not None:
            runtime.call(driver.cuCtxSetCurrent, runtime.call(driver.cuDevicePrimaryCtxRetain, first))
        found.append(int(runtime.call(driver.cuCtxGetCurrent)))
        use(then)
        found.append(int(runtime.call(driver.cuCtxGetCurrent)))
        if first is not None:
            runtime.call(driver.cuDevicePrimaryCtxRelease, first)

    for ordinal in (0, 1):
        ac.zeros(1, device=ordinal).sync(60)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0], found[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0), (None, 1)])
def test_the_context_of_a_thread_stays(way, first, then):
    before, after = contexts_after(WAYS[way], first, then)
    assert before == after


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_without_a_context_gets_the_first_devices_at_most(way):
    from cuda.bindings import driver

    of_first = int(runtime.call(driver.cuDevicePrimaryCtxRetain, 0))
    try:
        before, after = contexts_after(WAYS[way], None, 0)
    finally:
        runtime.call(driver.cuDevicePrimaryCtxRelease, 0)
    assert before == 0
    assert after in (0, of_first)
