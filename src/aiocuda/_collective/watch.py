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
    """A collective that was submitted, or a launch of a graph that has some.

    Attributes
    ----------
    words
        What it is.
    doubt
        About what it writes. It has ended if nothing was submitted after all.
    events
        Those of the device on whose stream it is.
    event
        One of them, behind it; None until it is there.
    """

    words: str
    doubt: _native.Doubt
    events: _native.StreamEvents
    event: int | None = None

    def note_submitted(self, stream: int) -> None:
        """Note that it is what a stream holds at its end, by the handle."""
        self.event = self.events.record(stream)

    def put_back(self) -> None:
        """Have its event used for others."""
        if self.event is not None:
            self.events.put_back(self.event)

    def has_ended(self) -> bool:
        """Whether the device has passed it, or nothing was submitted."""
        if self.event is None:
            return not self.doubt.is_open
        return bool(self.events.has_passed(self.event))  # None: the device is lost


class Watch:
    """Looks after what is under way, from `begin` on.

    Parameters
    ----------
    failed
        Called once, on the thread, with what is wrong.
    looked
        Called on the thread at each look; returns in words what is wrong, or None.
    """

    def __init__(
        self,
        communicators: Communicators,
        failed: Callable[[str], object],
        looked: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._communicators = communicators
        self._failed = failed
        self._looked = looked
        self._has_ended = threading.Event()
        self._changed = threading.Condition()
        self._flights: deque[Flight] = deque()
        self._is_closed = False

    def begin(self) -> None:
        """Start the thread. From now on the watch must be closed."""
        threading.Thread(target=self._look, name="aiocuda-collective", daemon=True).start()

    def add(self, flight: Flight) -> bool:
        """Look after a call that is about to be submitted. False: the group has ended, and nobody looks any more."""
        with self._changed:
            if not self._is_closed:
                self._flights.append(flight)
                if len(self._flights) == 1:
                    self._changed.notify_all()
            return not self._is_closed

    def wait_until_idle(self, timeout_s: float, *, and_close: bool = False) -> bool:
        """Wait until nothing is under way, or the group has failed; return whether that was so in time.

        `and_close`: if so, nothing is added from then on.
        """
        with self._changed:
            is_in_time = self._changed.wait_for(lambda: not self._flights or self._is_closed, timeout_s)
            if is_in_time and and_close:
                self._close()
        return is_in_time

    def settle(self) -> None:
        """Take what has passed for well."""
        with self._changed:
            while self._flights and (first := self._flights[0]).has_ended():
                self._flights.popleft()
                first.put_back()
                first.doubt.end()
            self._changed.notify_all()

    def fail(self, error_of: Callable[[str], BaseException]) -> None:
        """Take what has not passed for failed, and look no more. `error_of`: the error of what is in these words."""
        self.settle()
        with self._changed:
            lost, self._flights = list(self._flights), deque()
            self._close()
        for each in lost:
            each.doubt.fail(error_of(each.words))
            each.put_back()

    def close(self) -> None:
        """Add nothing more, and look no more."""
        with self._changed:
            self._close()

    def first(self) -> Flight | None:
        """Return the first that is under way."""
        self.settle()
        with self._changed:
            return self._flights[0] if self._flights else None

    def _close(self) -> None:
        self._is_closed = True
        self._has_ended.set()
        self._changed.notify_all()

    def _look(self) -> None:
        while True:
            with self._changed:
                while not self._flights and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
            if wrong := self._what_is_wrong():
                self._failed(wrong)
                return
            self._has_ended.wait(_BETWEEN_LOOKS_S)  # who adds a call does not wake it

    def _what_is_wrong(self) -> str | None:
        """Take what has passed for well, and return in words why the rest never will; None: it may."""
        try:
            if state := self._communicators.state():
                return f"NCCL: {state}"
            self.settle()
            return self._looked()
        except Exception as error:  # noqa: BLE001 - nobody would look any more, and who waits would wait for ever
            return f"what is under way cannot be looked after any more ({type(error).__name__}: {error})"
