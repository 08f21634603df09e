"""What kernels in Python write, as their source says, for a language of the test's own."""

from __future__ import annotations

import builtins
import functools
import inspect
import linecache
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from aiocuda._interop.python_source import is_of, written_by


class lang:  # noqa: N801
    """A language's module, as kernels see it."""

    @staticmethod
    def load(x: Any, i: int) -> Any: ...

    @staticmethod
    def store(x: Any, i: int, value: Any) -> None: ...

    class State:
        x: Any

    @staticmethod
    def solve(x: Any, y: Any) -> None: ...


class Language:
    def python_of(self, called: Any) -> types.FunctionType | None:
        return called if isinstance(called, types.FunctionType) and not self.is_own(called) else None

    def is_own(self, called: Any) -> bool:
        return called is lang or getattr(called, "__qualname__", "").startswith("lang.")

    def writes(self, called: Any, name: str) -> bool | None:
        return None if name == "solve" else name.startswith("store")


def written(function: Any, **ranks: int) -> str:
    """The parameters that are surely written, and behind a question mark those of which it is not clear."""
    found = written_by(function, Language(), ranks)
    return "".join(sorted(found.surely)) + ("?" + "".join(sorted(found.unclear)) if found.unclear else "")


def put(z: Any, i: int, value: Any) -> None:
    z[i] = value


def get(z: Any, i: int) -> Any:
    return z[i]


def row_of(z: Any, i: int) -> Any:
    return z[i]


def to_itself(a: Any, b: Any) -> None:
    a[0] = 1
    to_itself(b, a)


unknown: Any = object()


def items(x: Any, y: Any) -> None:
    y[0] = x[0] + 1


def added(x: Any, y: Any) -> None:
    y[0, 1] += x[0]


def attributes(x: Any, y: Any) -> None:
    y[0].position[1] = x.shape[0]


def named(x: Any, y: Any) -> None:
    a = x
    b = y[2:]
    c = a
    for _ in range(3):
        a = b
        c = a
    c[0] = 1


def several(x: Any, y: Any, z: Any) -> None:
    (_, _), *rest = (x, z), y
    rest[0] = 1


def one_each(x: Any, y: Any, z: Any) -> None:
    a, (b, _) = x, (y, z)
    b[0] = a[0]


def one_of(x: Any, y: Any, z: Any) -> None:
    p = x if z[0] else y
    p[0] = 1


def walrus(x: Any, y: Any) -> None:
    if (p := y) is not None:
        p[0] = x[0]


def computed(x: Any, y: Any) -> None:
    v = x[0] * 2
    w = -x[1]
    v += w
    y[0] = v


def helpers(x: Any, y: Any) -> None:
    put(y, 0, get(x, 1))


def helpers_by_name(x: Any, y: Any) -> None:
    put(value=x[0], i=3, z=y)


def views_of_helpers(x: Any, y: Any) -> None:
    row = row_of(y, 0)
    row[1] = x[0]


def calls_itself(x: Any, y: Any, z: Any) -> None:
    to_itself(x, y)


def of_the_language(x: Any, y: Any) -> None:
    lang.store(y, 0, lang.load(x, 0))


def of_its_compiler(x: Any, y: Any) -> None:
    lang.store_to_all(y, 0, lang.known_to_no_one(x))  # type: ignore[attr-defined]


def methods(x: Any, y: Any) -> None:
    y.slice(0).store(0, x.load(0).reshape(3))


def unknown_methods(x: Any, y: Any) -> None:
    y.fill(x.shape[0])


def to_who_knows(x: Any, y: Any, z: Any) -> None:
    unknown.call(y)
    z[0] = len(x) + abs(x[0])


def spread(x: Any, y: Any, z: Any) -> None:
    put(*(y, z))


def numpy_functions(x: Any, y: Any) -> None:
    np.add(x, x, y)
    y[0] = np.float32(np.sqrt(x[0]))


def a_function_in_it(x: Any, y: Any) -> None:
    def inner(x: Any) -> None:
        y[0] = x

    inner(3)


def reads(x: Any, y: Any) -> None:
    v = x[0]
    print(v, y.shape)


def load_row(z: Any, i: int) -> Any:
    return z[i]


def views_of_helpers_called_load(x: Any, y: Any) -> None:
    row = load_row(y, 0)
    row[1] = x[0]


def hides_a_name(x: Any, y: Any, put: Any) -> None:
    put(x, 0, 1)
    len = x  # noqa: A001
    len(y)  # type: ignore[operator]


def either(x: Any, y: Any) -> None:
    p = x or y
    p[0] = 1


def values_that_were_read(x: Any, y: Any) -> None:
    lang.store(y, 0, lang.load(x, 0).reshape((y,)))


def loops_over(x: Any, y: Any) -> None:
    for row in y:
        row[0] = 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (items, "y"),
        (added, "y"),
        (attributes, "y"),
        (named, "?xy"),
        (several, "?xyz"),
        (one_each, "y"),
        (one_of, "?xy"),
        (walrus, "y"),
        (computed, "y"),
        (helpers, "y"),
        (helpers_by_name, "y"),
        (views_of_helpers, "y"),
        (calls_itself, "x?y"),
        (of_the_language, "y"),
        (of_its_compiler, "y"),
        (methods, "y"),
        (unknown_methods, "?y"),
        (to_who_knows, "z?y"),
        (spread, "?yz"),
        (numpy_functions, "y"),
        (a_function_in_it, "y?x"),
        (reads, ""),
        (loops_over, "y"),
        (views_of_helpers_called_load, "y"),
        (hides_a_name, "?xy"),
        (either, "?xy"),
        (values_that_were_read, "y"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_function_writes_is_found(function, expected):
    assert written(function) == expected


class module:  # noqa: N801
    load = row_of
    insert = put


class Pair(NamedTuple):
    first: Any
    second: Any


class Writer:
    def __init__(self, z: Any) -> None:
        z[0] = 1


def all_by_name(x: Any, y: Any, i: int) -> None:
    lang.store(i=i, value=1, x=y)


def spread_to_the_language(x: Any, y: Any) -> None:
    lang.store(*(), y, 0, x[0])


def any_of_those_it_takes(x: Any, y: Any, z: Any) -> None:
    lang.solve(x, y)


def view_by_name(x: Any, y: Any) -> None:
    row = row_of(z=y, i=0)
    row[0] = x[0]


def pair_by_name(x: Any, y: Any) -> None:
    pair = Pair(first=x, second=y)
    pair.second[0] = 1


def concatenated(x: Any, y: Any) -> None:
    pair = (x,) + (y,)  # noqa: RUF005
    pair[1][0] = 1


def added_to(x: Any, y: Any) -> None:
    pair = (x,)
    pair += (y,)
    pair[1][0] = 1


def of_an_attribute(x: Any, y: Any) -> None:
    state = lang.State()
    state.x = y
    state.x[0] = x[0]


def of_an_attribute_that_is_a_list(x: Any, y: Any) -> None:
    state = lang.State()
    state.x = [x]
    state.x[0] = y
    state.x[0][0] = 1


def of_a_list(x: Any, y: Any) -> None:
    those = [x]
    those[0] = y
    those[0][0] = 1


def of_a_list_of_another_name(x: Any, y: Any) -> None:
    those = [x]
    others = those
    others[0] = y
    others[0][0] = 1


def in_a_list(z: Any) -> Any:
    return [z]


def of_a_list_that_a_function_makes(x: Any, y: Any) -> None:
    those = in_a_list(x)
    those[0] = y
    those[0][0] = 1


def into_a_view(x: Any, y: Any) -> None:
    part = y[2:]
    part[0] = x[0]


def by_a_module(x: Any, y: Any) -> None:
    m = module
    m.insert(y, 0, x[0])


def view_by_a_module(x: Any, y: Any) -> None:
    m = module
    row = m.load(y, 0)
    row[0] = 1


def by_a_class(x: Any, y: Any) -> None:
    Writer(y)


def by_a_builtin(x: Any, y: Any) -> None:
    setattr(y[0], "position", 1)  # noqa: B010


def matched(x: Any, y: Any) -> None:
    match y:
        case [*rest]:
            rest[0] = 1
        case other:
            other[0] = 1


def of_any_number(*those: Any) -> None:
    those[1][0] = 1


def to_any_number(x: Any, y: Any) -> None:
    of_any_number(x, y)


def of_any_names(**those: Any) -> None:
    those["b"][0] = 1


def to_any_names(x: Any, y: Any) -> None:
    of_any_names(a=x, b=y)


def differences(x: Any, y: Any) -> None:
    v = x[0] - x[1]
    v[0] = 1
    y[0] = v


def spread_to_numpy(x: Any, y: Any) -> None:
    np.add(*(x, x, y))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (all_by_name, "?iy"),
        (spread_to_the_language, "?xy"),
        (any_of_those_it_takes, "?xy"),
        (view_by_name, "y"),
        (pair_by_name, "?xy"),
        (concatenated, "?xy"),
        (added_to, "?xy"),
        (of_an_attribute, "y"),
        (of_an_attribute_that_is_a_list, "?xy"),
        (of_a_list, "?xy"),
        (of_a_list_of_another_name, "?xy"),
        (of_a_list_that_a_function_makes, "?xy"),
        (into_a_view, "y"),
        (by_a_module, "?xy"),
        (view_by_a_module, "y"),
        (by_a_class, "?y"),
        (by_a_builtin, "?y"),
        (matched, "y"),
        (to_any_number, "?xy"),
        (to_any_names, "?xy"),
        (differences, "y"),
        (spread_to_numpy, "?xy"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_written_in_other_ways_is_found_or_not_clear(function, expected):
    assert written(function) == expected


def replaced(function: Any) -> Any:
    @functools.wraps(function)
    def writes_its_second(a: Any, b: Any) -> None:
        b[0] = 1

    return writes_its_second


def passed_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*those: Any) -> Any:
        return function(*those)

    return wrapper


@replaced
def wrapped(x: Any, y: Any) -> None:
    x[0] = 1


@passed_on
def wrapped_for_any(x: Any, y: Any) -> None:
    x[0] = 1


def calls_one_that_is_wrapped(x: Any, y: Any) -> None:
    wrapped(x, y)


def test_one_that_is_wrapped_may_be_either():
    assert written(wrapped) == "?xy"
    assert written(wrapped_for_any) == "?xy"
    assert written(calls_one_that_is_wrapped) == "?xy"


def test_a_name_that_is_bound_later_is_not_known():
    def calls_it(x: Any, y: Any) -> None:
        put_later(y, 0, x[0])

    assert written(calls_it, x=1) == "?y"
    put_later = put
    assert written(calls_it, x=1) == "y"


def names_again(x: Any, y: Any) -> None:
    x = y[0]
    row = x[0]
    row[1] = 1


def takes_all(x: Any, y: Any) -> None:
    every = x[...]
    every[0] = 1


def test_a_name_that_is_bound_again_is_of_no_known_rank():
    assert written(names_again, x=1, y=3) == "?xy"
    assert written(takes_all, x=1) == "x"


def copies_an_item(x: Any, y: Any) -> None:
    p = x[0]
    p[1] = 3
    y[0] = p


def writes_a_part(x: Any, y: Any) -> None:
    p = x[2:]
    p[1] = y[0]


def test_an_item_of_an_array_of_known_rank_is_no_view():
    assert written(writes_a_part, x=1) == "x"
    assert written(copies_an_item) == "xy"
    assert written(copies_an_item, x=1) == "y"
    assert written(copies_an_item, x=2) == "xy"


def test_whose_a_function_is():
    assert is_of(np, "numpy")
    assert is_of(np.linalg.norm, "numpy")
    assert is_of(np.float32(1), "numpy")
    assert not is_of(items, "numpy")
    assert not is_of(np, "num")


# --- functions that nobody has written -------------------------------------------------------------------------------

NAMES = ("x", "y", "z", "a", "b", "c")
STATEMENTS = (
    "{0} = {1}",
    "{0} = {1}[1:]",
    "{0} = {1}.reshape({1}.shape)",
    "{0} = {1} if {2}.size % 2 else {2}",
    "{0} = {1} if {2}.ndim == 2 else {2}",
    "{0}, {1} = {1}, {2}",
    "{0} = [{1}, {2}][1]",
    "{0} = seen({1}, {2})",
    "({0} := {1})[0] = 3",
    "{0}[0] = {1}[0] + 1",
    "{0}[0] += 2",
    "put({0}, 0, {1}[0])",
    "put(z={0}, i=0, value=7)",
    "swapped({0}, {1})",
    "lang.store({0}, 0, lang.load({1}, 0))",
    "np.add({1}[:1], 1, {0}[:1])",
    "for {0} in [{1}, {2}]: {0}[0] = 5",
    "for k in range(2): {0}, {1} = {1}, {0}",
    "if {1}.size > 3: {0} = {2}",
    "{0} = (({1},) + ({2},))[1]",
    "k = [{1}]; k[0] = {2}; {0} = k[0]",
    "{0} = seen(other={1}, z={2})",
    "lang.store(i=0, value=9, x={0})",
    "k = those; k.insert({0}, 0, 8); {0} = k.load({1})",
)


def seen(z: Any, other: Any) -> Any:
    return other if z.size else z


class those:  # noqa: N801
    insert = put

    @staticmethod
    def load(z: Any) -> Any:
        return z


def swapped(z: Any, other: Any) -> None:
    put(other, 0, z[0])


def made_function(seed: int) -> types.FunctionType:
    random = np.random.default_rng(seed)
    lines = [f"def made_{seed}(x, y, z):", "    a, b, c = x, y, z"]
    for _ in range(6):
        names = random.choice(NAMES, 3, replace=False)
        lines.append("    " + STATEMENTS[random.integers(len(STATEMENTS))].format(*names))
    source = "\n".join(lines) + "\n"
    scope: dict[str, Any] = {"np": np, "put": put, "seen": seen, "swapped": swapped, "lang": lang, "those": those}
    exec(compile(source, f"<made {seed}>", "exec"), scope)
    linecache.cache[f"<made {seed}>"] = (len(source), None, source.splitlines(True), f"<made {seed}>")
    function: types.FunctionType = scope[f"made_{seed}"]
    return function


class runs:  # noqa: N801
    """What the language's functions do."""

    @staticmethod
    def load(x: Any, i: int) -> Any:
        return x[i].copy()

    @staticmethod
    def store(x: Any, i: int, value: Any) -> None:
        x[i] = value


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_what_a_function_does_write_is_found(first, monkeypatch):
    """No function of some that were made at random writes what was not found."""
    for name in ("load", "store"):
        monkeypatch.setattr(lang, name, getattr(runs, name))
        monkeypatch.setattr(getattr(runs, name), "__qualname__", f"lang.{name}")
    changed_by_some = found_for_some = 0
    for seed in range(first, first + 100):
        function = made_function(seed)
        arrays = {name: np.full((8, 2), 100 + i) for i, name in enumerate("xyz")}
        before = {name: array.copy() for name, array in arrays.items()}
        function(**arrays)
        changed = {name for name in arrays if (arrays[name] != before[name]).any()}
        found = written_by(function, Language())
        assert changed <= found.surely | found.unclear, inspect.getsource(function)
        changed_by_some += len(changed)
        found_for_some += len(found.surely | found.unclear)
    assert 0 < changed_by_some <= found_for_some < 300  # of three for each function


def test_a_print_that_another_library_has_put_in_place_of_pythons_writes_nothing(monkeypatch):
    monkeypatch.setattr(builtins, "print", lambda *values: values[0].append(3))
    assert written(reads) == ""
