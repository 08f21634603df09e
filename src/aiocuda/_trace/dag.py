"""The operations of a trace as a picture.

Always true: an arrow leads from what was needed to what needed it. Of more operations than can be read, the picture
has the critical path and what that needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from aiocuda._pictures.dag import Edge, Kind, Node
from aiocuda._pictures.svg import svg
from aiocuda._trace.model import Operation, Trace
from aiocuda._values.durations import duration_text

__all__ = ["MOST_SHOWN", "picture"]

MOST_SHOWN = 200
_KINDS: Final[dict[str, Kind]] = {
    "launch": "launch", "allocate": "create", "fill": "fill", "copy": "copy", "call": "call", "graph": "graph",
    "function": "host",
}  # fmt: skip


def picture(trace: Trace, critical: Iterable[int]) -> str:
    """Return the DAG as the text of an SVG, in which the critical path is marked."""
    on_path = list(critical)
    shown = _chosen(trace, on_path)
    if not shown:
        return ""
    at = {number: i for i, number in enumerate(shown)}
    pairs = set(itertools.pairwise(on_path))
    edges = [
        Edge(at[needed], at[number], is_marked=(needed, number) in pairs)
        for number in shown
        for needed in trace.operations[number].needs
        if needed in at
    ]
    marked = set(on_path)
    nodes = [_node(trace.operations[number], is_marked=number in marked) for number in shown]
    return svg(nodes, edges, "the operations and what they needed")


def _node(each: Operation, *, is_marked: bool) -> Node:
    lane = None if each.stream is None else f"stream {each.stream}"
    is_timed = each.is_measured or each.kind == "function"
    took = duration_text(each.end_ns - each.begin_ns) if is_timed else each.state
    return Node(
        each.name, f"{lane or 'host'} · {took}", _KINDS[each.kind], (each.place,), lane,
        operation=each.number, is_marked=is_marked,
    )  # fmt: skip


def _chosen(trace: Trace, on_path: list[int]) -> list[int]:
    if len(trace.operations) <= MOST_SHOWN:
        return list(range(len(trace.operations)))
    chosen = set(on_path[-MOST_SHOWN:])
    for number in on_path[::-1]:
        for needed in trace.operations[number].needs:
            if len(chosen) < MOST_SHOWN:
                chosen.add(needed)
    return sorted(chosen)
