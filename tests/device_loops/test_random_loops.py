"""Random programs of nested loops and branches give what NumPy gives: alone, in a graph, and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_programs import REGISTERS, N, on_device, on_host, programs

import aiocuda as ac

pytestmark = pytest.mark.timeout(0 if settings().max_examples > 1000 else 120)
EXAMPLES = max(25, settings().max_examples // 4)  # each makes several graphs


def inputs(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-20, 20, N).astype(np.int32) for _ in range(REGISTERS)]


def on_devices(arrays):
    return [ac.to_device(x).sync() for x in arrays]


def as_lists(arrays):
    return [np.asarray(x).tolist() for x in arrays]


def host(op):
    return as_lists(ac.zip(*(ac.to_host(x) for x in op.unzip(REGISTERS))).sync(60))


@settings(max_examples=EXAMPLES)
@given(programs(), st.integers(0, 99))
def test_a_program_gives_what_numpy_gives(kernels, program, seed):
    given_arrays = inputs(seed)
    assert host(ac.zip(*on_device(kernels, program, on_devices(given_arrays)))) == as_lists(
        on_host(program, given_arrays)
    )


@settings(max_examples=EXAMPLES)
@given(programs(), st.integers(0, 99))
def test_a_graph_gives_what_numpy_gives_at_each_launch(kernels, program, seed):
    names = [f"x{i}" for i in range(REGISTERS)]
    given_arrays = on_devices(inputs(seed))
    # Each input is used, whatever the program does.
    used = [kernels.increment(ac.dup(x), N, threads=N) for x in given_arrays]
    graph = ac.zip(*on_device(kernels, program, used)).graph(**dict(zip(names, given_arrays, strict=True)))
    for other in (seed, seed + 1, seed):
        arrays = inputs(other)
        launch = graph.launch(**dict(zip(names, on_devices(arrays), strict=True)))
        assert host(launch) == as_lists(on_host(program, [x + 1 for x in arrays]))


@settings(max_examples=EXAMPLES)
@given(programs(), st.integers(0, 99))
def test_a_compiled_function_gives_what_numpy_gives_at_each_call(kernels, program, seed):
    compiled = ac.compile(lambda *arrays: tuple(on_device(kernels, program, map(ac.dup, arrays))))
    results = []
    for other in (seed, seed + 1, seed + 2, seed):
        arrays = inputs(other)
        results.append((compiled(*on_devices(arrays)).sync(60), on_host(program, arrays)))
    for found, expected in results:  # a call leaves the results of others alone
        assert as_lists(ac.zip(*map(ac.to_host, found)).sync(60)) == as_lists(expected)
    assert compiled.cache_info().graphs == 1
