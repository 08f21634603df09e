"""OpenTelemetry: an await is a span whose children are its operations, and counts are metrics."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda.interop.opentelemetry import instrument, uninstrument

trace_sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult  # noqa: E402
from opentelemetry.trace import StatusCode  # noqa: E402

N = 1024


class Exported:
    """Spans for OpenTelemetry, as they were exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def begin(self, **how: Any) -> None:
        instrument(tracer_provider=self.provider, metrics=False, **how)

    def end(self) -> None:
        uninstrument()

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def children(self, span: Any) -> list[Any]:
        return sorted(
            (each for each in self.spans if each.parent and each.parent.span_id == span.context.span_id),
            key=lambda each: each.start_time,
        )


@pytest.fixture
def exported() -> Iterator[Exported]:
    made = Exported()
    yield made
    made.end()


@pytest.fixture
def x() -> ac.DeviceArray:
    return ac.ones(N).sync()


def test_an_await_is_a_span_under_the_request_and_operations_are_its_children(run, exported, kernels, x):
    async def request(number):
        with exported.tracer.start_as_current_span(f"request {number}"):
            await anyio.lowlevel.checkpoint()
            once = kernels.scale(2.0, x, ac.empty(N), N, threads=N)
            await kernels.scale(3.0, once, ac.empty(N), N, threads=N)

    async def main():
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(request, number)

    before_ns = time.time_ns()
    exported.begin()
    run(main)
    exported.end()
    after_ns = time.time_ns()
    for number in range(3):
        of_request = exported.named(f"request {number}")
        (awaited,) = exported.children(of_request)
        assert awaited.name == "await the launch of scale"
        assert awaited.context.trace_id == of_request.context.trace_id
        assert of_request.start_time <= awaited.start_time <= awaited.end_time <= of_request.end_time
        assert awaited.status.status_code is StatusCode.UNSET
        assert awaited.attributes["code.file.path"] == __file__
        operations = exported.children(awaited)
        assert sorted(each.name for each in operations) == ["allocate", "allocate", "launch scale", "launch scale"]
        launches = [each for each in operations if each.name == "launch scale"]
        assert launches[0].end_time <= launches[1].start_time
        for each in launches:
            assert before_ns <= each.start_time <= each.end_time <= after_ns
            assert each.attributes["aiocuda.is_measured"]
            assert each.attributes["aiocuda.device"] == 0
            assert each.attributes["code.line.number"] > 0


def test_spans_come_while_the_program_goes_on(exported, x):
    exported.begin()
    ac.to_host(x).sync()
    until = time.monotonic() + 60
    while not any(span.name.startswith("sync") for span in exported.spans):
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def test_an_error_is_the_status(run, exported):
    def fail(_):
        raise KeyError("no such thing")

    async def main():
        with pytest.raises(KeyError, match="no such thing"):
            await ac.value(1).map(fail)

    exported.begin()
    run(main)
    exported.end()
    (span,) = [span for span in exported.spans if span.name.startswith("await")]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "KeyError: 'no such thing'"
    assert span.attributes["error.type"] == "KeyError"
    (event,) = span.events
    assert event.attributes["exception.message"] == "'no such thing'"


def test_a_cancelled_await_and_a_late_one(run, exported, kernels, latch, device, x):
    stream = device.stream()
    latch.hold(stream)

    async def main():
        with ac.use(stream):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(ac.as_coroutine, kernels.scale(2.0, x, ac.empty(N), N, threads=N))
                    while not ac.statistics().pending:
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            with pytest.raises(ac.DeviceTimeoutError):
                await kernels.scale(2.0, x, ac.empty(N), N, threads=N).within(0.01)
        latch.release()

    exported.begin()
    run(main)
    exported.end()
    cancelled, late = sorted(
        (span for span in exported.spans if span.name.startswith("await")), key=lambda span: span.start_time
    )
    assert cancelled.attributes["aiocuda.outcome"] == "cancelled"
    assert cancelled.attributes["error.type"] == "CancelledError"
    assert late.attributes["aiocuda.outcome"] == "timed out"
    assert late.attributes["error.type"] == "DeviceTimeoutError"
    assert {span.status.status_code for span in (cancelled, late)} == {StatusCode.ERROR}
    assert [each.name for each in exported.children(cancelled)][-1] == "launch scale"


def test_work_that_is_not_over_at_the_end_is_told_without_its_times(exported, kernels, latch, device, x):
    stream = device.stream()
    latch.hold(stream)
    exported.begin()
    kernels.scale(2.0, x, x, N, threads=N).on(stream).submit()
    exported.end()
    (operation,) = exported.children(exported.named("submit the launch of scale"))
    assert not operation.attributes["aiocuda.is_measured"]


def test_no_more_operations_are_told_than_were_asked_for(exported, x):
    exported.begin(max_operations=3)
    ac.zip(*(ac.ones(N) for _ in range(10))).sync()
    exported.end()
    (span,) = [span for span in exported.spans if span.name.startswith("sync")]
    assert len(exported.children(span)) == 3
    assert span.attributes["aiocuda.operations.dropped"] == 7


def test_awaits_under_a_request_that_is_not_sampled_are_not_told(exported, x):
    quiet = TracerProvider(sampler=ALWAYS_OFF).get_tracer("test")
    exported.begin()
    with quiet.start_as_current_span("request"):
        ac.to_host(x).sync()
    ac.to_host(x).sync()
    exported.end()
    assert len([span for span in exported.spans if span.name.startswith("sync")]) == 1


def test_a_service_that_runs_for_long_keeps_nothing(run, exported, monkeypatch, x):
    recordings = []
    make = _native.Recording
    monkeypatch.setattr(_native, "Recording", lambda who: recordings.append(make(who)) or recordings[0])
    exported.begin()
    (recording,) = recordings

    async def main(times):
        for _ in range(times):
            await ac.to_host(x)

    def bytes_behind(awaits):
        until = time.monotonic() + 60
        while len([span for span in exported.spans if span.name.startswith("await")]) < awaits:
            assert time.monotonic() < until
            threading.Event().wait(0.05)
        return recording.size_bytes()

    run(main, 200)
    few = bytes_behind(200)
    run(main, 2000)
    assert bytes_behind(2200) <= few + 50_000
    assert not recording.asks()


def in_another_process(text: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGINS + textwrap.dedent(text)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


BEGINS = """
import gc, os, sys, threading
import aiocuda as ac
from aiocuda import _native
from aiocuda._telemetry.spans import Spans
from aiocuda.interop.opentelemetry import instrument, uninstrument
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))

def in_child(run):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        run()
        sys.stdout.flush()
        sys.exit()  # as a program ends, with the functions of atexit
"""


def test_it_may_be_on_long_before_a_device_is_used():
    assert in_another_process("""
        went = threading.Semaphore(0)
        make = Spans.make
        Spans.make = lambda self, **how: (make(self, **how), went.release())
        instrument(tracer_provider=provider, metrics=False)
        went.acquire()
        went.acquire()
        uninstrument()
        gc.collect()
        instrument(tracer_provider=provider, metrics=False)
        ac.ones(4).sync()
        uninstrument()
        print(len(exporter.get_finished_spans()) > 0)
    """) == ["True"]


def test_a_process_that_is_forked_before_a_device_is_used_tells_of_its_own_work():
    assert in_another_process("""
        instrument(tracer_provider=provider, meter_provider=MeterProvider([reader]))
        def run():
            ac.ones(4).sync()
            while not exporter.get_finished_spans():  # the thread makes them
                threading.Event().wait(0.01)
            uninstrument()
            print([span.name for span in exporter.get_finished_spans() if span.name.startswith("sync")])
        in_child(run)
        print(exporter.get_finished_spans())
    """) == ["['sync the creation of an array']", "()"]


def test_a_process_that_is_forked_behind_the_first_use_tells_nothing():
    assert in_another_process("""
        instrument(tracer_provider=provider, meter_provider=MeterProvider([reader]))
        ac.ones(4).sync()
        _on = sys.modules["aiocuda._telemetry.instrumenting"]._on
        _on[1]._making.acquire()  # as the thread may have it at that moment
        def run():
            data = reader.get_metrics_data()
            print(bool(data and data.resource_metrics and data.resource_metrics[0].scope_metrics[0].metrics))
            exporter.clear()
            uninstrument()
            print(exporter.get_finished_spans())
        in_child(run)
        _on[1]._making.release()
    """)[1:] == ["()"]


def test_a_provider_that_fails_costs_no_other_spans(exported, monkeypatch, x):
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(arguments.exc_value))

    class Failing(Sampler):
        def should_sample(self, _, __, name, *___, **____):
            if name.startswith("sync"):
                raise OSError("no connection")
            return SamplingResult(Decision.RECORD_AND_SAMPLE)

        def get_description(self):
            return "fails"

    exported.provider.sampler = Failing()
    exported.begin()
    ac.to_host(x).sync()
    until = time.monotonic() + 60
    while not told:
        assert time.monotonic() < until
        threading.Event().wait(0.01)
    future = ac.to_host(x).submit()
    while not any(span.name.startswith("submit") for span in exported.spans):
        assert time.monotonic() < until
        threading.Event().wait(0.01)
    future.sync()
    assert str(told[0]) == "no connection"


def test_an_error_that_cannot_say_itself_has_its_kind(run, exported):
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail(_):
        raise SilentError

    async def main():
        with pytest.raises(SilentError):
            await ac.value(1).map(fail)

    exported.begin()
    run(main)
    exported.end()
    (span,) = [span for span in exported.spans if span.name.startswith("await")]
    assert span.attributes["error.type"].endswith("SilentError")


def test_a_provider_that_is_none_leaves_all_off(exported):
    with pytest.raises((TypeError, AttributeError)):
        instrument(tracer_provider=exported.provider, meter_provider=object())
    exported.begin()


def test_nothing_of_what_was_recorded_is_kept_behind_the_end(exported, monkeypatch):
    made = []
    make = _native.Recording

    class Kept:
        def __init__(self, who):
            self._own = make(who)

        def __getattr__(self, name):
            return getattr(self._own, name)

    monkeypatch.setattr(_native, "Recording", lambda who: made.append(weakref.ref(kept := Kept(who))) or kept)
    instrument(tracer_provider=exported.provider, meter_provider=MeterProvider([InMemoryMetricReader()]))
    uninstrument()
    gc.collect()
    assert made[0]() is None


def test_it_is_on_once_and_excludes_traces(exported, tmp_path):
    exported.begin()
    with pytest.raises(ac.AiocudaError, match=r"told already; call uninstrument\(\) first"):
        exported.begin()
    with pytest.raises(ac.AiocudaError, match="as spans for OpenTelemetry"), ac.trace("t", output=tmp_path):
        pass
    exported.end()
    exported.end()
    with ac.trace("t", output=tmp_path, report=False), pytest.raises(ac.AiocudaError, match="a trace is being"):
        exported.begin()
    exported.begin()


def test_a_wrong_number_is_an_error():
    with pytest.raises(ac.errors.ArgumentValueError, match="max_operations is a whole number"):
        instrument(max_operations=-1)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ac.errors.MissingPackageError, match=r"pip install 'aiocuda\[otel\]'"):
        instrument()


@pytest.fixture
def metered() -> Iterator[Any]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def points():
        found = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data else []:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = (metric, list(metric.data.data_points))
        return found

    instrument(meter_provider=provider, spans=False)
    yield SimpleNamespace(points=points, provider=provider)
    uninstrument()
    provider.shutdown()


def test_counts_are_metrics(metered, x):
    ac.to_host(x).sync()
    points = metered.points()
    now = ac.statistics()
    metric, (point,) = points["aiocuda.operations.submitted"]
    assert metric.unit == "{operation}"
    assert metric.data.is_monotonic
    assert point.value == now.submitted
    metric, (point,) = points["aiocuda.loop.stall.longest"]
    assert metric.unit == "s"
    assert point.value == now.longest_stall_ns / 1e9
    metric, memory = points["aiocuda.memory.usage"]
    assert metric.unit == "By"
    (of_arrays,) = [
        each.value
        for each in memory
        if each.attributes == {"aiocuda.memory.kind": "device", "aiocuda.device": 0, "aiocuda.memory.holder": "arrays"}
    ]
    assert of_arrays == now.memory[0].arrays_bytes


def test_no_byte_counts_twice(metered):
    ac.to_host(ac.to_device(np.zeros(1 << 20))).sync()
    _, memory = metered.points()["aiocuda.memory.usage"]
    now = ac.statistics()
    locked = {
        each.attributes["aiocuda.memory.holder"]: each.value
        for each in memory
        if each.attributes["aiocuda.memory.kind"] == "page-locked"
    }
    assert locked["staging rings"] == now.staging_bytes > 0
    assert locked["arrays"] + locked["staging rings"] == now.memory[-1].arrays_bytes


def test_behind_the_end_nothing_is_said(metered):
    assert metered.points()
    uninstrument()
    assert not any(points for _, points in metered.points().values())
    instrument(meter_provider=metered.provider, spans=False)
    assert len(metered.points()["aiocuda.operations.submitted"][1]) == 1
