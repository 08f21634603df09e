"""Futures of `concurrent.futures` that end as futures of devices do, for what knows no others.

Always true: cancelling either of the two cancels the other; who waits for one is told by the library's thread, so a
thread may block for it that an event loop runs in.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from aiocuda._engine.futures import DeviceFuture

__all__ = ["ConcurrentFuture"]

T = TypeVar("T")


class ConcurrentFuture(concurrent.futures.Future[T], Generic[T]):
    """The other face of a `DeviceFuture`.

    Parameters
    ----------
    future
        What tells it, by `told`, when it is settled.
    """

    def __init__(self, future: DeviceFuture[T]) -> None:
        super().__init__()
        self._device_future = future

    def cancel(self) -> bool:
        """Cancel the device's future too; False: its result, or an error, was there already."""
        return self._device_future.cancel() and super().cancel()

    def told(self, future: DeviceFuture[T]) -> None:
        """End as the device's future has ended. Called once."""
        if future.cancelled():
            super().cancel()
        if self.set_running_or_notify_cancel():
            error = future.exception()
            if error is None:
                self.set_result(future.result())
            elif isinstance(error, StopIteration):  # which asyncio.wrap_future() refuses, and then never ends
                refused = RuntimeError("the operation raised StopIteration")
                refused.__cause__ = error
                self.set_exception(refused)
            else:
                self.set_exception(error)
