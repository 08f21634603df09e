"""The steps that an operation would take, as a picture: what comes after what, and on which stream.

Always true: the picture shows what `explain` says; waits between streams are dashed arrows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aiocuda import _native
from aiocuda._engine import explain
from aiocuda._engine.explain import Step
from aiocuda._engine.placement import Placement
from aiocuda._pictures.dag import Edge, Kind, Node, reduced
from aiocuda._pictures.picture import Picture
from aiocuda._pictures.svg import svg

__all__ = ["draw", "touched_text"]

_KINDS: Final[dict[str, Kind]] = {
    "create": "create", "launch": "launch", "copy": "copy", "fill": "fill", "call": "call", "replay": "graph",
    "map": "host", "then": "host", "inspect": "host",
}  # fmt: skip


def draw(op: _native.Op, where: Placement) -> Picture:
    """Draw the steps of an operation; run nothing."""
    steps = [step for step in explain.record(op, where) if step[0][0] != "wait"]
    title = op._title if steps else f"{op._title}: it has run; nothing is left to do"
    nodes = [_node(step) for step in steps] or [Node(op._title, "it has run; nothing is left to do")]
    edges = [
        Edge(source, target, None not in (nodes[source].lane, nodes[target].lane) and _differ(nodes, source, target))
        for source, target in reduced(len(nodes), _order(steps))
    ]
    return Picture(svg(nodes, edges, title), title)


def _differ(nodes: Sequence[Node], source: int, target: int) -> bool:
    return nodes[source].lane != nodes[target].lane


def _node(step: Step) -> Node:
    written, _, uses = step
    kind = written[0]
    lane, what, origin = explain.line(written)
    touched = touched_text([(end - begin, writes) for _, begin, end, writes in uses])
    place = f"{lane}, {Path(origin).name}" if origin else lane
    return Node(
        _label(written),
        place,
        _KINDS[kind],
        tuple(each for each in (what, touched, lane, origin) if each),
        lane if lane.startswith("stream") else None,
    )


def touched_text(uses: Sequence[tuple[int, bool]]) -> str:
    """Say how many bytes are read and written, given the sizes and whether they are written."""
    parts = []
    for verb, is_write in (("reads", False), ("writes", True)):
        sizes = [size_bytes for size_bytes, writes in uses if writes == is_write]
        if sizes:
            parts.append(f"{verb} {sum(sizes)} bytes")
    return ", ".join(parts)


def _label(written: tuple[Any, ...]) -> str:
    kind, *rest = written
    match kind:
        case "create":
            return str(rest[2])
        case "launch":
            return f"launch {rest[2]}"
        case "call":
            return f"call {explain.function_name(rest[2])}"
        case "replay":
            return f"{rest[5] or 'graph'} of {rest[2]} nodes"
        case "fill":
            return f"fill with {rest[4]}"
        case "copy":
            return "copy" if rest[5] is None else f"copy {rest[5]} bytes"
        case _:
            return f"{kind} {explain.function_name(rest[0])}"


def _order(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Yield which step comes after which: by the bytes that both touch, or because it needs what the other gives."""
    touched: dict[int, list[tuple[int, int, int, bool]]] = {}  # of each buffer: from, to, step, whether it writes
    last: dict[int, int] = {}
    for index, (_, op, uses) in enumerate(steps):
        for source in _sources(op, last):
            if not uses or not steps[source][2]:  # else the bytes say it
                yield source, index
        for buffer, begin, end, writes in uses:
            earlier = touched.setdefault(buffer, [])
            for other_begin, other_end, source, wrote in earlier:
                if source != index and other_begin < end and begin < other_end and (writes or wrote):
                    yield source, index
            if writes:
                earlier[:] = [each for each in earlier if not (begin <= each[0] and each[1] <= end)]
            earlier.append((begin, end, index, writes))
        last[id(op)] = index


def _sources(op: _native.Op, last: dict[int, int]) -> set[int]:
    """Return the steps that give what an operation consumes; a zip, or an item, is no step itself."""
    found: set[int] = set()
    if id(op) in last:
        found.add(last[id(op)])
    open_ones, seen = list(op._consumed()), {id(op)}
    while open_ones:
        each = open_ones.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if id(each) in last:
            found.add(last[id(each)])
        else:
            open_ones.extend(each._consumed())
    return found
