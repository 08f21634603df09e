"""cuda.core: a graph captured from a stream by its ``GraphBuilder``."""

from __future__ import annotations

from collections.abc import Callable

from cuda.core import launch

from aiocuda._bench.peers.cuda_core import CudaCore
from aiocuda._bench.work import Work

__all__ = ["connect"]


class _Builder(CudaCore):
    name = "cuda.core, GraphBuilder"

    def make(self, number: int) -> Callable[[], object]:
        builder = self._stream.create_graph_builder().begin_building()
        for _ in range(number):
            launch(builder, self._config, self._kernel, *self._arguments)
        graph = builder.end_building().complete()

        def replay() -> None:
            graph.launch(self._stream)
            self.wait()

        return replay


def connect(work: Work) -> _Builder:
    """Make it ready."""
    return _Builder(work)
