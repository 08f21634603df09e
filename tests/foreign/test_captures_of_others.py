"""Stream captures of other libraries go on undisturbed while aiocuda works, in every mode and on every thread."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import errors

ac.devices()  # chooses the driver, before anything of cuda.* is imported

from cuda.bindings import driver  # noqa: E402
from cuda.core import Device  # noqa: E402

MODES = ["global", "thread_local", "relaxed"]


def call(function: Any, *arguments: Any) -> Any:
    result, *values = function(*arguments)
    assert result == driver.CUresult.CUDA_SUCCESS, result
    return values[0] if values else None


@contextmanager
def capture(mode: str, stream: Any = None) -> Iterator[Any]:
    """Capture a stream of cuda.core's; what was captured must be there in the end.

    Python must not free objects of other libraries meanwhile, such as modules: that would end the capture.
    """
    if "AIOCUDA_SANITIZER_LOG" in os.environ:
        pytest.skip("under a sanitizer, a kernel that is loaded eagerly beside a capture ends it, in every mode")
    gc.collect()
    gc.disable()
    try:
        yield from _captured(mode, stream)
    finally:
        gc.enable()


def _captured(mode: str, stream: Any) -> Iterator[Any]:
    device = Device(0)
    device.set_current()
    builder = (stream or device).create_graph_builder().begin_building(mode)
    handle = driver.CUstream(int(builder.stream.handle))
    beside = ac.Device(0).stream()  # others may be held
    memory = ac.empty(4, np.int32).sync_on(beside)
    call(driver.cuMemsetD32Async, memory.address, 6, 4, handle)
    yield builder
    call(driver.cuMemsetD32Async, memory.address, 7, 4, handle)
    graph = builder.end_building().complete()
    launched = device.create_stream()
    graph.launch(launched)
    launched.sync()
    assert ac.to_host(memory).sync_on(beside).tolist() == [7] * 4


def is_undisturbed(builder: Any) -> bool:
    handle = driver.CUstream(int(builder.stream.handle))
    return call(driver.cuStreamIsCapturing, handle) == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE


@pytest.fixture
def everything():
    """Calls that may be unsafe beside a capture, by name: each function asks, allocates, loads, waits or frees."""
    made = iter(range(1000))
    x = ac.zeros(1 << 16, np.float32).sync()

    def run_new_kernel() -> None:
        fresh = ac.kernel(f'extern "C" __global__ void fresh(int* x) {{ *x = {next(made)}; }}')
        fresh(ac.zeros(1, np.int32), grid=1, block=1).sync()

    def ask_a_future() -> None:
        future = ac.fill(x, 1).submit()
        future.done()
        future.sync()

    def use_a_stream() -> None:
        stream = ac.Device(0).stream()
        ac.fill(x, 3).sync_on(stream)
        event = stream.record()
        event.sync()
        assert event.done()
        stream.close()

    return {
        "new memory": lambda: ac.zeros(1 << 20, np.float32).sync(),
        "to_host": lambda: ac.to_host(x).sync(),
        "to_device": lambda: ac.to_host(ac.to_device(np.ones(1 << 20, np.float32))).sync(),
        "page-locked memory": lambda: ac.empty_host(1 << 22, np.uint8).sync(),
        "managed memory": lambda: ac.zeros(100, managed=True).sync(),
        "a future": ask_a_future,
        "a new kernel": run_new_kernel,
        "a graph": lambda: ac.fill(x, 2).graph().launch().sync(),
        "a stream and an event": use_a_stream,
        "memory_info": lambda: ac.Device(0).memory_info(),
        "synchronize": lambda: ac.Device(0).synchronize().sync(),
        "trim_memory": lambda: ac.Device(0).trim_memory(),
    }


@pytest.mark.parametrize("mode", MODES)
def test_work_of_another_thread_leaves_a_capture_alone(everything, mode):
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for name, do in everything.items():
                do()
                assert is_undisturbed(builder), name
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    with capture(mode) as builder:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        assert failed == []


@pytest.mark.parametrize("mode", MODES)
def test_work_of_the_same_thread_is_no_part_of_its_capture(everything, mode):
    with capture(mode) as builder:
        for name, do in everything.items():
            do()
            assert is_undisturbed(builder), name


@pytest.mark.parametrize("mode", MODES)
def test_what_is_dropped_meanwhile_leaves_a_capture_alone(kernels, mode):
    """Each kind of thing that aiocuda owns is made before the capture, and freed in the middle of it."""
    fresh = ac.kernel(f'extern "C" __global__ void fresh(int* x) {{ *x = {MODES.index(mode) + 5000}; }}')
    x = ac.zeros(8, np.int32).sync()
    owned: dict[str, Any] = {
        "an array": fresh(ac.zeros(1, np.int32), grid=1, block=1).sync(),
        "page-locked memory": ac.empty_host(1 << 20, np.uint8).sync(),
        "managed memory": ac.zeros(100, managed=True).sync(),
        "a kernel": fresh,
        "a graph": kernels.increment(x, 8, threads=8).graph(),
        "a launched graph": kernels.increment(x, 8, threads=8).graph(),
        "a stream": ac.Device(0).stream(),
        "an event": ac.Device(0).stream().record(),
    }
    owned["a launched graph"].launch().sync()
    del fresh
    with capture(mode) as builder:
        while owned:
            name, _ = owned.popitem()
            del _
            ac.fill(x, 1).sync()  # each submission frees what can be freed by then
            ac.Device(0).trim_memory()
            assert is_undisturbed(builder), name


@pytest.mark.parametrize("mode", MODES)
def test_an_await_that_is_pending_and_a_capture_do_not_meet(run, latch, kernels, mode):
    """The reactor asks about what is pending, by flags and by events; it goes on for several of its questions."""
    latch.hold()
    x = ac.zeros(10, np.int32).sync_on(ac.Device(0).stream())
    held = kernels.increment(x, 10, threads=10).submit()
    ac.fill(ac.zeros(5), 1).submit()

    async def main() -> list[int]:
        await held
        return (await ac.to_host(x)).tolist()

    before = ac.statistics()
    with capture(mode):
        waiting = threading.Thread(target=lambda: results.append(run(main)))
        results: list[list[int]] = []
        waiting.start()
        while ac.statistics().pending <= before.pending:
            pass
        other = ac.Device(0).stream()
        for _ in range(200):  # while the reactor has looked, and asked, again and again
            ac.to_host(ac.zeros(1 << 12)).sync_on(other)
    latch.release()
    waiting.join()
    assert results == [[1] * 10]


def test_a_thread_s_own_mode_is_what_it_was(everything):
    for mode in driver.CUstreamCaptureMode:
        before = call(driver.cuThreadExchangeStreamCaptureMode, mode)
        for do in everything.values():
            do()
        assert call(driver.cuThreadExchangeStreamCaptureMode, before) == mode


def test_functions_of_the_program_s_run_in_its_own_mode():
    wanted = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    found = []

    def look(*_: Any) -> None:
        mode = call(driver.cuThreadExchangeStreamCaptureMode, wanted)
        found.append(mode)

    before = call(driver.cuThreadExchangeStreamCaptureMode, wanted)
    try:
        x = ac.zeros(10).sync()
        ac.fill(x, 1).then(look).map(look).sync()
        ac.call(look, x, reads=[x]).sync()
        ac.call(look, x, reads=[x]).graph()
    finally:
        call(driver.cuThreadExchangeStreamCaptureMode, before)
    assert found == [wanted] * 4


class TestAStreamThatIsCaptured:
    """A stream of somebody else's that aiocuda was given work for, and that its owner captures."""

    def test_takes_no_work(self):
        x = ac.zeros(10).sync()
        theirs = Device(0).create_stream()
        ac.fill(x, 1).sync_on(theirs)
        with capture("global", theirs):
            operation = ac.fill(x, 2)
            with pytest.raises(ac.CaptureError, match="is being captured"):
                operation.sync_on(theirs)
        operation.sync_on(theirs)  # it was not submitted, and can be
        assert ac.to_host(x).sync().tolist() == [2] * 10

    def test_is_waited_for_as_it_was_before(self, latch, kernels):
        x = ac.zeros(10, np.int32).sync()
        theirs = Device(0).create_stream()
        with ac.use(theirs):
            future = kernels.increment(x, 10, threads=10).submit()
        with capture("global", theirs):
            assert future.sync().shape == (10,)
            future.done()
        assert ac.to_host(x).sync().tolist() == [1] * 10

    def test_what_it_was_given_before_is_waited_for_beside_it(self, kernels):
        """Other work comes behind it meanwhile, and is not drawn into the capture."""
        x = ac.zeros(10, np.int32).sync()
        theirs = Device(0).create_stream()
        kernels.increment(x, 10, threads=10).on(theirs).submit()
        with capture("global", theirs):
            kernels.increment(x, 10, threads=10).sync()
        assert ac.to_host(x).sync().tolist() == [2] * 10


@pytest.mark.parametrize("code", range(900, 909))
def test_what_is_answered_for_a_capture_is_no_lost_device(code):
    from aiocuda._engine import faults

    for error in (faults.lost(code, "waiting", 0), faults.refused(code, "cuEventQuery", "waiting", 0, 0)):
        assert type(error) is errors.CaptureError
        assert f"({code})" in str(error)


def test_captures_of_pytorch(latch):
    """In its default mode, on the loop's thread, while one await is pending and others come and go."""
    torch = pytest.importorskip("torch")
    if ac.Device(0).is_emulated or not torch.cuda.is_available():
        pytest.skip("needs PyTorch on a GPU")
    a = torch.ones(256, 256, device="cuda")
    x = ac.zeros(1 << 20, np.float32).sync()
    held, beside = ac.Device(0).stream(), ac.Device(0).stream()
    # PyTorch's own streams are 32 of each priority. They would share the driver's queues with those that are held.
    theirs = Device(0).create_stream()
    side = torch.cuda.ExternalStream(int(theirs.handle))
    torch.cuda.synchronize()

    async def captured() -> tuple[Any, Any]:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            b = a @ a
            async with asyncio.timeout(20):
                assert (await ac.to_host(ac.ones(1000)).on(beside)).sum() == 1000
        finally:
            graph.capture_end()
        return graph, b

    async def wait() -> None:
        await ac.fill(x, 1).on(held)

    async def main() -> None:
        with torch.cuda.stream(side):
            _ = a @ a  # makes what cuBLAS needs
            graph, _ = await captured()  # loads what a graph needs, which would wait for the latch
            graph.replay()
            side.synchronize()
            latch.hold(held)
            pending = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            graphs = [await captured() for _ in range(5)]
            assert not pending.done()
            latch.release()
            async with asyncio.timeout(20):
                await pending
            for graph, b in graphs:
                graph.replay()
                assert (b == 256).all().item()

    asyncio.run(main())
    assert (ac.to_host(x).sync() == 1).all()
