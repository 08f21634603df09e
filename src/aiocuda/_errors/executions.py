"""Errors of operations that were executed and have no result, or have none yet."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable

from aiocuda._errors.asked import AiocudaError
from aiocuda._errors.drivers import DriverError
from aiocuda._errors.story import Decision, told

__all__ = [
    "CancelledError",
    "CollectiveError",
    "DeviceLostError",
    "DeviceTimeoutError",
    "OperationInterruptedError",
]

_MOST_NAMED = 4  # of operations in one message


class CancelledError(AiocudaError, concurrent.futures.CancelledError):
    """A `DeviceFuture` was cancelled before its result was there; a cancelled *task* is told by its event loop.

    Parameters
    ----------
    operation
        The future's operation, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.

    Attributes
    ----------
    operation, origin
        As given.
    """

    def __init__(self, operation: str, origin: str = "") -> None:
        super().__init__(operation, origin)
        self.operation = operation
        self.origin = origin

    def __str__(self) -> str:
        built = f" (built at {self.origin})" if self.origin else ""
        return (
            f"the future of {self.operation}{built} was cancelled before the result was there; "
            "the operation itself can still be executed, or awaited"
        )


class CollectiveError(AiocudaError):
    """A group of ranks has failed: they did not call the same, one of them is gone, or somebody aborted the group.

    All collectives of the group that had not ended fail with it, and so does what was made of their results.

    Parameters
    ----------
    reason
        What happened.
    waiting
        The collective that was waiting for other ranks then, and for which; empty if there was none.

    Attributes
    ----------
    reason, waiting
        As given.
    """

    def __init__(self, reason: str, waiting: str = "") -> None:
        super().__init__(reason, waiting)
        self.reason = reason
        self.waiting = waiting

    def __str__(self) -> str:
        waited = f" ({self.waiting})" if self.waiting else ""
        return f"{self.reason}{waited}; make a new group"


class OperationInterruptedError(AiocudaError):
    """A function that an operation called was interrupted, so that the operation has no result.

    The interruption itself (`KeyboardInterrupt`, `SystemExit`, a task's cancellation) goes to whoever ran the function;
    this is what all others are told who wait for the operation, then or later.

    Parameters
    ----------
    operation
        The operation, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    interruption
        The name of the interruption's class. The interruption is the exception's ``__cause__``.

    Attributes
    ----------
    operation, origin, interruption
        As given.
    """

    def __init__(self, operation: str, origin: str, interruption: str) -> None:
        super().__init__(operation, origin, interruption)
        self.operation = operation
        self.origin = origin
        self.interruption = interruption

    def __str__(self) -> str:
        return (
            f"{_with_origin(self.operation, self.origin)} was interrupted: {self.interruption} came out of a function "
            "that was called for it, and went on to whoever ran that function. An operation runs once: build it again"
        )


class DeviceTimeoutError(AiocudaError, TimeoutError):
    """An operation was not complete within the time given to it; what was submitted of it goes on.

    Parameters
    ----------
    operation
        What was waited for, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    waited_s
        How long the wait lasted, in seconds.
    running
        What of it had been submitted and had not passed, with where it was built and its stream, in words.
    in_flight
        Submissions, on all streams, that were not known to have passed.

    Attributes
    ----------
    operation, origin, waited_s, running, in_flight
        As given.
    """

    def __init__(self, operation: str, origin: str, waited_s: float, running: tuple[str, ...], in_flight: int) -> None:
        # Not OSError's __init__, which takes the second of several arguments for the text of an errno.
        Exception.__init__(self, operation, origin, waited_s, running, in_flight)
        self.operation = operation
        self.origin = origin
        self.waited_s = waited_s
        self.running = tuple(running)
        self.in_flight = in_flight
        self._decisions: Iterable[Decision] = ()

    def story(self) -> str:
        """Return the last decisions of the engine before this error, one a line, the earliest first.

        They are what was submitted, what waited for which stream, what was complete, and what failed.

        Returns
        -------
        str
            Several lines, or none if nothing is known of them.
        """
        return told(self._decisions)

    def __str__(self) -> str:
        built = f" (built at {self.origin})" if self.origin else ""
        still = (
            "nothing of it was on a device: it waits for room in a stream, for memory under a limit, for a kernel that "
            "is being compiled, for a device that is being opened, for a graph that is being made, or for a function "
            "of map()"
        )
        if self.running:
            still = f"still running: {', '.join(self.running[:_MOST_NAMED])}"
        if len(self.running) > _MOST_NAMED:
            still += f" and {len(self.running) - _MOST_NAMED} more"
        return (
            f"{self.operation}{built} was not complete after {self.waited_s:.3g} s; {still}; submissions in flight on "
            f"all streams: {self.in_flight}; what was submitted goes on, and it can be awaited again"
        )


class DeviceLostError(AiocudaError):
    """A fault ended everything pending on a device's context; the context takes no more work.

    Parameters
    ----------
    operation
        The operation that failed, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    error
        What the driver answered.
    device
        The device, in words, such as ``"device 0"``.
    first_operation, first_origin
        Which operation was the first to fail, and where that was built, where it was another one; else empty. CUDA does
        not say which operation causes a fault: it is this one, or one that was on the device together with it.
    is_earlier
        Whether the device was lost before this operation came to it.
    blocks
        How ``threads=`` became a grid of blocks, in words: of a launch, its own; of another operation, those of the
        launches that it waited for, with the lines that built them; empty where there are none.

    Attributes
    ----------
    operation, origin, error, device, first_operation, first_origin, is_earlier, blocks
        As given. `error` is also the exception's ``__cause__``.
    """

    def __init__(
        self,
        operation: str,
        origin: str,
        error: DriverError,
        device: str = "",
        first_operation: str = "",
        first_origin: str = "",
        is_earlier: bool = False,
        blocks: str = "",
    ) -> None:
        super().__init__(operation, origin, error, device, first_operation, first_origin, is_earlier, blocks)
        self.operation = operation
        self.origin = origin
        self.error = error
        self.device = device
        self.first_operation = first_operation
        self.first_origin = first_origin
        self.is_earlier = is_earlier
        self.blocks = blocks
        self._decisions: Iterable[Decision] = ()
        self.__cause__ = error

    def story(self) -> str:
        """Return the last decisions of the engine before this error, one a line, the earliest first.

        They are what was submitted, what waited for which stream, what was complete, and what failed.

        Returns
        -------
        str
            Several lines, or none if nothing is known of them.
        """
        return told(self._decisions)

    def __str__(self) -> str:
        asked = _with_origin(self.operation, self.origin)
        first = _with_origin(self.first_operation, self.first_origin)
        device = self.device or "the device"
        if self.is_earlier:
            return (
                f"{asked} did not complete: {device} was lost earlier, when {first} failed with {self.error}. "
                "A lost device takes no more work from this process: start a new one"
            )
        message = f"{asked} did not complete: {device} was lost: {self.error}"
        if first:
            message += f"; {first} was the first to fail"
        if self.blocks:
            message += f"; {self.blocks}"
        return message


def _with_origin(operation: str, origin: str) -> str:
    return f"{operation} (built at {origin})" if origin else operation
