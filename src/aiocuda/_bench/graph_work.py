"""The graphs that are measured, and their floors: the same nodes, made in C++ by the driver's own calls.

Always true: a floor's graph has as many nodes and edges as aiocuda's, and its nodes launch the same function in the
same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._bench.work import BLOCK, GRID, ITEMS, Work
from aiocuda._graphs.graph import CudaGraph

__all__ = ["floor_of_scales", "floor_of_spins", "require_alike", "values_of"]

Arrays = tuple[DeviceArray, DeviceArray, DeviceArray]


def values_of(arrays: Arrays) -> list[bytes]:
    """Return the arguments of the launch that everything is measured with, as a floor takes them."""
    return [*(array.address.to_bytes(8, "little") for array in arrays), np.uint32(ITEMS).tobytes()]


def floor_of_scales(work: Work, branches: Sequence[Arrays], depth: int) -> _native.GraphFloor:
    """Make branches of launches of `Work.scale`, each behind the one before it.

    Parameters
    ----------
    work
        Whose kernel it is.
    branches
        What the launches of each branch take: what they write, and the two arrays that they read.
    depth
        Launches of a branch.
    """
    ordinal = work.device.ordinal
    values = [values_of(arrays) for arrays in branches]
    return _native.GraphFloor(ordinal, work.scale._load(ordinal), GRID, BLOCK, values, depth)


def floor_of_spins(work: Work, arrays: Sequence[DeviceArray], depth: int, kernel_ns: int) -> _native.GraphFloor:
    """Make branches of launches of `Work.spin`, one block of one thread each; one branch an array."""
    ordinal = work.device.ordinal
    values = [[array.address.to_bytes(8, "little"), np.uint32(kernel_ns).tobytes()] for array in arrays]
    return _native.GraphFloor(ordinal, work.spin._load(ordinal), 1, 1, values, depth)


def require_alike(graph: CudaGraph[Any], floor: _native.GraphFloor) -> None:
    """Raise where a floor has not as many nodes and edges as the graph: their times could not be compared."""
    found = graph.statistics()
    if (found.nodes, found.edges) != (floor.nodes, floor.edges):
        raise RuntimeError(
            f"the graph was to have its floor's {floor.nodes} nodes and {floor.edges} edges; "
            f"it has {found.nodes} and {found.edges}: {graph!r}"
        )
