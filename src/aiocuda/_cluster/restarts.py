"""Restarts, each of which gives a worker a fresh process.

Always true: those of one worker come one after the other, and each ends the process that it finds. A fresh process that
nobody waits for any more is lost, so the next restart ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from aiocuda._cluster.crossing import in_thread
from aiocuda._cluster.process import WorkerProcess
from aiocuda._cluster.worker import Worker

__all__ = ["restart"]


async def restart(worker: Worker, start: Callable[[int], WorkerProcess]) -> None:
    """Give a worker a fresh process, which `start` makes, and wait until that has begun.

    Raises
    ------
    WorkerLostError
        It did not begin.
    """
    worker._process.lose("it was restarted")
    under_way = _Restart(worker, start)
    try:
        await in_thread(under_way.renew)
        await under_way.begin()
    except BaseException:
        under_way.give_up()
        raise


class _Restart:
    """One of them. The thread that renews the process goes on if the restart is cancelled."""

    def __init__(self, worker: Worker, start: Callable[[int], WorkerProcess]) -> None:
        self._worker, self._start = worker, start
        self._fresh: WorkerProcess | None = None
        self._given_up = threading.Event()

    def renew(self) -> None:
        """End the process of the worker, and start another one. *Blocks*."""
        worker = self._worker
        with worker._renewing:
            if self._given_up.is_set():
                return
            worker._process.lose("it was restarted")
            worker._process.end()
            self._fresh = worker._process = self._start(worker.number)
        if self._given_up.is_set():
            self.give_up()

    async def begin(self) -> None:
        """Wait until the fresh process has begun."""
        assert self._fresh is not None
        await self._fresh.begin()

    def give_up(self) -> None:
        """Lose the fresh process, if it is there, or else as soon as it is."""
        self._given_up.set()
        if self._fresh is not None:
            self._fresh.lose("its restart was cancelled")
