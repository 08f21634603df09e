"""Running operations: awaited, waited for, or only submitted.

Always true: an operation runs at most once, whoever asks; cancelling an await leaves what was submitted
to the device and drops nothing that it uses.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from aiocuda import _loops, _native
from aiocuda._engine import faults, placement
from aiocuda._engine.placement import Placement
from aiocuda.errors import ArgumentValueError

__all__ = ["DeviceFuture", "StreamWait", "run", "run_and_wait", "submit"]

T = TypeVar("T")


async def run(op: _native.Op, where: Placement | None = None) -> Any:
    """Submit an operation and await its result."""
    where = where or placement.current.get()
    port = _loops.current_port()
    while True:
        waiter = port.waiter()
        if _native.drive(op, where.device, where.stream, port.native, waiter):
            return op._outcome
        await port.wait(waiter)


def run_and_wait(op: _native.Op, where: Placement | None = None, timeout_s: float | None = None) -> Any:
    """Submit an operation and wait for its result with the GIL released.

    Raises
    ------
    TimeoutError
        The time passed first; the work goes on.
    """
    where = where or placement.current.get()
    if timeout_s is not None and not timeout_s >= 0:
        raise ArgumentValueError(f"a time-out is a number of seconds, 0 or more; {timeout_s!r} was given")
    if not _native.drive_and_wait(op, where.device, where.stream, -1.0 if timeout_s is None else timeout_s):
        raise TimeoutError(f"{op._title} was not complete after {timeout_s} s; it goes on, and can be waited for again")
    return op._outcome


def submit(op: _native.Op, where: Placement | None = None) -> None:
    """Hand an operation and what it needs to the device, as far as nothing waits for the host."""
    where = where or placement.current.get()
    _native.submit(op, where.device, where.stream)


class DeviceFuture(Generic[T]):
    """The result of submitted work; await it as often, and from as many tasks, as you like.

    Where a `map` stands in the middle of the work, what comes after it is submitted when the future is
    next awaited, waited for or asked.
    """

    __slots__ = ("_op", "_where")

    def __init__(self, op: _native.Op) -> None:
        self._op = op
        self._where = placement.current.get()
        submit(op, self._where)

    def __await__(self) -> Generator[Any, None, T]:
        return run(self._op, self._where).__await__()

    def done(self) -> bool:
        """Whether the result, or an error, is there. Does not block."""
        if self._op._state == "pending":
            submit(self._op, self._where)
        return _native.has_passed(self._op)

    def result(self) -> T:
        """Return the result, if it is there.

        Raises
        ------
        AiocudaError
            The operation failed; its own error.
        ArgumentValueError
            It is not complete yet: await the future, or wait with `sync`.
        """
        if not self.done():
            raise ArgumentValueError(f"{self._op._title} is not complete; await the future, or wait with .sync()")
        return self.sync()

    def sync(self, timeout: float | None = None) -> T:
        """Wait for the result, blocking the thread with the GIL released.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Raises
        ------
        TimeoutError
            The time passed first; the work goes on.
        """
        result: T = run_and_wait(self._op, self._where, timeout)
        return result

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<DeviceFuture of {self._op._title}, {state}>"


class StreamWait:
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ("_keepalive", "_streams")

    def __init__(self, streams: list[int], keepalive: object = None) -> None:
        self._streams = streams
        self._keepalive = keepalive

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        port = _loops.current_port()
        waiter = port.waiter()
        if _native.tell_when_streams_pass(self._streams, port.native, waiter):
            error = await port.wait(waiter)
            if error:
                raise faults.refused(error, "cuStreamQuery", None, 0, _native.stream_device(self._streams[0]))

    def sync(self) -> None:
        """Wait, blocking the thread with the GIL released."""
        _native.wait_for_streams(self._streams)
