"""The objects that stay in a process for others.

Always true: an object has a number, which no other one gets, and is there until it is deleted.
"""

from __future__ import annotations

import itertools
from typing import Any

from aiocuda.errors import ClusterError

__all__ = ["Held"]


class Held:
    """Those of one process; `where` is its name in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._numbers = itertools.count(1)
        self._objects: dict[int, Any] = {}

    def keep(self, value: Any) -> int:
        """Keep an object; return its number."""
        number = next(self._numbers)
        self._objects[number] = value
        return number

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
        """Let go of an object, if it is still there."""
        self._objects.pop(number, None)
