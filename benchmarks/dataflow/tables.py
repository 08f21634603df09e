"""What a benchmark found: tables, printed for people and written as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

Cell = float | str | None


@dataclass
class Table:
    """One table of figures.

    Attributes
    ----------
    name
        What was measured.
    columns
        Headings; the first is of the rows' names.
    rows
        A name and a figure, or nothing, for each other column.
    notes
        What must be known to read it.
    """

    name: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def print(self) -> None:
        """Print it with its columns aligned."""
        cells = [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        print(f"\n{self.name}")
        for row in cells:
            others = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            print("  ".join(["  " + row[0].ljust(widths[0]), *others]))
        for note in self.notes:
            print(f"  {note}")


def write_json(path: Path, about: dict[str, object], tables: Sequence[Table]) -> None:
    """Write all tables, and what they were measured on."""
    path.write_text(json.dumps({"about": about, "tables": [asdict(table) for table in tables]}, indent=1) + "\n")


def fastest(repeat: int, *measures: Callable[[], float]) -> list[float]:
    """Return the fastest run of each measure: what else the machine does only ever adds.

    They are taken in turn, so that a slow minute is one for all of them, floors included.
    """
    taken = [[measure() for measure in measures] for _ in range(repeat)]
    return [min(each) for each in zip(*taken, strict=True)]


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"
