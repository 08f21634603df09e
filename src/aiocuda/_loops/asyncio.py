"""Waking a task of asyncio, on its own loops and uvloop's."""

from __future__ import annotations

import asyncio
import weakref
from typing import cast

from aiocuda import _native

__all__ = ["AsyncioPort", "current_port", "is_running"]


class AsyncioPort:
    """One loop's port: its reader sets the futures whose completions have come.

    It holds no reference to the loop; the loop holds it, through the reader.
    """

    __slots__ = ("__weakref__", "native")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Port()
        loop.add_reader(self.native.fileno(), _wake, self.native)

    def waiter(self) -> asyncio.Future[int]:
        """Return a future of the running loop."""
        return asyncio.get_running_loop().create_future()

    async def wait(self, waiter: object) -> int:
        """Await the future; return 0, or the driver's error."""
        return await cast("asyncio.Future[int]", waiter)


def _wake(native: _native.Port) -> None:
    for future, error in native.take():
        if not future.done():  # done already: whoever waited was cancelled
            future.set_result(error)


_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioPort] = weakref.WeakKeyDictionary()


def is_running() -> bool:
    """Whether a loop of asyncio's runs in this thread."""
    return asyncio._get_running_loop() is not None


def current_port() -> AsyncioPort:
    """Return the running loop's port; made the first time."""
    loop = asyncio.get_running_loop()
    port = _ports.get(loop)
    if port is None:
        port = _ports[loop] = AsyncioPort(loop)
    return port
