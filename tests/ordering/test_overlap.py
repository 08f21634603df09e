"""Branches overlap on the streams that the default policy gives them: what one latch holds, holds nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import aiocuda as ac

N = 16


@pytest.fixture(autouse=True)
def policy() -> Iterator[ac.Policy]:
    made = ac.Dataflow(4)
    for device in ac.devices():
        device.synchronize().sync()
    with ac.use(made):
        yield made


@pytest.fixture
def increment(kernels):
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def hold(kernels) -> Iterator:
    """Give a function that makes an operation of an array whose stream it holds, and one that lets it go."""
    source = r"""
        extern "C" __global__ void gate(int* x, unsigned long long flag) {
            while (*(volatile int*)flag == 0) {}
            x[0] = 7;
        }"""
    kernel = ac.kernel(source)
    kernel.compile(0)
    flags: list[ac.HostArray] = []

    def make(x):
        flags.append(ac.empty_host(1, np.int32).sync())
        flags[-1].numpy()[0] = 0
        views.append(flags[-1].numpy())
        return kernel(x, flags[-1].address, grid=1, block=1)

    def release() -> None:
        for view in views:
            view[0] = 1

    views: list[np.ndarray] = []
    make.release = release
    yield make
    release()
    ac.Device(0).synchronize().sync()


def held_back(future: ac.DeviceFuture) -> bool:
    return not future.done()


def test_a_branch_completes_while_another_is_held(hold, increment):
    slow = increment(hold(ac.zeros(N, np.int32)))
    fast = increment(increment(ac.zeros(N, np.int32)))
    future = slow.submit()
    assert (ac.to_host(fast).sync(60) == 2).all()
    assert held_back(future)
    hold.release()
    assert (ac.to_host(slow).sync(60) == [8, *[1] * (N - 1)]).all()


def test_a_branch_of_one_execution_completes_while_another_is_held(hold, increment):
    slow = hold(ac.zeros(N, np.int32))
    fast = increment(ac.zeros(N, np.int32))
    both = ac.zip(slow, fast).submit()
    fast.sync(60)
    assert held_back(both)


def test_the_second_branch_of_a_fork_does_not_wait_for_the_first(hold, kernels):
    """The first branch goes on in the producer's stream; the second waits for the producer, and only for it."""
    top = kernels.increment(ac.zeros(N, np.int32), N, threads=N)
    first = hold(kernels.accumulate(1, top, ac.zeros(N, np.int32), N, threads=N))
    second = kernels.accumulate(2, top, ac.zeros(N, np.int32), N, threads=N)
    both = ac.zip(first, second).submit()
    assert (ac.to_host(second).sync(60) == 2).all()
    assert held_back(both)
    hold.release()
    assert (ac.to_host(first).sync(60) == [7, *[1] * (N - 1)]).all()


def test_a_branch_that_is_built_later_does_not_wait_for_the_first(hold, kernels):
    """As above, with the handle: nobody knew of the second branch when the first was submitted."""
    top = kernels.increment(ac.zeros(N, np.int32), N, threads=N).sync()
    first = hold(kernels.accumulate(1, top, ac.zeros(N, np.int32), N, threads=N)).submit()
    second = kernels.accumulate(2, top, ac.zeros(N, np.int32), N, threads=N)
    assert (ac.to_host(second).sync(60) == 2).all()
    assert held_back(first)


def test_slices_of_one_array_are_changed_while_another_slice_is_held(hold, kernels):
    x = ac.zeros(8 * N, np.int32).sync()
    slow = hold(x[:N]).submit()
    for part in range(1, 8):
        kernels.increment(x[part * N : (part + 1) * N], N, threads=N).sync(60)
    assert held_back(slow)


def test_reading_a_slice_beside_the_one_that_is_held_does_not_wait(hold, kernels):
    x = ac.ones(2 * N, np.int32).sync()
    slow = hold(x[:N]).submit()
    assert (ac.to_host(x[N:]).sync(60) == 1).all()
    assert held_back(slow)
    future = ac.to_host(x).submit()
    assert held_back(future)
    hold.release()
    assert future.sync(60)[0] == 7


def test_columns_are_copied_while_others_are_held(hold):
    x = ac.zeros((N, 2), np.int32).sync()
    source = ac.ones(N, np.int32).sync()
    slow = ac.copy(x[:, 0], hold(ac.zeros(N, np.int32))).submit()
    ac.copy(x[:, 1], source).sync(60)
    assert held_back(slow)
    hold.release()
    np.testing.assert_array_equal(ac.to_host(x).sync(60)[0], [7, 1])


def test_a_join_waits_for_the_branch_that_is_held(hold, kernels, settle):
    left, right = hold(ac.zeros(N, np.int32)), kernels.increment(ac.zeros(N, np.int32), N, threads=N)
    joined = kernels.accumulate(1, left, right, N, threads=N)
    future = joined.submit()
    settle()
    assert held_back(future)
    hold.release()
    assert (ac.to_host(joined).sync(60) == [10, *[3] * (N - 1)]).all()


def test_on_one_stream_nothing_overlaps(hold, increment, settle):
    with ac.use(ac.Dataflow(1)):
        slow = hold(ac.zeros(N, np.int32)).submit()
        fast = increment(ac.zeros(N, np.int32)).submit()
    settle()
    assert held_back(fast)
    hold.release()
    fast.sync(60)
    assert not held_back(slow)
