"""Branches are submitted in turn: what the driver refuses ends what depends on it, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

TOO_MANY = 1 << 20  # cooperative blocks, on any device


@pytest.fixture
def one():
    return ac.kernel('extern "C" __global__ void one(int* x) { x[0] += 1; }')


def refused(one, x):
    """A launch that only the driver can know to be impossible."""
    return one(x, grid=TOO_MANY, block=1024, cooperative=True)


def test_a_refused_launch_among_branches_leaves_the_others(one):
    arrays = [ac.zeros(1, np.int32).sync() for _ in range(3)]
    first, bad, last = one(arrays[0], grid=1, block=1), refused(one, arrays[1]), one(arrays[2], grid=1, block=1)
    behind = one(bad, grid=1, block=1)
    with pytest.raises(ac.LaunchError, match="cooperative"):
        ac.zip(first, behind, last).sync()
    for op in (bad, behind):
        with pytest.raises(ac.LaunchError, match="cooperative"):
            op.sync()
    assert [int(ac.to_host(op).sync()[0]) for op in (first, last)] == [1, 1]
    assert int(ac.to_host(arrays[1]).sync()[0]) == 0


def test_a_refused_launch_ends_what_joins_it(one, kernels):
    good, bad = one(ac.zeros(1, np.int32), grid=1, block=1), refused(one, ac.zeros(1, np.int32))
    joined = kernels.accumulate(1, bad, good, 1, threads=1)
    whole = ac.zip(joined.then(lambda x: x), good)
    with pytest.raises(ac.LaunchError, match="one: cooperative=True needs all"):
        whole.sync()
    for op in (joined, whole):
        with pytest.raises(ac.LaunchError, match="one: cooperative=True needs all"):
            op.sync()
    # In the order of the arguments the refused one comes first: what it was to be joined with may have run or not.
    assert int(ac.to_host(one(ac.zeros(1, np.int32), grid=1, block=1)).sync()[0]) == 1


def test_after_a_refusal_the_streams_are_as_good_as_before(one, used_bytes):
    before = used_bytes()
    for _ in range(20):
        ops = [one(ac.zeros(1, np.int32), grid=1, block=1) for _ in range(6)]
        ops[3] = refused(one, ac.zeros(1, np.int32))
        with pytest.raises(ac.LaunchError, match="one: cooperative=True needs all"):
            ac.zip(*ops).sync()
        x = ac.zeros(1, np.int32).sync()
        assert int(ac.to_host(ac.zip(one(x, grid=1, block=1), one(x, grid=1, block=1)).last()).sync()[0]) == 2
    del ops, x
    assert used_bytes() == before


def test_a_callback_sees_what_came_before_it_submitted(one):
    """A then in one branch executes another branch's result: what was decided so far has been handed over."""
    x = ac.zeros(1, np.int32).sync()
    left = one(x, grid=1, block=1)
    right = ac.value(None).then(lambda _: int(ac.to_host(x).sync(timeout=60)[0]))
    assert ac.zip(left, right).sync()[1] == 1


def test_wide_and_deep(one):
    """More branches than streams, more work than a stream may hold."""
    arrays = [ac.zeros(1, np.int32).sync() for _ in range(40)]
    ops = list(arrays)
    for _ in range(30):
        ops = [one(op, grid=1, block=1) for op in ops]
    with ac.use(max_in_flight=64):
        ac.zip(*ops).sync()
    assert [int(ac.to_host(x).sync()[0]) for x in arrays] == [30] * 40
