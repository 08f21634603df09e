"""Ports of asyncio's loops and uvloop's, calling back there, and tasks of theirs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiocuda import _forks, _native
from aiocuda._loops.port import TURN_US
from aiocuda._loops.thread import ThreadDestination

__all__ = [
    "AsyncioDestination", "AsyncioPort", "AsyncioTasks", "current_destination", "current_name", "current_port",
    "current_tasks", "is_running",
]  # fmt: skip


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
            _gone = _pop_closed(_ports)
            port = _ports[loop] = AsyncioPort(loop)
    _latest.loop, _latest.port = weakref.ref(loop), weakref.ref(port)
    return port


def _pop_closed(of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any]) -> list[Any]:
    """Forget loops that were closed while something waited in them, which would keep them alive for ever.

    Returns what was kept for them. Let go of it without the lock: the program's code may run when it ends.
    """
    return [of_loops.pop(known) for known in list(of_loops) if known.is_closed()]


def current_destination() -> AsyncioDestination:
    """Return the running loop, for callbacks."""
    return AsyncioDestination(asyncio.get_running_loop())


def current_name() -> str:
    """Return the running loop's library and the name of the task that runs, as ``"asyncio: Task-1"``."""
    task = asyncio.current_task()
    library = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return f"{library}: {'a callback' if task is None else task.get_name()}"


class AsyncioWaiter:
    """A future of asyncio's, which one task awaits.

    The error stands beside it: asyncio's futures refuse `StopIteration`, which a coroutine turns into `RuntimeError`.
    """

    __slots__ = ("_error", "_future")

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_done(self) -> bool:
        """Whether it has a value or an error, or the task that waited was cancelled."""
        return self._future.done()

    def set_value(self, value: Any) -> None:
        """Wake the task with a value."""
        self._future.set_result(value)

    def set_error(self, error: BaseException) -> None:
        """Wake the task with an error."""
        self._error = error
        self._future.set_result(None)

    async def wait(self) -> Any:
        """Wait for either."""
        value = await self._future
        if self._error is None:
            return value
        try:
            raise self._error
        finally:
            self._error = None  # its traceback holds this frame


class AsyncioTasks:
    """One loop's; it holds no reference to the loop, which runs whenever it is asked."""

    def __init__(self) -> None:
        self.kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.cancelled: type[BaseException] = asyncio.CancelledError
        self._running: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        """Return the time of the loop's clock."""
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Have a call made at a time."""
        return asyncio.get_running_loop().call_at(when, call)

    def spawn(
        self,
        function: Callable[[], Awaitable[object]],
        name: str,
        context: contextvars.Context,
        ended: Callable[[], object],
    ) -> asyncio.Task[object]:
        """Run a function as a task; the loop itself would hold it weakly."""

        async def run() -> object:
            return await function()

        task = asyncio.get_running_loop().create_task(run(), name=name, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: ended())
        return task

    def make_waiter(self) -> AsyncioWaiter:
        """Make something to wait for."""
        return AsyncioWaiter()


_tasks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioTasks] = weakref.WeakKeyDictionary()


def current_tasks() -> AsyncioTasks:
    """Return the running loop's tasks."""
    loop = asyncio.get_running_loop()
    with _lock:
        found = _tasks.get(loop)
        if found is None:
            _gone = _pop_closed(_tasks)
            found = _tasks[loop] = AsyncioTasks()
        return found
