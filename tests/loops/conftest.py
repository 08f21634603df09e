"""Streams that a test holds and releases one by one, and operations that are put on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac


class Lane:
    """A stream behind a latch of its own."""

    def __init__(self, kernels: Any, stream: ac.Stream, latch: Any) -> None:
        self.stream = stream
        self.latch = latch
        self._kernels = kernels
        latch.hold(stream)

    def op(self, value: int = 0) -> ac.DeviceOp[ac.DeviceArray]:
        """Return the increment of a new array of one value, on the stream."""
        return self._kernels.increment(ac.full(4, value, np.int32).sync(), 4, threads=4).on(self.stream)

    def release(self) -> None:
        self.latch.release()


@pytest.fixture
def lanes(kernels, device, latches) -> Callable[[int], list[Lane]]:
    return lambda count: [Lane(kernels, device.stream(), latches()) for _ in range(count)]


@pytest.fixture
def lane(lanes) -> Lane:
    return lanes(1)[0]


def contents(array: Any) -> list[int]:
    return list(ac.to_host(array).sync())


@pytest.fixture(autouse=True)
def unhurried() -> None:
    """Awaits have a turn of the loop for as long as users' have."""
