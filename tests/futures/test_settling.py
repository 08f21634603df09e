"""A future is settled once, and everybody hears of it, whoever comes in between: a finalizer, at any allocation, or
another thread."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import aiocuda as ac


@contextlib.contextmanager
def in_the_middle(call: Callable[[], object], after: int) -> Iterator[Callable[[], bool]]:
    """Have a function called by the collector, when it has run so many times; give who says whether it was."""
    runs = 0

    def collected(phase: str, _: object) -> None:
        nonlocal runs
        if phase == "stop":
            runs += 1
            if runs == after:
                call()

    threshold = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        yield lambda: runs >= after
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)


def sevens() -> ac.DeviceOp[np.ndarray]:
    return ac.to_host(ac.full(3, 7, np.int32))


def test_a_callback_is_called_once_wherever_the_future_is_cancelled_meanwhile(held):
    after, was_called = 0, True
    while was_called:  # as long as there are places where the collector may come in
        after += 1
        future = sevens().submit()
        told: list[object] = []
        is_told = threading.Event()
        with in_the_middle(future.cancel, after) as was_there:
            future.add_done_callback(lambda ended, told=told, is_told=is_told: (told.append(ended), is_told.set()))
            was_called = was_there()
        future.cancel()
        assert is_told.wait(60)
        assert told == [future]
    assert after > 1
    assert held.is_holding


def test_a_callback_that_a_finalizer_adds_meanwhile_is_called_too(held):
    after, was_called = 0, True
    while was_called:
        after += 1
        future = sevens().submit()
        told: list[str] = []
        is_told = threading.Event()
        with in_the_middle(
            lambda future=future, told=told: future.add_done_callback(lambda _: told.append("a")), after
        ) as was_there:
            future.add_done_callback(lambda _, told=told: told.append("b"))
            was_called = was_there()
        future.cancel()
        future.add_done_callback(lambda _, is_told=is_told: is_told.set())  # behind the others
        assert is_told.wait(60)
        assert sorted(told) == (["a", "b"] if was_called else ["b"])
    assert after > 1
    assert held.is_holding


def test_callbacks_of_threads_that_race_with_a_cancellation_are_called_once_each(held, in_threads):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            future = sevens().submit()
            told: list[int] = []
            all_told = threading.Event()

            def add(number: int, future=future, told=told, all_told=all_told) -> None:
                def tell(_: object) -> None:
                    told.append(number)
                    if len(told) == 3:
                        all_told.set()

                future.add_done_callback(tell)

            in_threads(lambda: add(0), lambda: add(1), future.cancel, lambda: add(2))
            assert all_told.wait(60)
            assert sorted(told) == [0, 1, 2]
    finally:
        sys.setswitchinterval(interval)
    assert held.is_holding


def test_a_wait_ends_wherever_the_future_is_cancelled_meanwhile(held):
    after, was_called = 0, True
    while was_called:
        after += 1
        future = sevens().submit()
        with in_the_middle(future.cancel, after) as was_there:
            with pytest.raises((ac.CancelledError, TimeoutError)):
                future.sync(timeout=0)
            was_called = was_there()
        assert future.cancel()
    assert after > 1
    assert held.is_holding


def test_what_was_submitted_can_be_submitted_again_when_its_stream_is_closed(device):
    stream = device.stream()
    with ac.use(stream):
        op = ac.full(3, 7, np.int32)
        first = op.submit()
        stream.close()
        again = op.submit()
    assert first.sync(60) is again.sync(60)


def test_what_nobody_waits_for_is_small():
    future = ac.value(1).submit()
    assert future.result() == 1
    assert sys.getsizeof(future) <= 96
    assert not hasattr(future, "__dict__")
