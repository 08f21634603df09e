"""The ratios as bars, written as SVG: no library is needed for it, and browsers, editors and GitHub show it.

Always true: the axis is logarithmic and a bar begins at 1, the floor; what is quicker than it goes to the left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from aiocuda._bench.figures import Section

__all__ = ["svg_of", "write_svg"]

_LABELS, _BARS, _ROW, _MARGIN = 380, 520, 18, 20  # widths of the two columns, a row's height, in pixels
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def write_svg(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the picture of all figures that have a ratio."""
    path.write_text(svg_of(title, sections), "utf-8")


def svg_of(title: str, sections: Sequence[Section]) -> str:
    """Return the picture as SVG."""
    bars = [
        (section.title, [(each.name, each.ratio) for each in section.figures if each.ratio is not None])
        for section in sections
    ]
    bars = [(name, rows) for name, rows in bars if rows]
    ratios = [ratio for _, rows in bars for _, ratio in rows] or [1.0]
    low, high = math.log(min(0.8, *ratios)), math.log(max(2.0, *ratios))

    def x(ratio: float) -> float:
        return _LABELS + _BARS * (math.log(ratio) - low) / (high - low)

    def text(at: float, y: float, content: str, extra: str = "") -> str:
        return f'<text x="{at:.1f}" y="{y:.1f}"{extra}>{escape(content)}</text>'

    top = _MARGIN + 2 * _ROW
    body, y = [], float(top)
    for name, rows in bars:
        y += 1.5 * _ROW
        body.append(text(_MARGIN, y, name, ' font-weight="bold"'))
        for label, ratio in rows:
            y += _ROW
            begin, end = sorted((x(1), x(ratio)))
            body.append(text(_MARGIN, y, label))
            body.append(
                f'<rect x="{begin:.1f}" y="{y - 11:.1f}" width="{max(end - begin, 1):.1f}" height="13" fill="#76b900"/>'
            )
            body.append(text(end + 4, y, f"{ratio:.2f}"))
    width, height = _LABELS + _BARS + 4 * _MARGIN, y + _MARGIN
    grid = []
    for tick in _TICKS:
        if low <= math.log(tick) <= high:
            grid.append(f'<path d="M{x(tick):.1f} {top}V{y:.1f}" stroke="{"#444" if tick == 1 else "#ddd"}"/>')
            grid.append(text(x(tick), top - 4, f"{tick:g} x", ' text-anchor="middle"'))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}"'
            ' font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            text(_MARGIN, _MARGIN, title, ' font-weight="bold"'),
            *grid,
            *body,
            "</svg>\n",
        ]
    )
