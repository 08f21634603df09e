"""Compiled functions: what they yield is what the function would, whatever they are called with."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import threading
from typing import NamedTuple

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native

N = 64


def host(op):
    return ac.to_host(op).sync()


def full(value, n=N):
    return ac.full(n, value, np.int32).sync()


@pytest.fixture
def axpy(kernels):
    """Yields 3 y + a x, as a new array; and counts how often it is traced."""

    def function(a, x, y):
        function.traces += 1
        return kernels.accumulate(a, x, ac.dup(y), N, threads=N)

    function.traces = 0
    return function


def test_calls_give_what_the_function_gives(axpy):
    compiled = ac.compile(axpy)
    for i in range(5):
        assert host(compiled(i, full(i), full(10 * i))).tolist() == [30 * i + i * i] * N
    assert axpy.traces == 1
    assert compiled.cache_info() == ac.CacheInfo(hits=4, misses=1, graphs=1, max_graphs=16)
    assert compiled.__name__ == "function"


def test_calls_by_keywords_give_what_the_function_gives(kernels):
    compiled = ac.compile(lambda x, *, n: kernels.increment(x, n, threads=n))
    for value in (1, 5, 9):
        x = full(value)
        assert host(compiled(x=x, n=N)).tolist() == [value + 1] * N
        assert host(x).tolist() == [value + 1] * N
        assert host(compiled(x, n=N // 2)).tolist() == [value + 2] * (N // 2) + [value + 1] * (N // 2)
    assert compiled.cache_info().graphs <= 4


def test_calls_are_awaited(axpy, run):
    compiled = ac.compile(axpy)

    async def main():
        x, y = await ac.ones(N, np.int32), await ac.ones(N, np.int32)
        return [await ac.to_host(await compiled(i, x, y)) for i in range(3)]

    assert [result.tolist() for result in run(main)] == [[3 + i] * N for i in range(3)]


def test_as_a_decorator(kernels):
    @ac.compile(max_graphs=2, results="copy")
    def increment(x):
        """Say what it is."""
        return kernels.increment(ac.dup(x), N, threads=N)

    assert host(increment(full(1))).tolist() == [2] * N
    assert increment.__doc__ == "Say what it is."
    assert increment.cache_info().max_graphs == 2


def test_nothing_runs_before_it_is_executed(kernels):
    compiled = ac.compile(lambda x: kernels.increment(x, N, threads=N))
    x = full(0)
    calls = [compiled(x) for _ in range(3)]
    assert host(x).tolist() == [0] * N
    for call in calls:
        call.sync()
        call.sync()
    assert host(x).tolist() == [3] * N


def test_operations_as_arguments(axpy, kernels):
    compiled = ac.compile(axpy)
    x = full(2)
    for i in range(3):
        y = kernels.increment(ac.full(N, i, np.int32), N, threads=N)
        assert host(compiled(ac.value(i).then(lambda n: n + 1), x, y)).tolist() == [3 * (i + 1) + 2 * (i + 1)] * N
    assert axpy.traces == 1


def test_shapes_dtypes_and_strides_are_told_apart(kernels, caplog):
    traces = []

    @ac.compile
    def double(x):
        traces.append(x.shape)
        return ac.dup(x)

    arrays = [full(1), full(2, 2 * N), ac.ones(N).sync(), ac.ones((8, 8)).sync(), ac.ones((8, 16)).sync()[:, ::2]]
    with caplog.at_level(logging.INFO, "aiocuda.compile"):
        for _ in range(2):
            for array in arrays:
                assert np.array_equal(host(double(array)), host(array))
    assert len(traces) == 5
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5
    assert "there is no graph yet" in told[0]
    assert "DeviceArray of int32(128,) on device 0 was given, a DeviceArray of int32(64,)" in told[1]


def test_numbers_that_are_looked_at_decide(kernels, caplog):
    traces = []

    @ac.compile
    def repeated(x, times, step):
        traces.append(times)
        y = ac.dup(x)
        for _ in range(times):
            y = kernels.accumulate(step, x, y, N, threads=N)
        return y

    x = full(1)
    with caplog.at_level(logging.INFO, "aiocuda.compile"):
        for times, step in ((1, 1), (2, 1), (1, 5), (2, 7), (0, 9), (0, 1)):
            expected = 1
            for _ in range(times):
                expected = 3 * expected + step
            assert host(repeated(x, times, step)).tolist() == [expected] * N
    assert traces == [1, 2, 0]
    assert "numbers that are others now: 2 (was 1)" in caplog.records[1].getMessage()


@pytest.mark.parametrize(
    "look",
    [
        lambda n: n + 1,
        lambda n: 1 + n,
        lambda n: n > 2,
        lambda n: sorted([n, 2]),
        lambda n: n == 3,
        bool,
        int,
        float,
        str,
        repr,
        hash,
        round,
        lambda n: f"{n:>4}",
        lambda n: [0] * 10 if n is None else list(range(10))[n],
        lambda n: range(n),
        lambda n: n.bit_length(),
        lambda n: {3: 1}.get(n),
        lambda n: divmod(7, n),
        lambda n: np.zeros(n),
        lambda n: np.float32(n),
        lambda n: max(n, 2),
        lambda n: ac.zeros(n),
        lambda n: ac.full(N, n),
        lambda n: ac.value(n).then(lambda seen: seen),
    ],
)
def test_every_way_to_look_at_a_number(kernels, look):
    """Each of them makes the number a part of what the graph was made for; and gives what the number gives."""
    seen = []

    @ac.compile
    def function(x, n):
        found = look(n)
        if isinstance(found, ac.DeviceOp):
            return ac.zip(found, x)
        seen.append(found)
        return ac.dup(x)

    def value(found):
        return ac.to_host(found).sync() if isinstance(found, ac.DeviceArray) else found

    x = full(1)
    for n in (3, 4, 3):
        result = function(x, n).sync()
        if isinstance(result, tuple):
            seen.append(value(result[0]))
    assert function.cache_info().misses == 2
    looked_at = (3, 4, 3) if isinstance(result, tuple) else (3, 4)  # what an operation yields is seen at each launch
    for found, n in zip(seen, looked_at, strict=True):
        expected = look(n)
        assert np.array_equal(found, value(expected.sync() if isinstance(expected, ac.DeviceOp) else expected))


def test_a_number_that_goes_straight_to_kernels_is_replaced(kernels):
    @ac.compile
    def function(x, n, a):
        assert isinstance(a, (int, np.integer))
        return kernels.accumulate(a, x, ac.dup(x), n, threads=N)

    x = full(1)
    for n, a in ((N, 1), (3, 1), (N, np.int32(7)), (5, np.int32(8))):
        expected = [3 + int(a)] * n + [1] * (N - n)
        assert host(function(x, n, a)).tolist() == expected
    assert function.cache_info().misses == 2  # an int, and one of NumPy's


def test_a_size_of_a_launch_decides(kernels):
    compiled = ac.compile(lambda x, n: kernels.increment(ac.dup(x), n, threads=n))
    for n in (3, N, 3):
        assert host(compiled(full(0), n)).tolist() == [1] * n + [0] * (N - n)
    assert compiled.cache_info().misses == 2


def test_other_arguments_decide_too(kernels):
    @ac.compile
    def function(x, mode, *, scale=None, flag=False):
        y = ac.dup(x)
        for _ in range({"once": 1, "twice": 2}[mode] + (3 if flag else 0) + (scale or 0)):
            y = kernels.increment(y, N, threads=N)
        return y

    x = full(0)
    for _ in range(2):
        assert host(function(x, "once")).tolist() == [1] * N
        assert host(function(x, "twice")).tolist() == [2] * N
        assert host(function(x, "twice", flag=True)).tolist() == [5] * N
        assert host(function(x, "twice", scale=4)).tolist() == [6] * N
    assert function.cache_info().misses == 4
    with pytest.raises(ac.ArgumentTypeError, match="hashable"):
        function(x, {1, 2})


def test_true_and_false_are_no_numbers(kernels):
    """The function gets them as they are, and is traced for each."""
    seen = []

    @ac.compile
    def function(x, flag):
        seen.append(flag)
        return ac.dup(x)

    for flag in (True, False, True):
        function(full(0), flag).sync()
    assert [type(flag) for flag in seen] == [bool, bool]
    assert seen == [True, False]


@dataclasses.dataclass
class Pair:
    x: ac.DeviceArray
    y: ac.DeviceArray


def test_the_log_says_which_argument_is_another(caplog):
    @ac.compile
    def function(x, structure=None, **others):
        return ac.dup(x)

    x = full(0)
    with caplog.at_level(logging.INFO, "aiocuda.compile"):
        for structure in ("once", "twice", None, [x], (x, x), {"x": x}, {"y": x}, Pair(x, x), 1, 2.0):
            function(x, structure).sync()
        function(x, structure=2.0).sync()
        function(x, other=2.0).sync()
    told = [record.getMessage().split(": ")[-1] for record in caplog.records]
    assert told[1:] == [
        "'twice' was given, 'once' before",
        "None was given, 'twice' before",
        "a list of 1 was given, None before",
        "a tuple of 2 was given, a list of 1 before",
        "a dict of ('x',) was given, a tuple of 2 before",
        "a dict of ('y',) was given, a dict of ('x',) before",
        "a Pair was given, a dict of ('y',) before",
        "a number (int) was given, a Pair before",
        "a number (float) was given, a number (int) before",
        "arguments by the names ('structure',) was given, a number (float) before",
        "arguments by the names ('other',) was given, arguments by the names ('structure',) before",
    ]


@pytest.mark.parametrize(
    ("make", "put"),
    [
        (lambda x: [x], lambda held, x: held.__setitem__(0, x)),
        (lambda x: {"x": x}, lambda held, x: held.__setitem__("x", x)),
        (lambda x: Pair(x, x), lambda held, x: held.__setattr__("x", x)),
    ],
    ids=["list", "dict", "dataclass"],
)
def test_a_structure_in_which_the_program_puts_another_array(kernels, make, put):
    """A call takes what is in it now, though the structure itself is the same object as at the call before."""

    @ac.compile
    def function(held):
        x = held.x if isinstance(held, Pair) else next(iter(held.values())) if isinstance(held, dict) else held[0]
        return kernels.increment(ac.dup(x), N, threads=N)

    held = make(full(0))
    for number in range(4):
        put(held, full(number))
        assert host(function(held)).tolist() == [number + 1] * N
    assert function.cache_info().misses <= 2  # of a Pair whose two arrays are one first


def test_structures_of_arrays(kernels):
    @ac.compile
    def function(weights, state):
        x, (y, n) = state
        return {
            "sum": kernels.accumulate(n, weights["a"], ac.dup(x), N, threads=N),
            "rest": [kernels.accumulate(1, weights["b"], ac.dup(y), N, threads=N), y, 5],
        }

    for i in range(3):
        weights = {"a": full(i), "b": full(i + 1)}
        y = full(7)
        result = function(weights, [full(1), (y, i)]).sync()
        assert host(result["sum"]).tolist() == [3 + i * i] * N
        assert host(result["rest"][0]).tolist() == [21 + i + 1] * N
        assert result["rest"][1] is y
        assert result["rest"][2] == 5
    assert function.cache_info().misses == 1


def test_results_are_the_callers(axpy):
    for results in ("buffers", "copy"):
        compiled = ac.compile(results=results)(axpy)
        kept = [compiled(i, full(i), full(0)).sync() for i in range(10)]
        assert [host(array).tolist() for array in kept] == [[i * i] * N for i in range(10)]


def test_memory_of_results_that_were_let_go_is_used_again(axpy, used_bytes):
    compiled = ac.compile(axpy)
    x, y = full(1), full(1)
    addresses = set()
    compiled(1, x, y).sync()
    before = used_bytes()
    for i in range(20):
        addresses.add(compiled(i, x, y).sync().address)
    assert len(addresses) <= 2
    assert used_bytes() <= before + N * 4


def test_a_result_that_was_closed(axpy):
    compiled = ac.compile(axpy)
    for i in range(4):
        result = compiled(i, full(i), full(0)).sync()
        assert host(result).tolist() == [i * i] * N
        result.close()


def test_an_argument_that_is_returned(kernels):
    compiled = ac.compile(lambda x, y: (kernels.increment(x, N, threads=N), y, y[: N // 2], 3))
    for i in range(3):
        x, y = full(i), full(10 * i)
        first, second, part, number = compiled(x, y).sync()
        assert first is x
        assert second is y
        assert number == 3
        assert host(x).tolist() == [i + 1] * N
        assert host(part).tolist() == [10 * i] * (N // 2)


def test_the_same_array_twice(kernels):
    compiled = ac.compile(lambda x, y: kernels.accumulate(2, x, y, N, threads=N))
    x, y = full(1), full(2)
    compiled(x, y).sync()
    compiled(x, x).sync()
    compiled(y, y).sync()
    assert (host(x).tolist(), host(y).tolist()) == ([5] * N, [40] * N)
    assert compiled.cache_info().misses == 2


def test_arrays_that_overlap_are_an_error_where_one_is_written(kernels):
    compiled = ac.compile(lambda x, y: kernels.accumulate(2, x, y, N, threads=N))
    whole = full(1, 2 * N)
    with pytest.raises(ac.ArgumentValueError, match="lies upon"):
        compiled(whole[:N], whole[1 : N + 1]).sync()
    compiled(whole[:N], whole[N:]).sync()
    assert host(whole).tolist() == [1] * N + [5] * N


def test_arrays_from_outside(kernels):
    """An array that the function finds elsewhere stays what it was, and is not taken for an argument."""
    weights = full(3)
    compiled = ac.compile(lambda x: kernels.accumulate(2, weights, ac.dup(x), N, threads=N))
    assert host(compiled(full(1))).tolist() == [9] * N
    assert host(compiled(weights)).tolist() == [15] * N
    kernels.increment(weights, N, threads=N).sync()
    assert host(compiled(full(1))).tolist() == [11] * N
    weights.close()
    with pytest.raises(ac.ClosedError, match=r"launch of the graph made at .*: the array of .* was closed at"):
        compiled(full(1)).sync()


def test_results_on_the_host(kernels):
    compiled = ac.compile(lambda x: ac.to_host(kernels.increment(ac.dup(x), N, threads=N)))
    results = [compiled(full(i)).sync() for i in range(4)]
    assert [result.tolist() for result in results] == [[i + 1] * N for i in range(4)]
    summed = ac.compile(lambda x: (ac.to_host(x).map(lambda data: int(data.sum())), ac.dup(x)))
    for i in range(3):
        total, copied = summed(full(i)).sync()
        assert total == i * N
        assert host(copied).tolist() == [i] * N


def test_the_cache_is_bounded(kernels, used_bytes):
    compiled = ac.compile(max_graphs=3)(lambda x: ac.dup(ac.dup(x)))
    for _ in range(2):
        for n in range(1, 6):
            assert host(compiled(full(n, n))).tolist() == [n] * n
    assert compiled.cache_info() == ac.CacheInfo(hits=0, misses=10, graphs=3, max_graphs=3)
    compiled(full(5, 5)).sync()
    assert compiled.cache_info().hits == 1
    compiled.cache_clear()
    assert compiled.cache_info().graphs == 0
    assert host(compiled(full(5, 5))).tolist() == [5] * 5


def test_the_graph_used_longest_ago_goes_first(kernels):
    compiled = ac.compile(max_graphs=2)(ac.dup)
    for n in (1, 2, 1, 3, 1):
        compiled(full(0, n)).sync()
    assert compiled.cache_info().misses == 3
    compiled(full(0, 2)).sync()
    assert compiled.cache_info().misses == 4


def test_a_graph_that_goes_while_it_is_in_flight(kernels, latch, used_bytes):
    compiled = ac.compile(max_graphs=1)(lambda x: kernels.increment(ac.dup(ac.dup(x)), N, threads=N))
    x = full(1)
    latch.hold()
    future = ac.to_host(compiled(x)).submit()
    compiled.cache_clear()
    gc.collect()
    latch.release()
    assert future.sync().tolist() == [2] * N


def test_an_error_in_the_function(kernels):
    @ac.compile
    def function(x, n):
        if n > 1:
            raise KeyError(n)
        return ac.dup(x)

    with pytest.raises(KeyError, match="2"):
        function(full(0), 2)
    assert host(function(full(3), 1)).tolist() == [3] * N
    assert function.cache_info().misses == 1


def test_what_a_graph_cannot_hold(kernels):
    x = full(0)
    with pytest.raises(ac.CaptureError, match="which is traced"):
        ac.compile(lambda x: kernels.increment(x, N, threads=N).sync())(x)
    with pytest.raises(ac.CaptureError, match="map"):
        ac.compile(lambda x: ac.to_host(x).map(lambda data: data + 1).then(ac.to_device))(x)
    assert host(x).tolist() == [0] * N


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_graphs": 0}, "max_graphs is a number of 1 or more; 0 was given"),
        ({"executables": True}, "executables is a number of 1 or more; True was given"),
        ({"results": "borrowed"}, "results is 'buffers' or 'copy'; 'borrowed' was given"),
        ({"capture_mode": "loose"}, "capture_mode is 'global', 'thread_local' or 'relaxed'; 'loose' was given"),
    ],
)
def test_settings_that_cannot_be_are_an_error(settings, message):
    with pytest.raises(ac.ArgumentValueError, match=message):
        ac.compile(ac.dup, **settings)


def test_what_is_no_function():
    with pytest.raises(ac.ArgumentTypeError, match="function"):
        ac.compile(3)

    async def coroutine(x):
        return x

    with pytest.raises(ac.ArgumentTypeError, match="coroutine"):
        ac.compile(coroutine)


def test_a_compiled_function_in_another(kernels):
    inner = ac.compile(lambda x: kernels.increment(x, N, threads=N))
    outer = ac.compile(lambda x: inner(inner(ac.dup(x))))
    assert host(outer(full(1))).tolist() == [3] * N
    assert inner.cache_info().misses == 0
    graph = ac.dup(full(5)).then(inner).graph()
    assert host(graph.launch()).tolist() == [6] * N
    with ac.graph_scope() as scope:
        scope.record(inner(scope.record(ac.zeros(N, np.int32))))
    assert host(scope.graph.launch()).tolist() == [1] * N
    assert inner.cache_info().misses == 0


@pytest.mark.parametrize("executables", [1, 3])
def test_calls_from_many_tasks(axpy, run_asyncio, executables):
    compiled = ac.compile(executables=executables)(axpy)

    async def main():
        async def work(i):
            x, y = await ac.full(N, i, np.int32), await ac.zeros(N, np.int32)
            return [(await ac.to_host(await compiled(k, x, y))).tolist() for k in range(4)]

        return await asyncio.gather(*(work(i) for i in range(20)))

    assert run_asyncio(main) == [[[k * i] * N for k in range(4)] for i in range(20)]


def test_calls_from_many_threads(kernels):
    compiled = ac.compile(lambda a, x: kernels.accumulate(a, x, ac.dup(x), N, threads=N))
    wrong = []

    def work(i):
        x = full(i)
        for k in range(20):
            found = host(compiled(k, x)).tolist()
            if found != [3 * i + k * i] * N:
                wrong.append((i, k, found[0]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_copies_of_the_executable_do_not_wait_for_one_another(kernels, latch, device):
    compiled = ac.compile(executables=2)(lambda x: kernels.increment(ac.dup(ac.dup(x)), N, threads=N))
    x, y = full(1), full(2)
    for _ in range(2):
        compiled(x).sync()
    held = device.stream()
    latch.hold(held)
    first = compiled(x).on(held).submit()
    assert host(compiled(y).on(device.stream())).tolist() == [3] * N
    assert not first.done()
    third = compiled(y).on(device.stream()).submit()  # it is the first one's turn again
    assert not third.done()
    latch.release()
    assert host(first.sync()).tolist() == [2] * N
    assert host(third.sync()).tolist() == [3] * N


def test_dataclasses_and_named_tuples(kernels):
    @dataclasses.dataclass(frozen=True, slots=True)
    class State:
        x: object
        n: int

    class Pair(NamedTuple):
        first: object
        second: object

    @ac.compile
    def function(state, pair):
        assert isinstance(state, State)
        assert isinstance(pair, Pair)
        y = kernels.accumulate(state.n, state.x, ac.dup(pair.second), N, threads=N)
        return Pair(y, pair.first)

    for i in range(3):
        first = full(9)
        result = function(State(full(i), i), Pair(first, full(1))).sync()
        assert isinstance(result, Pair)
        assert host(result.first).tolist() == [3 + i * i] * N
        assert result.second is first
    assert function.cache_info().misses == 1


def test_a_compiled_function_in_another_one_takes_its_keywords(kernels):
    inner = ac.compile(lambda x, *, times: kernels.accumulate(times, x, ac.dup(x), N, threads=N))
    outer = ac.compile(lambda x: inner(x, times=4))
    assert host(outer(full(2))).tolist() == [14] * N
    assert inner.cache_info().misses == 0  # it is a part of the other one's graph


def test_each_of_several_numbers_that_an_operation_looks_at_is_a_part_of_what_the_graph_was_made_for(kernels):
    @ac.compile
    def function(x, times, extent):
        return ac.zip(
            kernels.accumulate(times, x, ac.dup(x), N, threads=N), ac.value(extent).then(lambda seen: ac.ones(seen))
        )

    for times, extent in ((1, 3), (2, 3), (2, 5), (1, 3)):
        y, made = function(full(2), times, extent).sync()
        assert host(y).tolist() == [6 + 2 * times] * N
        assert host(made).tolist() == [1] * extent
    assert function.cache_info().misses == 2


def test_results_that_lie_upon_one_another_still_do(kernels):
    function = ac.compile(
        lambda x: kernels.increment(ac.dup(x), N, threads=N).then(lambda y: (y, y[2:], y.view("uint8")))
    )
    for number in (1, 5):
        whole, part, as_bytes = function(full(number)).sync()
        assert host(whole).tolist() == [number + 1] * N
        assert host(part).tolist() == [number + 1] * (N - 2)
        assert host(as_bytes).tolist() == host(whole).view(np.uint8).tolist()
        assert (part.address - whole.address, as_bytes.address) == (8, whole.address)


def test_a_result_that_is_kept_makes_no_later_call_allocate(monkeypatch):
    """Two results take turns: one is being written while the caller has the other."""
    function = ac.compile(ac.dup)
    allocate, allocated = _native.allocate_like, []
    monkeypatch.setattr(_native, "allocate_like", lambda *given: allocated.append(given) or allocate(*given))
    kept = function(full(0)).sync()
    result = function(full(1)).sync()
    for number in range(2, 8):
        following = function(full(number)).sync()
        assert host(result).tolist() == [number - 1] * N
        result = following
    assert len(allocated) == 3
    assert host(kept).tolist() == [0] * N
