"""Durations in words."""

from __future__ import annotations

__all__ = ["duration_text"]


def duration_text(nanoseconds: float) -> str:
    """Return a duration in words, to three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
