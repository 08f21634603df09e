"""A trace in a few lines, for a terminal.

Always true: a figure of a device leaves out work without known times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiocuda._trace.analysis import Analysis
from aiocuda._trace.findings import Finding
from aiocuda._trace.model import Trace
from aiocuda._values.durations import duration_text

__all__ = ["summary"]

_MOST_ROWS = 8


def summary(trace: Trace, analysis: Analysis, findings: Sequence[Finding] = ()) -> str:
    """Return a trace's figures, as lines."""
    emulated = "; emulated devices: their times are those of this machine" if trace.is_emulated else ""
    outcomes = Counter(each.outcome for each in trace.asked if each.kind in ("await", "sync"))
    ends = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    took = duration_text(trace.ended_ns - trace.begun_ns)
    lines = [
        f"trace {trace.name}: {len(trace.operations)} operations in {took}{emulated}",
        f"awaits: {ends or 'none'}",
    ]
    rows = [("operation", "count", "ran", "queued", "waiting most for")]
    for row in analysis.rows[:_MOST_ROWS]:
        waits = row.waited_ns.most_common(1)
        most = f"{waits[0][0]}, {duration_text(waits[0][1])}" if waits else ""
        name = row.name if row.kind != "launch" else f"launch {row.name}"
        rows.append((name, str(row.count), duration_text(row.run_ns), duration_text(row.queued_ns), most))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(analysis.rows) > _MOST_ROWS:
        lines.append(f"and {len(analysis.rows) - _MOST_ROWS} more")
    if analysis.critical:
        lines.append(
            f"critical path: {len(analysis.critical)} operations, which ran for "
            f"{duration_text(analysis.critical_run_ns)} of {duration_text(analysis.critical_ns)}"
        )
    for device in analysis.devices:
        lines.append(
            f"device {device.device}: at work {device.part:.0%} of the time; copies {duration_text(device.copies_ns)}, "
            f"{duration_text(device.both_ns)} of it beside other work"
        )
    for held in analysis.held:
        lines.append(
            f"{held.who}: held for {duration_text(held.total_ns)} in all, {duration_text(held.longest_ns)} at once "
            f"({trace.asked[held.longest_of].name})"
        )
    if analysis.awaits:
        parts = [
            (name, sum(getattr(each, f"{name}_ns") for each in analysis.awaits))
            for name in ("build", "submit", "queue", "run", "wake")
        ]
        lines.append("awaits were: " + ", ".join(f"{name} {duration_text(took)}" for name, took in parts))
    lines += [f"finding: {each}" for each in findings]
    return "\n".join(lines)
