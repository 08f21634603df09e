"""Work that blocks, on threads of its own, for those who wait for it.

Always true: work that is asked for again while it is being done is done once, for all who wait. If a waiter gives up,
the work goes on. The process ends when the work has ended, because a call in it must not be cut off in the middle.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Final

from aiocuda import _forks, _native
from aiocuda._engine.under_way import UNDER_WAY
from aiocuda._errors.copies import copy_for_one
from aiocuda._loops.thread import report

__all__ = ["DONE", "FOR_DEVICES", "FOR_FILES", "FOR_GRAPHS", "Background", "Work", "get_ahead"]

# How many pieces of work are done at once. A long one must not hold up all others, and a compiler takes a processor.
_MOST_THREADS: Final = max(4, min(16, (os.cpu_count() or 1) // 2))
_MOST_FOR_MEMORY: Final = 2  # the driver gives memory to one at a time
_MOST_FOR_DEVICES: Final = 8
_MOST_FOR_FILES: Final = 8


class Work(_native.HostWork):
    """One piece of work: who waits is told when it has ended, well or not."""

    def __init__(self) -> None:
        super().__init__()
        self._error: Exception | None = None
        self._traceback: TracebackType | None = None

    def do(self, function: Callable[[], object]) -> None:
        """Call a function; all who wait are told when it has ended."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 - each who waits is told of it
            self._error, self._traceback = error, error.__traceback__
        finally:  # where it was interrupted nobody else is: who needs it begins anew
            self.end()

    def require_done(self) -> None:
        """Raise what the function raised: a copy of it, since each who waits adds lines to his."""
        if self._error is None:
            return
        raise copy_for_one(self._error).with_traceback(self._traceback)


DONE: Final = _native.HostWork()  # nothing to wait for
DONE.end()


class _Threads:
    """Threads that do pieces of work, first come first served. Each ends when there is nothing left to do."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = _forks.lock()
        self._left: deque[Callable[[], object]] = deque()
        self._running = 0

    def do(self, work: Callable[[], object], name: str) -> bool:
        """Have something done; false where the operating system, or the end of the process, refuses a thread."""
        with self._lock:
            if self._running == self._most:
                self._left.append(work)
                return True
            self._running += 1
        try:
            threading.Thread(target=self._serve, args=(work,), name=f"aiocuda: {name}").start()
        except (RuntimeError, MemoryError):
            with self._lock:
                self._running -= 1
            return False
        return True

    def _serve(self, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
            except BaseException:  # noqa: BLE001 - reported; an exit ends the work, not the thread of later work
                report()
            with self._lock:
                if not self._left:
                    self._running -= 1
                    return
                work = self._left.popleft()

    def start_anew(self) -> None:
        """In a forked process: the threads are not here."""
        self._left.clear()
        self._running = 0


_threads: Final = _Threads(_MOST_THREADS)
_threads_for_memory: Final = _Threads(_MOST_FOR_MEMORY)
# Openings of devices. A compilation may wait for one, so they have threads of their own.
FOR_DEVICES: Final = _Threads(_MOST_FOR_DEVICES)
# Files that cuFile moves. A slow disk holds up no device.
FOR_FILES: Final = _Threads(_MOST_FOR_FILES)
# Graphs. Their kernels are compiled by the threads above.
FOR_GRAPHS: Final = _Threads(_MOST_THREADS)
for _each in (_threads, _threads_for_memory, FOR_DEVICES, FOR_FILES, FOR_GRAPHS):
    os.register_at_fork(after_in_child=_each.start_anew)


class Background:
    """Pieces of work by their keys, each done by one thread at a time.

    Parameters
    ----------
    threads
        That do it.
    """

    def __init__(self, threads: _Threads = _threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._works: dict[Hashable, Work] = {}

    def begin(self, key: Hashable, function: Callable[[], object], name: str) -> Work:
        """Have a function called on another thread, unless that of the same key is being called.

        Parameters
        ----------
        key
            Of the work.
        function
            It may block; what it raises is raised by `Work.require_done`, for each who waits.
        name
            What is being done, in words.

        Returns
        -------
        Work
            What to wait for. If no thread can be started, the caller has done it.
        """
        with self._lock:
            work = self._works.get(key)
            if work is not None:
                return work
            work = self._works[key] = Work()

        def call() -> None:
            try:
                with UNDER_WAY.doing(name):
                    function()
            finally:  # before any waiter is told: who asks again then begins anew
                with self._lock:
                    self._works.pop(key, None)

        def do() -> None:
            work.do(call)

        if not self._threads.do(do, name):
            do()
        return work

    def start_anew(self) -> None:
        """In a forked process: what was being done here never ends."""
        self._lock = threading.Lock()
        self._works.clear()


def get_ahead(memory: _native.AheadMemory) -> Work:
    """Have memory that the driver takes long to give got by another thread; native code calls this."""
    work = Work()

    def do() -> None:
        work.do(lambda: _get(memory))

    if not _threads_for_memory.do(do, "getting memory"):
        do()
    return work


def _get(memory: _native.AheadMemory) -> None:
    memory.get()
