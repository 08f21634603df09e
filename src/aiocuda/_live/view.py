"""The lines of figures that are shown of a process, from its report and an earlier one.

Always true: nothing here knows a terminal, a process or a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from aiocuda._devices.memory import MemoryHolder
from aiocuda._instruments.statistics import MemoryUse
from aiocuda._live.page import Counts
from aiocuda._live.report import Report
from aiocuda._values.durations import duration_text

__all__ = ["Section", "sections", "sections_of_counts", "size_text"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Section(NamedTuple):
    """Some lines under a title."""

    title: str
    rows: list[tuple[str, str]]


def sections(report: Report, earlier: Report | None = None) -> list[Section]:
    """Return what is shown of a process. With an earlier report of it there are rates since then."""
    now = report.statistics
    before = earlier.statistics if earlier else None
    seconds = (report.taken_ns - earlier.taken_ns) / 1e9 if earlier else 0.0

    def rate(name: str, text: str = "{:,.0f}") -> str:
        if before is None or seconds <= 0:
            return ""
        return f", {text.format((getattr(now, name) - getattr(before, name)) / seconds)} a second"

    paid = f"{now.spins_that_paid / now.spins:.0%} of {now.spins:,}" if now.spins else "none yet"
    latencies = now.latencies
    if before is not None and now.completed > before.completed:
        latencies = tuple(new - old for new, old in zip(now.latencies, before.latencies, strict=True))
    work = [
        ("in flight", f"{now.in_flight:,} submissions"),
        ("waiting", f"{now.pending:,} waits"),
        ("submitted", f"{now.submitted:,}{rate('submitted')}"),
        ("waits that ended", f"{now.completed:,}{rate('completed')}"),
        ("they took", _latency_text(latencies)),
        ("spins that paid", paid),
        ("loops woken", f"{now.wakes:,}{rate('wakes')}"),
        ("waits for room", f"{now.waits_for_room:,}{rate('waits_for_room')}"),
        ("loops held up", _stall_text(now.stalls, now.longest_stall_ns)),
    ]
    staged = "" if before is None or seconds <= 0 else size_text((now.staged_bytes - before.staged_bytes) / seconds)
    staged = f", {staged} a second" if staged else ""
    work.append(("staged", f"{size_text(now.staged_bytes)}{staged}; rings {size_text(now.staging_bytes)}"))
    about = [("program", report.program), ("driver", report.driver), ("aiocuda", report.version)]
    return [Section(f"process {report.process}", about), Section("work", work), *map(_memory, now.memory)]


def sections_of_counts(counts: Counts, age_s: float) -> list[Section]:
    """Return what is shown of a process that could say no more, so many seconds ago."""
    rows = [
        ("waiting", f"{counts.pending:,} waits"),
        ("waits that ended", f"{counts.completed:,}"),
        ("loops woken", f"{counts.wakes:,}"),
        ("waits for room", f"{counts.waits_for_room:,}"),
    ]
    return [Section(f"work, {age_s:.0f} s ago", rows)]


def size_text(size_bytes: float) -> str:
    """Return a size as people read it."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} {_UNITS[-1]}"


def _memory(use: MemoryUse) -> Section:
    title = "page-locked memory" if use.device is None else f"memory of device {use.device}"
    peak = "" if use.peak_bytes is None else f", {size_text(use.peak_bytes)} at most"
    rows = [("arrays", f"{size_text(use.arrays_bytes)}{peak}")]
    if use.managed_bytes:
        rows.append(("managed arrays", size_text(use.managed_bytes)))
    if use.frameworks_bytes:
        rows.append(("other libraries", size_text(use.frameworks_bytes)))
    kept = "unknown: the device is lost" if use.kept_bytes is None else size_text(use.kept_bytes)
    rows.append(("kept for later", kept))
    return Section(title, [*rows, *_places(use.largest_places)])


def _places(places: Sequence[MemoryHolder]) -> list[tuple[str, str]]:
    return [(f"  {size_text(each.size_bytes)}", f"{each.place} ({each.arrays:,})") for each in places]


def _stall_text(stalls: int, longest_ns: int) -> str:
    return f"{stalls:,} times for over 50 ms; {duration_text(longest_ns)} at most" if longest_ns else "never"


def _latency_text(latencies: Sequence[int]) -> str:
    """Return how long half of the waits took at most, and 99 of 100."""
    whole = sum(latencies)
    if not whole:
        return "nothing yet"
    reached = list(accumulate(latencies))
    half, nearly_all = (next(i for i, count in enumerate(reached) if count >= part * whole) for part in (0.5, 0.99))
    last = len(latencies) - 1

    def bound(i: int) -> str:
        return f"over {duration_text(2 ** (i - 1) * 1e3)}" if i == last else f"under {duration_text(2**i * 1e3)}"

    return f"half {bound(half)}, 99 % {bound(nearly_all)}"
