"""A thread that asks all workers for signs of life.

Always true: a worker that ends, or does not answer in time, is lost, whatever the driver's event loops do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from aiocuda._cluster.process import WorkerProcess

__all__ = ["Watch"]

_BETWEEN_LOOKS_S: Final = 0.25


class Watch:
    """Looks after the processes that `processes` gives, until it is closed."""

    def __init__(self, processes: Callable[[], Iterable[WorkerProcess]], answers_within_s: float) -> None:
        self._processes = processes
        self._answers_within_s = answers_within_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="aiocuda-cluster", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(_BETWEEN_LOOKS_S):
            for each in self._processes():
                try:
                    each.look(self._answers_within_s)
                except Exception as error:  # noqa: BLE001 - of Ray's, which has no place for it in the calls
                    each.lose(f"Ray does not ask it: {type(error).__name__}: {error}")

    def close(self) -> None:
        """End. Blocks for one look at most."""
        self._is_over.set()
        self._thread.join()
