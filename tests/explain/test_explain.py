"""explain() says what executing would do, in order, and changes nothing."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import aiocuda as ac


def steps(op: ac.DeviceOp) -> list[str]:
    """The lines without numbers and origins."""
    return [" ".join(line.split()[1:]).partition(" /")[0] for line in op.explain().splitlines()]


def test_a_diamond_visits_its_shared_node_once_in_submission_order(kernels, device):
    s = f"stream {device.default_stream._number}"
    top = kernels.increment(ac.zeros(8, np.int32), 8, threads=8)
    left = kernels.accumulate(1, top, ac.zeros(8, np.int32), 8, threads=8)
    right = kernels.accumulate(2, top, ac.ones(8, np.int32), 8, threads=8)
    launch = "on device 0: grid 1x1x1, block 32x1x1"
    with ac.use(ac.SingleStream()):
        shown = steps(ac.zip(left, right))
    assert shown == [
        f"{s} allocate int32(8,) in device 0, 32 bytes, filled with 0",
        f"{s} launch increment {launch}; writes x",
        f"{s} allocate int32(8,) in device 0, 32 bytes, filled with 0",
        f"{s} launch accumulate {launch}; reads x; writes y",
        f"{s} allocate int32(8,) in device 0, 32 bytes, filled with 1",
        f"{s} launch accumulate {launch}; reads x; writes y",
    ]


def test_waits_between_two_streams_are_shown_once_each(kernels, device):
    a, b = device.stream(), device.stream()
    x = ac.zeros(8, np.int32).on(a)
    one = kernels.increment(x, 8, threads=8).on(a)
    two = kernels.increment(one, 8, threads=8).on(b)
    three = kernels.increment(two, 8, threads=8).on(b)
    four = kernels.increment(three, 8, threads=8).on(a)
    shown = [step for step in steps(four) if "wait" in step]
    assert shown == [
        f"stream {b._number} wait for stream {a._number}",
        f"stream {a._number} wait for stream {b._number}",
    ]


@pytest.mark.needs_devices(2)
def test_two_devices_show_the_peer_copy_and_its_wait():
    x = ac.to_device(ac.ones(8, device=0), 1)
    with ac.use(ac.SingleStream()):
        shown = steps(x)
    zero, one = (ac.Device(i).default_stream._number for i in (0, 1))
    assert f"stream {one} wait for stream {zero}" in shown
    assert f"stream {one} copy 32 bytes from device 0 to device 1" in shown


def test_every_line_names_the_line_that_built_it(kernels):
    op, line = ac.dup(ac.zeros(8, np.int32)), inspect.currentframe().f_lineno
    lines = op.explain().splitlines()
    assert [each.split()[0] for each in lines] == [str(i + 1) for i in range(len(lines))]
    assert len(lines) >= 2
    assert all(each.endswith(f"test_explain.py:{line}") for each in lines)


def test_callbacks_are_shown_and_not_called():
    calls: list[object] = []

    def reply(value: object) -> None:
        calls.append(value)

    text = ac.ones(3).inspect(reply).then(reply).map(reply).explain()
    assert calls == []
    for kind in ("inspect", "then", "map"):
        assert f"{kind} test_callbacks_are_shown_and_not_called.<locals>.reply" in text


def test_what_follows_an_unknown_result_is_still_shown(kernels):
    op = kernels.increment(ac.value(1).then(lambda _: ac.zeros(4, np.int32)), 4, threads=4)
    text = ac.to_host(op).explain()
    assert "launch increment" in text
    assert "copy of what is known only at submission" in text


def test_a_launch_without_threads_says_so(kernels):
    assert "no threads, so no launch" in kernels.increment(ac.zeros(4, np.int32), 4, threads=0).explain()


def test_what_has_run_has_nothing_left_to_do(kernels):
    op = kernels.increment(ac.zeros(4, np.int32), 4, threads=4)
    op.sync()
    assert op.explain() == "the launch of increment: it has run; nothing is left to do"


def test_what_has_run_in_part_shows_the_rest(kernels):
    x = kernels.increment(ac.zeros(4, np.int32), 4, threads=4)
    y = kernels.increment(x, 4, threads=4)
    x.sync()
    assert len(steps(y)) == 1


def test_explaining_runs_nothing(kernels, device, used_bytes):
    before = used_bytes(), repr(device.default_stream)
    op = ac.to_host(kernels.increment(ac.to_device(np.zeros(1000, np.int32)), 1000, threads=1000))
    op.explain()
    assert (used_bytes(), repr(device.default_stream)) == before
    assert "pending" in repr(op)


def test_explaining_changes_no_decision(kernels, device):
    """Explained or not, and as often as you like, the plan and the result are the same."""
    a, b = device.stream(), device.stream()
    x = ac.full(8, 1, np.int32).sync()
    op = kernels.increment(kernels.increment(x, 8, threads=8).on(a), 8, threads=8).on(b)
    first = op.explain()
    assert op.explain() == first
    np.testing.assert_array_equal(ac.to_host(op).sync(), [3] * 8)


def test_explaining_behind_pending_work_leaves_its_hazards(kernels, latch, device, settle):
    a, b = device.stream(), device.stream()
    x = ac.full(8, 1, np.int32).sync()
    latch.hold(a)
    kernels.increment(x, 8, threads=8).on(a).submit()
    reading = ac.dup(x).on(b)
    assert f"stream {b._number} wait for stream {a._number}" in steps(reading)
    future = reading.submit()
    settle()
    assert not future.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(future.sync()).sync(), [2] * 8)


def test_explain_takes_the_stream_in_force(device):
    stream = device.stream()
    with ac.use(stream):
        assert steps(ac.zeros(3))[0].startswith(f"stream {stream._number} ")


def test_explaining_a_failed_operation_raises_its_error():
    op = ac.value(1).then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        op.sync()
    with pytest.raises(ZeroDivisionError):
        op.explain()


def test_explaining_what_cannot_be_raises_what_running_would():
    op = ac.zip().first()
    with pytest.raises(IndexError, match="item 0"):
        op.explain()


def test_a_long_chain_is_explained(kernels):
    op = ac.zeros(1, np.int32)
    for _ in range(5000):
        op = kernels.increment(op, 1, threads=1)
    assert len(op.explain().splitlines()) == 5001
