"""Whether the other end of a connection still lives: it says something in each of a few equal spans of time.

Always true: only time at which this process runs counts. If it was stopped, it has not looked, so nobody is silent for
that. What the other end said meanwhile is read before the last look.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["BEAT", "Silence", "between_looks_s"]

BEAT: Final = ["beat"]  # said at each look, so that the other end hears something

_LOOKS: Final = 4


def between_looks_s(answers_within_s: float) -> float:
    """Return the time between two looks, where the other end is to say something within a time."""
    return min(answers_within_s / _LOOKS, threading.TIMEOUT_MAX)


class Silence:
    """Looks in a row before which nothing was heard."""

    def __init__(self) -> None:
        self._has_heard = True
        self._looks = 0

    def hear(self) -> None:
        """Note that the other end has said something."""
        self._has_heard = True

    def look(self) -> bool:
        """Return whether the other end has been silent for too long."""
        self._looks = 0 if self._has_heard else self._looks + 1
        self._has_heard = False
        return self._looks >= _LOOKS
