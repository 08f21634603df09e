"""Waiting for streams, whatever they hold."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from aiocuda import _native
from aiocuda._engine.execution import checked_timeout

__all__ = ["StreamWait"]


class StreamWait(_native.StreamWait):
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ()

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

    async def _wait(self, timeout_s: float) -> None:
        await self._await(timeout_s)

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
        self._block(-1.0 if timeout is None else checked_timeout(timeout))
