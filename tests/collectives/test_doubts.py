"""Results of collectives that turn out to have failed: who hears of it, and who does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda.collective import Group
from aiocuda.errors import CollectiveError

pytestmark = pytest.mark.needs_devices(2)

N = 4


@pytest.fixture
def group() -> Iterator[Group]:
    with Group.local([0, 1]) as made:
        yield made


def arrays(value: int) -> list[ac.DeviceArray]:
    return [ac.full(N, value, np.int32, device=each).sync() for each in range(2)]


def held(latches: Callable[[], Any], array: ac.DeviceArray) -> Any:
    """Hold whatever comes behind a write of this array; return what releases it."""
    latch = latches()
    stream = ac.Device(1).stream()
    latch.hold(stream)
    ac.fill(array, 1).on(stream).submit()
    return latch


def test_work_that_read_two_results_fails_if_one_of_them_does(group, kernels, latches):
    x, y = arrays(2), arrays(3)
    first_held, second_held = held(latches, x[1]), held(latches, y[1])
    first, second = group.all_reduce(x), group.all_reduce(y)
    futures = [each.submit() for each in (*first, *second)]
    z = ac.zeros(N, np.int32, device=0).sync()
    added = ac.to_host(kernels.accumulate(1, second[0], kernels.accumulate(1, first[0], z, N, threads=N), N, threads=N))
    future = added.submit()
    first_held.release()
    futures[0].sync(60)
    group.abort()
    second_held.release()
    with pytest.raises(CollectiveError, match="abort"):
        future.sync(60)


def test_a_composition_fails_whose_later_work_on_the_stream_was_well(group, kernels, latches):
    x = arrays(2)
    latch = held(latches, x[1])
    total = group.all_reduce(x)
    y, z = ac.zeros(N, np.int32, device=0).sync(), ac.zeros(N, np.int32, device=0).sync()
    stream = ac.Device(0).stream()
    of_it = kernels.accumulate(1, total[0], y, N, threads=N).on(stream)
    beside = kernels.accumulate(1, z, z, N, threads=N).on(stream)
    future = ac.zip(of_it, beside).then(lambda pair: None).submit()
    group.abort()
    latch.release()
    with pytest.raises(CollectiveError, match="abort"):
        future.sync(60)


def test_another_group_that_passed_a_failed_result_on_goes_on(group, latches):
    with Group.local([0, 1]) as other:
        x = arrays(2)
        latch = held(latches, x[1])
        futures = [each.submit() for each in other.all_reduce(group.all_reduce(x))]
        group.abort()
        latch.release()
        with pytest.raises(CollectiveError, match="abort"):
            futures[0].sync(60)
        other.barrier().sync(60)
        found = ac.to_host(other.all_reduce(arrays(1))[0]).sync(60)
        np.testing.assert_array_equal(found, [2] * N)


def test_memory_of_numpys_that_got_a_failed_result_is_used_again(group, latches):
    x = arrays(2)
    latch = held(latches, x[1])
    total = group.all_reduce(x)
    into = np.zeros(N, np.int32)
    future = ac.copy(into, total[0]).submit()
    group.abort()
    latch.release()
    with pytest.raises(CollectiveError, match="abort"):
        future.sync(60)
    ac.copy(into, ac.ones(N, np.int32, device=0)).sync(60)
    np.testing.assert_array_equal(into, 1)


LENDING = {
    "DLPack": lambda array: array.__dlpack__(stream=1, max_version=(1, 3)),
    "older DLPack": lambda array: array.__dlpack__(),
    "CUDA array interface": lambda array: array.__cuda_array_interface__,
    "another process": lambda array: array.ipc_handle(),
}


@pytest.mark.parametrize("lend", LENDING.values(), ids=LENDING)
def test_a_failed_result_is_lent_to_nobody(group, latches, lend):
    x = [ac.empty(2 * N, np.int32, device=each, interprocess=True).sync() for each in range(2)]
    latch = held(latches, x[1])
    futures = [each.submit() for each in group.all_reduce([each[:N] for each in x], out=[each[:N] for each in x])]
    group.abort()
    latch.release()
    with pytest.raises(CollectiveError, match="abort"):
        futures[0].sync(60)
    with pytest.raises(CollectiveError, match="abort"):
        lend(x[0])
    if lend is not LENDING["another process"]:
        lend(x[0][N:])  # which it was not to write


def test_a_result_that_is_well_is_lent(group):
    x = arrays(1)
    group.all_reduce(x, out=x)[0].sync(60)
    capsule = x[0].__dlpack__(stream=1)
    assert "dltensor" in repr(capsule)
