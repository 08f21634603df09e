"""Waiting for streams, whatever they hold."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from aiocuda import _loops, _native
from aiocuda._engine import faults, overdue
from aiocuda._engine.execution import checked_timeout

__all__ = ["StreamWait"]


class StreamWait:
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ("_asked", "_keepalive", "_named", "_streams")

    def __init__(self, streams: list[int], asked: str, keepalive: object = None, named: int | None = None) -> None:
        self._streams = streams
        self._asked = asked  # what it is called in messages
        self._keepalive = keepalive
        self._named = [] if named is None else [named]  # what a time-out's error names; else those that held work

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait(None).__await__()

    def within(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return the same wait with a time-out, to be awaited.

        Parameters
        ----------
        seconds
            0 or more, on the event loop's clock, from when it is awaited.

        Raises
        ------
        DeviceTimeoutError
            When it is awaited: the time passed first. The error names the streams that still hold work. The work goes
            on, and can be waited for again.
        ArgumentValueError
            `seconds` is no number, negative or NaN.

        Notes
        -----
        *Blocks*: no. *On cancel*: the work goes on.
        """
        return self._wait(checked_timeout(seconds))

    async def _wait(self, timeout_s: float | None) -> None:
        port = _loops.current_port()
        begin = port.time()
        until = None if timeout_s is None else begin + timeout_s
        if not port.admits(None):
            await port.turn(until)
        busy = self._streams if timeout_s is None else self._at_work()
        if not busy:
            return
        waiter = port.waiter()
        if _native.tell_when_streams_pass(self._streams, self._asked, port.native, waiter):
            error = await port.wait(waiter, until)
            if error is None and self._at_work():
                raise overdue.overdue_streams(self._asked, self._named or busy, port.time() - begin)
            if error:
                raise faults.refused(error, "cuStreamQuery", self._asked, 0, _native.stream_device(self._streams[0]))

    def sync(self, timeout: float | None = None) -> None:
        """Wait, blocking the thread with the GIL released.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Raises
        ------
        DeviceTimeoutError
            The time passed first; as for `within`.
        ArgumentValueError
            The time-out is no number of seconds, 0 or more.
        """
        if timeout is None:
            _native.wait_for_streams(self._streams, self._asked, -1.0)
            return
        timeout_s = checked_timeout(timeout)
        busy = self._at_work()
        if not busy or _native.wait_for_streams(self._streams, self._asked, timeout_s):
            return
        if self._at_work():
            raise overdue.overdue_streams(self._asked, self._named or busy, timeout_s)

    def _at_work(self) -> list[int]:
        """Return the streams that hold something now, and those that are broken, which a wait finds out.

        A wait puts a flag into each stream, which takes time itself: what a stream held before is asked before.
        """
        return _native.streams_at_work(self._streams)
