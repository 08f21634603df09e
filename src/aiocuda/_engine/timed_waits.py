"""Waits with a time-out for what has no value."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiocuda._engine.execution import checked_timeout

if TYPE_CHECKING:
    from aiocuda import _native

__all__ = ["TimedWaits"]


class TimedWaits:
    """What events and waits for streams have beside ``await``. The native class behind it does the waiting."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _await(self, timeout_s: float) -> _native.Await: ...
        def _block(self, timeout_s: float) -> None: ...

    def within(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return a wait with a time-out, to be awaited.

        Parameters
        ----------
        seconds
            0 or more, on the event loop's clock, from when it is awaited.

        Returns
        -------
        Coroutine[None]
            Nothing waits before it is awaited.

        Raises
        ------
        DeviceTimeoutError
            When it is awaited: the time passed first. The error names what still holds work. The work goes on, and can
            be waited for again.
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
