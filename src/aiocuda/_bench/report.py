"""Sections as people and programs read them: a table in the terminal, CSV, JSON."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from aiocuda._bench.figures import Section

__all__ = ["number", "print_section", "print_table", "write_csv", "write_json"]


def print_section(section: Section) -> None:
    """Print one section as a table."""
    rows = [
        (
            each.name,
            f"{number(each.median)} {each.unit}",
            f"{number(each.minimum)} {each.unit}",
            "" if each.ratio is None else f"{number(each.ratio)} x",
        )
        for each in section.figures
    ]
    print_table((section.title, "median", "least", "floor" if any(row[3] for row in rows) else ""), rows)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headings; with rich where it is installed and somebody looks."""
    # To a pipe or a file, a line is a line however long it is.
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _print_with_rich(headings, rows)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    print()
    for row in (headings, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())


def write_csv(path: Path, sections: Sequence[Section]) -> None:
    """Write the raw figures, a line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["measure", "case", "name", "unit", "median", "minimum", "samples", "floor", "ratio"])
        for section in sections:
            for each in section.figures:
                values = [each.name, each.unit, each.median, each.minimum, each.samples, each.floor, each.ratio]
                writer.writerow([section.measure, section.case, *values])


def write_json(path: Path, about: Mapping[str, object], sections: Sequence[Section]) -> None:
    """Write the raw figures, and what they were measured on."""
    figures = [
        {"measure": section.measure, "case": section.case, **asdict(each), "ratio": each.ratio}
        for section in sections
        for each in section.figures
    ]
    path.write_text(json.dumps({"about": about, "figures": figures}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def number(value: float) -> str:
    """Return a figure as text, with as many places as say something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _print_with_rich(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - optional
    from rich.table import Table  # noqa: PLC0415 - optional
    from rich.text import Text  # noqa: PLC0415 - optional

    table = Table(box=None, padding=(0, 1), title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if i else "left", min_width=58 if i == 0 else None)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    console.print()
    console.print(table)
