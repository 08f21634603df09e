"""Calls of compiled functions that are like an earlier one are taken by native code, which decides as Python does."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import _native

N = 8


def host(op: Any) -> list[Any]:
    return ac.to_host(op).sync().tolist()


@pytest.fixture
def without_native(monkeypatch):
    """Return a `compile` whose functions leave all calls to Python."""

    def compile_slowly(function: Any, **settings: Any) -> Any:
        made = ac.compile(**settings)(function)
        trace = made._trace

        def forgetful(*arguments: Any) -> Any:
            graph = trace(*arguments)
            graph.known = None
            return graph

        monkeypatch.setattr(made, "_trace", forgetful)
        return made

    return compile_slowly


@contextlib.contextmanager
def python_functions() -> Iterator[list[str]]:
    """Collect the names of aiocuda's functions in Python that are called."""
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and Path(ac.__file__).parent in Path(frame.f_code.co_filename).parents:
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def scaled(kernels: Any) -> Any:
    def function(x: Any, y: Any, a: Any) -> Any:
        return kernels.accumulate(a, x, ac.dup(y), N, threads=N)

    return function


def test_a_call_like_an_earlier_one_runs_one_function_of_python(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.ones(N, np.int32).sync()
    for _ in range(3):
        call(x, y, 2).sync()
    with python_functions() as called:
        operation = call(y, x, 3)
    assert called == ["Compiled.__call__"]
    assert host(operation) == [6] * N
    assert call.cache_info().hits == 3


# Numbers that are alike in one way and differ in another; the difference decides.
NUMBERS = st.sampled_from([1, 2, 2.0, True, np.int32(2), math.nan, 0.0, -0.0])


class Same:
    """An argument that is equal to others of its kind with the same name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), NUMBERS, NUMBERS, st.sampled_from(["a", "b", None, (1, 2)])),
        min_size=2,
        max_size=12,
    ),
    most=st.sampled_from([2, 16]),
)
def test_native_code_finds_the_graph_that_python_would_find(kernels, without_native, calls, most):
    whole = ac.to_device(np.arange(2 * N, dtype=np.int32)).sync()
    floats = ac.ones(N, np.float32).sync()
    arrays = [whole[:N], whole[N:], whole[::2], whole[:N], whole[4 : 4 + N], floats]

    def function(x: Any, y: Any, a: Any, seen: Any, other: Any) -> Any:
        step = 1 if seen else 2  # looks at this number
        spread = ac.dup(x).then(lambda made: ac.fill(made[::step], 7) if x.dtype == np.int32 else ac.fill(made, 5))
        return spread, y

    known, slow = ac.compile(max_graphs=most)(function), without_native(function, max_graphs=most)
    for i, j, a, seen, other in calls:
        marker = Same(other) if isinstance(other, str) else other
        arguments = (arrays[i], arrays[j], a, seen, marker)
        results = []
        for call in (known, slow):
            made, given_back = call(*arguments).sync()
            results.append((host(made), host(given_back), type(given_back), given_back.shape))
        assert results[0] == results[1]
        assert known.cache_info() == slow.cache_info()


def test_numbers_that_only_kernels_take_are_replaced(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    assert [host(call(x, y, a)) for a in range(5)] == [[a] * N for a in range(5)]
    assert call.cache_info() == ac.CacheInfo(hits=4, misses=1, graphs=1, max_graphs=16)


def test_memory_of_results_is_used_again_when_nobody_holds_it(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    kept = [call(x, y, a).sync() for a in range(6)]
    assert [host(each) for each in kept] == [[a] * N for a in range(6)]
    assert len({each._place for each in kept}) == 6
    del kept
    assert len({call(x, y, a).sync()._place for a in range(6)}) <= 2


def test_a_closed_array_is_refused_as_ever(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    call(x, y, 1).sync()
    x.close()
    with pytest.raises(ac.ClosedError, match="was closed"):
        call(x, y, 1).sync()


@pytest.mark.needs_devices(2)
def test_another_device_in_force_is_another_graph(kernels):
    call = ac.compile(lambda n: ac.full(n, 3, np.int32))
    assert call(N).sync().device == ac.Device(0)
    with ac.use(ac.Device(1)):
        assert call(N).sync().device == ac.Device(1)
    assert call(N).sync().device == ac.Device(0)
    assert call.cache_info().misses == 2


def test_a_call_inside_of_a_graph_becomes_a_part_of_it(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    call(x, y, 1).sync()
    outer = ac.compile(lambda x, y: call(x, y, 5))
    assert host(outer(x, y)) == [5] * N
    assert call.cache_info().hits == 0


def test_graphs_that_are_let_go_of_are_counted_still(kernels):
    call = ac.compile(max_graphs=1)(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    shifted = ac.zeros(2 * N, np.int32).sync()[::2]
    for arrays in [(x, y), (x, y), (x, shifted), (x, shifted), (x, y)]:
        with contextlib.suppress(ac.ArgumentTypeError):
            call(*arrays, 2).sync()
    before = call.cache_info()
    assert before.hits >= 1
    call.cache_clear()
    assert call.cache_info().hits == before.hits


def test_what_an_argument_holds_can_be_collected():
    class Holder:
        call: Any = None

        def __hash__(self) -> int:
            return 1

    def function(x: Any, holder: Any) -> Any:
        return ac.dup(x)

    holder = Holder()
    holder.call = ac.compile(function)
    x = ac.ones(N, np.int32).sync()
    for _ in range(3):
        holder.call(x, holder).sync()
    known = holder.call._latest.known
    assert isinstance(known, _native.KnownCall)
    assert known.hits == 2
    gone = weakref.ref(holder)
    del holder, known
    gc.collect()
    assert gone() is None


def test_structures_and_names_are_left_to_python(kernels):
    call = ac.compile(lambda pair, a: kernels.accumulate(a, pair[0], ac.dup(pair[1]), N, threads=N))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    assert [host(call((x, y), a)) for a in range(3)] == [[a] * N for a in range(3)]
    assert [host(call((x, y), a=a)) for a in range(3)] == [[a] * N for a in range(3)]
    assert call.cache_info().hits == 4
    assert all(graph.known is None for graph in call._graphs.values())
