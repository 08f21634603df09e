"""Functions of call() in bodies: their captured work has addresses, also of the state's arrays."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import less

import aiocuda as ac

N = 8

cuda = pytest.importorskip("cuda.bindings.driver")


def host(op):
    return ac.to_host(op).sync(60).tolist()


def full(value):
    return ac.full(N, value, np.int32).sync()


def address(x):
    return x.__cuda_array_interface__["data"][0]


def set_to_7(stream, x):
    (answer,) = cuda.cuMemsetD32Async(address(x), 7, N, stream.handle)
    assert int(answer) == 0


def copy_over(stream, source, target):
    (answer,) = cuda.cuMemcpyDtoDAsync(address(target), address(source), 4 * N, stream.handle)
    assert int(answer) == 0


@pytest.fixture
def increment(kernels):
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def bodies(increment):
    """Return bodies and what each makes of a number, in order of how they use the state."""

    def writes(x):
        return ac.call(set_to_7, x, writes=[x]).then(lambda _: increment(x))

    def reads(x):  # x + 1, by way of the copy that captured work makes
        copied = ac.empty(N, np.int32)
        return copied.then(lambda to: ac.call(copy_over, x, to, reads=[x], writes=[to]).then(lambda _: increment(to)))

    def reads_and_writes(x):
        def go_on(to):
            copied = ac.call(copy_over, x, to, reads=[x], writes=[to])
            return copied.then(lambda _: increment(to)).then(
                lambda _: ac.call(copy_over, to, x, reads=[to], writes=[x]).then(lambda _: x)
            )

        return ac.empty(N, np.int32).then(go_on)

    return [(writes, lambda _: 8), (reads, lambda y: y + 1), (reads_and_writes, lambda y: y + 1)]


def looped_on_host(step, start, n):
    for _ in range(n):
        start = step(start)
    return [start] * N


def test_captured_work_reads_and_writes_the_state(bodies):
    for body, step in bodies:
        for n in (0, 1, 4):
            x = full(3)
            assert host(ac.repeat(n, body, x)) == looped_on_host(step, 3, n)
            assert host(x) == [3] * N


def test_captured_work_of_nested_loops(bodies):
    for body, step in bodies:
        nested = ac.repeat(2, lambda y, body=body: ac.repeat(3, body, y), full(3))
        assert host(nested) == looped_on_host(step, 3, 6)


def test_captured_work_of_loops_in_compiled_functions_and_graphs(bodies):
    for body, step in bodies:
        compiled = ac.compile(executables=2)(lambda x, n, body=body: ac.repeat(n, body, x))
        calls = [(compiled(full(start), n), start, n) for start, n in ((3, 2), (20, 0), (-5, 4))]
        for call, start, n in calls:
            assert host(call) == looped_on_host(step, start, n)
        assert compiled.cache_info().graphs == 1
        x = full(3)
        graph = ac.repeat(3, body, x).graph(x=x)
        for start in (3, 20):
            assert host(graph.launch(x=full(start))) == looped_on_host(step, start, 3)


def test_captured_work_of_branches_and_of_loops_with_a_condition(bodies):
    for body, step in bodies:
        for number in (0, 1):
            chosen = ac.cond(ac.full((), number), body, state=full(3))
            assert host(chosen) == looped_on_host(step, 3, number)
            chosen = ac.cond(ac.full((), number), lambda y: y, body, full(3))
            assert host(chosen) == looped_on_host(step, 3, 1 - number)
        done = ac.while_(lambda y: less(y, 6), body, full(3), max_iterations=9).sync()
        iterations = int(ac.to_host(done.iterations).sync())
        assert host(done.state) == looped_on_host(step, 3, iterations)
        assert iterations == (1 if step(0) == 8 else 3)


def test_a_body_that_asks_for_an_address_gets_the_array_that_its_work_uses(increment):
    def body(x):
        assert address(x)
        return increment(x)

    for n in (1, 3):
        assert host(ac.repeat(n, body, full(3))) == [3 + n] * N
