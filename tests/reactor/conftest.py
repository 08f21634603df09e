"""Streams that are full, and operations that note when they are submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac


class Order:
    """Operations that note when they are submitted."""

    def __init__(self, kernels: Any, array: ac.DeviceArray) -> None:
        self._kernels = kernels
        self._array = array
        self.submitted: list[Any] = []

    def op(self, name: Any) -> ac.DeviceOp[Any]:
        return self._kernels.increment(self._array, 1, threads=1).inspect(lambda _: self.submitted.append(name))


@pytest.fixture
def order(kernels) -> Order:
    return Order(kernels, ac.zeros(1, np.int32).sync())


@pytest.fixture
def stream(device) -> ac.Stream:
    return device.stream()


@pytest.fixture
def waits() -> Callable[[], int]:
    """Return how often somebody stood in line since the test began."""
    before = ac.statistics().waits_for_room
    return lambda: ac.statistics().waits_for_room - before


@pytest.fixture
def turns() -> Callable[..., Any]:
    """Let the loop come round some times: all its tasks have come to their first wait then."""

    async def come_round(count: int = 10) -> None:
        for _ in range(count):
            await anyio.lowlevel.checkpoint()

    return come_round
