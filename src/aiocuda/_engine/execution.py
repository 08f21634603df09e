"""Running operations: awaited, or waited for.

Always true: an operation runs at most once, whoever asks; cancelling an await leaves what was submitted to the device
and drops nothing that it uses.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

from aiocuda import _native
from aiocuda.errors import ArgumentValueError

__all__ = ["checked_timeout", "has_ended", "run_within"]


async def run_within(op: _native.Op, timeout_s: float) -> Any:
    """Submit an operation and await its result for so many seconds.

    Raises
    ------
    DeviceTimeoutError
        The time passed first; the work goes on.
    """
    return await _native.await_op(op, timeout_s)


def checked_timeout(timeout_s: Any) -> float:
    """Return a time-out as a float.

    Raises
    ------
    ArgumentValueError
        It is no number of seconds, 0 or more.
    """
    is_number = isinstance(timeout_s, numbers.Real) and not isinstance(timeout_s, bool)
    if not is_number or not timeout_s >= 0:  # NaN is neither 0 nor more
        raise ArgumentValueError(f"a time-out is a number of seconds, 0 or more; {timeout_s!r} was given")
    try:
        return float(timeout_s)
    except OverflowError:  # an int that is later than any clock
        return math.inf


def has_ended(op: _native.Op) -> bool:
    """Whether an operation's result or error is there; a device that was lost meanwhile is an error that is."""
    try:
        return _native.has_passed(op)
    except Exception:
        if op._state != "failed":
            raise
        return True
