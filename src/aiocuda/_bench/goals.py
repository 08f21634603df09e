"""Goals: what a figure is to be at most, kept and printed beside it.

Always true: a goal changes nothing of what is measured or written as a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aiocuda._bench.figures import Figure, Section

__all__ = ["FigureWithGoal", "Goal", "beside", "shown"]


@dataclass(frozen=True, slots=True)
class Goal:
    """The most that a figure should be.

    Attributes
    ----------
    at_most
        A number without a unit, or in the figure's.
    of
        What is compared with it: the median over the floor, how much the median is more than the floor, or the median.
    """

    at_most: float
    of: Literal["ratio", "more", "median"]


@dataclass(frozen=True, slots=True)
class FigureWithGoal(Figure):
    """A figure, and what it is to be at most.

    Attributes
    ----------
    goal
        The goal; None where there is none.
    """

    goal: Goal | None = None

    @property
    def more(self) -> float | None:
        """How much the median is more than the floor."""
        return None if self.floor is None else self.median - self.floor


def beside(goals: Mapping[str, Goal], figures: Sequence[Figure]) -> tuple[FigureWithGoal, ...]:
    """Return the figures, each with the goal of its name."""
    return tuple(
        FigureWithGoal(
            each.name, each.unit, each.median, each.minimum, each.samples, each.floor, goal=goals.get(each.name)
        )
        for each in figures
    )


def shown(section: Section) -> Section:
    """Return a section for people: its goals stand behind the names."""
    return replace(section, figures=tuple(replace(each, name=each.name + _said(each)) for each in section.figures))


def _said(figure: Figure) -> str:
    if not isinstance(figure, FigureWithGoal) or figure.goal is None:
        return ""
    goal = figure.goal
    if goal.of == "ratio":
        return f" (goal: {goal.at_most:g} x)"
    if goal.of == "median":
        return f" (goal: {goal.at_most:g} {figure.unit})"
    return f" (goal: {goal.at_most:g} {figure.unit} more; {figure.more:.2f} more)"
