"""The operations of a trace as a picture: an SVG whose layers igraph finds (Sugiyama's layout).

Always true: an edge goes down, from what was needed to what needed it. Of more operations than can be read, the
critical path and what it needed is shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from html import escape
from typing import Any

from aiocuda._trace.model import Operation, Trace
from aiocuda._trace.terminal import duration
from aiocuda.errors import MissingPackageError

__all__ = ["MOST_SHOWN", "require", "svg"]

MOST_SHOWN = 200
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 168, 40, 24, 36, 16
_LETTERS = 22


def require() -> None:
    """Raise `MissingPackageError` where the package `igraph` is not installed."""
    _igraph()


def svg(trace: Trace, critical: Iterable[int]) -> str:
    """Return the DAG as the text of an SVG. Each node has its number in ``data-operation``."""
    on_path = list(critical)
    shown = _chosen(trace, on_path)
    if not shown:
        return ""
    at = {number: i for i, number in enumerate(shown)}
    edges = [
        (at[number], at[each.number])
        for each in (trace.operations[number] for number in shown)
        for number in each.needs
        if number in at
    ]
    graph = _igraph().Graph(len(shown), edges, directed=True)
    layout = graph.layout_sugiyama(hgap=_WIDTH + _GAP_X, vgap=_HEIGHT + _GAP_Y)
    places = [(x, y) for x, y in layout.coords[: len(shown)]]
    left = min(x for x, _ in places) - _MARGIN
    top = min(y for _, y in places) - _MARGIN
    places = [(x - left, y - top) for x, y in places]
    width = max(x for x, _ in places) + _WIDTH + _MARGIN
    height = max(y for _, y in places) + _HEIGHT + _MARGIN
    pairs = set(itertools.pairwise(on_path))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" class="dag" role="img" aria-label="the operations and what they needed">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>'
    ]
    for begin, end in edges:
        marked = " critical" if (shown[begin], shown[end]) in pairs else ""
        (x0, y0), (x1, y1) = places[begin], places[end]
        x0, y0, x1 = x0 + _WIDTH / 2, y0 + _HEIGHT, x1 + _WIDTH / 2
        middle = (y0 + y1) / 2
        parts.append(
            f'<path class="edge{marked}" marker-end="url(#tip)" '
            f'd="M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"/>'
        )
    parts += [_node(trace.operations[number], *places[i], number in on_path) for i, number in enumerate(shown)]
    return "".join(parts) + "</svg>"


def _node(each: Operation, x: float, y: float, is_critical: bool) -> str:
    where = f"stream {each.stream}" if each.stream is not None else "host"
    took = duration(each.end_ns - each.begin_ns) if each.is_measured or each.kind == "function" else each.state
    name = each.name if len(each.name) <= _LETTERS else f"{each.name[: _LETTERS - 1]}…"
    marked = " critical" if is_critical else ""
    return (
        f'<g class="node {each.kind}{marked}" data-operation="{each.number}" transform="translate({x:.1f} {y:.1f})" '
        f'tabindex="0"><title>{escape(each.name)}, {escape(each.place)}</title>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
        f'<text x="10" y="17">{escape(name)}</text>'
        f'<text x="10" y="32" class="small">{where} · {escape(took)}</text></g>'
    )


def _chosen(trace: Trace, on_path: list[int]) -> list[int]:
    if len(trace.operations) <= MOST_SHOWN:
        return list(range(len(trace.operations)))
    chosen = set(on_path[-MOST_SHOWN:])
    for number in on_path[::-1]:
        for needed in trace.operations[number].needs:
            if len(chosen) < MOST_SHOWN:
                chosen.add(needed)
    return sorted(chosen)


def _igraph() -> Any:
    try:
        import igraph  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingPackageError(
            'drawing a trace needs the package igraph, which is not installed: pip install "aiocuda[trace]"'
        ) from error
    return igraph
