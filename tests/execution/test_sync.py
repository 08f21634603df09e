"""Waiting in a thread: sync, sync_on, submit, time-outs, interruption."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import placement


def test_sync_waits_until_the_result_is_there(latch):
    latch.hold()
    threading.Timer(0, latch.release).start()
    np.testing.assert_array_equal(ac.to_host(ac.full(3, 7, np.int32)).sync(), [7, 7, 7])


def test_sync_lets_other_threads_run(latch):
    """The thread that releases the latch needs the GIL while the other waits."""
    latch.hold()
    turns: list[int] = []
    waiting = threading.Event()

    def others() -> None:
        waiting.wait()
        turns.extend(range(10_000))
        latch.release()

    thread = threading.Thread(target=others)
    thread.start()
    waiting.set()
    ac.to_host(ac.ones(3)).sync()
    assert len(turns) == 10_000
    thread.join()


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_timeout_behind_a_latch_is_an_error_and_the_work_goes_on(latch, timeout):
    latch.hold()
    op = ac.to_host(ac.full(3, 7, np.int32))
    with pytest.raises(TimeoutError, match=f"not complete after {timeout} s"):
        op.sync(timeout=timeout)
    assert latch.is_holding
    latch.release()
    np.testing.assert_array_equal(op.sync(timeout=60), [7, 7, 7])


def test_a_timeout_does_not_matter_when_the_result_is_there():
    op = ac.to_host(ac.ones(3))
    op.sync()
    assert op.sync(timeout=0).sum() == 3


@pytest.mark.parametrize(
    "timeout", [-1, -1e-9, float("-inf"), float("nan"), np.float32("nan"), "1", True, 1j], ids=repr
)
def test_a_timeout_that_cannot_be_is_an_error_before_anything_runs(device, timeout):
    op = ac.ones(3)
    stream = device.stream()
    for wait in (
        lambda: op.sync(timeout=timeout),
        lambda: op.sync_on(stream, timeout=timeout),
        lambda: op.schedule(0).sync(timeout=timeout),
    ):
        with pytest.raises(ac.ArgumentValueError, match=r"a time-out is a number of seconds, 0 or more; .* was given"):
            wait()
    assert "pending" in repr(op)


@pytest.mark.parametrize("timeout", [float("inf"), 10**400, 1e300, np.float32(60), Fraction(120, 2)], ids=str)
def test_any_number_of_seconds_is_a_timeout(latch, settle, timeout):
    """Also those that no clock comes to: such a wait is one without a time-out."""
    latch.hold()
    op = ac.to_host(ac.full(3, 7, np.int32))
    future = op.submit()
    waits = [lambda: op.sync(timeout=timeout), lambda: future.sync(timeout=timeout)]
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(wait) for wait in waits]
        settle()  # by now both wait
        latch.release()
        for each in found:
            np.testing.assert_array_equal(each.result(60), [7, 7, 7])


@pytest.fixture
def interrupt(interruptible):
    """Interrupt this process soon, as Ctrl-C does."""

    def interrupted(call):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        return call()

    return interrupted


def test_an_interrupt_ends_sync_and_leaves_the_work(latch, interrupt):
    latch.hold()
    op = ac.to_host(ac.full(3, 7, np.int32))
    op.submit()
    with pytest.raises(KeyboardInterrupt):
        interrupt(op.sync)
    assert latch.is_holding
    latch.release()
    np.testing.assert_array_equal(op.sync(), [7, 7, 7])


@pytest.mark.parametrize("kind", ["a device", "a stream", "an event"])
def test_an_interrupt_ends_the_wait_for_a_stream(latch, device, interrupt, kind):
    latch.hold()
    stream = device.default_stream
    waits = {"a device": device.synchronize(), "a stream": stream.synchronize(), "an event": stream.record()}
    with pytest.raises(KeyboardInterrupt):
        interrupt(waits[kind].sync)
    assert latch.is_holding


def test_submit_hands_over_at_once_and_does_not_wait(latch):
    latch.hold()
    op = ac.to_host(ac.full(2, 3, np.int32))
    future = op.submit()
    assert not future.done()
    with pytest.raises(ac.ArgumentValueError, match="not complete"):
        future.result()
    assert "pending" in repr(future)
    latch.release()
    np.testing.assert_array_equal(future.sync(), [3, 3])
    assert future.done()
    assert future.result() is op.sync()
    assert "done" in repr(future)


def test_submitting_what_fails_at_once_raises_its_error():
    op = ac.value(1).map(lambda _: 1 / 0)
    for ask in (op.submit, op.submit, op.sync):
        with pytest.raises(ZeroDivisionError):
            ask()


def test_a_future_raises_the_error_that_came_later(latch):
    latch.hold()
    future = ac.to_host(ac.ones(3)).map(lambda _: 1 / 0).submit()
    latch.release()
    for ask in (future.sync, future.result, future.sync):
        with pytest.raises(ZeroDivisionError):
            ask()
    assert future.done()


def test_done_goes_on_behind_a_map(latch):
    latch.hold()
    future = ac.to_host(ac.to_host(ac.ones(3)).map(lambda host: host + 1).then(ac.to_device)).submit()
    assert not future.done()
    latch.release()
    while not future.done():
        pass
    np.testing.assert_array_equal(future.result(), [2, 2, 2])


def test_a_future_keeps_the_place_where_it_was_submitted(device, latch):
    stream = device.stream()
    with ac.use(stream):
        future = ac.to_host(ac.ones(3)).map(lambda host: host).then(ac.to_device).submit()
    latch.hold(device)
    np.testing.assert_array_equal(future.sync(timeout=60).shape, (3,))
    assert latch.is_holding


def test_sync_on_runs_on_the_stream_given(device, latch):
    latch.hold(device)
    stream = device.stream()
    array = ac.to_host(ac.full(3, 8, np.int32)).sync_on(stream, timeout=60)
    np.testing.assert_array_equal(array, [8, 8, 8])
    assert latch.is_holding


def test_sync_on_takes_streams_of_others(device):
    stream = device.stream()

    class Foreign:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream.handle

    np.testing.assert_array_equal(ac.to_host(ac.ones(3)).sync_on(Foreign()), [1, 1, 1])
    with pytest.raises(ac.ArgumentTypeError, match="__cuda_stream__"):
        ac.value(1).sync_on(3)


def test_sync_works_inside_a_running_loop(run):
    async def main() -> int:
        return ac.to_host(ac.ones(3)).map(lambda host: int(host.sum())).sync()

    assert run(main) == 3


def test_sync_in_every_thread_at_once(kernels):
    x = ac.zeros(16, np.int32).sync()
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        for _ in range(50):
            kernels.increment(x, 16, threads=16).sync()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    np.testing.assert_array_equal(ac.to_host(x).sync(), np.full(16, 400))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("submit", lambda op: (op,)),
        ("submit", lambda op: (7, placement.current.get())),
        ("submit", lambda op: (op, None)),
        ("run_and_wait", lambda op: (op, 7, -1.0)),
        ("run_and_wait", lambda op: (op, None, "a second")),
        ("submit_future", lambda op: (None,)),
    ],
)
def test_native_functions_that_python_calls_directly_look_at_their_arguments(function, arguments):
    op = ac.ones(3)
    with pytest.raises(TypeError, match=r"expected|must be real number"):
        getattr(_native, function)(*arguments(op))
    assert op._state == "pending"
