"""cuda.core: a graph of explicit nodes, its ``GraphDefinition``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.core.graph import GraphDefinition

from aiocuda._bench.peers.cuda_core import CudaCore
from aiocuda._bench.work import Work

__all__ = ["connect"]


class _Definition(CudaCore):
    name = "cuda.core, GraphDefinition"

    def make(self, number: int) -> Callable[[], object]:
        definition = GraphDefinition()
        last: Any = definition
        for _ in range(number):
            last = last.launch(self._config, self._kernel, *self._arguments)
        graph = definition.instantiate()

        def replay() -> None:
            graph.launch(self._stream)
            self.wait()

        return replay


def connect(work: Work) -> _Definition:
    """Make it ready."""
    return _Definition(work)
