"""The things that the engine needs of an event loop, and of a stand-in for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aiocuda import _native

__all__ = ["TURN_US", "Destination", "LoopPort", "Token"]

# How long awaits may hold a loop in one turn of it. An await costs some 10 us where its spin pays, and a turn of the
# loop about as much: letting others have their turn this often costs a hundredth.
TURN_US: Final = 1000


class Token(Protocol):
    """A token for a native port; it comes out when it is due, perhaps more than once."""

    def wake(self, error: int) -> None:
        """Take note of it, with 0, the driver's error or `_native.PAUSE`. Called where the port is; raises nothing."""


class LoopPort(Protocol):
    """The port by which completions reach a loop; awaits are native, and use the port in it."""

    native: _native.Port


class Destination(Protocol):
    """The place where callbacks are called: a loop, or the library's thread. Two of one loop are equal."""

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made there, once and soon, never from within; by the thread where the loop has closed.

        Any thread may ask for it. Calls are made in the order in which they were posted, and what one of them
        raises is reported and disturbs no other.
        """

    def __hash__(self) -> int: ...
