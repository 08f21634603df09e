"""A DAG as SVG.

Always true: the text is the same for the same DAG, needs nothing from elsewhere, can be read on light and on dark
ground, and runs no script. What others named is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from aiocuda._pictures.dag import KINDS, Edge, Node, lanes_of
from aiocuda._pictures.layout import Point, laid_out

__all__ = ["svg"]

_CHARACTER: Final = 7.3  # the width of one, in a font of 12 px of one width
_MOST_CHARACTERS, _LEAST_CHARACTERS = 38, 12
_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 42, 22, 34, 12

# Of each kind, the ground of a box on light and on dark ground.
_FILLS: Final = dict(
    zip(
        KINDS,
        (
            ("#e7e9ec", "#3a3f46"), ("#d3ecd0", "#24502c"), ("#d2e4fa", "#1f4672"), ("#efe6c4", "#57491a"),
            ("#e6d9f5", "#4a3270"), ("#d0ecec", "#1d5557"), ("#fbdcd2", "#6b3220"), ("#ededed", "#404040"),
        ),
        strict=True,
    )
)  # fmt: skip
_MARK: Final = "#d6336c"
_LANES: Final = ("#3b7ddd", "#d9822b", "#3f9b4f", "#b8467f", "#7a5cc9", "#2a9d9d", "#a6812a", "#c8473c")


def svg(nodes: Sequence[Node], edges: Sequence[Edge], title: str) -> str:
    """Draw a DAG.

    Parameters
    ----------
    nodes
        The boxes; those that arrows come from stand above those that they lead to.
    edges
        The arrows.
    title
        What the picture shows, for those who do not see it.

    Returns
    -------
    str
        An ``<svg>`` element, which is also a whole file.

    Raises
    ------
    MissingPackageError
        igraph, which lays the picture out, is not installed.
    """
    layout = laid_out(len(nodes), edges)
    longest = max((max(len(node.label), len(node.detail)) for node in nodes), default=0)
    width = round(min(max(longest, _LEAST_CHARACTERS), _MOST_CHARACTERS) * _CHARACTER) + 24

    def centre(place: Point) -> Point:
        x, y = place
        return _MARGIN + width / 2 + x * (width + _GAP_X), _MARGIN + _HEIGHT / 2 + y * (_HEIGHT + _GAP_Y)

    left = min((x for x, _ in (*layout.boxes, *(bend for way in layout.bends for bend in way))), default=0.0)
    places = [centre((x - left, y)) for x, y in layout.boxes]
    ways = [[centre((x - left, y)) for x, y in bends] for bends in layout.bends]
    full_width = max((x for x, _ in [*places, *(p for way in ways for p in way)]), default=0.0) + width / 2 + _MARGIN
    full_height = max((y for _, y in places), default=0.0) + _HEIGHT / 2 + _MARGIN
    w, h = _number(full_width), _number(full_height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="aiocuda-dag" width="{w}" height="{h}" viewBox="0 0 {w} {h}" '
        f'role="img">',
        f"<title>{_escaped(title)}</title>",
        _style(),
    ]
    for edge, way in zip(edges, ways, strict=True):
        lines.append(_arrow([places[edge.source], *way, places[edge.target]], edge))
    lanes = lanes_of(nodes)
    for node, place in zip(nodes, places, strict=True):
        lines.append(_box(node, place, width, None if node.lane is None else lanes[node.lane]))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _style() -> str:
    rules = [
        ".aiocuda-dag text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#16181b}",
        ".aiocuda-dag .detail{font-size:10px;fill:#454b53}",
        ".aiocuda-dag rect{stroke:#7d8590;stroke-width:1}",
        ".aiocuda-dag path{stroke:#7d8590;stroke-width:1.4;fill:none}",
        ".aiocuda-dag path.head{fill:#7d8590;stroke:none}",
        ".aiocuda-dag path.wait{stroke-dasharray:5 3}",
        ".aiocuda-dag .stripe{stroke:none}",
        f".aiocuda-dag .marked .box,.aiocuda-dag path.marked{{stroke:{_MARK};stroke-width:2.4}}",
        f".aiocuda-dag path.head.marked{{fill:{_MARK};stroke:none}}",
    ]
    rules += [f".aiocuda-dag .{kind} .box{{fill:{light}}}" for kind, (light, _) in _FILLS.items()]
    dark = [".aiocuda-dag text{fill:#f1f3f5}", ".aiocuda-dag .detail{fill:#c3c9d0}"]
    dark += [f".aiocuda-dag .{kind} .box{{fill:{ground}}}" for kind, (_, ground) in _FILLS.items()]
    return f"<style>{''.join(rules)}@media(prefers-color-scheme:dark){{{''.join(dark)}}}</style>"


def _arrow(points: Sequence[Point], edge: Edge) -> str:
    (x, y), (end_x, end_y) = points[0], points[-1]
    y, end_y = y + _HEIGHT / 2, end_y - _HEIGHT / 2
    steps = [f"M{_number(x)} {_number(y)}"]
    for to_x, to_y in [*points[1:-1], (end_x, end_y - 6)]:
        middle = (y + to_y) / 2
        steps.append(
            f"C{_number(x)} {_number(middle)} {_number(to_x)} {_number(middle)} {_number(to_x)} {_number(to_y)}"
        )
        x, y = to_x, to_y
    tip = f"M{_number(end_x)} {_number(end_y)}l-4 -7h8z"
    marks = [name for name, is_so in (("wait", edge.is_wait), ("marked", edge.is_marked)) if is_so]
    line = f' class="{" ".join(marks)}"' if marks else ""
    head = "head marked" if edge.is_marked else "head"
    return f'<path{line} d="{"".join(steps)}"/><path class="{head}" d="{tip}"/>'


def _box(node: Node, place: Point, width: float, lane: int | None) -> str:
    x, y = place[0] - width / 2, place[1] - _HEIGHT / 2
    marked = " marked" if node.is_marked else ""
    found_by = "" if node.operation is None else f' data-operation="{node.operation}" tabindex="0"'
    parts = [
        f'<g class="node {node.kind}{marked}"{found_by}>'
        f"<title>{_escaped(chr(10).join((node.label, *node.tip)))}</title>"
    ]
    parts.append(
        f'<rect class="box" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_HEIGHT}" rx="5"/>'
    )
    if lane is not None:
        colour = _LANES[lane % len(_LANES)]
        parts.append(
            f'<rect class="stripe" fill="{colour}" x="{_number(x + 4)}" y="{_number(y + 6)}" width="4" '
            f'height="{_HEIGHT - 12}" rx="2"/>'
        )
    at = _number(x + 14)
    label_y = y + (18 if node.detail else 26)
    parts.append(f'<text x="{at}" y="{_number(label_y)}">{_escaped(_cut(node.label))}</text>')
    if node.detail:
        parts.append(f'<text class="detail" x="{at}" y="{_number(y + 33)}">{_escaped(_cut(node.detail))}</text>')
    return "".join([*parts, "</g>"])


def _cut(text: str) -> str:
    """Leave out the middle of a long text: names differ at their ends, and paths too."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = (_MOST_CHARACTERS - 1) // 2
    return f"{text[: _MOST_CHARACTERS - 1 - half]}…{text[-half:]}"


def _escaped(text: str) -> str:
    """Escape what XML means otherwise, and leave out what it cannot hold."""
    return html.escape("".join(c if c >= " " or c in "\n\t" else "�" for c in text))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
