"""Other ways to make and replay a CUDA graph: each in one small file, which imports what it measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiocuda._bench.peers.loading import Known, load
from aiocuda._bench.work import Work

__all__ = ["NAMES", "GraphPeer", "load_graph_peers"]


class GraphPeer(Protocol):
    """A graph of launches as heavy as `Work.launch`."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        ...

    def make(self, number: int) -> Callable[[], object]:
        """Make a graph of launches, each behind the one before it.

        Returns what replays it, and blocks until that has passed.
        """
        ...


_KNOWN = (
    Known("cuda.core, GraphBuilder", "cuda.core", "cuda_core_builder", runs_emulated=True),
    Known("cuda.core, GraphDefinition", "cuda.core", "cuda_core_definition", runs_emulated=True),
    Known("CuPy", "cupy", "cupy_graphs"),
    Known("PyTorch", "torch", "torch_graphs"),
)
NAMES = tuple(known.name for known in _KNOWN)


def load_graph_peers(work: Work) -> tuple[list[GraphPeer], dict[str, str]]:
    """Return the peers that work here, and why the others are left out."""
    return load(_KNOWN, work, lambda peer: peer.make(2)())
