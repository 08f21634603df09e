"""Products in a graph share cuBLAS's workspaces: those that follow one another, and no others.

In cuBLAS's place stands a copy of the left factor by way of the workspace. So a product is its left factor, unless
another product has used the workspace meanwhile.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import linalg
from aiocuda._driver import blas
from aiocuda._verbs import matrices

pytestmark = pytest.mark.emulated_only

N = 4
BYTES = N * N * 4


class Products:
    """The workspaces of the products, in the order in which they were put on streams."""

    def __init__(self) -> None:
        self.workspaces: list[int] = []

    def multiply(
        self, ordinal: int, stream: int, workspace: tuple[int, int], dtype: str, addresses: Any, *rest: Any
    ) -> None:
        assert workspace[1] == 32 << 20
        self.workspaces.append(workspace[0])
        for to, source in ((workspace[0], addresses[0]), (addresses[2], workspace[0])):
            assert driver.cuMemcpyDtoDAsync(to, source, BYTES, stream) == (driver.CUresult.CUDA_SUCCESS,)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Products:
    products = Products()
    monkeypatch.setattr(blas, "multiply", products.multiply)
    monkeypatch.setattr(blas, "open_blas", lambda _: None)
    monkeypatch.setattr(matrices, "by_kernel", matrices.by_cublas)
    return products


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Products:
    return stand_in(monkeypatch)


def matrix(value: float) -> ac.DeviceArray:
    return ac.full((N, N), value).sync()


def times(x: Any, out: Any = None) -> Any:
    return linalg.matmul(x, ac.ones((N, N)), out)


def chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = times(x)
    return x


def is_all(array: ac.DeviceArray, value: float) -> bool:
    return bool((ac.to_host(array).sync() == value).all())


def test_products_one_after_another_share_a_workspace(products):
    x = matrix(3)
    graph = chain(x, 20).graph()
    assert len(products.workspaces) == 20
    assert len(set(products.workspaces)) == 1
    assert is_all(graph.launch().sync(), 3)
    held = graph.statistics().shared_bytes
    assert 32 << 20 < held < 33 << 20


def test_chains_that_may_run_side_by_side_have_a_workspace_each(products):
    graph = ac.zip(chain(matrix(1), 5), chain(matrix(2), 5)).graph()
    first, second = set(products.workspaces[:5]), set(products.workspaces[5:])
    assert len(first) == len(second) == 1
    assert first != second
    assert graph.statistics().edges == 9 + 9  # a fill for each product; none between the chains
    assert [is_all(array, value) for array, value in zip(graph.launch().sync(), (1, 2), strict=True)] == [True, True]


def test_chains_that_are_recorded_in_turns_have_a_workspace_each(products):
    ends = [matrix(1), matrix(2)]
    with ac.graph_scope() as scope:
        for _ in range(5):
            ends = [scope.record(times(end)) for end in ends]
    assert len(set(products.workspaces[::2])) == len(set(products.workspaces[1::2])) == 1
    assert len(set(products.workspaces)) == 2
    assert scope.graph.statistics().edges == 9 + 9


def test_a_product_behind_two_goes_on_with_one_of_their_workspaces(products):
    left, right = chain(matrix(1), 1), chain(matrix(2), 1)
    chain(linalg.matmul(left, right), 3).graph()
    assert len(set(products.workspaces)) == 2
    assert len(set(products.workspaces[2:])) == 1


def test_products_in_a_loop_share_a_workspace_in_it(products):
    one_more = ac.kernel('extern "C" __global__ void one_more(float* x) { x[threadIdx.x] += 1; }', signature="float* x")

    def body(x: Any) -> Any:
        return chain(one_more(chain(x, 2), grid=1, block=N * N), 2)

    graph = ac.repeat(3, body, matrix(5)).graph()
    assert len(products.workspaces) == 4
    assert len(set(products.workspaces)) == 1
    assert is_all(graph.launch().sync(), 8)


def test_the_bodies_of_a_branch_have_a_workspace_each(products):
    for predicate, expected in ((1, 5), (0, 6)):
        products.workspaces.clear()
        flag = ac.full(1, predicate, np.int32).sync()
        state = {"a": matrix(5), "b": matrix(6)}
        op = ac.cond(flag, lambda both: chain(both["a"], 2), lambda both: chain(both["b"], 2), state)
        assert is_all(op.sync(), expected)
        assert [len(set(products.workspaces[part])) for part in (slice(2), slice(2, 4), slice(4))] == [1, 1, 2]


def test_products_that_run_now_have_a_workspace_for_each(products):
    ac.zip(chain(matrix(1), 1), chain(matrix(2), 1)).sync()
    assert len(set(products.workspaces)) == 2


def ordered_by_data(touched: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the pairs of products that what they read and write alone has in an order."""
    before: dict[int, set[int]] = defaultdict(set)
    for later, (read, written) in enumerate(touched):
        for earlier in range(later):
            read_before, written_before = touched[earlier]
            if written_before in {read, written} or read_before == written:
                before[later] |= {earlier} | before[earlier]
    return {(earlier, later) for later, found in before.items() for earlier in found}


ARRAYS = 5
PAIRS = st.tuples(st.integers(0, ARRAYS - 1), st.integers(0, ARRAYS - 1)).filter(lambda pair: pair[0] != pair[1])


@given(st.lists(PAIRS, min_size=1, max_size=30))
def test_products_share_a_workspace_only_if_their_data_has_them_in_an_order(touched):
    with pytest.MonkeyPatch.context() as context:
        products = stand_in(context)
        arrays, expected = [matrix(value) for value in range(ARRAYS)], list(range(ARRAYS))
        with ac.graph_scope() as scope:
            for read, written in touched:
                scope.record(times(arrays[read], arrays[written]))
                expected[written] = expected[read]
        ordered = ordered_by_data(touched)
        for pair in itertools.combinations(range(len(touched)), 2):
            assert products.workspaces[pair[0]] != products.workspaces[pair[1]] or pair in ordered
        scope.graph.launch().sync()
        assert all(map(is_all, arrays, expected))


PROGRAM = """
import random
import numpy as np
import aiocuda as ac
from aiocuda import linalg
from aiocuda._driver import blas
from aiocuda._driver.checking import take_race_reports
from aiocuda._verbs import matrices
from cuda.bindings import driver

N, ARRAYS = 4, 5

def multiply(ordinal, stream, workspace, dtype, addresses, *rest):
    at = shared or workspace[0]
    for to, source in ((at, addresses[0]), (addresses[2], at)):
        assert driver.cuMemcpyDtoDAsync(to, source, N * N * 4, stream) == (driver.CUresult.CUDA_SUCCESS,)

blas.multiply, blas.open_blas, matrices.by_kernel = multiply, lambda _: None, matrices.by_cublas
one = ac.ones((N, N)).sync()

def races_of(seed):
    chance = random.Random(seed)
    arrays = [ac.full((N, N), value).sync() for value in range(ARRAYS)]
    with ac.graph_scope() as scope:
        for _ in range(12):
            read, written = chance.sample(range(ARRAYS), 2)
            scope.record(linalg.matmul(arrays[read], one, arrays[written]))
    graph = scope.graph
    for _ in range(2):
        graph.launch().sync()
    return len(take_race_reports())

shared = 0
print(sum(races_of(seed) for seed in range(20)))
everybodys = ac.zeros(N * N).sync()
shared = everybodys.address
print(sum(races_of(seed) for seed in range(20)))
"""


def test_the_race_oracle_finds_nothing_in_graphs_of_products(in_process):
    done = in_process(PROGRAM, AIOCUDA_DRIVER="emulated", AIOCUDA_EMULATOR_CHECK="races")
    assert done.returncode == 0, done.stderr
    found, with_one_for_all = map(int, done.stdout.split())
    assert found == 0
    assert with_one_for_all > 0  # it would have found some
