"""Waking a task of asyncio, on its own loops and uvloop's."""

from __future__ import annotations

import asyncio
import threading
import weakref

from aiocuda import _native

__all__ = ["AsyncioPort", "current_port", "is_running"]


class _Waiter:
    """A future that is set when the token comes out; no future once nobody waits, so that the loop can go."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[int]) -> None:
        self.future: asyncio.Future[int] | None = future


class AsyncioPort:
    """One loop's port: its reader sets the futures whose completions have come.

    It holds no reference to the loop; the loop holds it, through the reader.
    """

    __slots__ = ("__weakref__", "native")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Port()
        loop.add_reader(self.native.fileno(), _wake, self.native)

    def waiter(self) -> _Waiter:
        """Return a waiter with a future of the running loop."""
        return _Waiter(asyncio.get_running_loop().create_future())

    async def wait(self, waiter: object) -> int:
        """Await the waiter's future; return 0, or the driver's error."""
        assert isinstance(waiter, _Waiter)
        future = waiter.future
        assert future is not None
        try:
            return await future
        finally:
            waiter.future = None


def _wake(native: _native.Port) -> None:
    for waiter, error in native.take():
        future = waiter.future
        if future is not None and not future.done():  # else whoever waited was cancelled
            future.set_result(error)


_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioPort] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def is_running() -> bool:
    """Whether a loop of asyncio's runs in this thread."""
    return asyncio._get_running_loop() is not None


def current_port() -> AsyncioPort:
    """Return the running loop's port; made the first time."""
    loop = asyncio.get_running_loop()
    port = _ports.get(loop)
    if port is None:
        with _lock:
            # What waits on a loop that was closed keeps it alive for ever: nobody will come to wake it.
            for known in list(_ports):
                if known.is_closed():
                    del _ports[known]
            port = _ports[loop] = AsyncioPort(loop)
    return port
