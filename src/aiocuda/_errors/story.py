"""The story of an error: the last decisions of the engine before it, in words.

Always true: decisions become plain values when they are read or pickled, so an error keeps its story.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Decision", "told"]

# What, the operation's kind, its kernel, its line, a stream, the number of the submission there, another stream.
Decision = tuple[str, str, str | None, tuple[str, int] | None, int, int, int]


def told(decisions: Iterable[Decision]) -> str:
    """Return decisions in words, one a line, the earliest first.

    A launch that has ended does not know its kernel any more. Its submission, which came earlier, names it. If there
    is none, the launches of the same line name it, unless they were of several kernels.
    """
    of_submission: dict[tuple[int, int], str] = {}
    of_line: dict[tuple[str, int] | None, set[str]] = {}
    lines = []
    for what, kind, kernel, place, stream, count, other in decisions:
        if kernel is not None:
            of_submission[stream, count] = kernel
            of_line.setdefault(place, set()).add(kernel)
        elif kind == "launch":
            kernel = of_submission.get((stream, count))
            if kernel is None and len(candidates := of_line.get(place, set())) == 1:
                (kernel,) = candidates
        lines.append(_line(what, kind, kernel, place, stream, count, other))
    return "\n".join(lines)


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
