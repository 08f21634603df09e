"""CuPy: a graph captured from its stream."""

from __future__ import annotations

from collections.abc import Callable

import cupy

from aiocuda._bench.peers.cupy import connect as connect_launches
from aiocuda._bench.work import Work

__all__ = ["connect"]


class _CuPyGraphs:
    name = "CuPy"

    def __init__(self, work: Work) -> None:
        self._launches = connect_launches(work)
        self._stream = cupy.cuda.get_current_stream()
        # Outside of any capture: it loads the kernel.
        self._launches.launch()
        self._launches.wait()

    def make(self, number: int) -> Callable[[], object]:
        self._stream.begin_capture()
        for _ in range(number):
            self._launches.launch()
        graph = self._stream.end_capture()

        def replay() -> None:
            graph.launch(self._stream)
            self._launches.wait()

        return replay


def connect(work: Work) -> _CuPyGraphs:
    """Make it ready."""
    return _CuPyGraphs(work)
