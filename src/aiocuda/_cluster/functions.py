"""Functions that are sent along: pickled once, and made once where they arrive.

Always true: a function is pickled anew unless all that it refers to is the same. One whose calls could leave something
in its globals is made anew for each call.
"""

from __future__ import annotations

import builtins
import dis
import functools
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from types import CodeType, FunctionType, GenericAlias, ModuleType
from typing import Any, Final, NamedTuple

__all__ = ["Functions", "Sent"]

_CONSTANTS: Final = (type(None), bool, int, float, complex, str, bytes)
_WRITES: Final = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_REACHES_GLOBALS: Final = frozenset({"globals", "vars", "locals", "eval", "exec", "f_globals", "__globals__"})
_MOST_KEPT: Final = 256
_MOST_LONG: Final = 1024  # characters of a constant: both processes keep it
_ABSENT: Final = object()


class Sent:
    """A function as it is sent: it arrives as the function."""

    __slots__ = ("_reduced",)

    def __init__(self, pickled: bytes) -> None:
        self._reduced = _made, (pickled,)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


@functools.lru_cache(_MOST_KEPT)
def _made(pickled: bytes) -> Any:
    """Return a function of another process: the same one for all calls, since it leaves nothing in its globals."""
    return pickle.loads(pickled)


class _Kept(NamedTuple):
    """A function that was pickled, and what of."""

    code: CodeType
    defaults: tuple[Any, ...] | None
    globals: dict[str, Any]
    modules: int  # how many were imported: those of a package that the function names are imported there, too
    by_value: AbstractSet[str]
    sent: Sent


class Functions:
    """Those that a process sends.

    Parameters
    ----------
    dumps
        Pickles a function by value.
    by_value
        Returns the modules that are pickled by value: what is in those may change.
    """

    def __init__(self, dumps: Callable[[Any], bytes], by_value: Callable[[], AbstractSet[str]]) -> None:
        self._dumps, self._by_value = dumps, by_value
        self._kept: weakref.WeakKeyDictionary[FunctionType, _Kept] = weakref.WeakKeyDictionary()

    def sent(self, each: Any) -> Sent | None:
        """Return a function as it is sent; None for other objects, and functions that are pickled for each call."""
        if type(each) is not FunctionType:
            return None
        by_value = self._by_value()
        if not _is_plain(each, by_value):
            return None
        kept = self._kept.get(each)
        if kept is None or not _holds(kept, each, by_value):
            names = _names(each.__code__)
            if names is None or not _refers_to_constants(each, names, by_value):
                return None
            there = {name: each.__globals__.get(name, _ABSENT) for name in names}
            sent = Sent(self._dumps(each))
            kept = _Kept(each.__code__, each.__defaults__, there, len(sys.modules), by_value, sent)
            self._kept[each] = kept
        return kept.sent


def _is_plain(function: FunctionType, by_value: AbstractSet[str]) -> bool:
    """Whether nothing but its code, its defaults and its globals makes it, and the receiver cannot import it."""
    if function.__closure__ is not None or function.__kwdefaults__ or function.__dict__:
        return False
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__ or function.__module__ in by_value


def _holds(kept: _Kept, function: FunctionType, by_value: AbstractSet[str]) -> bool:
    there = function.__globals__
    return (
        kept.code is function.__code__
        and kept.defaults is function.__defaults__
        and kept.modules == len(sys.modules)
        and kept.by_value == by_value
        and all(there.get(name, _ABSENT) is value for name, value in kept.globals.items())
    )


def _refers_to_constants(function: FunctionType, names: frozenset[str], by_value: AbstractSet[str]) -> bool:
    there = function.__globals__
    referred = [there[name] for name in names if name in there]
    referred += function.__defaults__ or ()
    referred += [each for each in function.__annotations__.values() if not _is_of_builtins(each)]
    return all(_is_constant(each) or _is_imported(each, by_value) for each in referred)


def _is_constant(each: Any) -> bool:
    return type(each) in _CONSTANTS and (not isinstance(each, (str, bytes)) or len(each) <= _MOST_LONG)


def _is_of_builtins(annotation: Any) -> bool:
    """Whether an annotation is of built-in types alone, such as ``dict[str, list[int]]``."""
    if isinstance(annotation, GenericAlias):  # which has its origin's module
        return all(map(_is_of_builtins, (annotation.__origin__, *annotation.__args__)))
    return annotation is ... or (isinstance(annotation, type) and vars(builtins).get(annotation.__name__) is annotation)


def _is_imported(each: Any, by_value: AbstractSet[str]) -> bool:
    """Whether an object is a module that the receiver imports, too."""
    if not isinstance(each, ModuleType) or each is not sys.modules.get(each.__name__):
        return False
    return not any(f"{each.__name__}.".startswith(f"{name}.") for name in ("__main__", *by_value))


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
