"""graph_scope: recording step by step."""

from __future__ import annotations

import asyncio
import gc
import threading

import numpy as np
import pytest

import aiocuda as ac

N = 64


def host(op):
    return ac.to_host(op).sync()


def full(value):
    return ac.full(N, value, np.int32).sync()


def test_what_is_recorded_is_the_graph(kernels):
    x = full(1)
    with ac.graph_scope(x=x) as scope:
        y = scope.record(ac.dup(x))
        assert isinstance(y, ac.DeviceArray)
        scope.record(kernels.increment(y, N, threads=N))
        z = scope.record(ac.zeros(N, np.int32))
        scope.record(kernels.accumulate(2, y, z, N, threads=N))
    graph = scope.graph
    assert graph.result is z
    assert host(graph.launch()).tolist() == [4] * N
    assert host(graph.launch(x=full(5))).tolist() == [12] * N
    assert host(x).tolist() == [1] * N


def test_the_result_is_said(kernels):
    with ac.graph_scope() as scope:
        x = scope.record(ac.full(N, 1, np.int32))
        y = scope.record(ac.full(N, 2, np.int32))
        scope.record(kernels.increment(y, N, threads=N))
        scope.result = {"x": x, "both": (x, y)}
    result = scope.graph.launch().sync()
    assert host(result["x"]).tolist() == [1] * N
    assert [host(each).tolist() for each in result["both"]] == [[1] * N, [3] * N]


def test_an_operation_recorded_before_is_an_argument_later(kernels):
    with ac.graph_scope() as scope:
        made = ac.zeros(N, np.int32)
        scope.record(kernels.increment(made, N, threads=N))
        scope.record(kernels.increment(made, N, threads=N))
    assert host(scope.graph.launch()).tolist() == [2] * N


def test_nothing_runs_inside(kernels, run):
    x = full(0)

    async def main():
        with ac.graph_scope() as scope:
            y = scope.record(ac.dup(x))
            op = kernels.increment(y, N, threads=N)
            with pytest.raises(ac.CaptureError, match=r"graph_scope that was entered at .*test_scopes\.py"):
                await op
            for execute in (
                op.sync,
                op.submit,
                lambda: op.sync_on(ac.Device(0).default_stream),
                lambda: op.schedule(0).sync(),
                lambda: ac.zeros(N).sync(),
            ):
                with pytest.raises(ac.CaptureError, match="nothing runs there"):
                    execute()
            with (
                ac.use(ac.RoundRobin(2)),
                pytest.raises(ac.CaptureError, match=r"inside the graph_scope that was entered at"),
            ):
                op.sync()
            scope.record(op)
        return await ac.to_host(scope.graph.launch())

    assert run(main).tolist() == [1] * N


def test_other_threads_and_tasks_go_on(kernels, run_asyncio):
    x = full(0)

    async def work(started, ended):
        await started.wait()
        for _ in range(10):
            await kernels.increment(x, N, threads=N)
        ended.set()

    def thread():
        for _ in range(10):
            kernels.increment(x, N, threads=N).sync()

    async def main():
        started, ended = asyncio.Event(), asyncio.Event()
        task = asyncio.ensure_future(work(started, ended))
        with ac.graph_scope() as scope:
            y = scope.record(ac.dup(x))
            started.set()
            await ended.wait()
            other = threading.Thread(target=thread)
            other.start()
            other.join()
            gc.collect()
            scope.record(kernels.increment(y, N, threads=N))
        await task
        return await ac.to_host(scope.graph.launch())

    assert run_asyncio(main).tolist() == [21] * N


def test_an_exception_leaves_everything_usable(kernels, used_bytes):
    before = used_bytes()
    x = full(0)
    scope = ac.graph_scope()

    def fail():
        with scope:
            scope.record(kernels.increment(ac.dup(x), N, threads=N))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ac.CaptureError, match="without an exception"):
        scope.graph  # noqa: B018 - raises
    with pytest.raises(ac.CaptureError, match="inside of the graph_scope"):
        scope.record(ac.dup(x))
    assert host(kernels.increment(x, N, threads=N)).tolist() == [1] * N
    x.close()
    assert used_bytes() == before


def test_a_scope_in_which_recording_failed_records_no_more(kernels):
    with ac.graph_scope() as scope:
        with pytest.raises(ZeroDivisionError):
            scope.record(ac.zeros(N).then(lambda _: 1 / 0))
        with pytest.raises(ac.CaptureError, match="make another graph"):
            scope.record(ac.zeros(N))
        scope.result = None
    assert scope.graph.result is None


def test_handles_of_an_open_scope_are_used_nowhere_else(kernels):
    found = []
    with ac.graph_scope() as scope:
        y = scope.record(ac.zeros(N, np.int32))
        op = kernels.increment(y, N, threads=N)

        def elsewhere():
            try:
                op.sync()
            except ac.CaptureError as error:
                found.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(ac.CaptureError, match="close the graph"):
            y.close()
        scope.record(kernels.increment(y, N, threads=N))
    assert "being made" in found[0]
    assert host(scope.graph.launch()).tolist() == [1] * N
    with (
        ac.graph_scope() as scope,
        pytest.raises(
            ac.CaptureError, match=r"increment: argument 1 \(x\): .* belongs to the graph that is being made at"
        ),
    ):
        scope.record(kernels.increment(ac.zeros(N, np.int32).then(lambda _: op), N, threads=N))


def test_two_scopes_at_once(kernels):
    with ac.graph_scope() as one, ac.graph_scope() as other:
        x, y = one.record(ac.zeros(N, np.int32)), other.record(ac.ones(N, np.int32))
        one.record(kernels.increment(x, N, threads=N))
        with pytest.raises(ac.CaptureError, match="belongs to the graph"):
            other.record(kernels.increment(x, N, threads=N))
        del y
        other.result = None
    assert host(one.graph.launch()).tolist() == [1] * N


def test_a_scope_on_a_stream(kernels, device):
    stream = device.stream()
    with ac.graph_scope(stream) as scope:
        scope.record(kernels.increment(ac.zeros(N, np.int32), N, threads=N))
    assert f"stream {stream._number} " in scope.graph.launch().explain()
    assert host(scope.graph.launch()).tolist() == [1] * N


def test_a_scope_is_entered_once(kernels):
    scope = ac.graph_scope()
    with scope:
        with pytest.raises(ac.CaptureError, match="entered once"), scope:
            pass
        scope.record(ac.zeros(N))
    with pytest.raises(ac.CaptureError, match="entered once"), scope:
        pass
    with pytest.raises(ac.ArgumentValueError, match="capture_mode"):
        ac.graph_scope(capture_mode="none")
    with ac.graph_scope() as scope, pytest.raises(ac.ArgumentTypeError, match="takes an operation"):
        scope.record(3)
