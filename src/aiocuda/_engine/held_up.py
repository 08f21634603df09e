"""Reports of what held an event loop up for long, with its line, for ``AIOCUDA_DEBUG``.

Always true: nothing is measured where nobody debugs, and nothing is told of threads that no loop runs in.
"""

from __future__ import annotations

import sys
import time

from aiocuda import _loops, _native
from aiocuda._driver import select
from aiocuda._engine import faults

__all__ = ["Watched", "report", "watch"]

_LONG_S = 0.05
_limit_s: float | None = None


def report() -> None:
    """Have it told on standard error, if that is asked for."""
    if select.is_debugging():
        watch(_LONG_S)


def watch(limit_s: float | None) -> None:
    """Tell of what holds a loop up for longer than so many seconds; None: of nothing."""
    global _limit_s
    _limit_s = limit_s
    _native.set_held_up(None if limit_s is None else _tell_of, limit_s or 0.0)


class Watched:
    """Watches what a ``with`` block does to the thread; it is told in words, with the program's line.

    Parameters
    ----------
    what
        What is being done.
    """

    __slots__ = ("_begin_s", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin_s = 0.0

    def __enter__(self) -> None:
        if _limit_s is not None:
            self._begin_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if _limit_s is None or not self._begin_s:
            return
        taken_s = time.monotonic() - self._begin_s
        if taken_s > _limit_s:
            _tell(f"{self._what}, at {_native.place_of_caller()},", taken_s)


def _tell_of(op: _native.Op, taken_s: float) -> None:
    place = faults.origin_text(op)
    _tell(op._title + (f", built at {place}," if place else ""), taken_s)


def _tell(what: str, taken_s: float) -> None:
    if sys.stderr is None or not _loops.is_running():
        return
    print(
        f"aiocuda: {what} held the event loop up for {taken_s * 1000:.0f} ms; 'What blocks' in the reference says what "
        "to do instead",
        file=sys.stderr,
    )
