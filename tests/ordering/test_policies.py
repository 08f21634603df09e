"""Policies put operations where they say, in every place where one can be named; what one gets wrong is an error."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac
from aiocuda import _native

N = 16


class FirstCandidate(ac.SchedulingPolicy):
    def choose(self, op, producers, candidates):
        assert all(not stream.is_closed and stream.device == candidates[0].device for stream in candidates)
        return candidates[0]


@pytest.fixture
def where() -> Callable[[ac.DeviceOp], list[int]]:
    """Give a function that says which stream, by its number, each launch of an operation would go to."""

    def launches(op: ac.DeviceOp) -> list[int]:
        lines = [line.split() for line in op.explain().splitlines()]
        return [int(words[2]) for words in lines if words[1] == "stream" and words[3] == "launch"]

    return launches


@pytest.fixture(autouse=True)
def idle() -> None:
    for device in ac.devices():
        device.synchronize().sync()


@pytest.fixture
def chain(kernels) -> Callable[..., ac.DeviceOp]:
    def make(length: int, device: int = 0) -> ac.DeviceOp:
        """Make as many launches, after one another, of a new array."""
        op = ac.zeros(N, np.int32, device=device)
        for _ in range(length):
            op = kernels.increment(op, N, threads=N)
        return op

    return make


def numbers(policy: ac.Policy, device: int = 0) -> list[int]:
    return [stream._number for stream in policy.streams(device)]


def right(op: ac.DeviceOp, expected: int) -> bool:
    return bool((ac.to_host(op).sync(60) == expected).all())


def test_the_policy_in_force_is_dataflow():
    assert isinstance(ac.current_policy(), ac.Dataflow)
    assert len(ac.current_policy().streams(0)) == 8


@pytest.mark.parametrize(
    ("make", "count"),
    [(ac.Dataflow, 8), (ac.RoundRobin, 4), (ac.LeastLoaded, 4), (ac.SingleStream, 1), (FirstCandidate, 4)],
)
def test_a_policy_has_as_many_streams_as_its_signature_says(make, count):
    policy = make()
    streams = policy.streams(0)
    assert len({stream.handle for stream in streams}) == count
    assert policy.streams(0) == streams
    assert "priority 0" in repr(policy) or make is ac.SingleStream
    if make is not ac.SingleStream:
        assert [len(make(n).streams(0)) for n in (1, 2)] == [1, 2]
        make(128)
        for wrong in (0, 129):
            with pytest.raises(ac.ArgumentValueError, match=f"1 to 128 streams on each device; {wrong} was asked for"):
                make(wrong)


def test_single_stream_puts_everything_on_the_default_stream(where, kernels, chain, device):
    with ac.use(ac.SingleStream()):
        both = ac.zip(chain(2), chain(2))
        assert where(both) == [device.default_stream._number] * 4


def test_round_robin_takes_its_streams_in_turn_and_remembers_whose_turn_it_is(where, chain):
    policy = ac.RoundRobin(3)
    a, b, c = numbers(policy)
    with ac.use(policy):
        assert where(chain(5)) == [a, b, c, a, b]
        assert where(chain(5)) == [a, b, c, a, b]  # explaining takes no turn
        assert right(chain(5), 5)
        # Five launches and the copy to the host: the next turn is the first's again.
        assert where(chain(2)) == [a, b]
        chain(1).sync()
        assert where(chain(2)) == [b, c]


def test_least_loaded_avoids_a_stream_that_is_held(where, latch, kernels, chain):
    policy = ac.LeastLoaded(2)
    first, second = policy.streams(0)
    with ac.use(policy):
        assert set(where(chain(1))) == {first._number}
        latch.hold(first)
        assert where(chain(1)) == [second._number]
        chain(0).sync(60)
        assert latch.is_holding


def test_a_policy_of_ones_own_sees_the_operation_its_producers_and_the_candidates(kernels, latch):
    seen: list[tuple[Any, ...]] = []

    class Own(ac.SchedulingPolicy):
        def choose(self, op, producers, candidates):
            seen.append((op, producers, candidates))
            return candidates[len(seen) % 2]

    policy = Own(2, priority=-1)
    streams = policy.streams(0)
    latch.hold(streams[0])
    latch.hold(streams[1])
    with ac.use(policy):
        first = kernels.increment(ac.zeros(N, np.int32), N, threads=N)
        second = kernels.increment(first, N, threads=N)
        future = second.submit()
    latch.release()
    assert [(entry[0] is op) for entry, op in zip(seen, [first, second], strict=True)] == [True, True]
    assert seen[0][1] == ()
    assert seen[1][1] == (streams[1],)
    assert seen[0][2] == seen[1][2] == streams
    future.sync(60)


@pytest.mark.needs_devices(2)
def test_a_policy_of_ones_own_is_told_the_devices_of_the_producers(kernels, latch):
    devices: list[list[ac.Device]] = []

    class Own(ac.SchedulingPolicy):
        def choose(self, op, producers, candidates):
            devices.append([stream.device for stream in producers])
            return candidates[0]

    policy = Own(1)
    latch.hold(policy.streams(0)[0])
    with ac.use(policy):
        moved = kernels.increment(ac.zeros(N, np.int32, device=0), N, threads=N).to(1)
        moved.submit()
    latch.release()
    assert devices == [[], [ac.Device(0)]]
    assert right(moved, 1)


@pytest.mark.parametrize("kind", [ac.Dataflow, ac.RoundRobin, ac.LeastLoaded, FirstCandidate])
def test_explaining_makes_the_streams_of_a_policy(where, device, chain, kind):
    """Also in the place of streams that were closed."""
    for stream in [device.stream() for _ in range(4)]:
        stream.close()
    device.synchronize().sync()
    device.memory_info()  # what can be closed is
    policy = kind(2, priority=-1)
    with ac.use(policy):
        assert set(where(chain(2))) <= set(numbers(policy))
        assert right(chain(2), 2)


def test_a_policy_may_choose_a_stream_that_is_no_candidate(where, device, chain):
    other = device.stream()

    class Elsewhere(ac.SchedulingPolicy):
        def choose(self, op, producers, candidates):
            return other

    with ac.use(Elsewhere(1)):
        assert where(chain(2)) == [other._number] * 2
        assert right(chain(2), 2)


def test_a_policy_may_choose_a_stream_of_another_library(device, chain):
    class Theirs:
        stream = device.stream()

        def __cuda_stream__(self):
            return 0, self.stream.handle

    theirs = Theirs()

    class Elsewhere(ac.SchedulingPolicy):
        def choose(self, op, producers, candidates):
            return theirs

    with ac.use(Elsewhere(1)):
        assert right(chain(2), 2)


def test_use_on_schedule_and_set_policy_say_which_policy(where, kernels, chain):
    block, own, whole = ac.RoundRobin(1), ac.RoundRobin(1), ac.RoundRobin(1)
    default = ac.current_policy()
    with ac.use(block):
        assert ac.current_policy() is block
        assert where(chain(2)) == numbers(block) * 2
        # `on` is for the operation alone.
        assert where(kernels.increment(chain(1), N, threads=N).on(own)) == numbers(block) + numbers(own)
    before = ac.set_policy(whole)
    try:
        assert before is default
        assert ac.current_policy() is whole
        assert where(chain(1)) == numbers(whole)
        with ac.use(block):
            assert where(chain(1)) == numbers(block)
        with ac.use(ac.Device(0)):
            assert ac.current_policy() is whole
    finally:
        assert ac.set_policy(before) is whole
    scheduled = ac.RoundRobin(1)
    (stream,) = scheduled.streams(0)
    chain(3).schedule(scheduled).sync(60)
    assert "4 submitted" in repr(stream)  # and the allocation


def test_a_policy_ends_a_stream_being_in_force_and_a_stream_leaves_the_policy(where, device, chain):
    policy, stream = ac.RoundRobin(1), device.stream()
    with ac.use(stream):
        assert where(chain(1)) == [stream._number]
        with ac.use(policy):
            assert where(chain(1)) == numbers(policy)
    with ac.use(policy), ac.use(stream):
        assert ac.current_policy() is policy
        assert where(chain(1)) == [stream._number]


@pytest.mark.needs_devices(2)
def test_a_policy_has_streams_of_its_own_on_each_device(where, chain):
    policy = ac.RoundRobin(2)
    assert not set(numbers(policy, 0)) & set(numbers(policy, 1))
    assert [stream.device for stream in policy.streams(1)] == [ac.Device(1)] * 2
    assert policy.streams(1) == policy.streams(1)
    with ac.use(policy):
        assert where(chain(3, device=1)) == [*numbers(policy, 1), numbers(policy, 1)[0]]
    with ac.use(1):
        assert policy.streams() == policy.streams(1)


@pytest.mark.parametrize("kind", [ac.Dataflow, ac.RoundRobin, ac.LeastLoaded, ac.SchedulingPolicy])
def test_streams_of_a_policy_have_its_priority(kind):
    policy = kind(2, priority=-2)
    assert len(policy.streams(0)) == len(kind(2).streams(0)) == 2
    for stream in policy.streams(0):
        result, priority = driver.cuStreamGetPriority(stream.handle)
        assert (int(result), priority) == (0, -2)
    for stream in kind(2).streams(0):
        assert driver.cuStreamGetPriority(stream.handle) == (driver.CUresult.CUDA_SUCCESS, 0)


def test_dataflow_shares_the_default_stream_unless_it_has_a_priority(device):
    assert ac.Dataflow(2).streams(0)[0] == device.default_stream
    assert device.default_stream not in ac.Dataflow(2, priority=-2).streams(0)


@pytest.mark.parametrize("kind", [ac.Dataflow, ac.RoundRobin, ac.LeastLoaded, ac.SchedulingPolicy])
@pytest.mark.parametrize("count", [0, -1, 129, 1.5, "4", None])
def test_a_wrong_number_of_streams_is_an_error(kind, count):
    with pytest.raises(ac.ArgumentValueError, match="1 to 128 streams"):
        kind(count)


def test_what_is_no_policy_is_an_error():
    with pytest.raises(ac.ArgumentTypeError, match="policy"):
        ac.set_policy(ac.Device(0))
    with pytest.raises(ac.ArgumentValueError, match="'round robin' was given"), ac.use("round robin"):
        pass
    with pytest.raises(ac.ArgumentValueError, match="'round robin' was given"):
        ac.zeros(3).on("round robin")


def test_policies_describe_themselves():
    assert repr(ac.SingleStream()) == "<SingleStream>"
    for policy in (ac.Dataflow(3, -1), ac.RoundRobin(3, -1), ac.LeastLoaded(3, -1), ac.SchedulingPolicy(3, -1)):
        assert repr(policy) == f"<{type(policy).__name__} of 3 streams, priority -1>"


# --- policies that are wrong ----------------------------------------------------------------------------------------


class Wrong(ac.SchedulingPolicy):
    """Is right for the first operation, and wrong for the second."""

    def __init__(self, chosen: Any) -> None:
        super().__init__(2)
        self.chosen = chosen
        self.count = 0

    def choose(self, op, producers, candidates):
        self.count += 1
        if self.count != 2:
            return candidates[0]
        if isinstance(self.chosen, Exception):
            raise self.chosen
        return self.chosen() if callable(self.chosen) else self.chosen


def closed_stream() -> ac.Stream:
    stream = ac.Device(0).stream()
    stream.close()
    return stream


def stream_of_another_device() -> ac.Stream:
    return ac.Device(1).default_stream


@pytest.fixture(
    params=[
        (ZeroDivisionError("mine"), ZeroDivisionError, "mine"),
        (None, ac.ArgumentTypeError, r"Wrong.choose\(\) returned None"),
        (0, ac.ArgumentTypeError, r"returned 0 .*return one of the candidates"),
        (closed_stream, ac.ClosedError, "closed"),
        pytest.param(
            (stream_of_another_device, ac.DeviceMismatchError, "device 0 on a stream of device 1"),
            marks=pytest.mark.needs_devices(2),
        ),
    ],
    ids=["raises", "none", "number", "closed", "another-device"],
)
def wrong(request: pytest.FixtureRequest) -> tuple[Wrong, type[Exception], str]:
    chosen, error, message = request.param
    return Wrong(chosen), error, message


def test_what_a_wrong_policy_says_is_the_operations_error_and_nobody_elses(wrong, kernels, used_bytes):
    policy, error, message = wrong
    policy.streams(0)
    before = used_bytes()
    x = ac.zeros(N, np.int32).sync()
    with ac.use(policy):
        first = kernels.increment(x, N, threads=N)
        second = kernels.increment(first, N, threads=N)
        last = kernels.increment(second, N, threads=N)
        with pytest.raises(error, match=message):
            last.sync(60)
        # It keeps its error, and so does all that was to come of it.
        for failed in (second, last):
            with pytest.raises(error, match=message):
                failed.sync(60)
        assert policy.count == 2
        # Earlier results are there; later operations are done.
        assert right(first, 1)
        assert right(kernels.increment(x, N, threads=N), 2)
    del x, first, second, last, failed
    assert used_bytes() == before


def test_a_wrong_policy_fails_an_await_too(wrong, kernels, run):
    policy, error, message = wrong

    async def main() -> None:
        with ac.use(policy), pytest.raises(error, match=message):
            await kernels.increment(kernels.increment(ac.zeros(N, np.int32), N, threads=N), N, threads=N)

    run(main)


def test_a_wrong_policy_fails_what_is_put_on_it(wrong, kernels):
    policy, error, message = wrong
    policy.count = 1
    op = kernels.increment(ac.zeros(N, np.int32), N, threads=N).on(policy)
    with pytest.raises(error, match=message):
        op.submit()
    assert right(ac.full(N, 3, np.int32), 3)


def test_a_policy_without_choose_says_so():
    with ac.use(ac.SchedulingPolicy(1)), pytest.raises(ac.ArgumentTypeError, match="no choose"):
        ac.zeros(3).sync()


def test_a_policy_may_submit_and_wait_itself(kernels, chain):
    class Busy(ac.SchedulingPolicy):
        depth = 0

        def choose(self, op, producers, candidates):
            if not self.depth:
                self.depth = 1
                with ac.use(ac.SingleStream()):
                    assert right(chain(2), 2)
                self.depth = 0
            return candidates[0]

    with ac.use(Busy(1)):
        assert right(chain(3), 3)


def test_a_dropped_policy_closes_its_streams(kernels, chain, device):
    policy = ac.RoundRobin(2)
    with ac.use(policy):
        op = chain(3)
        op.submit()
    known = [stream._index for stream in policy.streams(0)]
    assert set(known) <= set(_native.streams_of(0))
    del policy
    gc.collect()
    assert right(op, 3)
    device.synchronize().sync()
    device.memory_info()  # what can be closed is
    assert not set(known) & set(_native.streams_of(0))
