"""The objects that stay in a process for others.

Always true: an object has a number, which no other one gets, and is there until it is deleted. One that was deleted
before it came, because its maker was given up, is not kept.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from aiocuda.errors import ClusterError

__all__ = ["Held"]


# An object that was given up comes within moments, or not at all.
_MOST_UNWANTED: Final = 4096


class Held:
    """Those of one process; `where` is its name in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._objects: dict[int, Any] = {}
        self._unwanted: deque[int] = deque(maxlen=_MOST_UNWANTED)

    def keep(self, number: int, value: Any) -> None:
        """Keep an object, unless it was deleted before."""
        if number not in self._unwanted:
            self._objects[number] = value

    def get(self, number: int, why: str) -> Any:
        """Return the object of a number. `why`: what it is needed for, for the error.

        Raises
        ------
        ClusterError
            It was deleted.
        """
        try:
            return self._objects[number]
        except KeyError:
            raise ClusterError(
                f"{self._where} has no object {number}, which is needed for {why}: it was deleted when nobody had its "
                "Remote any more. Make it again with create(), and keep the Remote as long as it is used"
            ) from None

    def delete(self, number: int) -> None:
        """Let go of an object, which is there or may come."""
        if number in self._objects:
            del self._objects[number]
        else:
            self._unwanted.append(number)
