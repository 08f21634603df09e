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
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

__all__ = ["Language", "is_of", "written_by"]

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


def written_by(function: types.FunctionType, language: Language, ranks: Mapping[str, int] | None = None) -> list[str]:
    """Return the parameters that a kernel writes, in order.

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
    written = _Reading(language).written(function, ranks or {})
    return [name for name in _parameters(function) if name in written]


def _parameters(function: types.FunctionType) -> list[str]:
    return list(inspect.signature(function).parameters)


def _read(function: types.FunctionType) -> _Function:
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise OSError(f"the source of {function.__qualname__} is no function")
    scope = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return _Function(_parameters(function), tree, scope)


class _Reading:
    """What is known of functions so far."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._written: dict[types.FunctionType, frozenset[str]] = {}

    def written(self, function: types.FunctionType, ranks: Mapping[str, int]) -> frozenset[str]:
        if function not in self._written:
            self._written[function] = frozenset(_parameters(function))  # of one that calls itself, nothing is known
            self._written[function] = self._found(_read(function), ranks)
        return self._written[function]

    def _found(self, function: _Function, ranks: Mapping[str, int]) -> frozenset[str]:
        aliases = _Aliases(function, ranks)
        written: set[str] = set()
        for node in ast.walk(function.body):
            if isinstance(node, ast.Call):
                written |= self._written_by_call(node, function, aliases)
            elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                written |= aliases.of(_whole(node))
            elif isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not function.body:
                return frozenset(function.names)  # its names are others
        return frozenset(written)

    def _written_by_call(self, call: ast.Call, function: _Function, aliases: _Aliases) -> frozenset[str]:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        everything = _NONE.union(*map(aliases.of, given))
        language = self._language
        if isinstance(call.func, ast.Attribute) and (of := aliases.of(call.func.value)):  # a method of an array
            return of if language.writes(None, call.func.attr) or call.func.attr not in _READING else everything
        called = _resolved(call.func, function.scope)
        if called is None:
            # A language may have functions that only its compiler knows: they are attributes of its module.
            if not isinstance(call.func, ast.Attribute) or not language.is_own(
                _resolved(call.func.value, function.scope)
            ):
                return everything
        elif (python := language.python_of(called)) is not None:
            return self._passed(call, python, aliases, everything)
        elif isinstance(called, np.ufunc):
            return _NONE.union(*map(aliases.of, given[called.nin :]))
        if called is None or language.is_own(called):
            return aliases.of(given[0]) if given and language.writes(called, _last(call.func)) else _NONE
        if isinstance(called, type) or getattr(called, "__module__", None) in ("builtins", "math", "operator"):
            return _NONE
        return everything

    def _passed(
        self, call: ast.Call, python: types.FunctionType, aliases: _Aliases, everything: frozenset[str]
    ) -> frozenset[str]:
        if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
            return everything
        try:
            written = self.written(python, {})
        except (OSError, ValueError, SyntaxError):
            return everything
        to = dict(zip(_parameters(python), call.args, strict=False))
        to |= {str(each.arg): each.value for each in call.keywords}
        return _NONE.union(*(aliases.of(value) for name, value in to.items() if name in written))


class _Aliases:
    """Which parameters the names of a function may stand for, or be a part of."""

    def __init__(self, function: _Function, ranks: Mapping[str, int]) -> None:
        self._ranks = ranks
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
        if isinstance(node, ast.Call) and _last(node.func).startswith(_VALUES):
            return _NONE
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)):
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
                yield from ((name, value) for target in targets for name in _names_in(target))
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
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
