"""Draw what `bench_growth.py --json` has measured: one small panel for each dimension, as SVG.

Run: python benchmarks/draw_growth.py docs/measurements/2026-11-22-growth.json
It writes two pictures beside the file: its name with `-instructions.svg` and with `-bytes.svg`.

Always true: an axis of how many is logarithmic, and one of costs begins at 0, so that the height is the cost. Pictures
have a background of their own, light or dark as the reader's system is.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from instructions.growth import DIMENSIONS

COLUMNS, PANEL_WIDTH, PANEL_HEIGHT, HEADER = 3, 270, 176, 34  # pixels
LEFT, RIGHT, TOP, BOTTOM = 34, 34, 64, 30  # around what is plotted in a panel
# Where a panel is too narrow for what the benchmark prints.
TITLES = {
    "PyTorch's operations in flight, whose tensors nobody keeps; one more": "PyTorch's operations in flight; one more",
    "page-locked arrays that nobody holds, and that streams have not passed; one more launch": (
        "page-locked arrays, dropped; one more launch"
    ),
    "nodes of a graph whose chain takes a fresh array at each step; each": "nodes of a graph; each, with fresh arrays",
    "nodes of a graph that is made; each": "nodes of a graph; each",
}
STYLE = """
svg { font: 11px system-ui, sans-serif; }
.page { fill: #ffffff; } .panel { fill: #f4f6f8; } text { fill: #1c2430; } .quiet { fill: #5b6672; }
.axis { stroke: #8a949e; } .line { stroke: #2563a8; fill: none; stroke-width: 2; } .point { fill: #2563a8; }
@media (prefers-color-scheme: dark) {
.page { fill: #14181d; } .panel { fill: #1e242b; } text { fill: #e6ebf0; } .quiet { fill: #a3aeb9; }
.axis { stroke: #6b7681; } .line { stroke: #7db6f5; } .point { fill: #7db6f5; }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="what `bench_growth.py --json` wrote")
    figures = parser.parse_args().figures
    measured = json.loads(figures.read_text(encoding="utf-8"))
    for measure in ("instructions", "bytes"):
        path = figures.with_name(f"{figures.stem}-{measure}.svg")
        path.write_text(picture(measure, measured), encoding="utf-8")
        print(path)


def picture(measure: str, measured: dict) -> str:
    """Return the SVG of one measure, with a panel for each dimension."""
    panels = [
        (dimension.title, [(row["size"], row[measure]) for row in measured["rows"] if row["name"] == dimension.name])
        for dimension in DIMENSIONS
    ]
    panels = [(title, points) for title, points in panels if points]
    width = COLUMNS * PANEL_WIDTH
    height = HEADER + math.ceil(len(panels) / COLUMNS) * PANEL_HEIGHT
    drawn = [
        panel(title, points, i % COLUMNS * PANEL_WIDTH, HEADER + i // COLUMNS * PANEL_HEIGHT)
        for i, (title, points) in enumerate(panels)
    ]
    title = f"{measure.capitalize()} for each operation, by how many there are (logarithmic)"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(measured['about'])}</desc>",
            f"<style>{STYLE}</style>",
            '<rect class="page" width="100%" height="100%"/>',
            text(10, 22, title, "bold"),
            *drawn,
            "</svg>\n",
        ]
    )


def panel(title: str, points: Sequence[tuple[int, float]], left: float, top: float) -> str:
    """Return one panel: a line through what was measured, with its figures."""
    low, high = math.log10(points[0][0]), math.log10(points[-1][0])
    most = max(cost for _, cost in points) or 1.0
    across, up = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM
    ground = top + PANEL_HEIGHT - BOTTOM

    def at(size: int, cost: float) -> tuple[float, float]:
        part = (math.log10(size) - low) / (high - low) if high > low else 0.5
        return left + LEFT + across * part, ground - up * cost / most

    places = [at(*point) for point in points]
    what, _, counted = TITLES.get(title, title).partition("; ")
    rows = [
        f'<rect class="panel" x="{left + 4:.1f}" y="{top + 2:.1f}" width="{PANEL_WIDTH - 8}"'
        f' height="{PANEL_HEIGHT - 6}" rx="4"/>',
        text(left + 10, top + 16, what, "bold"),
        text(left + 10, top + 29, counted, "quiet"),
        f'<path class="axis" d="M{left + LEFT - 12:.1f} {ground:.1f}H{left + PANEL_WIDTH - RIGHT + 12:.1f}"/>',
        f'<path class="line" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>',
    ]
    for i, ((size, cost), (x, y)) in enumerate(zip(points, places, strict=True)):
        inner = x + (10 if i == 0 else -10 if i == len(points) - 1 else 0)
        rows.append(f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        # Beside a line that falls steeply, a figure stands to the right of its point.
        is_steep = i == 0 and len(points) > 1 and places[1][1] - y > up / 3
        rows.append(text(x + 6, y + 4, f"{cost:,.0f}") if is_steep else text(inner, y - 7, f"{cost:,.0f}", "middle"))
        rows.append(text(x, ground + 15, f"{size:,}", "quiet middle"))
    return "\n".join(rows)


def text(x: float, y: float, content: str, kind: str = "") -> str:
    """Return a line of text; `kind`: words of bold, middle and quiet."""
    kinds = kind.split()
    extra = ' font-weight="bold"' if "bold" in kinds else ""
    extra += ' text-anchor="middle"' if "middle" in kinds else ""
    extra += ' class="quiet"' if "quiet" in kinds else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(content)}</text>'


if __name__ == "__main__":
    main()
