"""What functions of frameworks keep between calls: buffers of a module, caches, states of random numbers.

Always true: a state is nothing but an order. Operations that write the same one run one after another. It says that
two functions are the same where they may keep the same things, and never that they are not.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from aiocuda import _native
from aiocuda._arrays.array import HostArray
from aiocuda._values import dtypes

__all__ = ["STATES", "state_of"]

# By what keeps it: by its identity, as two modules are two, whatever they say of being equal.
# Native code looks for functions that were there before.
STATES: Final[dict[int, tuple[weakref.ref[Any], _native.Array]]] = {}


_adding = threading.Lock()


@functools.cache
def _common() -> _native.Array:
    """Return the state of all functions that cannot be told apart; those that keep nothing read it."""
    return _new()


def _new() -> _native.Array:
    return _native.make_state(HostArray, dtypes.code_named("uint8"))


# No class can be derived from these.
_Function: Final = types.FunctionType
_Method: Final = types.MethodType
_BUILTIN: Final = frozenset({types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType})


def state_of(function: Callable[..., Any], *, is_stateless: bool) -> tuple[_native.Array, bool]:
    """Return what a function keeps, and whether a call changes it.

    A method keeps what its object keeps, and a function what all functions of the same code keep. Functions that are
    written in C, such as ``torch.add``, keep nothing of the program's.
    """
    keeper = _keeper(function)
    if is_stateless or type(keeper) in _BUILTIN:
        return _common(), False
    known = STATES.get(id(keeper))
    if known is None or known[0]() is not keeper:
        try:
            reference = weakref.ref(keeper, functools.partial(_forget, id(keeper)))
        except TypeError:  # not of such an object
            return _common(), True
        with _adding:
            known = STATES.get(id(keeper))
            if known is None or known[0]() is not keeper:
                known = STATES[id(keeper)] = reference, _new()
    return known[1], True


def _forget(identity: int, gone: weakref.ref[Any]) -> None:
    known = STATES.get(identity)
    if known is not None and known[0] is gone:
        del STATES[identity]


def _keeper(function: Any) -> Any:
    kind = type(function)
    if kind is _Function:
        if "__wrapped__" in function.__dict__:  # by a decorator, whose code is that of all that it decorates
            function = inspect.unwrap(function)
        return getattr(function, "__code__", function)
    if kind is _Method:
        return function.__self__
    return _keeper(function.func) if isinstance(function, functools.partial) else function
