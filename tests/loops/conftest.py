"""Streams that a test holds and releases one by one, and operations that are put on them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import numpy as np
import pytest

import aiocuda as ac

PACKAGE = str(Path(ac.__file__).parent)


class Counted:
    """The calls of aiocuda's own Python in this thread, as the profiler saw them.

    Garbage of earlier tests, whose end may run some, is gone before, and none is collected meanwhile.
    """

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.calls = 0

    def __enter__(self) -> Self:
        gc.collect()
        gc.disable()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls += 1
            self.codes.add(frame.f_code)


@pytest.fixture
def frames() -> type[Counted]:
    """Count, in a `with` block, what the program's thread runs of aiocuda's Python."""
    return Counted


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
