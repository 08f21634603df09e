"""`monitor`: this process in numbers, while a block runs.

Always true: the numbers are read by a thread of their own, so an event loop is not held up, and one that is held up by
something that keeps Python's lock shows nothing new.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from aiocuda._live import report, view
from aiocuda._live.drawing import Display
from aiocuda._live.report import Report
from aiocuda._live.view import Section
from aiocuda.errors import AiocudaError, ArgumentValueError

__all__ = ["Monitor", "monitor"]

_LARGEST = 5
_LEAST_S = 0.05


class Monitor:
    """Shows the counts of this process from the begin of a ``with`` block to its end, as `monitor` returns it."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()  # rich's thread asks, and the thread that prints something
        self._display: Display | None = None
        self._before: Report | None = None
        self._now: Report | None = None

    def __enter__(self) -> None:
        if self._display is not None:
            raise AiocudaError("this monitor is shown already; make another one with monitor()")
        self._before = self._now = None
        self._display = Display(self._sections, self._interval_s, sys.stderr, is_driven=False)
        self._display.__enter__()

    def __exit__(self, *error: object) -> None:
        display, self._display = self._display, None
        assert display is not None
        display.__exit__(*error)

    def _sections(self) -> Sequence[Section]:
        with self._lock:
            now = report.of_this_process(largest=_LARGEST)
            if self._now is None or now.taken_ns - self._now.taken_ns >= self._interval_s * 0.5e9:
                self._before, self._now = self._now, now
            return view.sections(now, self._before)


def monitor(*, interval_s: float = 0.5) -> Monitor:
    """Show how this process stands, while a ``with`` block runs: what is in flight, what waits, who holds memory.

    Parameters
    ----------
    interval_s
        How often the figures are drawn anew, in seconds; at least 0.05.

    Returns
    -------
    Monitor
        To be entered by ``with``, in a coroutine, too.

    Raises
    ------
    ArgumentValueError
        The interval is shorter.

    Notes
    -----
    The figures are those of `statistics`, with rates. They go to standard error, or into the notebook, drawn by rich
    (``pip install 'aiocuda[cli]'``; in a notebook rich needs ``ipywidgets``). If there is no rich, or neither a
    terminal nor a notebook, they are written once, at the end. *Blocks*: not; a thread of its own draws. ``aiocuda
    top`` shows the same of another process.
    """
    if not interval_s >= _LEAST_S:
        raise ArgumentValueError(f"interval_s={interval_s!r} is shorter than {_LEAST_S} seconds, or no number")
    return Monitor(interval_s)
