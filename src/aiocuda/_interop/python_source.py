"""Which parameters a kernel that is written in Python writes: assignments to items, traced back to parameters.

Always true: a parameter that may be written counts as written. That is so where an array goes to a function of which
nothing is known. Types are not known here, so it is the same for all arguments.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
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
# Builtin functions that write nothing that they take.
_READING_BUILTINS: Final = frozenset(
    {
        "abs", "all", "any", "divmod", "enumerate", "getattr", "hasattr", "hash", "id", "isinstance", "issubclass",
        "iter", "len", "max", "min", "next", "pow", "print", "range", "repr", "reversed", "round", "sorted", "sum",
        "type", "zip",
    }
)  # fmt: skip
# What these give is a value, and no view.
_VALUES: Final = ("load", "gather", "tile_load", "atomic")
# What makes a list or a dict, to which an array may be added later.
_LISTS: Final = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of number
# Attributes of an array that are no view of it.
_FACTS: Final = frozenset({"shape", "size", "ndim", "strides", "dtype", "itemsize", "nbytes"})


class Language(Protocol):
    """What differs between languages that are Python."""

    def python_of(self, called: Any) -> types.FunctionType | None:
        """Return the Python function of one that the kernel calls; None if it is none of the user's."""

    def is_own(self, called: Any) -> bool:
        """Say whether a function or method is the language's, so that it writes nothing but what `writes` says."""

    def writes(self, called: Any, name: str) -> bool | None:
        """Say whether a function of the language, or a method of this name (None), writes the array it takes first.

        None says that a function may write any of those it takes.
        """


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


def _layers(function: types.FunctionType) -> Iterator[types.FunctionType | None]:
    """Yield a function and those that it wraps; None for one that is no function in Python."""
    each: Any = function
    seen = set()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each if isinstance(each, types.FunctionType) else None
        each = getattr(each, "__wrapped__", None)


def _read(function: types.FunctionType) -> _Function:
    code = function.__code__  # whose source is its own, and not that of a function that it wraps
    tree = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise OSError(f"the source of {function.__qualname__} is no function")
    names = [*inspect.signature(function, follow_wrapped=False).parameters]
    scope = {**vars(builtins), **function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        scope.pop(name, None)
        with contextlib.suppress(ValueError):  # it is bound later
            scope[name] = cell.cell_contents
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
            self._known[function] = self._of_layers(function, ranks)
        return self._known[function]

    def _of_layers(self, function: types.FunctionType, ranks: Mapping[str, int]) -> Found:
        layers = [*_layers(function)]
        if len(layers) == 1:
            return self._looked_at(_read(function), ranks)
        # One language compiles the function that wraps, another the one that is wrapped.
        names = _parameters(function)
        unclear: frozenset[str] = _NONE
        for layer in layers:
            read = None if layer is None else _read(layer)
            if read is None or len(read.names) != len(names):
                return Found(unclear=frozenset(names))
            found = self._looked_at(read, ranks if read.names == names else {})
            ours = dict(zip(read.names, names, strict=True))
            unclear |= {ours[name] for name in found.surely | found.unclear}
        return Found(unclear=unclear)

    def _looked_at(self, function: _Function, ranks: Mapping[str, int]) -> Found:
        aliases = _Aliases(
            function,
            ranks,
            lambda call: self._is_own(call, _resolved(call.func, function.scope), function),
            lambda call: self._is_list(call, function),
        )
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
        if _is_reading_builtin(called):
            return Found()
        if called is not None and (python := language.python_of(called)) is not None:
            return self._by_passing(call, python, aliases, unclear)
        if self._is_own(call, called, function):
            writes = language.writes(called, _last(call.func))
            if writes is None:
                return unclear
            if not writes:
                return Found()
            is_first_known = bool(call.args) and not isinstance(call.args[0], ast.Starred)
            return _one_of(aliases.of(given[0])) if is_first_known else unclear
        if isinstance(called, np.ufunc) and not any(isinstance(each, ast.Starred) for each in call.args):
            return _one_of(_NONE.union(*map(aliases.of, given[called.nin :])))
        return Found() if _only_reads(called) else unclear

    def _is_own(self, call: ast.Call, called: Any, function: _Function) -> bool:
        if called is not None:
            return self._language.is_own(called)
        # A language may have functions that only its compiler knows: they are attributes of its module.
        of = _resolved(call.func.value, function.scope) if isinstance(call.func, ast.Attribute) else None
        return of is not None and self._language.is_own(of)

    def _is_list(self, call: ast.Call, function: _Function) -> bool:
        """Say whether a call may give a list or a dict, as none of the language's functions does."""
        called = _resolved(call.func, function.scope)
        if called is None or self._is_own(call, called, function):
            return False
        if (python := self._language.python_of(called)) is None:
            return True
        try:
            return any(isinstance(each, (*_LISTS, ast.Call)) for each in ast.walk(_read(python).body))
        except (OSError, ValueError, SyntaxError):
            return True

    def _by_passing(self, call: ast.Call, python: types.FunctionType, aliases: _Aliases, unclear: Found) -> Found:
        if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
            return unclear
        parameters = inspect.signature(python).parameters
        if len(call.args) > len(parameters) or any(each.kind in _VARIABLE for each in parameters.values()):
            return unclear
        try:
            found = self.found(python, {})
        except (OSError, ValueError, SyntaxError):
            return unclear
        to = dict(zip(parameters, call.args, strict=False))
        to |= {str(each.arg): each.value for each in call.keywords}

        def given(names: frozenset[str]) -> frozenset[str]:
            return _NONE.union(*(aliases.of(value) for name, value in to.items() if name in names))

        return _one_of(given(found.surely)).and_(Found(unclear=given(found.unclear)))


class _Aliases:
    """Which parameters the names of a function may stand for, or be a part of."""

    def __init__(
        self,
        function: _Function,
        ranks: Mapping[str, int],
        is_own: Callable[[ast.Call], bool],
        is_list: Callable[[ast.Call], bool],
    ) -> None:
        bound = [*_bound(function.body)]
        parts = [*_bound_in_parts(function.body)]
        again = {target for target, _ in bound}
        self._ranks = {name: rank for name, rank in ranks.items() if name not in again}
        self._is_own = is_own
        self._is_list = is_list
        self._lists: set[str] = set()  # names that may stand for lists
        self._names: dict[str, frozenset[str]] = defaultdict(
            frozenset, {name: frozenset({name}) for name in function.names}
        )
        before = None
        while before != (self._names, self._lists):
            before = (dict(self._names), set(self._lists))
            for name, is_item, value in [*((name, False, value) for name, value in bound), *parts]:
                if is_item and name not in self._lists:
                    continue  # what is assigned is copied into an array
                self._names[name] |= self.of(value)
                if self._may_hold_a_list(value):
                    self._lists.add(name)

    def of(self, node: ast.AST) -> frozenset[str]:
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
        if isinstance(node, ast.Call) and (of := self._method_of(node)) and _last(node.func) in _READING:
            return of  # a view of its array
        if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Add, ast.Mult)):
            return _NONE  # a value of its own, as sums and products need not be: they may be tuples
        if isinstance(node, (ast.UnaryOp, ast.Compare)):
            return _NONE
        return _NONE.union(*map(self.of, ast.iter_child_nodes(node)))

    def _is_value(self, call: ast.Call) -> bool:
        """Say whether a call gives a value that was read, which is no view of an array."""
        if not _last(call.func).startswith(_VALUES):
            return False
        if self._is_own(call):
            return True
        return bool(self._method_of(call))

    def _method_of(self, call: ast.Call) -> frozenset[str]:
        """Return the parameters whose method a call may be of."""
        # A name that stands for none may stand for a module.
        return self.of(call.func.value) if isinstance(call.func, ast.Attribute) else _NONE

    def _is_item(self, node: ast.Subscript) -> bool:
        if not isinstance(node.value, ast.Name) or node.value.id not in self._ranks:
            return False
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_part = any(isinstance(each, ast.Slice) or _is_ellipsis(each) for each in indices)
        return len(indices) >= self._ranks[node.value.id] and not is_part

    def _may_hold_a_list(self, node: ast.expr) -> bool:
        return any(
            isinstance(each, _LISTS)
            or (isinstance(each, ast.Name) and each.id in self._lists)
            or (isinstance(each, ast.Call) and self._is_list(each))
            for each in ast.walk(node)
        )


def _is_reading_builtin(called: Any) -> bool:
    """Say whether a builtin function writes nothing that it takes; Ray puts a `print` of its own there."""
    return called is not None and any(called is vars(builtins).get(name) for name in _READING_BUILTINS)


def _only_reads(called: Any) -> bool:
    """Say whether another function or class that is no language's is known to write nothing that it takes."""
    module = getattr(called, "__module__", None)
    if isinstance(called, type):  # of tuples with names, or of numbers
        return hasattr(called, "_fields") or module in ("builtins", "numpy")
    return module in ("math", "operator")


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


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
                for each, its_value in (pair for target in targets for pair in _pairs(target, value)):
                    yield from ((name, its_value) for name in _names_in(each))
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from ((name, value) for name in _names_in(target))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield from ((name, value) for name in _names_in(target))
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.Match(subject=value, cases=cases):
                yield from ((name, value) for case in cases for name in _captured(case.pattern))


def _bound_in_parts(function: ast.FunctionDef) -> Iterator[tuple[str, bool, ast.expr]]:
    """Yield the names of which a function binds a part, whether that is an item, and what the part may stand for."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                targets = [target]
            case _:
                continue
        for target, its_value in (pair for each in targets for pair in _pairs(each, value)):
            for part in ast.walk(target):
                if isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, ast.Store):
                    whole = _whole(part)
                    if isinstance(whole, ast.Name):
                        yield whole.id, isinstance(part, ast.Subscript), its_value


def _captured(pattern: ast.pattern) -> Iterator[str]:
    """Yield the names that a pattern binds."""
    for node in ast.walk(pattern):
        name = node.rest if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
        if isinstance(name, str):
            yield name


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is assigned to which: each to each, if both are tuples of the same length."""
    sides = (target, value)
    if all(isinstance(side, (ast.Tuple, ast.List)) for side in sides):
        items = [side.elts for side in sides]  # type: ignore[attr-defined]
        if len(items[0]) == len(items[1]) and not any(isinstance(each, ast.Starred) for each in (*items[0], *items[1])):
            for each, its_value in zip(*items, strict=True):
                yield from _pairs(each, its_value)
            return
    yield target, value


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
