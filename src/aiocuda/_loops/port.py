"""What the engine needs of an event loop."""

from __future__ import annotations

from typing import Protocol

from aiocuda import _native

__all__ = ["LoopPort"]


class LoopPort(Protocol):
    """Where completions reach a loop: a native port, and waiters that it wakes."""

    native: _native.Port

    def waiter(self) -> object:
        """Return a new waiter: the token to hand to the native port."""

    async def wait(self, waiter: object) -> int:
        """Wait until the waiter's token has come out; return 0, or the driver's error.

        Cancelling this leaves the token to be ignored when it comes.
        """
