"""Figures, and how they are taken: in turn with their floors, so that a slow moment is one for all of them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Figure", "Sample", "Section", "Sizes", "Unit", "compare", "figure"]

Unit: TypeAlias = Literal["µs", "ms"]
# Measures once, or some times, and returns the seconds that each took.
Sample: TypeAlias = Callable[[], Sequence[float]]

_IN_A_SECOND: Mapping[Unit, float] = {"µs": 1e6, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of one thing.

    Attributes
    ----------
    name
        Whose it is, and how.
    unit
        Of the times.
    median, minimum
        Of the samples.
    samples
        How many there were.
    floor
        The median that it is compared with; None where there is nothing to compare.
    """

    name: str
    unit: Unit
    median: float
    minimum: float
    samples: int
    floor: float | None = None

    @property
    def ratio(self) -> float | None:
        """The median over the floor."""
        return None if self.floor is None else self.median / self.floor


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that are compared with one another.

    Attributes
    ----------
    measure
        What ``--only`` calls it.
    case
        Which one of that measure; empty where there is only one.
    title
        What was measured, for people.
    figures
        The floors first.
    """

    measure: str
    case: str
    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    rounds
        How often each sample is taken, in turn with the others.
    waits
        Launches of a sample that are waited for one by one.
    long_rounds
        The same as `rounds`, of samples that take long.
    idle_s
        How long the process is left idle.
    """

    rounds: int
    waits: int
    long_rounds: int
    idle_s: float


def figure(name: str, unit: Unit, seconds: Sequence[float], floor: Figure | None = None) -> Figure:
    """Make a figure of samples."""
    scale = _IN_A_SECOND[unit]
    return Figure(
        name,
        unit,
        statistics.median(seconds) * scale,
        min(seconds) * scale,
        len(seconds),
        None if floor is None else floor.median,
    )


def compare(
    unit: Unit,
    rounds: int,
    floors: Mapping[str, Sample],
    others: Mapping[str, Sample],
    *,
    is_warm: bool = False,
) -> tuple[Figure, ...]:
    """Take all samples in turn; compare each with the lowest of the floors.

    Parameters
    ----------
    unit
        Of the figures.
    rounds
        How often each sample is taken.
    floors, others
        What takes them, by name.
    is_warm
        Whether the like was done before; else each is taken once for nothing.
    """
    samples = {**floors, **others}
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for sample in () if is_warm else samples.values():
        sample()
    gc.collect()
    for _ in range(rounds):
        for name, sample in samples.items():
            taken[name] += sample()
    floor = min((figure(name, unit, taken[name]) for name in floors), key=lambda each: each.median)
    return tuple(figure(name, unit, seconds, floor) for name, seconds in taken.items())
