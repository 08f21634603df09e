"""Work that blocks, on a thread of its own, for those who await it.

Always true: what is asked for again while it is being done is done once, for all who wait; a cancelled wait leaves it
to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import TracebackType

from aiocuda import _loops, _native
from aiocuda.errors import AiocudaError

__all__ = ["Background"]


class _Work:
    """One piece of work, and who waits for it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.traceback: TracebackType | None = None
        self.waiting: list[tuple[_native.Port, _loops.Waiter]] = []


class Background:
    """Pieces of work by their keys, each done by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: dict[Hashable, _Work] = {}

    async def run(self, key: Hashable, is_done: Callable[[], bool], function: Callable[[], object], asked: str) -> None:
        """Have a function called on another thread, unless that of the same key is being called; wait for its end.

        Parameters
        ----------
        key
            Of the work.
        is_done
            Whether there is nothing to do: then no thread is asked, and the loop has a turn if others wait for one.
        function
            It may block; what it raises is raised here, for all who wait.
        asked
            What is being done, for messages.

        Raises
        ------
        AiocudaError
            The thread cannot be started.
        """
        port = _loops.current_port()
        if is_done():
            if not port.admits(None):
                await port.turn()
            return
        waiter = port.waiter()
        with self._lock:
            work = self._works.get(key)
            if work is None:
                work = self._works[key] = _Work()
                self._start(key, work, function, asked)
            work.waiting.append((port.native, waiter))
        await port.wait(waiter)
        if work.error is not None:
            raise work.error.with_traceback(work.traceback)

    def _start(self, key: Hashable, work: _Work, function: Callable[[], object], asked: str) -> None:
        # No daemon: what it calls must not be cut off in the middle when the process ends.
        thread = threading.Thread(target=self._do, args=(key, work, function), name=f"aiocuda: {asked}")
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            del self._works[key]
            raise AiocudaError(f"{asked}: no thread can be started for it: {error}") from error

    def _do(self, key: Hashable, work: _Work, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - it is raised where the work is awaited
            work.error, work.traceback = error, error.__traceback__
        with self._lock:
            del self._works[key]  # who comes later begins anew
        for port, waiter in work.waiting:
            port.put(waiter)
