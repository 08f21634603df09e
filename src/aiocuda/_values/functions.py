"""Functions that users give to be called by the library."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Final

from aiocuda.errors import ArgumentTypeError

__all__ = ["checked_function"]

_NEVER_ASYNC: Final = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_IS_ASYNC: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def checked_function(function: Any, takes: str) -> Any:
    """Return a function that can be called, and that does not have to be awaited.

    Parameters
    ----------
    function
        What was given.
    takes
        What is asked for, such as ``"then() takes a function of the result"``.

    Raises
    ------
    ArgumentTypeError
        It cannot be called; or calling it gives a coroutine, which nobody would await.
    """
    if not callable(function):
        raise ArgumentTypeError(f"{takes}, not {function!r:.80}")
    code = getattr(function, "__code__", None)
    is_async = _is_async(function) if code is None else getattr(code, "co_flags", 0) & _IS_ASYNC
    if is_async:
        raise ArgumentTypeError(
            f"{takes}, and calls it where nothing can be awaited; {function!r:.80} is async: give a plain function, "
            "and await what comes after it behind the operation: x = await op, then await f(x)"
        )
    return function


def _is_async(function: Any) -> bool:
    """Whether what has no code of its own is async: a partial, or an object that is called by its ``__call__``."""
    if isinstance(function, _NEVER_ASYNC):  # written in C; to ask `inspect` takes microseconds
        return False
    while isinstance(function, functools.partial):
        function = function.func
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, type(function).__call__)
    )
