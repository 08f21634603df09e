"""`use(priority=…)` chooses among streams of that priority, whatever the policy is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac
from aiocuda._driver.context_limits import highest_stream_priority

N = 16


class LastCandidate(ac.SchedulingPolicy):
    def choose(self, op, producers, candidates):
        return candidates[-1]


POLICIES: list[Callable[[], Any]] = [ac.Dataflow, ac.RoundRobin, ac.LeastLoaded, ac.SingleStream, LastCandidate]


def priority_of(stream: ac.Stream) -> int:
    error, priority = driver.cuStreamGetPriority(stream.handle)
    assert error == driver.CUresult.CUDA_SUCCESS
    return int(priority)


def as_cuda_counts(priority: int) -> int:
    return max(min(-priority, 0), highest_stream_priority(0))


def handles(streams: tuple[ac.Stream, ...]) -> list[int]:
    return [stream.handle for stream in streams]


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("priority", [-4, 0, 1, 2, 2**31])
def test_a_policy_chooses_among_streams_of_the_priority(make, priority):
    policy = make()
    ran_on: list[int] = []
    with ac.use(policy, priority=priority):
        streams = policy.streams()
        for _ in range(8):
            ac.call(lambda stream: ran_on.append(stream.__cuda_stream__()[1])).sync()
    assert {priority_of(stream) for stream in streams} == {as_cuda_counts(priority)}
    assert set(ran_on) <= set(handles(streams))
    assert len(streams) == len(policy.streams())


def test_priorities_beyond_the_device_s_share_its_most_urgent_streams():
    policy, highest = ac.RoundRobin(2), -highest_stream_priority(0)
    found = []
    for priority in (highest, highest + 1, 10**9):
        with ac.use(priority=priority):
            found.append(handles(policy.streams()))
    assert found[0] == found[1] == found[2]
    with ac.use(priority=-7):
        below = handles(policy.streams())
    with ac.use(priority=0):
        assert handles(policy.streams()) == below


def test_priorities_that_differ_by_request_share_the_streams_in_turn():
    """Those beyond the range of the device, at either end of it: they are one priority there."""
    highest = -highest_stream_priority(0)
    for policy, priorities in (
        (ac.RoundRobin(4), range(highest, highest + 40)),
        (ac.RoundRobin(4), range(-40, 1)),
        (ac.RoundRobin(4, priority=-1000), range(highest, highest + 40)),
    ):
        ran_on: list[int] = []
        for priority in priorities:
            with ac.use(policy, priority=priority):
                ac.call(lambda stream, to=ran_on: to.append(stream.__cuda_stream__()[1])).sync()
        assert len(set(ran_on[:4])) == 4
        assert ran_on == [ran_on[i % 4] for i in range(len(priorities))]


def test_a_priority_that_is_said_goes_before_the_policy_s_own():
    policy = ac.Dataflow(2, priority=-1)
    assert {priority_of(stream) for stream in policy.streams()} == {-1}
    with ac.use(priority=0):
        streams = policy.streams()
    assert {priority_of(stream) for stream in streams} == {0}
    assert streams[0].__cuda_stream__() == ac.Device(0).default_stream.__cuda_stream__()


def test_a_stream_that_is_named_stays(device):
    named = device.stream()
    ran_on: list[int] = []
    with ac.use(named, priority=3):
        ac.call(lambda stream: ran_on.append(stream.__cuda_stream__()[1])).sync()
    assert ran_on == [named.handle]


def test_it_holds_in_functions_and_for_what_they_return():
    policy = ac.RoundRobin(2)
    ran_on: list[int] = []

    def then(_: Any) -> ac.DeviceOp[Any]:
        return ac.call(lambda stream: ran_on.append(stream.__cuda_stream__()[1]))

    with ac.use(policy, priority=1):
        urgent = handles(policy.streams())
        future = ac.value(1).then(then).schedule(policy)
    future.sync()
    assert len(ran_on) == 1
    assert ran_on[0] in urgent


def test_results_are_ordered_between_priorities(kernels):
    x = ac.zeros(N, np.int32).sync()
    for i in range(50):
        with ac.use(priority=i % 4):
            kernels.increment(x, N, threads=N).submit()
    assert (ac.to_host(x).sync() == 50).all()


def test_explain_names_the_streams_that_are_taken(kernels):
    x = ac.zeros(N, np.int32).sync()
    with ac.use(ac.SingleStream(), priority=1):
        op = kernels.increment(x, N, threads=N)
        stream = ac.current_policy().streams()[0]
        assert f"stream {stream._number} " in str(op.explain())
        op.sync()


def test_what_is_no_priority_is_an_error():
    for wrong, error in ((2**31 + 1, ac.errors.ArgumentValueError), ("high", ac.errors.ArgumentTypeError)):
        with pytest.raises(error, match="priority"), ac.use(priority=wrong):
            pass


def test_the_rest_of_what_is_in_force_stays():
    policy = ac.RoundRobin(3)
    with ac.use(policy), ac.use(priority=2):
        assert ac.current_policy() is policy
        with ac.use(ac.Device(0)):
            assert {priority_of(stream) for stream in policy.streams()} == {as_cuda_counts(2)}
