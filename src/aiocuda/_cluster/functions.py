"""Functions that are sent along: pickled once, and made once where they arrive.

Always true: a function is pickled anew unless all that it refers to is the same. One whose calls could leave something
in its globals is made anew for each call.
"""

from __future__ import annotations

import dis
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

__all__ = ["Functions"]

_CONSTANTS: Final = (type(None), bool, int, float, complex, str, bytes)
_WRITES: Final = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_REACHES_GLOBALS: Final = frozenset({"globals", "vars", "locals", "eval", "exec", "f_globals", "__globals__"})
_MOST_KEPT: Final = 256
_ABSENT: Final = object()


class _Pickled(NamedTuple):
    """A function's bytes, and what they were made of."""

    code: CodeType
    defaults: tuple[Any, ...] | None
    globals: dict[str, Any]
    modules: int  # how many were imported: those of a package that the function names are imported there, too
    pickled: bytes


class Functions:
    """Those that a process sends.

    Parameters
    ----------
    dumps
        Pickles a function by value.
    """

    def __init__(self, dumps: Callable[[Any], bytes]) -> None:
        self._dumps = dumps
        self._pickled: weakref.WeakKeyDictionary[FunctionType, _Pickled] = weakref.WeakKeyDictionary()

    def pickled(self, each: Any) -> bytes | None:
        """Return a function's bytes; None for other objects, and for functions that must be pickled with the rest."""
        if type(each) is not FunctionType or not _is_plain(each):
            return None
        found = self._pickled.get(each)
        if found is None or not _holds(found, each):
            names = _names(each.__code__)
            if names is None or not _refers_to_constants(each, names):
                return None
            there = {name: each.__globals__.get(name, _ABSENT) for name in names}
            found = _Pickled(each.__code__, each.__defaults__, there, len(sys.modules), self._dumps(each))
            self._pickled[each] = found
        return found.pickled


def _is_plain(function: FunctionType) -> bool:
    """Whether nothing but its code, its defaults and its globals makes it, and the receiver cannot import it."""
    return (
        function.__closure__ is None
        and not function.__kwdefaults__
        and not function.__dict__
        and (function.__module__ == "__main__" or "<locals>" in function.__qualname__)
    )


def _holds(found: _Pickled, function: FunctionType) -> bool:
    there = function.__globals__
    return (
        found.code is function.__code__
        and found.defaults is function.__defaults__
        and found.modules == len(sys.modules)
        and all(there.get(name, _ABSENT) is value for name, value in found.globals.items())
    )


def _refers_to_constants(function: FunctionType, names: frozenset[str]) -> bool:
    there = function.__globals__
    referred = [there[name] for name in names if name in there]
    referred += function.__defaults__ or ()
    referred += [each for each in function.__annotations__.values() if getattr(each, "__module__", "") != "builtins"]
    return all(type(each) in _CONSTANTS or _is_imported(each) for each in referred)


def _is_imported(each: Any) -> bool:
    return isinstance(each, ModuleType) and each is sys.modules.get(each.__name__)


@functools.lru_cache(_MOST_KEPT)
def _names(code: CodeType) -> frozenset[str] | None:
    """Return the names in some code, of which some are globals; None if it may change globals."""
    found = frozenset(name for each in _codes(code) for name in each.co_names)
    writes = any(each.opname in _WRITES for part in _codes(code) for each in dis.get_instructions(part))
    return None if writes or found & _REACHES_GLOBALS else found


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give some code, and that of functions within."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
