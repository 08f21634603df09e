"""Ports of asyncio's loops and uvloop's, and calling back there."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from aiocuda import _forks, _native
from aiocuda._loops.port import TURN_US
from aiocuda._loops.thread import ThreadDestination

__all__ = ["AsyncioDestination", "AsyncioPort", "current_destination", "current_name", "current_port", "is_running"]


class AsyncioPort:
    """One loop's port: its reader tells the awaits whose completions have come.

    It holds no reference to the loop; the loop holds it, through the reader.
    """

    __slots__ = ("__weakref__", "native")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Port(turn_us=TURN_US)
        loop.add_reader(self.native.fileno(), self.native.wake_due, True)  # true: the loop has come round


class _Posted:
    """A call on its way to a loop; where the loop closes and drops it, the library's thread makes it."""

    __slots__ = ("_calls",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._calls = [call]  # taken out once, whoever comes first

    def __call__(self) -> None:
        call = self._take()
        if call is not None:
            call()

    def hand_over(self) -> None:
        """Leave the call to the thread, unless it was made."""
        call = self._take()
        if call is not None:
            ThreadDestination().post(call)

    def _take(self) -> Callable[[], object] | None:
        try:
            return self._calls.pop()
        except IndexError:
            return None

    def __del__(self) -> None:
        self.hand_over()

    def __repr__(self) -> str:
        return f"<callback of aiocuda: {self._calls}>"


@dataclass(frozen=True, slots=True)
class AsyncioDestination:
    """A loop, for callbacks; it reports what they raise to its exception handler."""

    loop: asyncio.AbstractEventLoop

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made by the loop; by the library's thread where it has closed, or closes before."""
        posted = _Posted(call)
        try:
            self.loop.call_soon_threadsafe(posted)
        except RuntimeError:
            posted.hand_over()
        if self.loop.is_closed():  # perhaps just now, with the call accepted and never to be made
            posted.hand_over()


_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioPort] = weakref.WeakKeyDictionary()
_lock = _forks.lock()
_native.set_asyncio(asyncio._get_running_loop, asyncio.InvalidStateError)


def is_running() -> bool:
    """Whether a loop of asyncio's runs in this thread."""
    return asyncio._get_running_loop() is not None


class _Latest(threading.local):
    """The loop that last asked in this thread, and its port; they end when they end."""

    loop: Callable[[], asyncio.AbstractEventLoop | None] = staticmethod(lambda: None)
    port: Callable[[], AsyncioPort | None] = staticmethod(lambda: None)


_latest = _Latest()


def current_port() -> AsyncioPort:
    """Return the running loop's port; made the first time."""
    loop = asyncio.get_running_loop()
    latest = _latest.port() if _latest.loop() is loop else None
    if latest is not None:
        return latest
    port = _ports.get(loop)
    if port is None:
        with _lock:
            # A waiter on a closed loop keeps the loop alive for ever: nobody will wake it.
            for known in list(_ports):
                if known.is_closed():
                    del _ports[known]
            port = _ports[loop] = AsyncioPort(loop)
    _latest.loop, _latest.port = weakref.ref(loop), weakref.ref(port)
    return port


def current_destination() -> AsyncioDestination:
    """Return the running loop, for callbacks."""
    return AsyncioDestination(asyncio.get_running_loop())


def current_name() -> str:
    """Return the running loop's library and the name of the task that runs, as ``"asyncio: Task-1"``."""
    task = asyncio.current_task()
    library = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return f"{library}: {'a callback' if task is None else task.get_name()}"
