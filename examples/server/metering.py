"""What a server says of itself in numbers: steps, how busy the device was, the lag of the event loop, CPU seconds."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections import deque
from typing import Any

import numpy as np
from batching import times_of
from numpy.typing import NDArray

PERIOD_S = 0.005  # from one look at the event loop to the next
KEPT = 60_000  # looks; five minutes of them


class Meter:
    """Counts steps, whichever way runs them."""

    def __init__(self) -> None:
        self.steps = 0
        self.busy_ns = 0

    def count(self, chosen: NDArray[np.int32]) -> None:
        """Count a step, by the times that its kernels wrote: from its first kernel's begin to its last one's."""
        began, ended = times_of(chosen)
        self.steps += 1
        self.busy_ns += ended - began


class LoopLag:
    """Measures how long an event loop takes to come to what is ready. A thread asks, as other timers are coarse."""

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=KEPT)
        self._loop = asyncio.get_running_loop()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="loop lag", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self._thread.join()

    def take(self) -> list[float]:
        """Return the lags since the last call, in seconds."""
        lags = list(self._lags_s)
        self._lags_s.clear()
        return lags

    def _ask(self) -> None:
        while not self._ends.wait(PERIOD_S):
            try:
                self._loop.call_soon_threadsafe(self._came, time.perf_counter())
            except RuntimeError:  # the loop has ended
                return

    def _came(self, asked: float) -> None:
        self._lags_s.append(time.perf_counter() - asked)


def report(meter: Meter, lag: LoopLag) -> dict[str, Any]:
    """Return the numbers: sums since the start, and lags since the last report."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "steps": meter.steps,
        "busy_s": meter.busy_ns / 1e9,
        "cpu_s": used.ru_utime + used.ru_stime,
        "now_s": time.perf_counter(),
        "lags_s": lag.take(),
    }
