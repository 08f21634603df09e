"""Graphs that another thread makes: it has their kernels compiled and loaded, and the driver make them executable.

Always true: all who wait for a graph share its making. If a waiter gives up, the making goes on, for the next one. If
it fails, each waiter gets the error as his own, and who comes later begins anew.
"""

from __future__ import annotations

import os
from typing import Final

from aiocuda import _native
from aiocuda._engine.background import FOR_GRAPHS, Background, Work

__all__ = ["begin", "made"]

_makings: Final = Background(FOR_GRAPHS)
os.register_at_fork(after_in_child=_makings.start_anew)


def begin(graph: _native.Graph) -> Work | None:
    """Have another thread make a graph, unless it is made, and return what to wait for. Native code calls this."""
    if graph.is_made:
        return None
    return _makings.begin(id(graph), graph.make, f"making the graph of {graph.place}")


async def made(graph: _native.Graph) -> None:
    """Wait until a graph is made; raise what its making raised."""
    while not graph.is_closed and (work := begin(graph)) is not None:
        await work
        work.require_done()
