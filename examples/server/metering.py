"""A server's numbers about itself: steps, the time in them, the lag of the event loop, CPU seconds."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import sys
import time
from collections import deque
from typing import Any

import numpy as np
from batching import times_of
from numpy.typing import NDArray

PERIOD_NS = 5_000_000  # from one look at the event loop to the next
KEPT = 60_000  # looks; five minutes of them


class Meter:
    """Counts steps, whichever way runs them."""

    def __init__(self) -> None:
        self.steps = 0
        self.in_steps_ns = 0

    def count(self, chosen: NDArray[np.int32]) -> None:
        """Count a step, by the times that its kernels wrote: from the first block's begin to the last one's end."""
        began, ended = times_of(chosen)
        self.steps += 1
        self.in_steps_ns += ended - began


class LoopLag:
    """Measures how late an event loop comes to what is due, at points of time that stand before.

    The kernel's timer wakes the loop, as the loop's own are in whole milliseconds, and a thread would wait for Python's
    lock, and be late itself.
    """

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=KEPT)
        self._loop = asyncio.get_running_loop()
        self._due_ns = time.monotonic_ns() + PERIOD_NS
        self._timer = timer(self._due_ns)
        self._loop.add_reader(self._timer, self._came)

    def close(self) -> None:
        """End it."""
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def take(self) -> list[float]:
        """Return the lags since the last call, in seconds."""
        lags = list(self._lags_s)
        self._lags_s.clear()
        return lags

    def _came(self) -> None:
        count = int.from_bytes(os.read(self._timer, 8), sys.byteorder)
        self._lags_s += lags_of(self._due_ns, count, time.monotonic_ns())
        self._due_ns += count * PERIOD_NS


def lags_of(due_ns: int, count: int, now_ns: int) -> list[float]:
    """Say, in seconds, how late the loop is for each of the points that have passed: a long lag is one of many."""
    return [(now_ns - due_ns - i * PERIOD_NS) / 1e9 for i in range(count)]


def timer(begin_ns: int) -> int:
    """Open a timer of Linux (timerfd, which Python has since 3.13) that passes at a time, and each period later."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    times = (ctypes.c_long * 4)(*divmod(PERIOD_NS, 10**9), *divmod(begin_ns, 10**9))
    is_absolute = 1
    if descriptor < 0 or libc.timerfd_settime(descriptor, is_absolute, times, None) != 0:
        raise OSError(ctypes.get_errno(), "a timer of the kernel was asked for, to measure the event loop's lag")
    return descriptor


def report(meter: Meter, lag: LoopLag) -> dict[str, Any]:
    """Return the numbers: sums since the start, and lags since the last report."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "steps": meter.steps,
        "in_steps_s": meter.in_steps_ns / 1e9,
        "cpu_s": used.ru_utime + used.ru_stime,
        "now_s": time.perf_counter(),
        "lags_s": lag.take(),
    }
