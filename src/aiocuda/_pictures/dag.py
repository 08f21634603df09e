"""A DAG as what a picture shows: boxes with texts, and arrows between them.

Always true: arrows go from a box to a later one, so there is no circle; no arrow repeats what others say together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["KINDS", "Edge", "Kind", "Node", "lanes_of", "reduced"]

Kind: TypeAlias = Literal["create", "launch", "copy", "fill", "call", "graph", "host", "other"]
KINDS: Final[tuple[Kind, ...]] = ("create", "launch", "copy", "fill", "call", "graph", "host", "other")


class Node(NamedTuple):
    """A box.

    Attributes
    ----------
    label
        A few words that name it. The picture cuts what is long, and the tip has it whole.
    detail
        A second, smaller line.
    kind
        Says its colour.
    tip
        Lines that are shown where the mouse is.
    lane
        The name of a row of boxes that run one after another, such as a stream. Each lane has a stripe of its colour.
    operation
        A number by which the script of a page finds it, as ``data-operation``.
    is_marked
        Whether it stands out.
    """

    label: str
    detail: str = ""
    kind: Kind = "other"
    tip: tuple[str, ...] = ()
    lane: str | None = None
    operation: int | None = None
    is_marked: bool = False


class Edge(NamedTuple):
    """An arrow from one box, by its index, to a later one.

    It is dashed where the later one has to wait for another lane, and stands out where it is marked.
    """

    source: int
    target: int
    is_wait: bool = False
    is_marked: bool = False


def reduced(nodes: int, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges of a DAG without those that other edges make needless, in order.

    Parameters
    ----------
    nodes
        How many there are; each edge leads from a number to a higher one.
    edges
        May repeat.
    """
    before: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in edges:
        before[target].add(source)
    reached = [0] * nodes  # of each node, a bit for each node that comes before it
    kept: list[tuple[int, int]] = []
    for target, sources in enumerate(before):
        seen = 0
        for source in sorted(sources, reverse=True):  # what lies between two nodes has a number between theirs
            if not seen >> source & 1:
                kept.append((source, target))
                seen |= reached[source] | 1 << source
        reached[target] = seen
    return sorted(kept)


def lanes_of(nodes: Sequence[Node]) -> dict[str, int]:
    """Return a number for each lane: the first that appears is 0."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.lane is not None:
            found.setdefault(node.lane, len(found))
    return found
