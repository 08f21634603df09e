"""A trace from the begin of its recording to its end: what `trace` and `debug` have in common.

Always true: one trace is recorded at a time.
"""

from __future__ import annotations

import time

from aiocuda import _loops, _native
from aiocuda._driver.select import select_driver
from aiocuda._trace.activities import Activities
from aiocuda._trace.model import Trace
from aiocuda._trace.ranges import Ranges
from aiocuda._trace.reading import await_times, read
from aiocuda.errors import AiocudaError

__all__ = ["Recorded"]

_PATIENCE_S = 5.0


class Recorded:
    """A trace that is recorded from now on, until `end`.

    Parameters
    ----------
    name
        Its name.
    ranges
        What each await is told as well, or None.
    activities
        What gives the times of the device, or None: events do.

    Raises
    ------
    AiocudaError
        Another one is recorded.
    """

    def __init__(self, name: str, ranges: Ranges | None = None, activities: Activities | None = None) -> None:
        select_driver()
        self._name = name
        self._ranges = ranges
        self._activities = activities
        self._recording = _native.Recording(_loops.current_name)
        if ranges is not None:
            self._recording.tell(ranges.began, ranges.ended)
        if not self._recording.start():
            raise AiocudaError(
                "another trace is being recorded, by ac.trace(), ac.debug(), `aiocuda trace` or as spans for "
                "OpenTelemetry, and there is one at a time; end that one first"
            )
        self._begun_ns = time.monotonic_ns()
        if activities is not None:
            try:
                activities.begin(self._recording)
            except BaseException:
                self._recording.stop()
                raise

    def end(self) -> Trace:
        """Return what was recorded. Blocks until the devices have passed it, for 5 seconds at most."""
        self._recording.stop()
        ended_ns = time.monotonic_ns()
        if self._ranges is not None:
            self._ranges.close()
        await_times(self._recording, _PATIENCE_S)
        if self._activities is not None:
            self._activities.end(self._recording)
        is_emulated = select_driver().is_emulated
        return read(self._recording, self._name, self._begun_ns, ended_ns, is_emulated=is_emulated)
