"""The nodes of a graph as a picture.

Always true: it shows the nodes and the order that the driver has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiocuda import _native
from aiocuda._pictures.dag import Edge, Kind, Node
from aiocuda._pictures.picture import Picture
from aiocuda._pictures.svg import svg

__all__ = ["draw", "memory_name"]

_KINDS: Final[dict[str, Kind]] = {"kernel": "launch", "fill": "fill", "copy": "copy", "captured": "call"}


def memory_name(slot: int, memory: tuple[str, int, int, str | None]) -> str:
    """Return what pictures call one of a graph's memories."""
    role, _, _, name = memory
    return name or f"{role} {slot}"


def draw(graph: _native.Graph) -> Picture:
    """Draw a graph."""
    memory = graph.memory()
    nodes: list[Node] = []
    edges: list[Edge] = []
    for index, (kind, name, device, after, accesses, shape, origin) in enumerate(graph.nodes()):
        tip = []
        if shape is not None:
            grid, block = ("x".join(str(extent) for extent in dims) for dims in shape)
            tip.append(f"grid {grid}, block {block}")
        for verb, is_write in (("reads", False), ("writes", True)):
            touched = [
                f"{memory_name(slot, memory[slot])} ({size_bytes} bytes)"
                for slot, size_bytes, writes in accesses
                if writes == is_write
            ]
            if touched:
                tip.append(f"{verb} {', '.join(touched)}")
        place = f"device {device}"
        tip.append(place)
        if origin is not None:
            tip.append(f"{origin[0]}:{origin[1]}")
            place += f", {Path(origin[0]).name}:{origin[1]}"
        label = kind if name == kind else f"{kind} {name}"
        nodes.append(Node(label, place, _KINDS.get(kind, "other"), tuple(tip)))
        edges.extend(Edge(other, index) for other in sorted(after))
    title = f"the graph made at {graph.place}"
    return Picture(svg(nodes, edges, title), title)
