"""Which parameters a kernel that is written in Python writes: assignments to items, traced back to parameters.

Always true: a parameter that may be written counts as written. That is so where an array goes to a function of which
nothing is known. Types are not known here, so it is the same for all arguments.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

__all__ = ["Found", "Language", "is_of", "written_by"]

_NONE: Final[frozenset[str]] = frozenset()
# Methods of arrays, and of values that were read from them, that write nothing.
_READING: Final = frozenset(
    {
        "load", "slice", "tiled_view", "num_tiles", "traversal_steps", "get_raw_memory", "load_offset",
        "foreign_pointer", "item", "extract", "insert", "reshape", "permute", "transpose", "astype", "ravel", "view",
        "flatten", "squeeze", "swapaxes", "copy", "conjugate", "conj",
    }
)  # fmt: skip
# What these give is a value, and no view.
_VALUES: Final = ("load", "gather", "tile_load", "atomic")
# Attributes of an array that are no view of it.
_FACTS: Final = frozenset({"shape", "size", "ndim", "strides", "dtype", "itemsize", "nbytes"})


class Language(Protocol):
    """What differs between languages that are Python."""

    def python_of(self, called: Any) -> types.FunctionType | None:
        """Return the Python function of one that the kernel calls; None if it is none of the user's."""

    def is_own(self, called: Any) -> bool:
        """Say whether a function or method is the language's, so that it writes nothing but what `writes` says."""

    def writes(self, called: Any, name: str) -> bool:
        """Say whether a function of the language, or a method of this name (None), writes the array it takes first."""


class _Function(NamedTuple):
    """A function that is looked at, and where its names lead."""

    names: list[str]  # of its parameters
    body: ast.FunctionDef
    scope: Mapping[str, Any]


class Found(NamedTuple):
    """Parameters that a function writes, and those that it may write, as far as one can tell."""

    surely: frozenset[str] = _NONE
    unclear: frozenset[str] = _NONE

    def and_(self, other: Found) -> Found:
        return Found(self.surely | other.surely, self.unclear | other.unclear)


def written_by(function: types.FunctionType, language: Language, ranks: Mapping[str, int] | None = None) -> Found:
    """Return the parameters that a kernel writes.

    Parameters
    ----------
    ranks
        The number of axes of the arrays among the parameters, as far as it is known. An item of such an array is no
        view of it.

    Raises
    ------
    OSError
        The function's source is not there.
    """
    return _Reading(language).found(function, ranks or {})


def _one_of(written: frozenset[str]) -> Found:
    return Found(written) if len(written) == 1 else Found(unclear=written)


def _parameters(function: types.FunctionType) -> list[str]:
    return list(inspect.signature(function).parameters)


def _read(function: types.FunctionType) -> _Function:
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise OSError(f"the source of {function.__qualname__} is no function")
    names = _parameters(function)
    scope = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for name in (*names, *(name for name, _ in _bound(tree))):  # which are the function's own
        scope.pop(name, None)
    return _Function(names, tree, scope)


class _Reading:
    """What is known of functions so far."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._known: dict[types.FunctionType, Found] = {}

    def found(self, function: types.FunctionType, ranks: Mapping[str, int]) -> Found:
        if function not in self._known:
            # Of one that calls itself, nothing is known.
            self._known[function] = Found(unclear=frozenset(_parameters(function)))
            self._known[function] = self._looked_at(_read(function), ranks)
        return self._known[function]

    def _looked_at(self, function: _Function, ranks: Mapping[str, int]) -> Found:
        aliases = _Aliases(function, ranks, lambda call: self._is_value(call, function))
        found = Found()
        for node in ast.walk(function.body):
            if isinstance(node, ast.Call):
                found = found.and_(self._by_call(node, function, aliases))
            elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                found = found.and_(_one_of(aliases.of(_whole(node))))
            elif isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not function.body:
                found = found.and_(Found(unclear=frozenset(function.names)))  # its names are others
        return Found(found.surely, found.unclear - found.surely)

    def _by_call(self, call: ast.Call, function: _Function, aliases: _Aliases) -> Found:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        unclear = Found(unclear=_NONE.union(*map(aliases.of, given)))
        language = self._language
        if isinstance(call.func, ast.Attribute) and (of := aliases.of(call.func.value)):  # a method of an array
            if language.writes(None, call.func.attr):
                return _one_of(of)
            return unclear if call.func.attr in _READING else unclear.and_(Found(unclear=of))
        called = _resolved(call.func, function.scope)
        if called is not None and (python := language.python_of(called)) is not None:
            return self._by_passing(call, python, aliases, unclear)
        if self._is_own(call, called, function):
            return _one_of(aliases.of(given[0])) if given and language.writes(called, _last(call.func)) else Found()
        if isinstance(called, np.ufunc):
            return _one_of(_NONE.union(*map(aliases.of, given[called.nin :])))
        if isinstance(called, type) or getattr(called, "__module__", None) in ("builtins", "math", "operator"):
            return Found()
        if called is None and isinstance(call.func, ast.Attribute) and call.func.attr in _READING:
            return Found()  # of a value that was read
        return unclear

    def _is_own(self, call: ast.Call, called: Any, function: _Function) -> bool:
        if called is not None:
            return self._language.is_own(called)
        # A language may have functions that only its compiler knows: they are attributes of its module.
        of = _resolved(call.func.value, function.scope) if isinstance(call.func, ast.Attribute) else None
        return of is not None and self._language.is_own(of)

    def _is_value(self, call: ast.Call, function: _Function) -> bool:
        """Say whether a call gives a value that was read, which is no view of an array."""
        if not _last(call.func).startswith(_VALUES):
            return False
        called = _resolved(call.func, function.scope)
        is_method = isinstance(call.func, ast.Attribute) and _resolved(call.func.value, function.scope) is None
        return is_method or self._is_own(call, called, function)

    def _by_passing(self, call: ast.Call, python: types.FunctionType, aliases: _Aliases, unclear: Found) -> Found:
        if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
            return unclear
        try:
            found = self.found(python, {})
        except (OSError, ValueError, SyntaxError):
            return unclear
        to = dict(zip(_parameters(python), call.args, strict=False))
        to |= {str(each.arg): each.value for each in call.keywords}

        def given(names: frozenset[str]) -> frozenset[str]:
            return _NONE.union(*(aliases.of(value) for name, value in to.items() if name in names))

        return _one_of(given(found.surely)).and_(Found(unclear=given(found.unclear)))


class _Aliases:
    """Which parameters the names of a function may stand for, or be a part of."""

    def __init__(self, function: _Function, ranks: Mapping[str, int], is_value: Callable[[ast.Call], bool]) -> None:
        self._ranks = ranks
        self._is_value = is_value
        self._names: dict[str, frozenset[str]] = defaultdict(
            frozenset, {name: frozenset({name}) for name in function.names}
        )
        bound = [*_bound(function.body)]
        before = None
        while before != self._names:
            before = dict(self._names)
            for target, value in bound:
                self._names[target] |= self.of(value)

    def of(self, node: ast.expr) -> frozenset[str]:
        """Return the parameters that an expression may be, or be a view of."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, _NONE)
        if isinstance(node, ast.Subscript):
            return _NONE if self._is_item(node) else self.of(node.value)
        if isinstance(node, ast.Attribute):
            return _NONE if node.attr in _FACTS else self.of(node.value)
        if isinstance(node, ast.IfExp):
            return self.of(node.body) | self.of(node.orelse)
        if isinstance(node, ast.Call) and self._is_value(node):
            return _NONE
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (of := self.of(node.func.value)):
            return of  # by a method: a view of its array
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            return _NONE  # a value of its own
        return _NONE.union(*(self.of(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)))

    def _is_item(self, node: ast.Subscript) -> bool:
        if not isinstance(node.value, ast.Name) or node.value.id not in self._ranks:
            return False
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return len(indices) >= self._ranks[node.value.id] and not any(isinstance(each, ast.Slice) for each in indices)


def _whole(node: ast.expr) -> ast.expr:
    """Return what an item or an attribute that is assigned to belongs to."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


def _bound(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a function binds, each with an expression that it may stand for."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield from ((name, value) for name in _names_in(target))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    sides = (target, value)
    if all(isinstance(side, (ast.Tuple, ast.List)) for side in sides):
        items = [side.elts for side in sides]  # type: ignore[attr-defined]
        if len(items[0]) == len(items[1]) and not any(isinstance(each, ast.Starred) for each in (*items[0], *items[1])):
            for each, its_value in zip(*items, strict=True):
                yield from _pairs(each, its_value)
            return
    yield from ((name, value) for name in _names_in(target))


def _names_in(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _names_in(each)
    elif isinstance(target, ast.Starred):
        yield from _names_in(target.value)


def is_of(called: Any, language: str) -> bool:
    """Say whether a function, class, module or object is a language's, by the name of its module."""
    if isinstance(called, types.ModuleType):
        name = called.__name__
    else:
        name = str(getattr(called, "__module__", None) or type(called).__module__)
    return name == language or name.startswith(f"{language}.")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else str(getattr(node, "id", ""))


def _resolved(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Return what a name of a function stands for; None if only its run can tell."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        of = _resolved(node.value, scope)
        return None if of is None else getattr(of, node.attr, None)
    return None
