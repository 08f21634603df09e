"""The order of all collectives of this process: that in which they were built.

Always true: an operation of a collective has the one that was built before it as an argument, if somebody still has
that one and it has not ended. So whoever executes one executes what was built before it first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from aiocuda import _forks
from aiocuda._ops.executing import native_op

__all__ = ["chained"]

_lock = _forks.lock()
_last: weakref.ref[Any] | None = None


def chained(build: Callable[[Any], Any]) -> Any:
    """Return what `build` makes of the operation before, or of None; it is the last one then."""
    global _last
    with _lock:
        before = _last() if _last is not None else None
        if before is not None and native_op(before)._state != "pending":
            before = None
        made = build(before)
        _last = weakref.ref(made)
    return made
