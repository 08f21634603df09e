"""What the engine needs of an event loop, and of what stands in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from aiocuda import _native

__all__ = ["TURN_US", "Destination", "LoopPort", "Token", "Waiter", "wait_in_line"]

# How long awaits may hold a loop in one turn of it. An await costs some 10 us where its spin pays, and a turn of the
# loop about as much: letting others have their turn this often costs a hundredth.
TURN_US: Final = 1000


class Token(Protocol):
    """What is handed to a native port; it comes out when it is due, perhaps more than once."""

    def wake(self, error: int) -> None:
        """Take note of it, with 0, the driver's error or `_native.TURN`. Called where the port is.

        It raises nothing. With `_native.PAUSE` instead, whoever waits goes on when all else has run that the loop knows
        of by now.
        """


class Waiter(Token, Protocol):
    """The token of one wait."""


class LoopPort(Protocol):
    """Where completions reach a loop: a native port, and waiters that it wakes."""

    native: _native.Port

    def waiter(self) -> Waiter:
        """Return a new waiter: the token to hand to the native port."""

    def admits(self, op: _native.Op | None) -> bool:
        """Whether an await that begins may go on at once; else it awaits `turn` first.

        Parameters
        ----------
        op
            What is awaited; None: no operation.
        """

    async def turn(self, until: float | None = None) -> bool:
        """Let the loop do all else that it has to do, and go on when it is one's turn; False: `until` came first.

        A cancellation is heard meanwhile.
        """

    def wake_due(self) -> None:
        """Wake all whose tokens are due, in the order in which they became so; the loop does it by itself, soon."""

    def time(self) -> float:
        """Return the time, in seconds, on the clock of `wait`."""

    async def wait(self, waiter: Any, until: float | None = None) -> int | None:
        """Wait until the waiter's token has come out; return what it came with; None: `until` came first.

        Cancelling this, or its end at `until`, leaves the token to be ignored when it comes, and so is a token that
        comes twice.
        """


async def wait_in_line(port: LoopPort, until: float | None) -> bool:
    """Wait until it is one's turn in a loop's line; False: `until` came first."""
    native = port.native
    place = native.line_up()
    try:
        while not native.enter(place, waiter := port.waiter()):
            if await port.wait(waiter, until) is None:
                return False
    finally:
        native.leave_line(place)
    return True


class Destination(Protocol):
    """Where callbacks are called: a loop, or the library's thread. Two of one loop are equal."""

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made there, once and soon, never from within; by the thread where the loop has closed.

        Any thread may ask for it. Calls are made in the order in which they were posted, and what one of them
        raises is reported and disturbs no other.
        """

    def __hash__(self) -> int: ...
