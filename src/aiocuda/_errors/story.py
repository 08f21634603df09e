"""The story of an error: the last decisions of the engine before it, in words.

Always true: decisions become plain values when they are read or pickled, so an error keeps its story.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Decision", "told"]

# What, the operation's kind, its kernel, its line, a stream, the number of the submission there, another stream.
Decision = tuple[str, str, str | None, tuple[str, int] | None, int, int, int]


def told(decisions: Iterable[Decision]) -> str:
    """Return decisions in words, one a line, the earliest first."""
    return "\n".join(_line(*each) for each in decisions)


def _line(
    what: str, kind: str, kernel: str | None, place: tuple[str, int] | None, stream: int, count: int, other: int
) -> str:
    operation = f"launch of {kernel}" if kernel is not None else kind
    if place is not None:
        operation += f" (built at {place[0]}:{place[1]})"
    where = f"as number {count} of stream {stream}" if count else ""
    words = {
        "submitted": f"submitted {where}",
        "waits": f"number {count} of stream {stream} waits for stream {other}",
        "completed": f"complete{', with what was ' + where if where else ''}",
        "failed": "failed",
    }
    return f"{operation}: {words[what]}"
