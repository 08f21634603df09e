"""What the engine needs of an event loop, and of what stands in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from aiocuda import _native

__all__ = ["Destination", "LoopPort", "Token", "Waiter"]


class Token(Protocol):
    """What is handed to a native port; it comes out when it is due, perhaps more than once."""

    def wake(self, error: int) -> None:
        """Take note of it, with 0 or the driver's error. Called where the port is; raises nothing.

        With `_native.PAUSE` instead, whoever waits goes on when all else has run that the loop knows of by now.
        """


class Waiter(Token, Protocol):
    """The token of one wait."""


class LoopPort(Protocol):
    """Where completions reach a loop: a native port, and waiters that it wakes."""

    native: _native.Port

    def waiter(self) -> Waiter:
        """Return a new waiter: the token to hand to the native port."""

    def wake_due(self) -> None:
        """Wake all whose tokens are due, in the order in which they became so; the loop does it by itself, soon."""

    def time(self) -> float:
        """Return the time, in seconds, on the clock of `wait`."""

    async def wait(self, waiter: Any, until: float | None = None) -> int | None:
        """Wait until the waiter's token has come out; return what it came with; None: `until` came first.

        Cancelling this, or its end at `until`, leaves the token to be ignored when it comes, and so is a token that
        comes twice.
        """


class Destination(Protocol):
    """Where callbacks are called: a loop, or the library's thread. Two of one loop are equal."""

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made there, once and soon, never from within; by the thread where the loop has closed.

        Any thread may ask for it. Calls are made in the order in which they were posted, and what one of them
        raises is reported and disturbs no other.
        """

    def __hash__(self) -> int: ...
