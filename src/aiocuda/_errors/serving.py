"""Errors of services: an item that is refused, or that fails alone; work that is not done when a service ends."""

from __future__ import annotations

from aiocuda._errors.asked import AiocudaError

__all__ = ["DeadlineError", "DrainTimeoutError", "ItemError", "QueueFullError", "StoppingError"]


class ItemError(AiocudaError):
    """One item of a batch failed, and the others did not. The function of a batch raises or returns it.

    Parameters
    ----------
    index
        The item's place in the batch, from 0.
    reason
        The exception that the item's caller gets. For a text he gets this error; also for what is not an `Exception`,
        such as a cancellation.

    Attributes
    ----------
    index, reason
        As given.
    """

    def __init__(self, index: int, reason: BaseException | str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason

    def __str__(self) -> str:
        return f"item {self.index} of the batch failed: {self.reason}"


class QueueFullError(AiocudaError):
    """A batched function has as many items waiting as it may have.

    Parameters
    ----------
    function
        Its name.
    waiting
        How many items wait.

    Attributes
    ----------
    function, waiting
        As given.
    """

    def __init__(self, function: str, waiting: int) -> None:
        super().__init__(function, waiting)
        self.function = function
        self.waiting = waiting

    def __str__(self) -> str:
        return (
            f"{self.function}: {self.waiting} items wait already, and overflow='raise' refuses more (max_waiting); try "
            "again later, or let callers wait with overflow='wait'"
        )


class StoppingError(AiocudaError):
    """A batched function takes no more items, because its service is ending, or has ended (`aiocuda.lifespan`).

    Parameters
    ----------
    function
        Its name.

    Attributes
    ----------
    function
        As given.
    """

    def __init__(self, function: str) -> None:
        super().__init__(function)
        self.function = function

    def __str__(self) -> str:
        return (
            f"{self.function} takes no more items: the lifespan of its service has come to its end; send the request "
            "to another process, and have the server end its requests before the block of lifespan() ends"
        )


class DrainTimeoutError(AiocudaError, TimeoutError):
    """A service ended, and work that it had accepted was not done within the time for that.

    Parameters
    ----------
    drain_s
        The time that was given, in seconds.
    left
        What was left, in words: functions with their items, and what was running on devices.

    Attributes
    ----------
    drain_s, left
        As given.
    """

    def __init__(self, drain_s: float, left: tuple[str, ...]) -> None:
        Exception.__init__(self, drain_s, left)  # not OSError's, which takes the second for a text
        self.drain_s = drain_s
        self.left = tuple(left)

    def __str__(self) -> str:
        return (
            f"the service ended before all accepted work was done; after {self.drain_s:g} s this was left: "
            f"{'; '.join(self.left)}. Give lifespan() a longer drain_s, or items less time"
        )


class DeadlineError(AiocudaError, TimeoutError):
    """An item of a batched function could not be, or was not, done within the time that its caller gave it.

    Parameters
    ----------
    function
        The function's name.
    within_s
        The time that was given, in seconds.
    expected_s
        How long it would have taken, as far as that is known, where the item was refused at once; else None.

    Attributes
    ----------
    function, within_s, expected_s
        As given.
    """

    def __init__(self, function: str, within_s: float, expected_s: float | None = None) -> None:
        Exception.__init__(self, function, within_s, expected_s)  # not OSError's, which takes the second for a text
        self.function = function
        self.within_s = within_s
        self.expected_s = expected_s

    def __str__(self) -> str:
        if self.expected_s is None:
            return f"{self.function}: the item was not done within {self.within_s:g} s"
        return (
            f"{self.function}: the item was refused: it has {self.within_s:g} s, and would take about "
            f"{self.expected_s:.3g} s behind those that wait"
        )
