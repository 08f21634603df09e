"""The cost of each launch and await in instructions, instruction-cache misses and allocations.

Load changes one of them alone: the await that has to wait.

Run: python benchmarks/bench_instructions.py [--json PATH]     (make bench-instructions)
     python benchmarks/bench_instructions.py --hold            (make check-instructions: are they as written down?)
     python benchmarks/bench_instructions.py --write           (write them down)
Needs valgrind. The driver does nothing; a bare loop's cost is subtracted from each measure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from instructions import held
from instructions.callgrind import Cost
from instructions.measures import CHAIN, NUMBER, WAITED
from instructions.run import about, counted


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a measure, what is subtracted from it, and what it should come to."""

    title: str
    name: str
    floor: str
    instructions: int | None = None
    misses: int | None = None
    allocations: int | None = None
    number: int = NUMBER

    def cost(self, found: dict[str, Cost]) -> Cost:
        """Return the cost of one."""
        floor = found[self.floor]
        return found[self.name].over(floor).each(self.number)

    def is_met(self, cost: Cost) -> bool | None:
        """Whether the goal is met; None: there is none."""
        goals = (self.instructions, self.misses, self.allocations)
        took = (cost.instructions, cost.misses, cost.allocations)
        asked = [(each, goal) for each, goal in zip(took, goals, strict=True) if goal is not None]
        return all(each <= goal for each, goal in asked) if asked else None

    def goal(self) -> str:
        """Return the goal in words."""
        goals = (("", self.instructions), ("/ ", self.misses), ("/ ", self.allocations))
        return "<= " + " ".join(f"{mark}{goal:,}" for mark, goal in goals if goal is not None)


ROWS = [
    Row("a launch, built only", "built", "bare"),
    Row("a launch with a tensor, built only, over one with arrays", "built tensor", "built"),
    Row("a launch, built and submitted", "alone", "bare", 4_200, 60, 3),
    Row("a launch with a tensor, submitted, over one with arrays", "alone tensor", "alone", 3_000),
    Row("a launch, submitted with a DeviceFuture", "future", "bare", 5_000, 70),
    Row(f"a launch in a chain of {CHAIN:,}", "chain", "bare", 5_000, 2, number=CHAIN),
    Row("a launch, .sync()", "sync", "bare", 6_000, 60),
    Row("a launch awaited, complete after the spin", "await spun", "await bare", 6_500, 80),
    Row("a launch awaited that has to wait, over the bare loop", "wait", "wait bare", 5_000, 150),
    Row("the bare loop: a future that an eventfd's reader sets", "wait bare", "await bare"),
    Row("a future that is done, awaited again", "await done", "await bare"),
    Row("a replayed graph awaited, complete after the spin", "graph", "await bare", 5_000),
    Row("a compiled call of three arrays awaited, over a launch", "compiled", "await spun", 2_500),
    Row(f"a launch of {WAITED:,} that `ac.wait` waits for", "waited", "await bare", number=WAITED),
    Row("a call of a function that does nothing, submitted", "call", "bare"),
    Row("an operation of PyTorch's function of an array", "torch", "bare"),
    Row("what a tensor that it makes costs more", "torch made", "torch"),
    Row("the same of a framework that Python enters", "framework", "bare"),
    Row("what an array that it makes costs more", "framework made", "framework"),
]


def over_the_loop(found: dict[str, Cost]) -> dict[str, float]:
    """Return the instructions of each measure by its name, over its bare loop: no other measure changes them."""
    floors = {row.name: row.floor for row in ROWS}
    counts = {}
    for row in ROWS:
        floor = row.floor
        while not floor.endswith("bare"):
            floor = floors[floor]
        if not row.name.endswith("bare"):
            counts[row.name] = found[row.name].over(found[floor]).each(row.number).instructions
    return counts


def measured(name_length: int = 1) -> dict[str, Cost]:
    """Count everything once, and name the directory of the process by so many letters."""
    with tempfile.TemporaryDirectory(prefix="a" * name_length) as directory:
        found = counted(Path(directory), "instructions.measures")
    missing = {row.name for row in ROWS} - set(found)
    if missing:
        sys.exit(f"error: callgrind wrote nothing of {', '.join(sorted(missing))}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", type=Path, help="where to write the figures, too")
    what.add_argument("--hold", action="store_true", help="fail where something takes more than was written down")
    what.add_argument("--write", action="store_true", help="write the counts down, to be held from now on")
    given = parser.parse_args()
    if given.hold:
        is_held, said = held.check(over_the_loop(measured(length)) for length in held.LAYOUTS)
        print(said)
        sys.exit(not is_held)
    found = measured()
    if given.write:
        layouts = (found, *map(measured, held.LAYOUTS[1:]))
        held.write(held.least(over_the_loop(each) for each in layouts))
    print(f"{about()}\nfor each, on a driver that does nothing; the loop around it is subtracted\n")
    print(f"{'':<56}{'instructions':>13}{'misses':>9}{'allocations':>13}  {'goal':<22}")
    costs = [row.cost(found) for row in ROWS]
    for row, cost in zip(ROWS, costs, strict=True):
        met = row.is_met(cost)
        said = "" if met is None else f"{row.goal():<22}{'met' if met else 'not met'}"
        print(
            f"{row.title:<56}{cost.instructions:>13,.0f}{cost.misses:>9,.1f}{cost.allocations:>13.2f}  {said}".rstrip()
        )
    if given.json:
        rows = [
            {"title": row.title, **asdict(cost), "is_met": row.is_met(cost)}
            for row, cost in zip(ROWS, costs, strict=True)
        ]
        given.json.write_text(json.dumps({"about": about(), "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
