"""PyTorch: a ``torch.cuda.CUDAGraph`` of an elementwise operation of its own, as heavy as the kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aiocuda._bench.peers.torch import connect as connect_launches
from aiocuda._bench.work import Work

__all__ = ["connect"]


class _PyTorchGraphs:
    name = "PyTorch"

    def __init__(self, work: Work) -> None:
        self._launches = connect_launches(work)
        # Outside of any capture: it loads the kernel.
        self._launches.launch()
        self._launches.wait()

    def make(self, number: int) -> Callable[[], object]:
        # Not the context manager torch.cuda.graph, which collects garbage and empties PyTorch's cache of memory first.
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(number):
            self._launches.launch()
        graph.capture_end()

        def replay() -> None:
            graph.replay()
            self._launches.wait()

        return replay


def connect(work: Work) -> _PyTorchGraphs:
    """Make it ready."""
    return _PyTorchGraphs(work)
