"""One error for several callers: each gets a copy."""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = ["copy_for_one"]

E = TypeVar("E", bound=BaseException)


def copy_for_one(error: E) -> E:
    """Return a copy of an error for one of several callers: each adds lines and notes to his.

    It says what the error says. If the error's class makes no such copy, all callers share the error.
    """
    try:
        own = copy.copy(error)  # calls the class with the error's args, which its parameters need not be
        if not _is_alike(own, error):
            own = _without_init(error)
        if not _is_alike(own, error):
            return error
    except Exception:  # noqa: BLE001 - of the class's own code
        return error
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        own.__notes__ = list(notes)
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    return own.with_traceback(error.__traceback__)


def _without_init(error: E) -> E:
    kind = type(error)
    own = kind.__new__(kind, *error.args)
    own.__dict__.update(error.__dict__)
    return own


def _is_alike(own: object, error: BaseException) -> bool:
    return (
        type(own) is type(error)
        and own is not error
        and len(own.args) == len(error.args)
        and all(one is other for one, other in zip(own.args, error.args, strict=True))
        and str(own) == str(error)
    )
