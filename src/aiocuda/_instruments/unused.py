"""The report of operations that were built and never executed (``AIOCUDA_DEBUG``).

Always true: each is told once, when it ends or when the process does. One that another operation uses, that a graph
records, or whose future is cancelled, is not: it was asked for. Unless somebody debugs, nothing is watched.
"""

from __future__ import annotations

import atexit
import gc
import sys

from aiocuda import _native
from aiocuda._driver import select
from aiocuda._engine import faults

__all__ = ["report"]


def report(kind: type) -> None:
    """Have operations, which are of a class, reported to standard error, if that is asked for."""
    if select.is_debugging():
        kind.__del__ = _tell  # type: ignore[attr-defined]
        atexit.register(_tell_all)


def _tell(op: _native.Op) -> None:
    try:
        is_unused = op._state == "pending" and not op._is_asked
    except TypeError:
        return  # its construction failed
    if not is_unused or isinstance(op, _native.PickOp):  # where no item of a result is used, the whole is told
        return
    place = faults.origin_text(op)
    if sys.stderr is not None:  # a program may do without; print() would take standard output instead
        print(
            f"aiocuda: {op._title}, built at {place}, was never executed; await it, or call its sync() or submit()",
            file=sys.stderr,
        )


def _tell_all() -> None:
    """Tell of those that are held at the end."""
    gc.collect()
    for each in gc.get_objects():
        if issubclass(type(each), _native.Op):  # others may have a __class__ that raises
            _tell(each)
            each._is_asked = True
