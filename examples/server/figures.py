"""The results of the comparison: figures, intervals, and whether the goals are met."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LATE_MS = 5  # a run whose requests were sent later than that, by the 99th percentile, is not counted
TITLES = {
    "tokens_per_s": "tokens/s",
    "first_p50_ms": "first p50",
    "first_p99_ms": "first p99",
    "between_p50_ms": "between p50",
    "between_p99_ms": "between p99",
    "gap_p50_ms": "gap p50",
    "gap_p99_ms": "gap p99",
    "tokens_per_event": "tokens/event",
    "in_steps_percent": "in steps %",
    "lag_p99_ms": "lag p99",
    "cpu_s_per_1000_tokens": "CPU s/1000",
    "refused": "refused",
    "failed": "failed",
    "late_p99_ms": "clients late p99",
}
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262,
        11: 2.228, 12: 2.201, 13: 2.179, 14: 2.160, 15: 2.145, 16: 2.131}  # Student's  # fmt: skip
Run = dict[str, Any]


class Goal(NamedTuple):
    """A figure of way d, or its ratio to that of another way in the same round, and how it should be."""

    figure: str
    other: str | None
    limit: float
    is_least: bool

    def __str__(self) -> str:
        ratio = f"d/{self.other}" if self.other else "d"
        return f"{TITLES[self.figure]}, {ratio} {'>=' if self.is_least else '<='} {self.limit:g}"


GOALS = (
    Goal("tokens_per_s", "c", 0.98, is_least=True),
    Goal("tokens_per_s", "b", 1.3, is_least=True),
    Goal("in_steps_percent", None, 97, is_least=True),
    Goal("lag_p99_ms", None, 2, is_least=False),
    Goal("cpu_s_per_1000_tokens", "b", 0.5, is_least=False),
)


def figures_of(
    heard: Sequence[dict[str, Any]], before: dict[str, Any], after: dict[str, Any], seconds: float
) -> dict[str, float]:
    """Make figures of what clients heard and of what the server said at the begin and the end of the time."""

    def all_of(name: str) -> list[float]:
        return [each for one in heard for each in one[name]]

    def percentile_ms(values: list[float], percent: float) -> float:
        return float(np.percentile(values, percent) * 1e3) if values else float("nan")

    tokens, events = (sum(one[name] for one in heard) for name in ("tokens", "events"))
    return {
        "tokens_per_s": tokens / seconds,
        **{
            f"{name}_p{percent}_ms": percentile_ms(all_of(f"{name}_s"), percent)
            for name in ("first", "between", "gap")
            for percent in (50, 99)
        },
        "tokens_per_event": tokens / events if events else float("nan"),
        "in_steps_percent": 100 * (after["in_steps_s"] - before["in_steps_s"]) / (after["now_s"] - before["now_s"]),
        "lag_p99_ms": percentile_ms(after["lags_s"], 99),
        "cpu_s_per_1000_tokens": 1e3 * (after["cpu_s"] - before["cpu_s"]) / tokens if tokens else float("nan"),
        "late_p99_ms": max(percentile_ms(one["late_s"], 99) for one in heard),  # of the program that was the latest
        "steps": after["steps"] - before["steps"],
        **{name: sum(one[name] for one in heard) for name in ("answered", "refused", "left", "failed")},
    }


def counted(runs: Sequence[Run]) -> list[Run]:
    """Leave out the runs whose requests were late: they were not those that were asked for."""
    return [run for run in runs if not run["late_p99_ms"] > LATE_MS]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval by Student's t (NaN of one value)."""
    count = len(values)
    if count not in T_95:
        return statistics.fmean(values) if values else float("nan"), float("nan")
    return statistics.fmean(values), T_95[count] * statistics.stdev(values) / count**0.5


def values_of(goal: Goal, runs: Sequence[Run], rate: float) -> list[float]:
    """Return what a goal is about, of each round; of a ratio, both runs of a round, which had the same requests."""
    of = {(run["way"], run["round"]): run[goal.figure] for run in counted(runs) if run["rate"] == rate}
    rounds = sorted(turn for way, turn in of if way == "d")
    if goal.other is None:
        return [of["d", turn] for turn in rounds]
    return [of["d", turn] / of[goal.other, turn] for turn in rounds if of.get((goal.other, turn))]


def verdict(goal: Goal, mean: float, half: float) -> str:
    """Say whether a goal is met: the whole interval has to say so."""
    if math.isnan(half):
        return "open: too few rounds"
    low, high = mean - half, mean + half
    if low >= goal.limit if goal.is_least else high <= goal.limit:
        return "met"
    return "not met" if (high < goal.limit if goal.is_least else low > goal.limit) else "open"


def verdicts(runs: Sequence[Run], lines: dict[str, int]) -> list[str]:
    """Say of each goal, at each rate, what was found."""
    said = []
    for rate in dict.fromkeys(run["rate"] for run in runs):
        for goal in GOALS:
            mean, half = interval(values_of(goal, runs, rate))
            said.append(f"at {rate:g}/s: {goal}: {mean:.3f} ± {half:.3f}: {verdict(goal, mean, half)}")
    ratio = lines["d"] / lines["c"]
    return [*said, f"lines, d/c <= 1/3: {ratio:.3f}: {'met' if ratio <= 1 / 3 else 'not met'}"]


def table(found: dict[str, Any], names: dict[str, str]) -> str:
    """Lay out the means of the runs, each with half of its 95 % interval."""
    lines = [f"{'way':30} {'rate':>6} {'lines':>5} {'runs':>4} " + " ".join(f"{t:>17}" for t in TITLES.values())]
    for way, rate in dict.fromkeys((run["way"], run["rate"]) for run in found["runs"]):
        of_it = [run for run in counted(found["runs"]) if (run["way"], run["rate"]) == (way, rate)]
        cells = [interval([run[name] for run in of_it]) for name in TITLES]
        shown = " ".join(f"{mean:9.2f} ± {half:5.2f}" for mean, half in cells)
        lines.append(f"{f'{way}  {names[way]}':30} {rate:6g} {found['lines'][way]:5} {len(of_it):4} {shown}")
    return "\n".join(lines)
