"""What the recorder has of programs: exactly their operations, with what they came after, and who asked."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import _loops, _native
from aiocuda._ops.operation import native_op
from aiocuda._trace.model import Trace
from aiocuda._trace.reading import await_times, read

N = 64


class Recorded:
    """A trace that is there when the block has ended."""

    trace: Trace


@contextlib.contextmanager
def recorded() -> Iterator[Recorded]:
    recording = _native.Recording(_loops.current_name)
    assert recording.start()
    begun_ns = time.monotonic_ns()
    found = Recorded()
    try:
        yield found
    finally:
        recording.stop()
        assert await_times(recording, 60)
        found.trace = read(recording, "test", begun_ns, time.monotonic_ns(), is_emulated=True)


def before(trace: Trace) -> list[set[int]]:
    """Return, of each operation, the operations that it comes after, by needs and by streams."""
    last: dict[int, int] = {}
    found: list[set[int]] = []
    for each in trace.operations:
        direct = set(each.needs)
        if each.stream is not None:
            if each.stream in last:
                direct.add(last[each.stream])
            last[each.stream] = each.number
        found.append(direct.union(*(found[number] for number in direct)))
    return found


def test_work_that_a_walk_comes_back_to_is_there_once(run: Any) -> None:
    """The walk stops at page-locked memory that nobody has yet, and goes on when a thread has got it."""
    items = (1 << 20) + 4096 * N  # of a size that no other test asks for

    async def main() -> None:
        await ac.to_host(ac.ones(items, np.int32))

    with recorded() as found:
        run(main)
    names = [each.name for each in found.trace.operations]
    assert sorted(names) == ["a copy to the host", "allocate and fill", "allocate page-locked memory", "copy to host"]


def test_a_trace_has_exactly_the_operations_of_a_program_in_their_order(kernels: Any) -> None:
    x = ac.ones(N).sync()
    with recorded() as found:
        y = kernels.scale(2.0, x, ac.empty(N), N, threads=N)
        z = kernels.add(y, x, ac.zeros(N), N, threads=N)
        values = ac.to_host(z).sync()
    assert values.tolist() == [3.0] * N
    on_device = [each for each in found.trace.operations if each.stream is not None]
    assert [(each.kind, each.name) for each in on_device] == [
        ("allocate", "allocate"),
        ("launch", "scale"),
        ("allocate", "allocate and fill"),
        ("launch", "add"),
        ("copy", "copy to host"),
    ]
    numbers = [each.number for each in on_device]
    assert [each.needs for each in on_device] == [
        (), (numbers[0],), (), (numbers[1], numbers[2]), (numbers[3],),
    ]  # fmt: skip
    assert all(each.place.startswith(f"{__file__}:") for each in on_device)
    assert on_device[-1].size_bytes == 4 * N
    assert [(each.kind, each.outcome, each.who) for each in found.trace.asked] == [
        ("sync", "done", "thread: MainThread")
    ]
    assert {each.asked for each in found.trace.operations} == {0}
    assert found.trace.asked[0].results == (numbers[-1],)


def test_times_are_in_the_order_in_which_things_happen(kernels: Any) -> None:
    with recorded() as found:
        kernels.scale(2.0, ac.ones(N), ac.empty(N), N, threads=N).sync()
    (launch,) = (each for each in found.trace.operations if each.kind == "launch")
    assert launch.is_measured
    assert found.trace.begun_ns <= launch.built_ns <= launch.decided_ns <= launch.called_ns <= launch.started_ns
    assert launch.called_ns <= launch.returned_ns
    assert launch.started_ns <= launch.ended_ns
    (asked,) = found.trace.asked
    assert launch.built_ns <= asked.begun_ns <= launch.decided_ns
    assert launch.returned_ns <= asked.ended_ns


def test_an_operation_that_waits_for_another_stream_needs_what_is_there(kernels: Any, latch: Any) -> None:
    streams = [ac.Device(0).stream() for _ in range(2)]
    x = ac.ones(N).sync()
    latch.hold(streams[0])
    with recorded() as found:
        first = kernels.scale(2.0, x, x, N, threads=N).on(streams[0]).submit()
        second = kernels.scale(3.0, x, ac.empty(N), N, threads=N).on(streams[1]).submit()
        latch.release()
        first.sync()
        second.sync()
    one, two = (each for each in found.trace.operations if each.kind == "launch")
    assert one.stream != two.stream
    assert one.number in two.needs
    assert two.started_ns >= one.ended_ns - 1_000_000  # the clocks of events are that exact


def test_work_that_is_held_back_for_its_branches_is_measured(kernels: Any) -> None:
    x = ac.ones(N).sync()
    with recorded() as found:
        branches = [kernels.scale(float(i), x, ac.empty(N), N, threads=N) for i in range(4)]
        ac.zip(*(kernels.scale(1.0, each, ac.empty(N), N, threads=N) for each in branches)).sync()
    launches = [each for each in found.trace.operations if each.kind == "launch"]
    assert len(launches) == 8
    assert all(each.is_measured for each in launches)
    assert len({each.stream for each in launches}) > 1


def test_a_trace_changes_no_decision(kernels: Any) -> None:
    x = ac.ones(N).sync()

    def streams() -> list[int]:
        policy = ac.Dataflow(streams=4)
        with ac.use(policy):
            branches = [kernels.scale(float(i), x, ac.empty(N), N, threads=N) for i in range(6)]
            ac.zip(*branches).sync()
        used = [native_op(each)._ready[0][0] for each in branches]
        return [used.index(stream) for stream in used]

    plain = streams()
    with recorded():
        assert streams() == plain


def test_awaits_name_their_loop_and_task_on_every_loop(run: Callable[..., Any]) -> None:
    async def program() -> list[float]:
        values = await ac.to_host(ac.ones(N))
        return list(values[:1])

    with recorded() as found:
        assert run(program) == [1.0]
    (asked,) = found.trace.asked
    assert (asked.kind, asked.outcome) == ("await", "done")
    assert asked.who.partition(": ")[0] in {"asyncio", "uvloop", "trio"}
    assert asked.who.partition(": ")[2]
    steps = [each for each in found.trace.steps if each.asked == 0]
    assert steps
    assert all(asked.begun_ns <= each.ended_ns <= asked.ended_ns or each is steps[-1] for each in steps)


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "timed out"])
def test_an_await_that_has_no_result_is_shown_as_such(
    outcome: str, kernels: Any, latch: Any, run_asyncio: Callable[[Any], Any]
) -> None:
    async def fail() -> None:
        def raises(_: object) -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await ac.ones(N).map(raises)

    async def cancel() -> None:
        task = asyncio.ensure_future(ac.as_coroutine(ac.ones(N)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def be_late() -> None:
        with pytest.raises(ac.DeviceTimeoutError):
            await ac.ones(N).within(0.001)

    programs = {"failed": fail, "cancelled": cancel, "timed out": be_late}
    if outcome != "failed":
        latch.hold(0)
    with recorded() as found:
        run_asyncio(programs[outcome])
        latch.release()
    assert outcome in [each.outcome for each in found.trace.asked]


@given(st.data())
def test_what_touches_the_same_bytes_is_ordered_in_the_trace(kernels: Any, data: st.DataObject) -> None:
    arrays = [ac.zeros(N, np.int32).sync() for _ in range(4)]
    streams = [ac.Device(0).stream() for _ in range(3)]
    accesses: list[tuple[int, int]] = []
    with recorded() as found:
        for _ in range(data.draw(st.integers(1, 12))):
            read_from, written = (data.draw(st.integers(0, 3)) for _ in range(2))
            if read_from == written:
                continue
            accesses.append((read_from, written))
            op = kernels.accumulate(1, arrays[read_from], arrays[written], N, threads=N)
            op.on(data.draw(st.sampled_from(streams))).submit()
    for stream in streams:
        stream.synchronize().sync()
        stream.close()
    assert len(found.trace.operations) == len(accesses)
    earlier = before(found.trace)
    for later, (reads, writes) in enumerate(accesses):
        for one, (other_reads, other_writes) in enumerate(accesses[:later]):
            if writes in (other_reads, other_writes) or reads == other_writes:
                assert one in earlier[later]


def test_one_trace_is_recorded_at_a_time() -> None:
    with recorded():
        assert not _native.Recording(_loops.current_name).start()
    with recorded():
        pass


def test_a_hundred_thousand_operations_are_recorded_in_less_than_100_mb(kernels: Any) -> None:
    x = ac.zeros(N, np.int32).sync()

    def chain(count: int) -> None:
        for _ in range(count // 100):
            y: Any = x
            for _ in range(100):
                y = kernels.increment(y, N, threads=N)
            y.sync()

    def held_bytes() -> int:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()

    chain(1000)
    recording = _native.Recording(_loops.current_name)
    before = held_bytes()
    assert recording.start()
    try:
        chain(100_000)
    finally:
        recording.stop()
    assert recording.work_count() == 100_000
    assert recording.size_bytes() < 300 * 100_000
    assert held_bytes() - before < 100e6


def test_a_recording_that_nobody_holds_has_ended() -> None:
    recording = _native.Recording(_loops.current_name)
    assert recording.start()
    del recording
    ac.ones(N).sync()
    with recorded() as found:
        ac.ones(N).sync()
    assert len(found.trace.operations) == 1


def test_memory_that_copies_wrote_and_that_is_gone_is_forgotten_in_a_long_trace() -> None:
    def dead() -> int:
        return sum(type(each) is weakref.ref and each() is None for each in gc.get_objects())

    x = ac.ones(1).sync()
    before = dead()
    with ac.debug(report=False):
        for _ in range(5000):
            ac.copy(np.empty(1, np.float32), x).sync()
        assert dead() - before < 4096
