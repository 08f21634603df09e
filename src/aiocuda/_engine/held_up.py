"""Tells what held an event loop up for long, with its line: on standard error for ``AIOCUDA_DEBUG``, or to a function.

Always true: nothing is told where nobody watches, nor of threads that no loop runs in. The longest time is known in any
case (`aiocuda.statistics`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from aiocuda import _loops, _native
from aiocuda._driver import select
from aiocuda._engine import faults

__all__ = ["Watched", "Watching", "report", "restore", "watch"]

_LONG_S = 0.05


class Watching(NamedTuple):
    """A limit in seconds, and the function that is told of longer times; None: they are printed."""

    limit_s: float
    tell: Callable[[str, str, float, float], None] | None


_watching: Watching | None = None


def report() -> None:
    """Have it told on standard error, if that is asked for."""
    if select.is_debugging():
        watch(_LONG_S)


def watch(limit_s: float, tell: Callable[[str, str, float, float], None] | None = None) -> Watching | None:
    """Tell of what holds a loop up for longer than so many seconds, from now on.

    Parameters
    ----------
    limit_s
        How long that is.
    tell
        Gets what was done, the line, when it began and how long it took, in seconds of `time.monotonic`. Steps of
        executions are left out. None: all is printed to standard error.

    Returns
    -------
    Watching | None
        Who watched before, for `restore`.
    """
    before = _watching
    restore(Watching(limit_s, tell))
    return before


def restore(watching: Watching | None) -> None:
    """Have those watch who watched before; None: nobody."""
    global _watching
    _watching = watching
    prints = watching is not None and watching.tell is None
    _native.set_held_up(_tell_of if prints else None, watching.limit_s if watching is not None else 0.0)


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
        self._begin_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        taken_s = time.monotonic() - self._begin_s
        _native.note_stall(taken_s)
        watching = _watching
        if watching is None or taken_s <= watching.limit_s or not _loops.is_running():
            return
        place = _native.place_of_caller()
        if watching.tell is not None:
            watching.tell(self._what, place, self._begin_s, taken_s)
        else:
            _print(f"{self._what}, at {place},", taken_s)


def _tell_of(op: _native.Op, taken_s: float) -> None:
    if _loops.is_running():
        place = faults.origin_text(op)
        _print(op._title + (f", built at {place}," if place else ""), taken_s)


def _print(what: str, taken_s: float) -> None:
    if sys.stderr is None:
        return
    print(
        f"aiocuda: {what} held the event loop up for {taken_s * 1000:.0f} ms; 'What blocks' in the reference says what "
        "to do instead",
        file=sys.stderr,
    )
