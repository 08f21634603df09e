"""What functions of frameworks keep between calls: buffers of a module, caches, states of random numbers.

Always true: a state is nothing but an order. Operations that write the same one run one after another. It says that
two functions are the same where they may keep the same things, and never that they are not.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from aiocuda import _native
from aiocuda._arrays.array import HostArray
from aiocuda._values import dtypes

__all__ = ["state_of"]

_states: weakref.WeakKeyDictionary[Any, _native.Array] = weakref.WeakKeyDictionary()


@functools.cache
def _common() -> _native.Array:
    """Return the state of all functions that cannot be told apart; those that keep nothing read it."""
    return _new()


def _new() -> _native.Array:
    return _native.make_state(HostArray, dtypes.code_named("uint8"))


_BUILTIN: Final = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def state_of(function: Callable[..., Any], *, is_stateless: bool) -> tuple[_native.Array, bool]:
    """Return what a function keeps, and whether a call changes it.

    A method keeps what its object keeps, and a function what all functions of the same code keep. Functions that are
    written in C, such as ``torch.add``, keep nothing of the program's.
    """
    keeper = _keeper(function)
    if is_stateless or isinstance(keeper, _BUILTIN):
        return _common(), False
    try:
        state = _states.get(keeper)
        if state is None:
            state = _states.setdefault(keeper, _new())
    except TypeError:  # no weak reference to it is possible, or it has no hash
        return _common(), True
    return state, True


def _keeper(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        return function.__self__
    if isinstance(function, types.FunctionType):
        if hasattr(function, "__wrapped__"):  # by a decorator, whose code is that of all that it decorates
            function = inspect.unwrap(function)
        return getattr(function, "__code__", function)
    return function
