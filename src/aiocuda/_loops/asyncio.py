"""Waking a task of asyncio, on its own loops and uvloop's, and calling back there."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from aiocuda import _forks, _native
from aiocuda._loops.port import TURN_US, wait_in_line
from aiocuda._loops.thread import ThreadDestination

__all__ = ["AsyncioDestination", "AsyncioPort", "current_destination", "current_port", "is_running"]


class _Waiter:
    """What is set when the token comes out; it has a future while somebody waits, no longer, so that the loop can go.

    An await that is over before it waits needs no future.
    """

    __slots__ = ("error", "future", "is_due")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] | None = None
        self.is_due = False
        self.error: int | None = None

    def wake(self, error: int | None) -> None:
        if self.is_due:
            return
        # Who is told so goes on behind all that is due: uvloop comes here before it makes those calls, and a task whose
        # future is set by then cannot hear of a cancellation (anyio's).
        if error in (_native.PAUSE, _native.TURN):
            asyncio.get_running_loop().call_soon(self.wake, 0)
            return
        self.is_due, self.error = True, error
        future = self.future
        if future is not None and not future.done():  # else whoever waited was cancelled
            future.set_result(None)


class AsyncioPort:
    """One loop's port: its reader sets the futures whose completions have come.

    It holds no reference to the loop; the loop holds it, through the reader.
    """

    __slots__ = ("__weakref__", "admits", "native")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Port(turn_us=TURN_US)
        self.admits = self.native.admits  # without a frame of Python in each await
        loop.add_reader(self.native.fileno(), self.native.wake_due, True)  # true: the loop has come round

    def waiter(self) -> _Waiter:
        """Return a waiter that nobody waits on yet."""
        return _Waiter()

    async def turn(self, until: float | None = None) -> bool:
        """Let the loop come round; False: `until` came before it was one's turn."""
        return await wait_in_line(self, until)

    def wake_due(self) -> None:
        """Set the futures whose tokens are due."""
        self.native.wake_due()

    def time(self) -> float:
        """Return the monotonic time: a loop's own may be as old as its last turn (uvloop's is)."""
        return time.monotonic()

    async def wait(self, waiter: _Waiter, until: float | None = None) -> int | None:
        """Wait until the token has come out; return 0, or the driver's error; None: `until` came first."""
        if waiter.is_due:
            return waiter.error
        loop = asyncio.get_running_loop()
        waiter.future = loop.create_future()
        timer = None
        if until is not None:
            timer = loop.call_later(max(0.0, until - self.time()), waiter.wake, None)
        try:
            await waiter.future
            return waiter.error
        finally:
            waiter.future = None
            if timer is not None:
                timer.cancel()


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
_native.set_asyncio(asyncio._get_running_loop)


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
            # What waits on a loop that was closed keeps it alive for ever: nobody will come to wake it.
            for known in list(_ports):
                if known.is_closed():
                    del _ports[known]
            port = _ports[loop] = AsyncioPort(loop)
    _latest.loop, _latest.port = weakref.ref(loop), weakref.ref(port)
    return port


def current_destination() -> AsyncioDestination:
    """Return the running loop, for callbacks."""
    return AsyncioDestination(asyncio.get_running_loop())
