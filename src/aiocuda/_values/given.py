"""Arguments as a caller gave them: checked, or an error that says what was given and what is accepted.

Pure: nothing here knows what the arguments are for but their name.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = [
    "between", "extents", "flag", "mapping", "one_of", "path", "sequence", "shown", "text", "whole", "whole_numbers",
]  # fmt: skip


def shown(value: object) -> str:
    """Return a value as messages show it: what it is called in Python, cut where that is long."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - a class of the caller's whose repr() fails is still to be named
        return f"a {type(value).__name__}"


def text(value: object, name: str, accepted: str = "a str", *, may_be_empty: bool = False) -> str:
    """Return a text that a compiler or a driver can read.

    Raises
    ------
    ArgumentTypeError
        It is no str.
    ArgumentValueError
        It is empty, or holds a NUL character or half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} is {accepted}; {shown(value)} was given, of type {type(value).__name__}")
    if not value and not may_be_empty:
        raise ArgumentValueError(f"{name} is {accepted}; an empty one was given")
    if "\0" in value:
        at = value.index("\0")
        raise ArgumentValueError(
            f"{name} holds a NUL character at index {at}, where compilers and drivers see its end: leave it out"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"{name} is no Unicode text that UTF-8 can hold: {error}") from None
    return value


def path(value: object, name: str) -> str:
    """Return a path as text.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        It is no str and no `os.PathLike` of one, or as for `text`.
    """
    accepted = "a path: a str or an os.PathLike"
    if not isinstance(value, (str, os.PathLike)):
        return text(value, name, accepted)
    return text(os.fspath(value), name, accepted)


def flag(value: object, name: str) -> bool:
    """Return a truth value; nothing else is taken for one.

    Raises
    ------
    ArgumentTypeError
        It is neither True nor False.
    """
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise ArgumentTypeError(f"{name} is True or False; {shown(value)} was given")
    return bool(value)


def whole(value: Any, name: str) -> int:
    """Return a whole number.

    Raises
    ------
    ArgumentTypeError
        It is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}={shown(value)}: a whole number is wanted") from None


def extents(value: Any, name: str, most: int | None = None) -> tuple[int, ...]:
    """Return whole numbers; one may stand alone.

    Raises
    ------
    ArgumentTypeError
        It is neither a whole number nor a tuple or list of them.
    ArgumentValueError
        They are none, or more than `most`.
    """
    items = value if isinstance(value, (tuple, list)) else (value,)
    if most is not None and not 1 <= len(items) <= most:
        raise ArgumentValueError(f"{name}={shown(value)}: one to {most} whole numbers are wanted")
    return tuple(whole(each, name) for each in items)


def sequence(value: Any, name: str, of: str) -> Sequence[Any]:
    """Return a sequence that is no text.

    Raises
    ------
    ArgumentTypeError
        It is something else.
    """
    if isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError(f"{name} is a sequence of {of}; write ({shown(value)},)")
    if isinstance(value, (bytes, bytearray, memoryview)) or not isinstance(value, Sequence):
        raise ArgumentTypeError(f"{name} is a sequence of {of}; {shown(value)} was given")
    return value


def mapping(value: Any, name: str, of: str) -> Mapping[Any, Any]:
    """Return a mapping.

    Raises
    ------
    ArgumentTypeError
        It is something else.
    """
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{name} is a mapping of {of}; {shown(value)} was given")
    return value


def between(value: Any, name: str, least: float, most: float) -> int:
    """Return a whole number within bounds, both of them allowed.

    Raises
    ------
    ArgumentTypeError
        It is no whole number.
    ArgumentValueError
        It lies outside the bounds.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is a whole number; {shown(value)} was given")
    if not least <= number <= most:
        raise ArgumentValueError(f"{name} is a whole number from {least} to {most}; {number} was given")
    return number


def whole_numbers(value: Any, name: str) -> tuple[int, ...]:
    """Return whole numbers: of one, or of whatever can be iterated, such as an array's shape.

    Raises
    ------
    ArgumentTypeError
        It is neither.
    """
    if type(value) is int:
        return (value,)
    try:
        # An array has __index__ too, and is an integer only where it has no axis.
        is_one = hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0
        return tuple(map(operator.index, (value,) if is_one else value))
    except TypeError:
        raise ArgumentTypeError(f"{name} is an int or a sequence of ints; {shown(value)} was given") from None


def one_of(value: Any, name: str, known: Iterable[str]) -> str:
    """Return a name that is known.

    Raises
    ------
    ArgumentValueError
        It is none of them.
    """
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        *others, last = map(repr, names)
        raise ArgumentValueError(f"{name} is {', '.join(others)} or {last}; {shown(value)} was given")
    return value
