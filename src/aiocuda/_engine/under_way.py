"""The work that is being done in the background, in words, for those who show it.

Always true: who shows it is not held. The last thing that he is told is how it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["UNDER_WAY", "UnderWay"]


class UnderWay:
    """Pieces of work by their names, and methods that are told when they change."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # whoever is told may have more done
        self._names: list[str] = []
        self._told: list[weakref.WeakMethod[Callable[[tuple[str, ...]], object]]] = []

    def tell(self, method: Callable[[tuple[str, ...]], object]) -> None:
        """Call a method with all that is being done, now and at each change, by whichever thread changes it.

        That ends with the method's object: it is not held.
        """
        with self._lock:
            self._forget_gone()
            self._told.append(weakref.WeakMethod(method))
            method(tuple(self._names))

    @contextlib.contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Have it known, for the time of a block, that something is being done."""
        self._change(lambda: self._names.append(name))
        try:
            yield
        finally:
            self._change(lambda: self._names.remove(name))

    def _change(self, change: Callable[[], object]) -> None:
        with self._lock:  # so that the last thing told is how it is
            change()
            self._forget_gone()
            for each in tuple(self._told):
                method = each()
                if method is not None:
                    method(tuple(self._names))

    def _forget_gone(self) -> None:
        self._told = [each for each in self._told if each() is not None]

    def start_anew(self) -> None:
        """In a forked process: nothing of it is being done here."""
        self._lock = threading.RLock()
        self._names.clear()


UNDER_WAY: Final = UnderWay()
os.register_at_fork(after_in_child=UNDER_WAY.start_anew)
