"""Numbers that devices are told: counts, and sizes in bytes."""

from __future__ import annotations

from typing import Any

from aiocuda.errors import ArgumentValueError

__all__ = ["whole_number"]


def whole_number(number: Any, name: str, least: int = 0) -> int:
    """Return what was given for a count or a size.

    Raises
    ------
    ArgumentValueError
        It is no whole number, or less than the least.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentValueError(f"{name} is a whole number, {least} or more; {number!r} was given")
    return number
