"""The holders of memory: each array, and each line of the program that made arrays.

Always true: nothing is kept for this but a reference in each buffer; what is counted is counted when somebody asks.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from aiocuda import _native

__all__ = ["ENGINE", "Held", "by_place", "each_array", "largest"]

ENGINE: Final = "aiocuda itself, for copies"  # in place of a line: memory that no operation of the program yields


class Held(NamedTuple):
    """Memory of one array, or of all that one line of the program made.

    Views count with the array that they are views of.
    """

    size_bytes: int
    place: str  # "file:line", or in words
    arrays: int

    def __str__(self) -> str:
        if self.place == ENGINE:
            return self.place
        return f"{self.arrays} array{'s' if self.arrays != 1 else ''} made at {self.place}"


def each_array(device: int, *, is_managed: bool = False) -> list[Held]:
    """Return what each array holds on a device, by its ordinal, or in page-locked memory; the latest first.

    Or, if so asked, in the managed memory that was made for a device.
    """
    return [
        Held(size_bytes, ENGINE if where is None else f"{where[0]}:{where[1]}", 1)
        for size_bytes, where in _native.memory_holders(device, is_managed)
    ]


def by_place(arrays: Iterable[Held]) -> list[Held]:
    """Return what the arrays of each line of the program hold together."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for size_bytes, place, count in arrays:
        before, number = found[place]
        found[place] = before + size_bytes, number + count
    return [Held(size_bytes, place, count) for place, (size_bytes, count) in found.items()]


def largest(held: Iterable[Held], number: int) -> list[Held]:
    """Return so many of those that hold the most, the largest first."""
    return heapq.nlargest(number, held, key=lambda each: each.size_bytes)
