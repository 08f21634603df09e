"""Gives errors the story that they can tell, and prints it where ``AIOCUDA_LOG`` asks for that.

Always true: an error's story ends when the error was made.
"""

from __future__ import annotations

import sys
from typing import TypeVar

from aiocuda import _native
from aiocuda._driver import select
from aiocuda.errors import DeviceLostError, DeviceTimeoutError

__all__ = ["with_story"]

_E = TypeVar("_E", DeviceLostError, DeviceTimeoutError)


def with_story(error: _E) -> _E:
    """Return the error, with the last decisions before it."""
    error._decisions = _native.Decisions()
    if select.is_logging() and sys.stderr is not None:
        print(f"aiocuda: the story of {type(error).__name__}: {error}\n{error.story()}", file=sys.stderr)
    return error
