"""The nodes of a graph as a picture, and in Graphviz's language.

Always true: it shows the nodes and the order that the driver has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aiocuda import _native
from aiocuda._pictures.dag import Edge, Kind, Node
from aiocuda._pictures.picture import Picture
from aiocuda._pictures.svg import svg

__all__ = ["dot", "draw"]

_KINDS: Final[dict[str, Kind]] = {
    "kernel": "launch", "fill": "fill", "copy": "copy", "captured": "call", "conditional": "graph",
}  # fmt: skip


class _Described(NamedTuple):
    """A node in words; `touches` are lines: its grid and block, and the memory that it reads and writes."""

    kind: str
    title: str
    device: int
    after: tuple[int, ...]
    touches: tuple[str, ...]
    origin: tuple[str, int] | None


def draw(graph: _native.Graph) -> Picture:
    """Draw a graph."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    for index, each in enumerate(_described(graph)):
        place = f"device {each.device}"
        tip = [*each.touches, place]
        if each.origin is not None:
            file, line = each.origin
            tip.append(f"{file}:{line}")
            place += f", {Path(file).name}:{line}"
        nodes.append(Node(each.title, place, _KINDS.get(each.kind, "other"), tuple(tip)))
        edges.extend(Edge(other, index) for other in each.after)
    title = f"the graph made at {graph.place}"
    return Picture(svg(nodes, edges, title), title)


def dot(graph: _native.Graph) -> str:
    """Return a graph in Graphviz's language."""
    lines = ["digraph graph {", '  node [shape=box, fontname="monospace"];']
    for number, each in enumerate(_described(graph), 1):
        place = "" if each.origin is None else f", {each.origin[0]}:{each.origin[1]}"
        text = [f"{number}: {each.title}", *each.touches, f"device {each.device}{place}"]
        label = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in text)
        lines.append(f'  n{number} [label="{label}"];')
        lines.extend(f"  n{other + 1} -> n{number};" for other in each.after)
    return "\n".join([*lines, "}"]) + "\n"


def _described(graph: _native.Graph) -> Iterator[_Described]:
    names = [name or f"{role} {slot}" for slot, (role, _, _, name) in enumerate(graph.memory())]
    for kind, name, device, after, accesses, shape, origin, inside in graph.nodes():
        touches = []
        if inside is not None:
            touches.append(f"in a body of node {inside + 1}")
        if shape is not None:
            grid, block = ("x".join(str(extent) for extent in dims) for dims in shape)
            touches.append(f"grid {grid}, block {block}")
        for verb, is_write in (("reads", False), ("writes", True)):
            touched = [
                f"{names[slot]} ({size_bytes} bytes)" for slot, size_bytes, writes in accesses if writes == is_write
            ]
            if touched:
                touches.append(f"{verb} {', '.join(touched)}")
        title = kind if name == kind else f"{kind} {name}"
        yield _Described(kind, title, device, tuple(sorted(after)), tuple(touches), origin)
