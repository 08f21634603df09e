"""Counting under valgrind's callgrind: what a process does between two marks, and reading what was written down.

Always true: only the process's first thread counts, which runs the event loop; others write files of their own.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# A cache of 32 KB for instructions, as one core of today has it; what the others are changes no figure.
OPTIONS = [
    "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--separate-threads=yes", "--dump-instr=no",
    "--I1=32768,8,64", "--D1=32768,8,64", "--LL=16777216,16,64",
]  # fmt: skip
_ALLOCATES = re.compile(r"(malloc|calloc|realloc|memalign|aligned_alloc|posix_memalign)('\d+)?$")
_CALLED = re.compile(r"cfn=\((\d+)\)(?: (.*))?$")
_FUNCTION = re.compile(r"fn=\((\d+)\)(?: (.*))?$")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some code.

    Attributes
    ----------
    instructions
        That it executed.
    misses
        Of the instruction cache of 32 KB.
    allocations
        Calls of malloc and its like.
    """

    instructions: float
    misses: float
    allocations: float

    def over(self, floor: Cost) -> Cost:
        """Return what it cost more than something else."""
        return Cost(
            self.instructions - floor.instructions, self.misses - floor.misses, self.allocations - floor.allocations
        )

    def each(self, number: int) -> Cost:
        """Return the cost of one of so many."""
        return Cost(self.instructions / number, self.misses / number, self.allocations / number)


class Marks:
    """The marks of a process that runs under callgrind; without callgrind they do nothing.

    Parameters
    ----------
    library
        marks.cpp, built.
    is_warm
        Whether the caches are simulated between the counts as well; else what is not counted runs several times faster,
        and the misses say nothing.
    """

    def __init__(self, library: Path, *, is_warm: bool = True) -> None:
        self._library = ctypes.CDLL(str(library))
        self._is_warm = is_warm
        if is_warm:
            self._library.start()

    def count(self, name: str, run: Callable[[], object]) -> None:
        """Write down what a function costs, under a name."""
        if not self._is_warm:
            self._library.start()
        self._library.zero()
        run()
        self._library.dump(name.encode())
        if not self._is_warm:
            self._library.stop()


def read(directory: Path) -> dict[str, Cost]:
    """Return what was written down in a directory, by name."""
    found = {}
    for path in sorted(directory.glob("callgrind.out.*-01")):
        text = path.read_text(encoding="utf-8", errors="replace")
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        events = re.search(r"^events: (.*)$", text, re.MULTILINE)
        totals = re.search(r"^summary: (.*)$", text, re.MULTILINE)
        if name and events and totals:
            counts = dict(zip(events[1].split(), map(int, totals[1].split()), strict=False))
            found[name[1]] = Cost(counts["Ir"], counts.get("I1mr", 0), _allocations(text))
    return found


def _allocations(text: str) -> int:
    """Count the calls of functions that allocate, by functions that do not."""
    names: dict[str, str] = {}
    count = 0
    is_inside = is_called = False
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            is_inside = bool(_ALLOCATES.match(names.setdefault(match[1], match[2] or "")))
        elif match := _CALLED.match(line):
            is_called = bool(_ALLOCATES.match(names.setdefault(match[1], match[2] or "")))
        elif line.startswith("calls=") and is_called and not is_inside:
            count += int(line[len("calls=") :].split()[0])
    return count
