"""Whether the batched functions of an event loop take items.

Always true: it is used in the thread of its loop alone. While it takes none, whoever drains the loop hears of each
batch that becomes idle. A batch that is under way is let in until it ends: what was accepted may need it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from aiocuda._loops import Tasks
from aiocuda.errors import StoppingError

__all__ = ["Accepted", "Taking", "accepted", "taking_of"]


class Accepted:
    """Work that was accepted before an end began.

    Attributes
    ----------
    is_over
        Whether it has ended.
    """

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


# The work that a task does, or was started by: a batch's, as a rule.
accepted: Final[ContextVar[Accepted | None]] = ContextVar("aiocuda_accepted", default=None)


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
        if not self.is_stopped:
            return
        work = accepted.get()
        if not self.is_draining or work is None or work.is_over:
            raise StoppingError(function)


def taking_of(tasks: Tasks) -> Taking:
    """Return that of a loop; made the first time."""
    found: Taking | None = tasks.kept.get(Taking)
    if found is None:
        found = tasks.kept[Taking] = Taking()
    return found
