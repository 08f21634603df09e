"""The order of all collectives of this process: that in which they were built.

Always true: an operation of a collective has the one that was built before it as an argument: the last of those that
somebody has still, that have not been executed, and whose group had not ended. So whoever executes one executes what
was built before it first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from aiocuda import _forks
from aiocuda._ops.executing import native_op

__all__ = ["chained"]

_lock = _forks.lock()
# Those that were pending when the next one was built, and their groups. One that is dropped leaves those before it.
_built: list[tuple[weakref.ref[Any], weakref.ref[Group]]] = []


class Group(Protocol):
    """Whose the operations are."""

    @property
    def has_ended(self) -> bool: ...


def chained(build: Callable[[Any], Any], group: Group) -> Any:
    """Return what `build` makes of the operation before, or of None; it is the last one then."""
    with _lock:
        before = None
        while _built and before is None:
            last, whose = (each() for each in _built[-1])
            if last is not None and native_op(last)._state == "pending" and whose is not None and not whose.has_ended:
                before = last
            else:
                _built.pop()
        made = build(before)
        _built.append((weakref.ref(made), weakref.ref(group)))
    return made
