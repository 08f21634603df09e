"""The things that a service needs of an event loop beside completions: tasks, times and waiters."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

__all__ = ["Cancellable", "Tasks", "Waiter"]


class Cancellable(Protocol):
    """Something that can be told to end."""

    def cancel(self) -> object: ...


class Waiter(Protocol):
    """One task waits for it, in the loop that it is of; it gets a value or an error, once."""

    @property
    def is_done(self) -> bool: ...
    def set_value(self, value: Any) -> None: ...
    def set_error(self, error: BaseException) -> None: ...
    async def wait(self) -> Any: ...


class Tasks(Protocol):
    """One loop's. All is asked for in the thread of the loop, while it runs.

    Attributes
    ----------
    kept
        What somebody keeps for this loop, by who keeps it. It ends with either of them.
    cancelled
        The exception in a task that is cancelled.
    """

    kept: weakref.WeakKeyDictionary[Any, Any]
    cancelled: type[BaseException]

    def time(self) -> float:
        """Return the time of the loop's clock, in seconds."""

    def call_at(self, when: float, call: Callable[[], object]) -> Cancellable:
        """Have a call made at a time, unless it is cancelled."""

    def spawn(
        self,
        function: Callable[[], Awaitable[object]],
        name: str,
        context: contextvars.Context,
        ended: Callable[[], object],
    ) -> Cancellable:
        """Have an async function run as a task of its own, in a context. The loop holds the task.

        `ended` is called when the task has ended, also where it was cancelled before it began.
        """

    def make_waiter(self) -> Waiter:
        """Make something to wait for."""
