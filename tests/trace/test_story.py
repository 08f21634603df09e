"""The story of an error: the last decisions before it."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._errors.story import told

N = 64


def decisions() -> list[tuple[Any, ...]]:
    return list(_native.Decisions())


def test_what_was_submitted_and_complete_is_told_with_its_line(kernels: Any) -> None:
    x = ac.ones(N).sync()
    kernels.scale(2.0, x, x, N, threads=N).sync()
    submitted, completed = decisions()[-2:]
    assert submitted[:3] == ("submitted", "launch", "scale")
    assert completed[0] == "completed"
    assert submitted[3] == completed[3]
    assert submitted[3][0] == __file__
    assert submitted[4:6] == completed[4:6]


def test_waits_are_told_with_both_streams(kernels: Any, latch: Any) -> None:
    one, other = (ac.Device(0).stream() for _ in range(2))
    x = ac.ones(N).sync()
    latch.hold(one)
    kernels.scale(2.0, x, x, N, threads=N).on(one).submit()
    kernels.scale(2.0, x, x, N, threads=N).on(other).submit()
    first, waits, second = decisions()[-3:]
    assert [each[0] for each in (first, waits, second)] == ["submitted", "waits", "submitted"]
    assert (waits[4], waits[6]) == (second[4], first[4])
    assert waits[5] == second[5]


def test_only_the_last_are_kept(kernels: Any) -> None:
    x = ac.ones(N).sync()
    for _ in range(300):
        kernels.scale(1.0, x, x, N, threads=N).submit()
    kernels.scale(1.0, x, x, N, threads=N).sync()
    assert len(decisions()) == 256


def test_who_asks_for_no_story_gets_no_objects_of_one(latch: Any) -> None:
    """A program may have many time-outs, and tells few of them."""
    for _ in range(256):
        ac.ones(N).sync()
    latch.hold(0)
    future = ac.ones(N).submit()
    with pytest.raises(ac.DeviceTimeoutError):
        future.sync(timeout=0)
    gc.collect()
    before = len(gc.get_objects())
    with pytest.raises(ac.DeviceTimeoutError) as found:
        future.sync(timeout=0)
    assert len(gc.get_objects()) - before < 100
    assert len(found.value.story().splitlines()) == 256


def test_a_function_that_raises_has_failed() -> None:
    def raises(_: object) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ac.ones(N).then(raises).sync()
    assert "failed" in [each[0] for each in decisions()[-3:]]


def test_a_time_out_tells_what_came_before_it(kernels: Any, latch: Any) -> None:
    x = ac.ones(N).sync()
    latch.hold(0)
    with pytest.raises(ac.DeviceTimeoutError) as late:
        kernels.scale(2.0, x, x, N, threads=N).sync(timeout=0.001)
    kernels.add(x, x, x, N, threads=N).submit()
    story = late.value.story().splitlines()
    assert story[-1].startswith(f"launch of scale (built at {__file__}:")
    assert "submitted as number " in story[-1]
    assert pickle.loads(pickle.dumps(late.value)).story() == late.value.story()


def test_a_launch_that_has_ended_has_the_kernel_of_its_submission_or_of_its_line() -> None:
    one, two = ("program.py", 1), ("program.py", 2)
    story = told(
        [
            ("submitted", "launch", "scale", one, 1, 1, 0),
            ("submitted", "launch", "add", one, 1, 2, 0),
            ("submitted", "launch", "stray", two, 2, 1, 0),
            ("completed", "launch", None, one, 1, 1, 0),
            ("failed", "launch", None, one, 0, 0, 0),
            ("failed", "launch", None, two, 0, 0, 0),
            ("completed", "fill", None, two, 2, 1, 0),
        ]
    )
    assert [line.split(" (")[0] for line in story.splitlines()[3:]] == [
        "launch of scale",
        "launch",  # either of two
        "launch of stray",
        "fill",
    ]


def test_a_lost_device_tells_what_came_before_it_and_the_log_prints_it(in_process: Callable[..., Any]) -> None:
    program = """
        import aiocuda as ac
        import numpy as np

        stray = ac.kernel('''extern "C" __global__ void stray(int* x, unsigned long long far) { x[far] = 1; }''')
        x = ac.zeros(4, np.int32).sync()
        try:
            stray(x, 1 << 44, grid=1, block=1).sync()
        except ac.DeviceLostError as error:
            lines = error.story().splitlines()
            assert any(line.startswith("launch of stray (built at ") and ": submitted" in line for line in lines), lines
            assert lines[-1].startswith("launch of stray (built at ") and lines[-1].endswith("failed"), lines
        else:
            raise AssertionError("nothing was lost")
    """
    ended = in_process(program, AIOCUDA_LOG="1")
    assert ended.returncode == 0, ended.stderr
    assert "aiocuda: the story of DeviceLostError: the launch of stray" in ended.stderr
    assert ": submitted as number " in ended.stderr
