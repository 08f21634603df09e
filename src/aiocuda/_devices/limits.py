"""Limits on the memory that arrays may hold.

Always true: a limit holds for what is executed in its block, in this task or thread and in tasks started inside; what
it counts is the whole process's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._devices.numbers import whole_number
from aiocuda._engine import placement

__all__ = ["memory_limit"]


class _Limit(NamedTuple):
    """The most that arrays may hold on a device, by its ordinal, in bytes; and whether who asks for more waits."""

    device: int
    size_bytes: int
    waits: bool


@contextlib.contextmanager
def memory_limit(size_bytes: int, *, device: DeviceLike | None = None, wait: bool = False) -> Iterator[None]:
    """Let what is executed inside allocate memory of a device only up to a limit.

    Parameters
    ----------
    size_bytes
        The most that all arrays of this process may hold on the device together (`MemoryInfo.used_bytes`), whoever
        made them, after an allocation inside. An array counts until its last handle is gone, and what was submitted
        with it no longer. Memory that a framework takes from the memory pool (`MemoryInfo.frameworks_bytes`) counts as
        well; the framework itself is not limited.
    device
        The device; None is the one in force.
    wait
        Whether an operation waits for memory to be released where it would exceed the limit: an await without blocking
        its event loop, ``.sync()`` and ``.submit()`` with the GIL released. Waiters are first come first served, tasks
        and threads in one line; a smaller allocation that comes later waits too. False: it fails.

    Returns
    -------
    context manager
        The limit holds for as long as its ``with`` block runs.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The limit is no number of bytes, 0 or more; the device is none.

    Notes
    -----
    A request over the limit raises `OutOfMemoryError` with ``is_limit`` where it is executed: without `wait`; with
    `wait` where it asks for more than the whole limit; where a function of ``then``, ``inspect`` or `call` executes it,
    which must not wait while it is submitted; and where memory of a graph is made.

    It holds for this task or thread (a ContextVar), and for tasks started inside; where limits for one device are
    nested, the smallest one holds. The device itself may have less: that is an `OutOfMemoryError` at once.

    Operations that wait keep what they have made so far, and their callers what they hold. If all that hold memory wait
    for each other's, they wait for good; `DeviceOp.within`, ``.sync(timeout=)`` and cancelling end a wait, and leave
    the operation as it was. Take what belongs together in one operation of known size, or limit how many run.
    """
    limit = _Limit(as_ordinal(device), min(whole_number(size_bytes, "size_bytes"), 2**64 - 1), bool(wait))
    before = placement.current.get()
    limits = [_Limit(*each) for each in before.memory_limits]
    others = [each for each in limits if each.device != limit.device]
    outer = [each for each in limits if each.device == limit.device and each.size_bytes < limit.size_bytes]
    token = placement.current.set(before.with_memory_limits([*others, *(outer or [limit])]))
    try:
        yield
    finally:
        placement.current.reset(token)
