"""CUPTI's times: of the operations that its records are of, and told to it around each operation's calls."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._trace import activities
from aiocuda._trace.activities import Records, times_of

N = 1 << 12
KINDS = SimpleNamespace(EXTERNAL_CORRELATION=39, DRIVER=4, CONCURRENT_KERNEL=10, MEMCPY=1, MEMCPY2=22, MEMSET=2)
PUSH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint64)
POP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))


def test_work_lasts_from_its_first_activity_to_its_last() -> None:
    records = Records({1: 7, 2: 7, 3: 8, 4: 9}, [(1, 100, 200), (2, 150, 400), (3, 50, 60), (5, 1, 2), (4, 10, 0)])
    assert times_of(records) == {7: (100, 400), 8: (50, 60)}


class FakeCupti:
    """CUPTI without a GPU: each number that it is given becomes a call with a kernel, on a clock of its own."""

    LATE_NS = 10**15

    def __init__(self) -> None:
        self.ActivityKind = KINDS
        self.enabled: list[int] = []
        self.stack: list[int] = []
        self.numbers: list[int] = []
        self.deepest = 0
        self.refused = ""
        self.push = PUSH(self._push)
        self.pop = POP(self._pop)

    def _push(self, kind: int, number: int) -> int:
        assert kind == 3
        self.stack.append(number)
        self.numbers.append(number)
        self.deepest = max(self.deepest, len(self.stack))
        return 0

    def _pop(self, kind: int, last: Any) -> int:
        if not self.stack:
            return 36  # CUPTI_ERROR_QUEUE_EMPTY
        last[0] = self.stack.pop()
        return 0

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        size_bytes, most = requested()
        assert size_bytes > 0
        assert most == 0
        self._completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.refused and len(self.enabled) == 2:
            raise RuntimeError(self.refused)
        self.enabled.append(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def get_timestamp(self) -> int:
        return time.monotonic_ns() - self.LATE_NS

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        now = self.get_timestamp()
        for call, number in enumerate(self.numbers):
            named = SimpleNamespace(kind=39, correlation_id=call, external_id=number)
            self._completed([named, SimpleNamespace(kind=10, correlation_id=call, start=now + 1000, end=now + 3000)])


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
    fake = FakeCupti()
    package = SimpleNamespace(cupti=fake)
    monkeypatch.setitem(sys.modules, "cupti", package)  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "cupti.cupti", fake)  # type: ignore[misc]
    monkeypatch.setattr(activities, "select_driver", lambda: SimpleNamespace(is_emulated=False))
    monkeypatch.setattr(activities, "submission_thread", lambda: "never")
    library = SimpleNamespace(
        cuptiActivityPushExternalCorrelationId=fake.push, cuptiActivityPopExternalCorrelationId=fake.pop
    )
    monkeypatch.setattr(activities.ctypes, "CDLL", lambda _: library)
    return fake


def test_cupti_is_told_of_each_operation_and_its_times_are_the_traces(
    cupti: FakeCupti, kernels: Any, tmp_path: Path
) -> None:
    x = ac.ones(N).sync()
    with ac.trace("cupti", output=tmp_path, report=False, cupti=True) as traced:
        branches = [kernels.scale(float(i), x, ac.empty(N), N, threads=N) for i in range(3)]
        ac.zip(*(ac.to_host(each) for each in branches)).sync()
        assert cupti.enabled
    on_device = [each for each in traced.result.operations if each.kind in ("launch", "copy")]
    assert len(on_device) == 6
    assert {each.number for each in on_device} <= set(cupti.numbers)
    assert cupti.deepest == 1
    assert cupti.stack == []
    assert cupti.enabled == []
    assert [each.ended_ns - each.started_ns for each in on_device] == [2000] * 6
    assert all(each.started_ns > traced.result.begun_ns for each in on_device)


def test_what_fails_leaves_no_number_behind(cupti: FakeCupti, kernels: Any, tmp_path: Path) -> None:
    def fail(stream: Any, y: Any) -> None:
        raise ZeroDivisionError

    x = ac.ones(N).sync()
    with ac.trace("cupti", output=tmp_path, report=False, cupti=True) as traced:
        with pytest.raises(ZeroDivisionError):
            ac.call(fail, x, writes=[x]).sync()
        kernels.scale(2.0, x, ac.empty(N), N, threads=N).sync()
    failed, *_, launch = traced.result.operations
    assert failed.state == "refused"
    assert launch.is_measured
    assert {failed.number, launch.number} <= set(cupti.numbers)
    assert cupti.stack == []


def test_a_cupti_that_refuses_is_told_of_and_ends_the_trace(cupti: FakeCupti, tmp_path: Path) -> None:
    cupti.refused = "CUPTI_ERROR_NOT_COMPATIBLE"
    with pytest.raises(ac.AiocudaError, match="CUPTI_ERROR_NOT_COMPATIBLE") as caught:
        ac.trace("cupti", output=tmp_path, report=False, cupti=True).__enter__()
    assert cupti.enabled == []
    with ac.trace("after", output=tmp_path, report=False):
        pass
    del caught  # which holds the recording


def test_a_cupti_whose_library_is_gone_is_told_of_and_turned_off(
    cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(activities.ctypes, "CDLL", refuse)
    with pytest.raises(ac.AiocudaError, match=r"libcupti\.so\.13: cannot open"):
        ac.trace("cupti", output=tmp_path, report=False, cupti=True).__enter__()
    assert cupti.enabled == []


def test_the_clocks_are_compared_by_the_quickest_reading(
    cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ticks = iter([0, 1000, *(5000 + step for step in range(0, 3000, 100))])  # before and after a slow one, and others
    clock = SimpleNamespace(monotonic_ns=lambda: next(ticks))
    monkeypatch.setattr(activities, "time", clock)
    monkeypatch.setattr(cupti, "get_timestamp", lambda: 0)
    assert activities.Activities()._clock_offset_ns() == 5050


@pytest.mark.usefixtures("cupti")
def test_calls_of_another_thread_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(activities, "submission_thread", lambda: "auto")
    with pytest.raises(ac.ArgumentValueError, match="AIOCUDA_SUBMISSION_THREAD"):
        ac.trace("cupti", output=tmp_path, report=False, cupti=True).__enter__()


def test_without_the_package_and_without_a_gpu_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if ac.Device(0).is_emulated:
        with pytest.raises(ac.ArgumentValueError, match="emulated"):
            ac.trace("cupti", output=tmp_path, report=False, cupti=True).__enter__()
    monkeypatch.setattr(activities, "select_driver", lambda: SimpleNamespace(is_emulated=False))
    monkeypatch.setattr(activities, "submission_thread", lambda: "never")
    monkeypatch.setitem(sys.modules, "cupti", None)  # type: ignore[misc]
    with pytest.raises(ac.MissingPackageError, match="cupti-python"):
        ac.trace("cupti", output=tmp_path, report=False, cupti=True).__enter__()


def test_times_of_cupti_itself(kernels: Any, tmp_path: Path) -> None:
    """On a GPU: of launches, fills, copies and graphs, no longer than what events say."""
    pytest.importorskip("cupti")
    if ac.Device(0).is_emulated:
        pytest.skip("CUPTI needs an NVIDIA GPU")
    x = ac.ones(N).sync()
    graph = kernels.scale(2.0, x, x, N, threads=N).graph()
    program = [lambda: kernels.scale(3.0, x, ac.zeros(N), N, threads=N), lambda: ac.to_host(x), graph.launch]
    measured = {}
    for cupti in (False, True):
        with ac.trace("cupti", output=tmp_path, report=False, cupti=cupti) as traced:
            for build in program * 8:
                build().sync()
        result = traced.result
        assert all(each.is_measured for each in result.operations if each.kind in ("launch", "copy", "graph"))
        for each in result.operations:
            if each.is_measured:
                assert result.begun_ns < each.started_ns <= each.ended_ns < result.ended_ns + 10**9
                measured.setdefault((each.name, cupti), []).append(each.ended_ns - each.started_ns)
    assert {name for name, _ in measured} >= {"scale", "copy to host", "graph", "allocate and fill"}
    for name in {name for name, _ in measured}:
        by_cupti, by_events = (np.median(measured[name, cupti]) for cupti in (True, False))
        assert 0 < by_cupti <= by_events, name
