"""A thread of a group's own, which looks whether what was submitted has gone well.

Always true: it looks while something is under way, and sleeps otherwise. Work that passed without an error is well.
Work that is under way when the group fails has failed, and none begins from then on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiocuda import _native
from aiocuda._driver.nccl import Communicators

__all__ = ["Flight", "Watch"]

_BETWEEN_LOOKS_S: Final = 0.005


@dataclass(slots=True, eq=False)
class Flight:
    """A collective that was submitted.

    Attributes
    ----------
    words
        What it is.
    doubt
        About what it writes.
    event
        Behind it in the group's first stream; None until it is there.
    """

    words: str
    doubt: _native.Doubt
    event: int | None = None


class Watch:
    """Looks after what is under way.

    Parameters
    ----------
    failed
        Called once, on the thread, with what NCCL says is wrong.
    looked
        Called on the thread at each look; None: nothing is.
    """

    def __init__(
        self,
        communicators: Communicators,
        events: _native.StreamEvents,
        failed: Callable[[str], object],
        looked: Callable[[], object] | None = None,
    ) -> None:
        self._communicators = communicators
        self._events = events
        self._failed = failed
        self._looked = looked
        self._has_ended = threading.Event()
        self._changed = threading.Condition()
        self._flights: deque[Flight] = deque()
        self._is_closed = False
        threading.Thread(target=self._look, name="aiocuda-collective", daemon=True).start()

    def add(self, flight: Flight) -> bool:
        """Look after a call that is about to be submitted. False: the group has ended, and nobody looks any more."""
        with self._changed:
            if not self._is_closed:
                self._flights.append(flight)
                if len(self._flights) == 1:
                    self._changed.notify_all()
            return not self._is_closed

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is under way, or the group has failed; return whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._flights or self._is_closed, timeout_s)

    def settle(self) -> None:
        """Take what has passed for well."""
        with self._changed:
            while self._flights and (first := self._flights[0]).event is not None:
                if not self._events.has_passed(first.event):
                    return
                self._flights.popleft()
                self._events.put_back(first.event)
                first.doubt.end()
            self._changed.notify_all()

    def fail(self, error_of: Callable[[str], BaseException]) -> None:
        """Take what has not passed for failed, and look no more. `error_of`: the error of what is in these words."""
        self.settle()
        with self._changed:
            lost, self._flights = list(self._flights), deque()
            self._is_closed = True
            self._changed.notify_all()
        self._has_ended.set()
        for each in lost:
            each.doubt.fail(error_of(each.words))

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._has_ended.set()

    def first(self) -> Flight | None:
        """Return the first that is under way."""
        with self._changed:
            return self._flights[0] if self._flights else None

    def _look(self) -> None:
        while True:
            with self._changed:
                while not self._flights and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
            if state := self._communicators.state():
                self._failed(state)
                return
            self.settle()
            if self._looked is not None:
                self._looked()
            self._has_ended.wait(_BETWEEN_LOOKS_S)  # who adds a call does not wake it
