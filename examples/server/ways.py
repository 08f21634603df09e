"""The ways to run the server, by name: aiocuda's, PyTorch's to compare with, and none as their floor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import model
from batching import Batch, Text
from front_alone import FrontAlone
from metering import Meter
from scheduler import Scheduler
from sizes import Sizes, draw_weights


class Way(Protocol):
    """A way, as the server needs it."""

    batch: Batch
    meter: Meter

    def add(self, text: Text) -> None:
        """Let a text wait for its turn."""

    async def warm_up(self) -> None:
        """Have all ready for the first text."""

    async def run(self) -> None:
        """Answer texts until the task is cancelled."""


async def by_aiocuda(sizes: Sizes, max_waiting: int) -> Way:
    """Answer with aiocuda."""
    return Scheduler(await model.load(sizes, draw_weights(sizes)), max_waiting)


async def by_nothing(sizes: Sizes, max_waiting: int) -> Way:
    """Answer without a model."""
    return FrontAlone(sizes, max_waiting)


def by_torch(name: str) -> Callable[[Sizes, int], Awaitable[Way]]:
    """Return a way of torch_ways.py, which needs PyTorch, nvmath-python and a GPU."""

    async def made(sizes: Sizes, max_waiting: int) -> Way:
        import torch_model
        import torch_ways

        kind: Any = getattr(torch_ways, name)
        way: Way = kind(torch_model.TorchDecoder(sizes, draw_weights(sizes)), max_waiting)
        return way

    return made


WAYS: dict[str, Callable[[Sizes, int], Awaitable[Way]]] = {
    "a": by_torch("Synchronous"),
    "b": by_torch("Threads"),
    "c": by_torch("Overlapped"),
    "d": by_aiocuda,
    "n": by_nothing,
}
