"""The order of all collectives of this process: that in which they were built.

Always true: an operation of a collective has the one that was built before it as an argument: the last of those that
somebody has still and that have not been executed. So whoever executes one executes what was built before it first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from aiocuda import _forks
from aiocuda._ops.executing import native_op

__all__ = ["chained"]

_lock = _forks.lock()
# Of those that were pending when the next one was built. One that is dropped leaves those before it.
_built: list[weakref.ref[Any]] = []


def chained(build: Callable[[Any], Any]) -> Any:
    """Return what `build` makes of the operation before, or of None; it is the last one then."""
    with _lock:
        before = None
        while _built and before is None:
            last = _built[-1]()
            if last is not None and native_op(last)._state == "pending":
                before = last
            else:
                _built.pop()
        made = build(before)
        _built.append(weakref.ref(made))
    return made
