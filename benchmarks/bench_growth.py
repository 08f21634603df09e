"""How the cost of one operation grows with how much there is of something: streams, slices, arrays, waiters, nodes.

Run: python benchmarks/bench_growth.py [--quick] [--json PATH]     (make bench-growth)
Needs valgrind, and some minutes. The driver does nothing. Instructions are the loop's thread's, with the program's own
around them; bytes are those that malloc has given out and that are left afterwards.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from instructions.callgrind import Cost
from instructions.growth import DIMENSIONS
from instructions.run import about, counted


def measured(names: list[str]) -> tuple[dict[str, Cost], dict[str, float]]:
    """Measure these things in one process: what each costs, and the bytes that it leaves, by the names of the marks."""
    with tempfile.TemporaryDirectory() as name:
        found = counted(Path(name), "instructions.growth", *names)
        return found, json.loads(Path(name, "bytes.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--quick", action="store_true", help="the smallest size of each only, to see that it runs")
    given = parser.parse_args()
    rows = []
    found, bytes_each = measured([each.name for each in DIMENSIONS]) if given.quick else ({}, {})
    for dimension in DIMENSIONS:
        if not given.quick:
            found, bytes_each = measured([dimension.name])
        for size in dimension.sizes[: 1 if given.quick else None]:
            mark = dimension.mark(size)
            instructions = round(found[mark].instructions / dimension.runs_of(size))
            size_bytes = round(bytes_each[mark])
            rows.append({"name": dimension.name, "size": size, "instructions": instructions, "bytes": size_bytes})
    print(f"{about()}\n")
    for dimension in DIMENSIONS:
        print(dimension.title)
        of_it = [row for row in rows if row["name"] == dimension.name]
        for row in of_it:
            ratio = row["instructions"] / of_it[0]["instructions"]
            print(
                f"{row['size']:>12,}{row['instructions']:>12,.0f} instructions{ratio:>8.2f} x{row['bytes']:>10,.0f} B"
            )
    if given.json:
        lines = ",\n    ".join(json.dumps(row) for row in rows)
        about_it = json.dumps(about())
        given.json.write_text(f'{{\n  "about": {about_it},\n  "rows": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
