"""Loops and branches on the device: what they yield, whatever the state is, and how they are ordered and counted."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import anyio
import ml_dtypes
import numpy as np
import pytest
from loop_programs import less

import aiocuda as ac

N = 8


def host(op):
    return ac.to_host(op).sync(60)


def full(value, n=N):
    return ac.full(n, value, np.int32).sync()


@pytest.fixture
def increment(kernels):
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def increment_copy(kernels):
    return lambda x: kernels.increment(ac.dup(x), N, threads=N)


@pytest.mark.parametrize(
    ("limit", "most", "iterations", "is_finished"),
    [(5, 100, 5, True), (5, 5, 5, True), (5, 4, 4, False), (5, 0, 0, False), (0, 100, 0, True), (-3, 0, 0, True)],
)
def test_a_loop_counts_and_says_what_ended_it(increment, limit, most, iterations, is_finished):
    done = ac.while_(lambda x: less(x, limit), increment, full(0), max_iterations=most).sync()
    assert isinstance(done, ac.LoopResult)
    assert host(done.state).tolist() == [iterations] * N
    assert (done.iterations.dtype, done.iterations.shape) == (np.int64, ())
    assert (done.is_finished.dtype, done.is_finished.shape) == (np.bool_, ())
    assert (int(host(done.iterations)), bool(host(done.is_finished))) == (iterations, is_finished)


def test_loops_are_awaited(increment, run):
    async def main():
        looped = ac.while_(lambda x: less(x, 4), increment, full(0), max_iterations=9)
        again = ac.repeat(3, increment, looped.then(lambda done: done.state))
        chosen = ac.cond(less(again, 8), increment, lambda x: x, again)
        return (await ac.to_host(await chosen)).tolist()

    assert run(main) == [8] * N


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64", ml_dtypes.bfloat16]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_real_number_decides(increment, dtype):
    for number, runs in ((0, 0), (1, 1)):
        decides = ac.full((), number, dtype).sync()
        assert host(ac.cond(decides, increment, state=full(0))).tolist() == [runs] * N
        done = ac.while_(lambda _, it=decides: it, increment, full(0), max_iterations=2).sync()
        assert int(host(done.iterations)) == 2 * runs
        assert bool(host(done.is_finished)) is not bool(runs)


@pytest.mark.parametrize("number", [np.nan, -0.0, 1e-300, -1, np.inf])
def test_numbers_decide_as_they_do_in_python(increment, number):
    decides = ac.full((1, 1), number, np.float64)
    assert host(ac.cond(decides, increment, state=full(0))).tolist() == [int(bool(number))] * N


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@pytest.mark.parametrize(
    "make",
    [lambda a, b: (a, b), lambda a, b: [a, b], lambda a, b: {"x": a, "y": (b, None)}, Pair, lambda a, b: ((a,), [b])],
    ids=["tuple", "list", "dict", "dataclass", "nested"],
)
def test_a_state_is_any_structure(kernels, make):
    def leaves(state):
        match state:
            case Pair(first, second) | (first, second) | {"x": first, "y": (second, None)}:
                first = first[0] if isinstance(first, tuple) else first
                return first, second[0] if isinstance(second, list) else second

    def body(state):
        assert type(state) is type(make(0, 0))
        first, second = leaves(state)
        both = kernels.accumulate(1, first, ac.dup(second), N, threads=N)
        return make(both, first)

    first, second = full(1), full(10)
    found = ac.repeat(2, body, make(first, second)).sync()
    assert type(found) is type(make(0, 0))
    assert [host(x)[0] for x in leaves(found)] == [3 * 1 + 31, 31]
    assert [host(x)[0] for x in (first, second)] == [1, 10]


def test_arrays_are_known_by_their_names_and_not_by_their_order(increment):
    a, b = full(1), full(10)
    found = ac.repeat(3, lambda s: {"b": s["b"], "a": increment(s["a"])}, {"a": a, "b": b}).sync()
    assert {name: host(x)[0] for name, x in found.items()} == {"a": 4, "b": 10}
    for number, expected in ((1, {"a": 1, "b": 10}), (0, {"a": 10, "b": 1})):
        chosen = ac.cond(ac.full((), number), lambda: {"a": a, "b": b}, lambda: {"b": a, "a": b}).sync()
        assert {name: host(x)[0] for name, x in chosen.items()} == expected


def test_arrays_that_are_given_are_not_written(increment):
    x = full(0)
    assert host(ac.repeat(3, increment, x)).tolist() == [3] * N
    assert host(ac.cond(ac.ones(()), increment, state=x)).tolist() == [1] * N
    assert host(x).tolist() == [0] * N


def test_an_array_that_is_only_read_comes_back_as_it_is(kernels):
    x, y = full(2), full(0)
    same, summed = ac.repeat(3, lambda s: (s[0], kernels.accumulate(1, s[0], s[1], N, threads=N)), (x, y)).sync()
    assert same._place == x._place
    assert summed._place != y._place
    assert host(summed).tolist() == [2 + 3 * (2 + 3 * 2)] * N


def test_a_body_that_returns_its_arrays_in_other_places_swaps_them():
    a, b, c = (full(value) for value in (1, 2, 3))
    found = ac.repeat(4, lambda s: (s[1], s[2], s[0]), (a, b, c)).sync()
    assert [host(x)[0] for x in found] == [2, 3, 1]


def test_a_body_may_return_what_it_does_not_get(kernels):
    outside = full(7)
    assert host(ac.repeat(1, lambda _: outside, full(0))).tolist() == [7] * N
    assert host(ac.repeat(0, lambda _: outside, full(0))).tolist() == [0] * N


def test_strided_and_misaligned_arrays_are_states(kernels):
    base = ac.arange(0, 4 * N, dtype=np.int32).sync()
    for part in (base[::2], base[1 : 1 + N], base.reshape(N, 4)[:, 1]):
        n = part.size
        found = host(ac.repeat(2, lambda x, n=n: kernels.increment(x, n, threads=n), part))
        assert found.tolist() == (host(part) + 2).tolist()
    assert host(base).tolist() == list(range(4 * N))


def test_empty_arrays_are_states():
    x, y = ac.repeat(2, lambda s: (s[0], ac.full(N, 5, np.int32)), (ac.empty((0, 3)), ac.zeros(N, np.int32))).sync()
    assert x.shape == (0, 3)
    assert host(y).tolist() == [5] * N


@pytest.mark.parametrize("n", [-2, 0, 1, 7, np.int64(3)])
def test_a_loop_of_n_iterations(increment, increment_copy, n):
    for body in (increment, increment_copy):
        assert host(ac.repeat(n, body, full(0))).tolist() == [len(range(n))] * N


def test_many_iterations_are_one_launch(increment):
    ac.to_host(ac.repeat(2, increment, full(0))).sync()
    looped = ac.repeat(1000, increment, full(0)).then(lambda x: x)
    assert looped.explain().count("run repeat of ") == 1
    assert host(looped).tolist() == [1000] * N


def test_loops_nest(increment):
    def inner(x):
        return ac.while_(lambda y: less(y, 10), increment, ac.repeat(2, increment, x), max_iterations=3).then(
            lambda done: done.state
        )

    # 0 -> 2 -> 5; 5 -> 7 -> 10; 10 -> 12
    assert host(ac.repeat(3, inner, full(0))).tolist() == [12] * N


def test_one_branch_or_the_other(increment):
    x, y = full(1), full(2)
    for number, expected in ((0, 3), (1, 7)):
        chosen = ac.cond(ac.full((), number), lambda: ac.full(N, 7, np.int32), lambda: increment(ac.dup(y)))
        assert host(chosen).tolist() == [expected] * N
    assert (host(x)[0], host(y)[0]) == (1, 2)


def test_a_branch_uses_nothing_that_the_other_one_has_done(kernels, increment):
    made = {}

    def first():
        made["y"] = ac.full(N, 70, np.int32)
        return increment(ac.dup(made["y"]))

    def second():
        return kernels.accumulate(1, made["y"], ac.full(N, 10, np.int32), N, threads=N)

    outside = ac.full(N, 70, np.int32)
    zero = ac.zeros(()).sync()
    with pytest.raises(ac.CaptureError, match="this operation was recorded into the graph"):
        ac.cond(zero, first, second)
    with pytest.raises(ac.CaptureError, match=r"cond: .* was built outside of the function that uses it"):
        ac.cond(zero, lambda: increment(ac.dup(outside)), lambda: ac.zeros(N, np.int32))
    y = ac.full(N, 70, np.int32)  # done once, before
    for number, expected in ((0, 220), (1, 71)):
        chosen = ac.zip(y, ac.full((), number)).then(
            lambda both: ac.cond(
                both[1],
                lambda z: increment(ac.dup(z)),
                lambda z: kernels.accumulate(1, z, ac.full(N, 50, np.int32), N, threads=N),
                both[0],
            )
        )
        assert host(chosen).tolist() == [expected] * N


def test_an_operation_from_outside_is_done_once_or_refused(kernels, increment):
    def program(c):
        k = increment(c)
        y = ac.repeat(2, lambda s: kernels.accumulate(1, k, s, N, threads=N), ac.zeros(N, np.int32))
        return kernels.accumulate(1, k, y, N, threads=N)

    def run_as_graph(c):
        return program(c).graph().launch()

    # y = 3 * y + k, twice, and once more with y in the place of k
    expected = 3 * (3 * (3 * 0 + 1) + 1) + 1
    for build in (program, ac.compile(program), run_as_graph):
        c = full(0)
        assert host(build(c)).tolist() == [expected] * N
        assert host(c).tolist() == [1] * N

    def in_a_body_alone(c):
        k = increment(c)
        return ac.repeat(2, lambda s: kernels.accumulate(1, k, s, N, threads=N), ac.zeros(N, np.int32))

    c = full(0)
    for build in (in_a_body_alone, ac.compile(in_a_body_alone)):
        with pytest.raises(
            ac.CaptureError,
            match=r"repeat: the launch of increment \(\S*test_loops\.py:\d+\) was built outside .* put it into the",
        ):
            build(c).sync(60)
    assert host(c).tolist() == [0] * N
    k = increment(c)
    with pytest.raises(ac.CaptureError, match="was built outside"):
        ac.repeat(2, lambda s: kernels.accumulate(1, k, s, N, threads=N), full(0))
    assert host(k).tolist() == [1] * N  # it can still run


def test_an_array_that_a_body_also_writes_by_its_own_name(kernels, increment):
    def build(x):
        # The state is as it was; x itself is written.
        return ac.repeat(
            3,
            lambda s: ac.zip((s[0], kernels.accumulate(1, s[0], s[1], N, threads=N)), increment(x)).first(),
            (x, ac.zeros(N, np.int32)),
        )

    for run in (build, ac.compile(build)):
        x = full(2)
        same, summed = run(x).sync(60)
        assert host(same).tolist() == [2] * N
        assert host(summed).tolist() == [2 + 3 * (2 + 3 * 2)] * N
        assert host(x).tolist() == [5] * N


def test_a_loop_names_an_array_of_a_graph_that_is_being_recorded(kernels, increment):
    a, zero = full(3), full(0)
    with ac.graph_scope() as scope:
        b = scope.record(increment(ac.dup(a)))
        looped = ac.repeat(2, lambda s: kernels.accumulate(1, b, s, N, threads=N), zero)
    scope.graph.launch().sync()
    assert host(looped).tolist() == [16] * N


def test_a_branch_may_work_in_place_and_return_nothing(increment):
    x = full(0)

    def work():
        return increment(x).then(lambda _: None)

    for number in (0, 1, 1):
        assert ac.cond(ac.full((), number), work).sync() is None
    assert host(x).tolist() == [2] * N
    assert ac.cond(ac.full((), 0), work, lambda: None).sync() is None
    assert ac.cond(ac.full((), 1), work, lambda: None).sync() is None
    assert host(x).tolist() == [3] * N


def test_work_before_and_after_a_loop_is_ordered_by_what_bodies_touch(kernels, increment, latch, settle):
    read, written, state = full(1), full(100), full(0)

    def body(x):
        # `written` is no part of the state; it gets what x becomes.
        x = kernels.accumulate(1, read, x, N, threads=N)
        return ac.zip(x, kernels.accumulate(1, x, written, N, threads=N)).first()

    ac.repeat(0, body, state).sync()  # compiles, before the device is held
    before, beside, after = (ac.Device(0).stream() for _ in range(3))
    latch.hold(before)
    submitted = [
        increment(read).on(before).submit(),
        ac.repeat(2, body, state).on(beside).submit(),
        ac.dup(written).on(after).submit(),
        ac.fill(read, 50).on(after).submit(),
    ]
    settle()
    assert not any(each.done() for each in submitted)
    latch.release()
    _, looped, later, overwritten = (host(each.sync(60))[0] for each in submitted)
    host_state, host_written = 0, 100
    for _ in range(2):
        host_state = 3 * host_state + 2
        host_written = 3 * host_written + host_state
    assert (looped, later, overwritten) == (host_state, host_written, 50)


def test_loops_in_compiled_functions_take_numbers_without_another_graph(kernels):
    @ac.compile
    def compiled(x, n, a):
        return ac.repeat(
            n, lambda s: (s[0], kernels.accumulate(a, s[0], s[1], N, threads=N)), (x, ac.zeros(N, np.int32))
        )

    for n, a in ((3, 1), (0, 1), (2, 5), (3, 1)):
        expected = 0
        for _ in range(n):
            expected = 3 * expected + a * 2
        assert host(compiled(full(2), n, a).sync()[1]).tolist() == [expected] * N
    assert compiled.cache_info().graphs == 1


def test_a_number_that_a_body_looks_at_makes_another_graph(increment):
    @ac.compile
    def compiled(x, n):
        def body(y):
            for _ in range(n):  # unrolled
                y = increment(y)
            return y

        return ac.repeat(2, body, x)

    for n in (1, 3, 1):
        assert host(compiled(full(0), n)).tolist() == [2 * n] * N
    assert compiled.cache_info().graphs == 2


def test_a_graphs_number_is_put_into_bodies(kernels):
    a, n = ac.value(1), ac.value(2)
    x = full(2)
    looped = ac.repeat(n, lambda y: kernels.accumulate(a, x, y, N, threads=N), ac.zeros(N, np.int32))
    graph = looped.graph(a=a, n=n)
    for given, expected in (({}, 8), ({"a": 5}, 40), ({"n": 1}, 2), ({"a": 0, "n": 9}, 0), ({}, 8)):
        assert host(graph.launch(**given)).tolist() == [expected] * N


def test_a_value_is_used_in_a_loop_and_beside_it(kernels):
    a = ac.value(3)
    x = full(1)
    looped = ac.repeat(2, lambda y: kernels.accumulate(a, x, y, N, threads=N), full(0))
    assert host(kernels.accumulate(a, looped, full(0), N, threads=N)).tolist() == [36] * N


def test_graphs_hold_loops(increment, kernels):
    x = full(0)
    with ac.graph_scope(x=x) as scope:
        before = scope.record(kernels.increment(ac.dup(x), N, threads=N))
        looped = scope.record(ac.repeat(4, increment, before))
        scope.record(increment(looped))
    graph = scope.graph
    for start in (0, 10):
        graph.launch(x=full(start)).sync()
        assert host(looped).tolist() == [start + 6] * N
    outer = graph.launch().then(lambda _: ac.dup(looped)).graph()
    assert host(outer.launch()).tolist() == [6] * N
    assert {node[0] for node in graph._native.nodes()} >= {"conditional", "kernel", "join"}
    assert "while" in graph.to_dot()
    assert "in a body of node" in graph.to_dot()


def test_a_launch_of_a_graph_is_a_body(increment):
    x = full(0)
    graph = increment(x).graph()
    ac.repeat(5, lambda y: graph.launch().then(lambda _: y), full(0)).sync()
    assert host(x).tolist() == [5] * N


def test_a_graph_with_loops_is_updated(kernels, increment):
    x, y = full(1), full(5)

    def looped(of, n):
        return ac.repeat(n, increment, of)

    graph = looped(x, 3).graph()
    assert host(graph.launch()).tolist() == [4] * N
    graph.update(looped(y, 2))
    assert host(graph.launch()).tolist() == [7] * N
    with pytest.raises(ac.CaptureError, match="update: what was given has another shape"):
        graph.update(ac.cond(ac.ones(()), increment, state=x))
    with pytest.raises(ac.CaptureError, match="update: what was given has another shape"):
        graph.update(increment(ac.dup(x)))


def test_launches_put_arrays_into_bodies_without_another_executable(kernels):
    x = full(1)
    looped = ac.repeat(2, lambda y: kernels.accumulate(1, x, y, N, threads=N), ac.zeros(N, np.int32))
    graph = looped.graph(x=x)
    for value in (1, 3, 5):
        assert host(graph.launch(x=full(value))).tolist() == [4 * value] * N
    assert graph.statistics().instantiations == 1


def test_memory_of_bodies_is_not_used_for_what_lives_on(kernels):
    """Large temporaries inside of a body, beside arrays that only the first step of each iteration reads."""
    n = 1000
    start = ac.full(n, 1, np.int32).sync()

    def body_of(kept):
        def body(y):
            y = kernels.accumulate(1, kept, y, n, threads=n)
            for value in range(4):  # temporaries which may share memory with one another
                y = kernels.accumulate(1, y, ac.full(n, value, np.int32), n, threads=n)
            return y

        return body

    @ac.compile
    def compiled(x):
        kept = kernels.increment(ac.dup(x), n, threads=n)  # made before the loop, and read at each begin
        return ac.zip(kept, x).then(lambda both: ac.repeat(5, body_of(both[0]), both[1]))

    expected = 1
    for _ in range(5):
        expected = 3 * expected + 2
        for value in range(4):
            expected = 3 * value + expected
    assert set(host(compiled(start)).tolist()) == {expected}


def test_a_compiled_loop_yields_its_counts_and_results_of_the_callers_own(increment):
    compiled = ac.compile(lambda x: ac.while_(lambda y: less(y, 5), increment, x, max_iterations=4))
    results = [compiled(full(start)).sync() for start in (0, 3, 4, 9)]
    assert all(isinstance(done, ac.LoopResult) for done in results)
    found = [(host(x.state)[0], int(host(x.iterations)), bool(host(x.is_finished))) for x in results]
    assert found == [(4, 4, False), (5, 2, True), (5, 1, True), (9, 0, True)]
    assert compiled.cache_info().graphs == 1


def test_two_executables_of_a_compiled_loop_overlap_and_are_right(kernels, increment_copy, latch):
    @ac.compile(executables=2)
    def compiled(x):
        return ac.repeat(2, lambda y: increment_copy(ac.repeat(3, increment_copy, y)), x)

    starts = (0, 10, 20, 30)
    calls = [compiled(full(start)) for start in starts]
    found = ac.zip(*map(ac.to_host, calls)).sync(60)
    assert [x.tolist() for x in found] == [[start + 8] * N for start in starts]
    held, free = (ac.Device(0).stream() for _ in range(2))
    latch.hold(held)
    waits = compiled(full(0)).on(held).submit()
    passed = compiled(full(5)).on(free).submit().sync(60)  # while the other executable has not begun
    assert not waits.done()
    latch.release()
    assert host(passed).tolist() == [13] * N
    assert host(waits.sync(60)).tolist() == [8] * N


def test_temporaries_of_loops_have_memory_in_common(increment_copy):
    n = 1 << 16
    big = ac.zeros(n, np.int32).sync()

    def steps(count):
        def go(x):
            for _ in range(count):
                x = ac.repeat(2, lambda y: ac.dup(y), x)
            return x

        return go

    def own_bytes(count):
        graph = steps(count)(ac.dup(big)).graph()
        assert host(graph.launch()).tolist() == [0] * n
        return graph.statistics().shared_bytes

    assert own_bytes(6) == own_bytes(3)


@pytest.mark.parametrize("is_known", [True, False])
def test_on_puts_the_loop_itself_on_a_stream(increment, recorded, is_known):
    x, stream = full(0), ac.Device(0).stream()
    for build in (
        lambda state: ac.repeat(3, increment, state),
        lambda state: ac.while_(lambda y: less(y, 3), increment, state, max_iterations=5),
        lambda state: ac.cond(ac.ones(()).sync(), increment, state=state),
    ):
        operations = recorded(build(x if is_known else ac.dup(x)).on(stream))
        (launched,) = (each.stream for each in operations if each.kind == "graph")
        assert launched == recorded(ac.zeros(N).on(stream))[0].stream
        if is_known and len(ac.devices()) > 1:
            with pytest.raises(ac.DeviceMismatchError, match="works on device 0"):
                build(x).on(1)


def test_explain_and_traces_name_the_loop(increment, recorded):
    x = full(0)
    looped = ac.while_(lambda y: less(y, 3), increment, x, max_iterations=5)
    assert re.search(r"run while_ of \d+ nodes on device 0 +\S*test_loops\.py:\d+", looped.explain())
    names = [(each.kind, each.name) for each in recorded(looped)]
    assert ("graph", "while_") in names
    assert ("function", "while_") in names


def test_matrix_products_run_in_loops():
    rng = np.random.default_rng(3)
    matrix = (rng.random((16, 16)) / 16).astype(np.float32)
    x = rng.random((16, 4)).astype(np.float32)
    on_device = ac.to_device(matrix).sync()
    found = host(ac.repeat(5, lambda y: ac.linalg.matmul(on_device, y), ac.to_device(x).sync()))
    expected = x
    for _ in range(5):
        expected = matrix @ expected
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_loop_that_was_not_submitted_is_cancelled_and_can_run_later(increment, run, latch, used_bytes):
    ac.to_host(ac.repeat(3, increment, full(0))).sync()  # compiles, before the device is held
    before = used_bytes()

    async def main():
        held = ac.Device(0).stream()
        latch.hold(held)
        looped = ac.repeat(3, increment, ac.zeros(N, np.int32).on(held).map(lambda x: x))  # built behind the map
        with anyio.CancelScope() as scope:
            scope.cancel()
            await looped
        assert scope.cancelled_caught
        latch.release()
        return (await ac.to_host(looped)).tolist()

    assert run(main) == [3] * N
    assert used_bytes() == before


def test_a_loop_lets_go_of_its_memory(increment, used_bytes):
    def go():
        done = ac.while_(lambda x: less(x, 4), increment, full(0, 1 << 16), max_iterations=9).sync()
        ac.repeat(2, lambda x: increment(ac.dup(x)), done.state).sync()

    go()
    before = used_bytes()
    go()
    assert used_bytes() == before


def test_a_fault_in_a_body_loses_the_device_and_names_the_loop(in_process):
    ended = in_process("""
        import numpy as np
        import aiocuda as ac
        trap = ac.kernel('extern "C" __global__ void trap(int* x) { if (++x[0] == 3) __trap(); }')
        x = ac.zeros(1, np.int32).sync()
        looped = ac.repeat(5, lambda y: trap(y, grid=1, block=1), x)
        try:
            looped.sync()
        except ac.AiocudaError as error:
            print(type(error).__name__)
            print(error)
    """)
    assert ended.stdout.startswith("DeviceLostError\n")
    assert "repeat" in ended.stdout or "a loop or a branch on the device" in ended.stdout
