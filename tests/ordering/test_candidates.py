"""The streams that a policy of one's own is given are the policy's: kept, the same each time, and closed with it."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac


class Keeping(ac.SchedulingPolicy):
    """Keeps what it is given, and closes every stream of it."""

    def __init__(self) -> None:
        super().__init__(streams=2)
        self.given: list[tuple[tuple[ac.Stream, ...], tuple[ac.Stream, ...]]] = []

    def choose(self, op, producers, candidates):
        self.given.append((producers, candidates))
        for stream in (*producers, *candidates):
            stream.close()
        return candidates[len(self.given) % 2]


@pytest.fixture
def policy(kernels, latch) -> Keeping:
    """A policy that has placed a chain of three, behind a latch."""
    policy = Keeping()
    for stream in policy.streams(0):
        latch.hold(stream)
    with ac.use(policy):
        op = ac.zeros(4, np.int32)
        for _ in range(3):
            op = kernels.increment(op, 4, threads=4)
        op.submit()
    latch.release()
    assert (ac.to_host(op).sync(60) == 3).all()
    return policy


def test_closing_a_candidate_closes_nothing(policy):
    assert not any(stream.is_closed for stream in policy.streams(0))
    with ac.use(policy):
        assert ac.ones(3).sync(60).shape == (3,)


def test_candidates_and_producers_are_the_policy_s_own_each_time(policy):
    streams = policy.streams(0)
    assert any(producers for producers, _ in policy.given)
    for producers, candidates in policy.given:
        assert all(stream in streams for stream in producers)
        assert [id(stream) for stream in candidates] == [id(stream) for stream in streams]


def test_a_producer_elsewhere_is_told_by_its_own_device_and_stream(kernels, latch, device):
    other = device.stream()
    latch.hold(other)
    policy = Keeping()
    made = kernels.increment(ac.zeros(4, np.int32), 4, threads=4).on(other)
    made.submit()
    with ac.use(policy):
        kernels.increment(made, 4, threads=4).submit()
    latch.release()
    ((producers, _),) = policy.given
    assert producers == (other,)
    assert producers[0].device == device
    assert not other.is_closed
    assert (ac.to_host(made).sync(60) == 2).all()
