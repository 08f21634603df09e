"""Where the boxes of a DAG stand, and which way its arrows go: by igraph's layouter, after Sugiyama.

Always true: the same DAG is laid out the same way each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aiocuda._pictures.dag import Edge
from aiocuda.errors import MissingPackageError

__all__ = ["Layout", "laid_out", "require"]

Point = tuple[float, float]


class Layout(NamedTuple):
    """Places, counted in columns and rows from 0.

    Attributes
    ----------
    boxes
        Of each box.
    bends
        Of each arrow, the points between its ends.
    """

    boxes: tuple[Point, ...]
    bends: tuple[tuple[Point, ...], ...]


def require(extra: str) -> Any:
    """Return the package igraph, which an extra of aiocuda's brings; raise `MissingPackageError` without it."""
    try:
        import igraph  # noqa: PLC0415 - it need not be installed
    except ImportError as error:
        raise MissingPackageError(
            f"drawing operations needs igraph, which is not installed: pip install 'aiocuda[{extra}]'; "
            "explain() says the same as text"
        ) from error
    return igraph


def laid_out(nodes: int, edges: Sequence[Edge]) -> Layout:
    """Lay a DAG out: boxes in rows, each below those that its arrows come from, and few arrows that cross.

    Raises
    ------
    MissingPackageError
        igraph is not installed.
    """
    igraph = require("draw")
    boxes: list[Point] = [(0.0, 0.0)] * nodes
    bends: list[tuple[Point, ...]] = [()] * len(edges)
    ends = [(edge.source, edge.target) for edge in edges]
    left = 0.0
    # One connected part after another: of several at once, igraph 1.0 gives bends to the wrong arrows.
    parts = igraph.Graph(n=nodes, edges=ends).connected_components()
    arrows: list[list[int]] = [[] for _ in parts]
    for i, (source, _) in enumerate(ends):
        arrows[parts.membership[source]].append(i)
    for part, own in sorted(zip(parts, arrows, strict=True)):
        number = {node: i for i, node in enumerate(part)}
        placed = _placed(igraph, len(part), [(number[ends[i][0]], number[ends[i][1]]) for i in own])
        points = [*placed.boxes, *(bend for way in placed.bends for bend in way)]
        shift = left - min(x for x, _ in points)
        for node, (x, y) in zip(part, placed.boxes, strict=True):
            boxes[node] = x + shift, y
        for i, way in zip(own, placed.bends, strict=True):
            bends[i] = tuple((x + shift, y) for x, y in way)
        left = max(x for x, _ in points) + shift + 1
    return Layout(tuple(boxes), tuple(bends))


def _placed(igraph: Any, nodes: int, edges: list[tuple[int, int]]) -> Layout:
    """Lay out boxes that are connected."""
    places = igraph.Graph(n=nodes, edges=edges, directed=True).layout_sugiyama(hgap=1, vgap=1, maxiter=100)
    return _apart(
        [(float(x), float(y)) for x, y in places],
        [[(float(x), float(y)) for x, y in bends] for bends in places.edge_routing],
    )


def _apart(boxes: list[Point], bends: list[list[Point]]) -> Layout:
    """Move what igraph put too near to what stands left of it in its row."""
    rows: dict[float, list[tuple[float, list[Point], int]]] = {}
    for points in (boxes, *bends):
        for index, (x, y) in enumerate(points):
            rows.setdefault(y, []).append((x, points, index))
    for y, row in rows.items():
        least = float("-inf")
        for x, points, index in sorted(row, key=lambda each: each[0]):
            points[index] = max(x, least), y
            least = max(x, least) + 1
    return Layout(tuple(boxes), tuple(map(tuple, bends)))
