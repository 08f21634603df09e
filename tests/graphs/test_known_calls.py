"""Calls of compiled functions that are like an earlier one are taken by native code, which decides as Python does."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def test_a_call_like_an_earlier_one_runs_no_function_of_python(kernels):
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.ones(N, np.int32).sync()
    for _ in range(3):
        call(x, y, 2).sync()
    with python_functions() as called:
        operation = call(y, x, 3)
    assert called == []
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


def known_call(kernels: Any) -> tuple[Any, Any, Any]:
    """A compiled function whose next calls native code takes, and two arrays for it."""
    call = ac.compile(scaled(kernels))
    x, y = ac.ones(N, np.int32).sync(), ac.zeros(N, np.int32).sync()
    call(x, y, 1).sync()
    call(x, y, 1).sync()
    assert call._latest.known.hits == 1
    return call, x, y


def test_arguments_by_name_are_taken_by_native_code_too(kernels):
    call, x, y = known_call(kernels)
    for a in range(4):
        assert host(call(x, y=y, a=a)) == [a] * N
    assert call._latest.known.hits == 3
    assert call.cache_info() == ac.CacheInfo(hits=4, misses=2, graphs=2, max_graphs=16)
    # As for Python, the order of the names makes another key; so do fewer of them.
    assert host(call(x, a=5, y=y)) == [5] * N
    assert host(call(x, y, a=6)) == [6] * N
    assert call.cache_info().graphs == 4
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        call(x, y=y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        call(x, y=y, b=1)


def test_names_that_python_made_anew_are_the_same_names(kernels):
    call, x, y = known_call(kernels)
    names = {"".join(["y", "y"])[:1]: y, "aa"[:1]: 3}
    for _ in range(3):
        assert host(call(x, **names)) == [3] * N
    assert call._latest.known.hits == 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x.close(), ac.ClosedError, "was closed"),
        (lambda x: x.partition((2,)), ac.OwnershipError, "was partitioned"),
        (ac.move, ac.OwnershipError, "was moved"),
    ],
    ids=["closed", "partitioned", "moved"],
)
def test_an_array_that_may_not_be_used_is_refused_when_the_call_is_made_and_when_it_runs(
    kernels, change, error, message
):
    call = ac.compile(lambda x: ac.fill(x, 3))
    x, y = ac.ones(N, np.int32).sync(), ac.ones(N, np.int32).sync()
    for _ in range(2):
        call(x).sync()
    made = call(y)
    kept = change(x), change(y)
    with pytest.raises(error, match=message):
        call(x).sync()
    with pytest.raises(error, match=message):
        made.sync()
    del kept


def test_each_call_of_many_arguments_finds_its_own(kernels):
    """More than an operation keeps in itself: arrays, numbers and results."""
    count = 20

    def function(*given: Any) -> Any:
        arrays, numbers = given[:count], given[count:]
        return tuple(
            kernels.accumulate(number, array, ac.dup(array), N, threads=N)
            for array, number in zip(arrays, numbers, strict=True)
        )

    call = ac.compile(function)
    arrays = [ac.full(N, i, np.int32).sync() for i in range(count)]
    for turn in range(4):
        order = arrays[turn:] + arrays[:turn]
        results = call(*order, *range(turn, turn + count)).sync()
        # 3 * y + number * x, and y is a copy of x
        expected = [(turn + i) % count * (3 + turn + i) for i in range(count)]
        assert [host(each) for each in results] == [[each] * N for each in expected]
        del results
    assert call._latest.known.hits == 3


class Closing:
    """An argument whose comparison does something."""

    def __init__(self, does: Any) -> None:
        self.does = does

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        self.does()
        return isinstance(other, Closing)


def test_a_comparison_that_closes_an_array_or_forgets_the_graphs_does_no_harm(kernels):
    call = ac.compile(lambda x, other: kernels.accumulate(2, x, ac.zeros(N, np.int32), N, threads=N))
    x = ac.ones(N, np.int32).sync()
    for _ in range(2):
        call(x, Closing(lambda: None)).sync()
    assert host(call(x, Closing(call.cache_clear))) == [2] * N
    for _ in range(2):
        assert host(call(x, Closing(lambda: None))) == [2] * N
    with pytest.raises(ac.ClosedError, match="was closed"):
        call(x, Closing(x.close)).sync()

    def failing() -> None:
        raise ZeroDivisionError("compared")

    y = ac.ones(N, np.int32).sync()
    with pytest.raises(ZeroDivisionError, match="compared"):
        call(y, Closing(failing))
    assert host(call(y, Closing(lambda: None))) == [2] * N


def test_calls_leave_no_references_behind(kernels):
    call, x, y = known_call(kernels)
    marker = object()
    other = ac.compile(lambda x, _: ac.dup(x))
    for _ in range(2):
        other(x, marker).sync()

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (x, y, marker, call._latest.known, call._latest.executables[0])]

    before = counts()
    for a in range(1000, 1050):
        call(x, y, a).sync()
        call(x, y, a)  # never executed
        other(x, marker).sync()
        with pytest.raises(ac.ArgumentRangeError, match="1099511627776"):
            call(x, y, 2**40)
    assert counts() == before


def test_threads_call_one_function_while_its_graphs_are_forgotten(kernels):
    call = ac.compile(scaled(kernels))
    arrays = [ac.full(N, i, np.int32).sync() for i in range(4)]
    zero = ac.zeros(N, np.int32).sync()
    begun = threading.Barrier(5)

    def work(i: int) -> list[bool]:
        begun.wait()
        return [host(call(arrays[i], zero, a)) == [i * a] * N for a in range(40)]

    with ThreadPoolExecutor(5) as pool:
        done = [pool.submit(work, i) for i in range(4)]
        begun.wait()
        while not all(each.done() for each in done):
            call.cache_clear()
        assert all(all(each.result()) for each in done)


def test_a_subclass_and_a_bound_call_are_functions_all_the_same(kernels):
    call, x, y = known_call(kernels)
    assert host(call.__call__(x, y, 4)) == [4] * N
    assert host(type(call).__call__(call, x, y, 5)) == [5] * N
    assert call.cache_info().misses == 1
    before = call._latest.known.hits
    assert host(call(*[x, y], a=6)) == [6] * N
    assert call._latest.known.hits == 0
    assert before == 1


def test_results_of_several_arrays_are_let_go_of_without_the_collector(kernels, without_native):
    call = without_native(lambda x: (ac.dup(x), {"again": ac.dup(x)}))
    x = ac.ones(N, np.int32).sync()
    call(x).sync()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            call(x).sync()
        assert [[each._holders for each in ring] for ring, _ in call._latest.outputs] == [[1], [1]]
    finally:
        gc.enable()


def test_names_in_another_order_are_not_taken_for_one_another(kernels):
    call = ac.compile(lambda x, y: kernels.accumulate(5, x, ac.dup(y), N, threads=N))
    one, two = ac.full(N, 1, np.int32).sync(), ac.full(N, 2, np.int32).sync()
    for _ in range(2):
        assert host(call(x=one, y=two)) == [11] * N
    assert host(call(y=one, x=two)) == [13] * N
    assert host(call(two, y=one)) == [13] * N
    assert host(call(two, one)) == [13] * N
    assert host(call(x=one, y=two)) == [11] * N
