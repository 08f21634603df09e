"""Which stream, and which waits: what the walk decides, read from `explain()`.

Always true: the policy is new and its streams are idle, so that nothing earlier has a say; lanes are the policy's own
streams by their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import explain, placement

N = 64


@pytest.fixture
def lanes() -> Iterator[Callable[[ac.DeviceOp], list[str]]]:
    """Give a function that says what an operation would do, under a new `Dataflow(4)` that is in force.

    "0: increment" is a launch on lane 0, "1 after 0" a wait of lane 1 for all that lane 0 holds, "1 after 0 but 2" for
    all but its last two.
    """
    policy = ac.Dataflow(4)
    for device in ac.devices():
        device.synchronize().sync()
    with ac.use(policy):
        yield lambda op: described(op, policy)


def described(op: ac.DeviceOp, policy: ac.Policy) -> list[str]:
    streams = [stream for device in ac.devices() for stream in policy.streams(device)]
    names = {f"stream {stream._number}": str(lane) for lane, stream in enumerate(streams)}
    found = []
    for line in op.explain().splitlines():
        _, where, rest = line.strip().split("  ", 2)
        rest = rest.strip()
        lane = names.get(where.strip(), where.strip())
        if rest.startswith("wait for "):
            other, _, behind = rest.removeprefix("wait for ").partition(", but for its last ")
            found.append(f"{lane} after {names[other]}" + (f" but {behind}" if behind else ""))
        elif rest.startswith("launch "):
            found.append(f"{lane}: {rest.split()[1]}")
        elif lane != "host":
            found.append(f"{lane}: {rest.split()[0]}")
    return found


@pytest.fixture
def increment(kernels):
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def added(kernels):
    """Give a function that makes a new array of two: y = x + z."""
    source = (
        'extern "C" __global__ void added(const int* x, const int* y, int* z, unsigned n)'
        "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = x[i] + y[i]; }"
    )
    kernel = ac.kernel(source)
    return lambda x, y: kernel(x, y, ac.empty(N, np.int32), N, threads=N)


def zeros() -> ac.DeviceOp[ac.DeviceArray]:
    return ac.zeros(N, np.int32)


def full(value: int) -> ac.DeviceArray:
    """Make an array that has been there for long."""
    array = ac.full(N, value, np.int32).sync()
    array.device.synchronize().sync()
    return array


def waits(steps: list[str]) -> list[str]:
    return [step for step in steps if " after " in step]


def test_a_chain_stays_on_one_stream_and_waits_for_nothing(lanes, increment):
    x = zeros()
    for _ in range(5):
        x = increment(x)
    assert lanes(x) == ["0: allocate", *["0: increment"] * 5]


def test_a_diamond_takes_two_streams_and_two_waits(lanes, increment, added):
    top = increment(zeros())
    assert lanes(added(increment(added(top, top)), increment(added(top, top)))) == [
        "0: allocate",
        "0: increment",
        "0: allocate",
        "0: added",
        "0: increment",
        "1: allocate",
        "1 after 0 but 3",  # for the top alone, not for the other branch
        "1: added",
        "1: increment",
        "0: allocate",
        "0 after 1",
        "0: added",
    ]


def test_every_branch_of_a_fork_waits_for_the_fork_alone(lanes, increment, added):
    top = increment(zeros())
    branches = [added(top, top) for _ in range(4)]
    steps = lanes(ac.zip(*branches))
    assert waits(steps) == ["1 after 0 but 2", "2 after 0 but 2", "3 after 0 but 2"]
    assert [step for step in steps if "added" in step] == [f"{lane}: added" for lane in range(4)]


def test_slices_of_one_array_spread_over_the_streams_and_do_not_wait(lanes, increment):
    x = full(0)
    chains = [increment(increment(x[i * 16 : (i + 1) * 16])) for i in range(4)]
    assert lanes(ac.zip(*chains)) == [f"{lane}: increment" for lane in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_when_all_streams_are_busy_they_are_taken_in_turn(lanes, increment):
    parts = ac.full(8 * N, 0, np.int32).sync()
    ac.Device(0).synchronize().sync()
    steps = lanes(ac.zip(*[increment(parts[i * N : (i + 1) * N]) for i in range(8)]))
    assert steps == [f"{lane}: increment" for lane in (0, 1, 2, 3, 0, 1, 2, 3)]


def test_a_write_after_reads_waits_for_each_reading_stream_once(lanes, latch, increment, added):
    x = full(1)
    latch.hold(0)
    sums = [added(x, x).on(stream) for stream in ac.current_policy().streams(0)]
    ac.zip(*sums).submit()
    writing = increment(x)
    assert lanes(writing) == ["0 after 1", "0 after 2", "0 after 3", "0: increment"]
    assert lanes(increment(writing))[-1] == "0: increment"
    assert len(waits(lanes(increment(increment(writing))))) == 3


def test_what_another_wait_brought_is_not_waited_for_again(lanes, latch, device, increment, added):
    x = full(1)
    first, second, third, _ = ac.current_policy().streams(0)
    latch.hold(0)
    top = increment(x).on(first)
    middle = added(top, top).on(second)
    # The third stream waits for the second, which waited for the first: that is enough for x too.
    last = added(middle, top).on(third)
    assert waits(lanes(last)) == ["1 after 0", "2 after 1"]


def test_a_wait_is_not_repeated_by_a_later_operation(lanes, latch, increment, added):
    x = full(1)
    first, second, *_ = ac.current_policy().streams(0)
    latch.hold(0)
    top = increment(x).on(first)
    one, two = (added(top, top).on(second) for _ in range(2))
    assert waits(lanes(ac.zip(one, two))) == ["1 after 0"]


def test_new_work_on_the_other_stream_is_waited_for_again(lanes, latch, increment, added):
    first, second, *_ = ac.current_policy().streams(0)
    latch.hold(0)
    top = increment(zeros()).on(first)
    below = increment(top).on(second)
    again = increment(below).on(first)
    last = increment(again).on(second)
    assert waits(lanes(last)) == ["1 after 0", "0 after 1", "1 after 0"]


def test_a_new_array_is_made_on_the_stream_of_its_first_user(lanes, increment, kernels):
    x = full(1)
    second = ac.current_policy().streams(0)[1]
    op = kernels.accumulate(1, x, zeros(), N, threads=N).on(second)
    assert lanes(op) == ["1: allocate", "1: accumulate"]
    assert lanes(ac.dup(x).on(second)) == ["1: allocate", "1: copy"]


def test_writing_waits_for_reading_on_another_stream_and_not_the_other_way_round(lanes, latch, increment, added):
    x = full(1)
    first, second, *_ = ac.current_policy().streams(0)
    latch.hold(0)
    reading = added(x, x).on(first)
    writing = ac.zip(reading, increment(x).on(second))
    assert waits(lanes(writing)) == ["1 after 0"]
    both = ac.zip(added(x, x).on(first), added(x, x).on(second))
    assert waits(lanes(both)) == []


@pytest.mark.needs_devices(2)
def test_a_peer_copy_waits_once_and_its_source_may_go_on(lanes, increment):
    x = increment(zeros())
    moved = increment(x.to(1))
    # Lanes 4 to 7 are those of the other device.
    assert lanes(moved) == ["0: allocate", "0: increment", "4: allocate", "4 after 0", "4: copy", "4: increment"]
    assert waits(lanes(increment(moved.to(0)))) == ["4 after 0", "1 after 4"]  # an idle one


@pytest.mark.needs_devices(2)
def test_branches_on_two_devices_do_not_wait_for_one_another(lanes, increment):
    both = ac.zip(increment(ac.zeros(N, np.int32, device=0)), increment(ac.zeros(N, np.int32, device=1)))
    assert lanes(both) == ["0: allocate", "0: increment", "4: allocate", "4: increment"]


def test_what_has_passed_is_not_waited_for(lanes, increment, added):
    x = full(1)
    first, second, *_ = ac.current_policy().streams(0)
    increment(x).on(first).sync()
    assert waits(lanes(added(x, x).on(second))) == []


def test_reading_a_slice_waits_for_who_writes_it_and_not_for_who_writes_another(lanes, latch, kernels):
    x = full(0)
    streams = ac.current_policy().streams(0)
    latch.hold(0)
    for i in range(3):
        kernels.increment(x[i * 16 : (i + 1) * 16], 16, threads=16).on(streams[i]).submit()
    over_the_edge = ac.dup(x[8:24]).on(streams[3])
    assert waits(lanes(over_the_edge)) == ["3 after 0", "3 after 1"]
    assert waits(lanes(ac.dup(x[40:]).on(streams[3]))) == ["3 after 2"]
    assert waits(lanes(ac.dup(x[48:]).on(streams[3]))) == []


def test_columns_of_a_matrix_do_not_wait_for_one_another(lanes, latch):
    x = ac.zeros((8, 8), np.int32).sync()
    streams = ac.current_policy().streams(0)
    source = ac.ones((8, 4), np.int32).sync()
    ac.Device(0).synchronize().sync()
    latch.hold(0)
    ac.copy(x[:, :4], source).on(streams[0]).submit()
    assert waits(lanes(ac.copy(x[:, 4:], source).on(streams[1]))) == []
    assert waits(lanes(ac.copy(x[:, 3:7], source).on(streams[1]))) == ["1 after 0"]


# --- what explain() says is what happens ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A part of a random DAG: what is done to which earlier piece, or to two of them."""

    what: str
    of: int
    beside: int
    where: int


PIECES = st.lists(
    st.builds(
        Piece, st.sampled_from(["increment", "accumulate", "dup", "copy", "zip", "host"]), *[st.integers(0, 5)] * 3
    ),
    min_size=1,
    max_size=12,
)


def built(pieces: list[Piece], kernels, arrays: list[ac.DeviceArray], streams: tuple[ac.Stream, ...]) -> ac.DeviceOp:
    """Build a DAG over some arrays; all of it is part of the result."""
    values: list = list(arrays)
    for piece in pieces:
        x, y = values[piece.of % len(values)], values[piece.beside % len(values)]
        match piece.what:
            case "increment":
                op = kernels.increment(x, N, threads=N)
            case "accumulate":
                op = kernels.accumulate(2, x, y, N, threads=N)
            case "dup":
                op = ac.dup(x)
            case "copy":
                op = ac.copy(x, y)
            case "zip":
                op = ac.zip(x, y).first()
            case _:
                op = ac.to_device(ac.copy(ac.empty_host(N, np.int32), x), 0)
        values.append(op.on(streams[piece.where]) if piece.where < 2 and piece.what not in {"zip", "host"} else op)
    return ac.zip(*values)


def submissions(streams: list[ac.Stream]) -> list[int]:
    return [_native.stream_submitted(stream._index) for stream in streams]


@given(pieces=PIECES, policy=st.integers(0, 3), is_held=st.booleans())
def test_what_explain_says_is_what_is_submitted(kernels, latches, policies, arrays, pieces, policy, is_held):
    """Each step counts one submission of the stream that it names."""
    chosen = policies[policy]
    streams = list(chosen.streams(0))
    extra = policies[0].streams(0)[:2]
    streams += [stream for stream in extra if stream not in streams]
    latch = latches()
    if is_held:  # else all has passed, and is known to have
        for stream in streams:
            latch.hold(stream)
    with ac.use(chosen):
        op = built(pieces, kernels, arrays, extra)
        steps = [written for written, _, _ in explain.record(op, placement.current.get())]
        said = Counter(step[1] for step in steps if is_counted(step))
        before = submissions(streams)
        op.submit()
        done = [after - count for after, count in zip(submissions(streams), before, strict=True)]
    latch.close()
    assert done == [said[stream._number] for stream in streams]
    ac.Device(0).synchronize().sync()


def is_counted(step: tuple) -> bool:
    return step[0] in {"create", "launch", "copy", "call"} and step[1] is not None


@pytest.fixture(scope="module")
def policies() -> list[ac.Policy]:
    return [ac.Dataflow(3), ac.RoundRobin(3), ac.SingleStream(), ac.Dataflow(1)]


@pytest.fixture(scope="module")
def arrays() -> list[ac.DeviceArray]:
    return [ac.full(N, value, np.int32).sync() for value in range(3)]
