"""Whether the batched functions of an event loop take items.

Always true: it is used in the thread of its loop alone. While it takes none, whoever drains the loop hears of each
batch that becomes idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiocuda._loops import Tasks
from aiocuda.errors import StoppingError

__all__ = ["Taking", "taking_of"]


class Taking:
    """One loop's.

    Attributes
    ----------
    users
        How many lifespans the loop is in.
    is_stopped
        Whether the last of them is ending, or has ended.
    is_draining
        Whether it is ending.
    when_idle
        Called when a function may have become idle; None: nobody waits for that.
    """

    def __init__(self) -> None:
        self.users = 0
        self.is_stopped = False
        self.is_draining = False
        self.when_idle: Callable[[], object] | None = None

    def require(self, function: str) -> None:
        """Raise an error for a new item of a function, where none is taken."""
        if self.is_stopped:
            raise StoppingError(function)


class _Key:
    """What a loop's `Taking` is kept by."""


_KEY: Final = _Key()


def taking_of(tasks: Tasks) -> Taking:
    """Return that of a loop; made the first time."""
    found: Taking | None = tasks.kept.get(_KEY)
    if found is None:
        found = tasks.kept[_KEY] = Taking()
    return found
