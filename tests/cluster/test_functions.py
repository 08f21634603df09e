"""Functions that are sent along: pickled once where that cannot be noticed, and for each call where it can."""

from __future__ import annotations

import inspect
import pickle
import sys
import types
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from aiocuda._cluster.functions import Functions
from aiocuda._cluster.ray import dumps
from aiocuda.cluster import Cluster

scale = 2
mutable: list[int] = []
large = bytes(1 << 20)


def scaled(x: int, plus: int = 0) -> float:
    return np.float64(scale * x + plus)


def counted() -> int:
    global scale
    scale += 1
    return scale


def of_all_globals() -> int:
    return len(globals())


def with_a_list() -> list[int]:
    return mutable


def with_large_data() -> bytes:
    return large


def with_another_function() -> float:
    return scaled(1)


def with_a_list_within() -> Any:
    return (lambda: mutable)()


def with_an_attribute() -> None:
    pass


with_an_attribute.states = []  # type: ignore[attr-defined]


def with_an_annotation(x: Any) -> None:
    pass


with_an_annotation.__annotations__["x"] = mutable


def with_a_class_within_an_annotation(x: Any) -> None:
    pass


with_a_class_within_an_annotation.__annotations__["x"] = list[Fraction]


def with_built_in_annotations(x: Any, y: Any) -> None:
    pass


with_built_in_annotations.__annotations__.update({"x": dict[str, tuple[int, ...]], "y": list, "return": None})


def with_keyword_default(*, states: Any = mutable) -> Any:
    return states


def with_default(states: Any = mutable) -> Any:
    return states


class Counting:
    """Functions as a process sends them, and how many were pickled."""

    def __init__(self, *by_value: str) -> None:
        self.count = 0
        self.by_value = {__name__, *by_value}
        self.functions = Functions(self._dumps, lambda: set(self.by_value))

    def _dumps(self, each: Any) -> bytes:
        self.count += 1
        return str(self.count).encode()

    def is_kept(self, each: Any) -> bool:
        """Whether a function is pickled once for two calls."""
        before = self.count
        return self.functions.sent(each) is self.functions.sent(each) is not None and self.count <= before + 1


def test_a_function_of_constants_and_modules_is_pickled_once():
    counting = Counting()
    assert counting.is_kept(scaled)
    assert counting.is_kept(scaled)
    assert counting.count == 1
    assert counting.is_kept(with_built_in_annotations)


@pytest.mark.parametrize("change", ["scale", "np", "__code__", "__defaults__", "sys.modules", "by_value"])
def test_it_is_pickled_anew_when_something_of_it_has_changed(monkeypatch, change: str):
    counting = Counting()
    assert counting.is_kept(scaled)
    match change:
        case "scale":
            monkeypatch.setitem(globals(), "scale", 3)
        case "np":
            monkeypatch.setitem(globals(), "np", types)
        case "__code__":
            monkeypatch.setattr(scaled, "__code__", (lambda x, plus: x).__code__)
        case "__defaults__":
            monkeypatch.setattr(scaled, "__defaults__", (7,))
        case "sys.modules":
            monkeypatch.setitem(sys.modules, "a module that comes later", types.ModuleType("a"))
        case _:
            counting.by_value.add("another module")
    assert counting.is_kept(scaled)
    assert counting.count == 2


MAY_CHANGE = [counted, of_all_globals, with_a_list, with_another_function, with_a_list_within, with_an_attribute]
MORE = [with_large_data, with_default, with_keyword_default, with_an_annotation, with_a_class_within_an_annotation]
OTHERS = [inspect.isfunction, len, Counting, "text"]


@pytest.mark.parametrize("function", [*MAY_CHANGE, *MORE, *OTHERS])
def test_what_could_change_unnoticed_is_pickled_for_each_call(function: Any):
    assert Counting().functions.sent(function) is None


def test_a_closure_and_a_module_that_is_sent_by_value_are_pickled_for_each_call(monkeypatch):
    seen: list[int] = []

    def closure() -> list[int]:
        return seen

    assert Counting().functions.sent(closure) is None
    assert Counting("numpy").functions.sent(scaled) is None
    monkeypatch.setitem(globals(), "np", types.ModuleType("made here"))
    assert Counting().functions.sent(scaled) is None


HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    "value", [HALF, (1, (HALF,)), {"key": HALF}, {HALF: "value"}, [HALF], ("text",) * 16 + (HALF,)]
)
def test_what_is_no_built_in_type_is_shown_to_the_reducer_wherever_it_is(value: Any):
    pytest.importorskip("ray")
    seen: list[Any] = []

    def reduce(each: Any) -> Any:
        seen.append(each)
        return NotImplemented

    pickled, _ = dumps(value, reduce, "a value")
    assert HALF in seen
    assert pickle.loads(pickled) == value


def holds_itself() -> Any:
    made: dict[str, Any] = {}
    made["again"] = made
    return made


def holds_one_thing_often() -> Any:
    made: dict[int, Any] = {}
    for _ in range(40):
        made = dict.fromkeys(range(16), made)
    return made


@pytest.mark.parametrize("make", [holds_itself, holds_one_thing_often])
def test_what_has_no_end_or_a_late_one_is_pickled_as_ever(make: Any):
    pytest.importorskip("ray")
    pickled, _ = dumps(make(), lambda _: NotImplemented, "a value")
    made = pickle.loads(pickled)
    assert made["again"] is made if make is holds_itself else made[0] is made[15]


def test_calls_of_one_function_see_what_changed_here_and_nothing_of_each_other(run, cluster: Cluster, monkeypatch):
    async def main() -> None:
        worker = cluster[0]
        assert [await worker.run(scaled, 2), await worker.run(scaled, 2, plus=1)] == [4, 5]
        monkeypatch.setitem(globals(), "scale", 5)
        assert await worker.run(scaled, 2) == 10
        assert [await worker.run(counted) for _ in range(2)] == [6, 6]
        mutable.append(1)
        assert await worker.run(with_a_list) == [1]
        mutable.append(2)
        assert await worker.run(with_a_list) == [1, 2]

    try:
        run(main)
    finally:
        mutable.clear()


def test_the_worker_makes_a_kept_function_once(run, cluster: Cluster):
    def codes() -> int:
        import sys

        seen = sys.__dict__.setdefault("codes of a test", {})  # keeps them, so that no other one gets their number
        code = sys._getframe().f_code
        seen[id(code)] = code
        return len(seen)

    async def main() -> None:
        assert [await cluster[0].run(codes) for _ in range(3)] == [1, 1, 1]

    run(main)
