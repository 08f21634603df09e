"""Counts of a batched function: of its items, its batches, and how long they took.

Always true: several loops may count at once; the times are those of the last items and batches alone.
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["BatchStatistics", "Counts"]

_LAST: Final = 4096
_LATEST: Final = 32  # batches, by which the next are judged


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """A batched function in numbers. Times are those of the last 4,096 items and batches, in seconds.

    Attributes
    ----------
    items, batches
        How many were given results or errors, and how many batches were run.
    waiting, in_flight
        How many items wait now, and how many batches are under way.
    refused, late, cancelled, failed
        How many items were refused because too many waited; were refused or given up because of their deadline; were
        given up by their callers; had an error.
    sizes
        How many batches there were of each size.
    wait_p50_s, wait_p99_s
        How long items waited until their batch began: the median and the 99th percentile.
    run_p50_s, run_p99_s
        How long batches took, likewise.
    """

    items: int
    batches: int
    waiting: int
    in_flight: int
    refused: int
    late: int
    cancelled: int
    failed: int
    sizes: Mapping[int, int]
    wait_p50_s: float
    wait_p99_s: float
    run_p50_s: float
    run_p99_s: float


class Counts:
    """Counts, for all loops of a batched function."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._waits_s: deque[float] = deque(maxlen=_LAST)
        self._runs_s: deque[float] = deque(maxlen=_LAST)
        self._latest_s: deque[float] = deque(maxlen=_LATEST)

    def add(self, name: str, count: int = 1) -> None:
        """Count something, by the name of an attribute of `BatchStatistics`."""
        with self._lock:
            self._numbers[name] += count

    def began(self, waits_s: Sequence[float]) -> None:
        """Count a batch that begins, whose items have waited so long."""
        with self._lock:
            self._numbers["batches"] += 1
            self._numbers["in_flight"] += 1
            self._numbers["waiting"] -= len(waits_s)
            self._sizes[len(waits_s)] += 1
            self._waits_s.extend(waits_s)

    def ended(self, run_s: float) -> None:
        """Count a batch that has ended."""
        with self._lock:
            self._numbers["in_flight"] -= 1
            self._runs_s.append(run_s)
            self._latest_s.append(run_s)

    def usual_run_s(self) -> float | None:
        """Return how long a batch takes as a rule; None where that is not known."""
        with self._lock:
            return statistics.median(self._latest_s) if self._latest_s else None

    def longest_run_s(self) -> float | None:
        """Return how long a batch took at most of late; None where that is not known."""
        with self._lock:
            return max(self._latest_s, default=None)

    def forget_run(self) -> None:
        """Know less of how long batches take: nothing was run for long, and the oldest time tells least."""
        with self._lock:
            if self._latest_s:
                self._latest_s.popleft()

    def read(self) -> BatchStatistics:
        """Return all as it is now."""
        with self._lock:
            numbers, sizes = Counter(self._numbers), dict(sorted(self._sizes.items()))
            waits_s, runs_s = list(self._waits_s), list(self._runs_s)
        names = ("items", "batches", "waiting", "in_flight", "refused", "late", "cancelled", "failed")
        return BatchStatistics(
            **{name: numbers[name] for name in names},
            sizes=sizes,
            wait_p50_s=_percentile(waits_s, 50),
            wait_p99_s=_percentile(waits_s, 99),
            run_p50_s=_percentile(runs_s, 50),
            run_p99_s=_percentile(runs_s, 99),
        )


def _percentile(values: Sequence[float], percent: int) -> float:
    return float(np.percentile(values, percent)) if values else 0.0
