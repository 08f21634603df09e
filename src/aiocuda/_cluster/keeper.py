"""The thread that starts Ray, and ends it.

Always true: the system ends Ray's processes when the thread that started them ends, so it is kept for that. Nobody has
to wait for it: what it has begun, and nobody wants any more, it ends by itself.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiocuda._cluster import ray
from aiocuda._cluster.crossing import settle

__all__ = ["Keeper"]

T = TypeVar("T")

_starts: Final = threading.Lock()  # Ray is started once for a process, and by one thread at a time


class Keeper:
    """One such thread. It keeps no process alive: Ray may not answer it."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], concurrent.futures.Future[Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._latest: concurrent.futures.Future[Any] | None = None
        self._is_given_up = False
        self._has_started = False
        threading.Thread(target=self._work, name="aiocuda-ray", daemon=True).start()

    def start(self, gpus: int | None, options: dict[str, Any]) -> concurrent.futures.Future[None]:
        """Have Ray started, as `ray.start` does."""
        return self.submit(lambda: self._start(gpus, options))

    def submit(self, call: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Have a call made in the thread, after those before it."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._latest = future
        self._jobs.put((call, future))
        return future

    def close(self) -> None:
        """End Ray, if this has started it, and the thread. *Blocks*: only if the thread has nothing else to do."""
        is_idle = self._latest is None or self._latest.done()
        self._is_given_up = True
        stopped = self.submit(self._stop)
        self._jobs.put(None)
        if is_idle:
            stopped.result()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            settle(*job)
            del job

    def _start(self, gpus: int | None, options: dict[str, Any]) -> None:
        with _starts:
            self._has_started = ray.start(gpus, options, lambda: self._is_given_up)
            if self._is_given_up:  # before anybody else uses it
                self._stop()

    def _stop(self) -> None:
        if self._has_started:
            self._has_started = False
            ray.stop()
