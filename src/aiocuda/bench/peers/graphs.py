"""Other ways to make and replay a CUDA graph: each in one small file, which imports what it measures.

Always true: a peer that is not installed, or does not work here, is left out with the reason; it is never an error.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiocuda.bench.work import Work

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


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    package: str  # whose presence says that it is installed
    module: str  # of ours, with `connect(work) -> GraphPeer`
    runs_emulated: bool = False


_KNOWN = (
    _Known("cuda.core, GraphBuilder", "cuda.core", "cuda_core_builder", runs_emulated=True),
    _Known("cuda.core, GraphDefinition", "cuda.core", "cuda_core_definition", runs_emulated=True),
    _Known("CuPy", "cupy", "cupy_graphs"),
    _Known("PyTorch", "torch", "torch_graphs"),
)
NAMES = tuple(known.name for known in _KNOWN)


def load_graph_peers(work: Work) -> tuple[list[GraphPeer], dict[str, str]]:
    """Return the peers that work here, and why the others are left out."""
    peers: list[GraphPeer] = []
    left_out: dict[str, str] = {}
    for known in _KNOWN:
        if importlib.util.find_spec(known.package) is None:
            left_out[known.name] = "not installed"
        elif work.device.is_emulated and not known.runs_emulated:
            left_out[known.name] = "does not run on the emulated driver"
        else:
            try:
                peer: GraphPeer = importlib.import_module(f"aiocuda.bench.peers.{known.module}").connect(work)
                peer.make(2)()
            except Exception as error:  # noqa: BLE001 - another library may fail in any way; the table says how
                left_out[known.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            else:
                peers.append(peer)
    return peers, left_out
