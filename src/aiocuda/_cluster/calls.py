"""The calls that one worker has under way, and its end.

Always true: each call ends once: with what Ray brings, or with the worker. A worker that is lost takes no more calls.
What ends with the cluster says so: no restart would help.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from typing import Any

from aiocuda.errors import ClusterError, WorkerLostError

__all__ = ["Calls"]


class Calls:
    """Those of one process of a worker, which has that number."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self._lock = threading.Lock()
        self._pending: dict[concurrent.futures.Future[Any], tuple[str, float]] = {}
        self._lost = ""
        self._has_cluster_ended = False
        self._is_lost = threading.Event()

    @property
    def lost(self) -> str:
        """Why the process is lost; empty where it is not."""
        return self._lost

    def error(self, doing: str) -> ClusterError | WorkerLostError:
        """Return why something does not end, where the process is lost."""
        if self._has_cluster_ended:
            return ClusterError(
                f"{doing} did not end on worker {self.worker}: the cluster has ended, with the block of `start`; start "
                "a new one"
            )
        return WorkerLostError(self.worker, doing, self._lost)

    def add(self, doing: str) -> concurrent.futures.Future[Any]:
        """Begin a call; return the future of its end.

        Raises
        ------
        WorkerLostError
            The process is lost.
        ClusterError
            The cluster has ended.
        """
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            if self._lost:
                raise self.error(doing)
            self._pending[future] = doing, time.monotonic()
        return future

    def settle(self, future: concurrent.futures.Future[Any], value: Any, error: BaseException | None) -> bool:
        """End a call; return False if it had ended."""
        with self._lock:
            if self._pending.pop(future, None) is None:
                return False
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
        return True

    def forget(self, future: concurrent.futures.Future[Any]) -> None:
        """Wait no longer for a call."""
        with self._lock:
            self._pending.pop(future, None)

    def lose(self, reason: str) -> bool:
        """End all calls with an error, and take no more; return False if that was done before."""
        with self._lock:
            if self._lost:
                return False
            self._lost = reason
            pending, self._pending = self._pending, {}
        self._is_lost.set()
        for future, (doing, _) in pending.items():
            future.set_exception(self.error(doing))
        return True

    def end(self) -> bool:
        """Do as `lose`, because the cluster ends."""
        self._has_cluster_ended = True
        return self.lose("the cluster has ended")

    def wait_until_lost(self, timeout_s: float) -> bool:
        """Wait until the process is lost, so long at most; return whether it is."""
        return self._is_lost.wait(timeout_s)

    def in_words(self) -> str:
        """Return what is under way, and for how long."""
        now = time.monotonic()
        with self._lock:
            return ", ".join(f"{doing} (for {now - began:.1f} s)" for doing, began in self._pending.values())
