"""`done`: work of other libraries is awaited as one of aiocuda's own operations."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver
from framework import LEGACY, Framework, checked

import aiocuda as ac
from aiocuda import _native

N = 64


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    for _ in range(2):
        gc.collect()
        ac.Device(0).synchronize().sync()
        ac.zeros(1).sync()
    made.close()


@pytest.fixture
def held(framework, latch) -> int:
    """Give a stream that aiocuda does not know of, and that is at a standstill."""
    gate = ac.Device(0).stream()
    latch.hold(gate)
    with framework.device_current():
        stream = framework.stream()
    framework.order(stream, gate.handle)
    return stream


class Foreign(types.SimpleNamespace):
    """Some object of another library's."""


def with_protocol(handle: int) -> Any:
    return type("Stream", (), {"__cuda_stream__": lambda self: (0, handle)})()


def recorded(framework: Framework, stream: int) -> int:
    event = checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    checked(driver.cuEventRecord(event, stream))
    return int(event)


class Event(Foreign):
    """An event as other libraries' are called."""


def cuda_core_stream(framework: Framework, stream: int) -> Any:
    from cuda.core import Device, Stream

    Device(0).set_current()
    return Stream.from_handle(stream)


def cuda_core_event(framework: Framework, stream: int) -> Any:
    return cuda_core_stream(framework, stream).record()


def shown(framework: Framework, stream: int) -> Any:
    with framework.using(stream):
        tensor = framework.full(N, 1)
    described = {"shape": (N,), "typestr": "<i4", "data": (tensor.address, False), "version": 3, "stream": stream}
    return Foreign(__cuda_array_interface__=described, tensor=tensor)


KINDS: dict[str, Callable[[Framework, int], Any]] = {
    "a stream with the protocol": lambda framework, stream: with_protocol(stream),
    "a stream of PyTorch before 2.15": lambda framework, stream: Foreign(cuda_stream=stream),
    "a stream of cuda.core": cuda_core_stream,
    "an adopted stream": lambda framework, stream: ac.Stream.from_external(stream, 0),
    "an event of PyTorch": lambda framework, stream: Foreign(
        cuda_event=recorded(framework, stream), device=types.SimpleNamespace(index=0)
    ),
    "an event of CuPy": lambda framework, stream: Event(ptr=recorded(framework, stream)),
    "an event of Numba": lambda framework, stream: Event(
        handle=types.SimpleNamespace(value=recorded(framework, stream))
    ),
    "an event of cuda.core": cuda_core_event,
    "an event of aiocuda": lambda framework, stream: ac.Stream.from_external(stream, 0).record(),
    "an array interface": shown,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_complete_when_the_work_is_and_yields_what_it_was_given(run, framework, held, latch, kind):
    given = KINDS[kind](framework, held)
    op = ac.done(given)

    async def main() -> Any:
        with pytest.raises(ac.DeviceTimeoutError, match="the work of"):
            await op.within(0)
        latch.release()
        return await op

    assert run(main) is given
    assert checked(driver.cuStreamSynchronize(held)) is None


def test_a_raw_handle_comes_with_its_device(run, framework, held, latch):
    async def main() -> Any:
        op = ac.done(held, device="cuda:0")
        with pytest.raises(ac.DeviceTimeoutError, match="the work of"):
            await op.within(0)
        latch.release()
        return await op

    assert run(main) == held


def test_a_tensor_is_done_when_what_its_framework_has_enqueued_is(run, framework, held, latch):
    with framework.using(held):
        tensor = framework.full(N, 1)
        op = ac.done(tensor)

    async def main() -> Any:
        with pytest.raises(ac.DeviceTimeoutError, match="the work of"):
            await op.within(0)
        latch.release()
        return await op

    assert run(main) is tensor


def test_an_array_of_aiocudas_own_is_done_when_all_work_on_it_is(latch, kernels):
    x = ac.zeros(N, "int32").sync()
    stream = ac.Device(0).stream()
    latch.hold(stream)
    kernels.increment(x, N, threads=N).on(stream).submit()
    future = ac.done(x).submit()
    assert not future.done()
    latch.release()
    assert future.sync(60) is x


def test_default_streams_are_waited_for(framework):
    for handle in (0, LEGACY, 2):
        assert ac.done(handle, device=0).sync(60) == handle


def device_index(ordinal: int) -> dict[str, Any]:
    return {"device": types.SimpleNamespace(index=ordinal), "device_index": ordinal}


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("handle", [0, LEGACY])
@pytest.mark.parametrize("says", [device_index, lambda ordinal: {"device_id": ordinal}], ids=["PyTorch", "CuPy"])
def test_a_default_stream_is_that_of_the_device_that_it_says(framework, latch, handle, says):
    other = Framework(1)
    gate = ac.Device(1).stream()
    latch.hold(gate)
    with other.device_current():
        other.order(handle, gate.handle)
    with framework.device_current():
        here, there = (ac.done(Foreign(cuda_stream=handle, **says(ordinal))) for ordinal in (0, 1))
        assert ac.Stream.from_external(Foreign(cuda_stream=handle, **says(1))).device == ac.Device(1)
    here.sync(60)
    assert not there.submit().done()
    latch.release()
    there.sync(60)
    other.close()


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("says", [{}, {"device_id": -1}], ids=["nothing", "that it knows none"])
def test_a_default_stream_that_says_no_device_is_that_of_the_current_one(framework, says):
    other = Framework(1)
    stream = Foreign(cuda_stream=LEGACY, **says)
    for each in (framework, other):
        with each.device_current():
            assert ac.Stream.from_external(stream).device.ordinal == each.ordinal
    x = ac.empty_host(3).sync()
    before = checked(driver.cuCtxGetCurrent())
    checked(driver.cuCtxSetCurrent(0))
    try:
        for make in (ac.done, ac.Stream.from_external):
            with pytest.raises(ac.ArgumentTypeError, match="does not say its device, and CUDA has no current one"):
                make(stream)
        with pytest.raises(ac.ExchangeError, match="make the stream's device current"):
            x.__dlpack__(stream=LEGACY)
    finally:
        checked(driver.cuCtxSetCurrent(before))
    other.close()


def test_what_is_enqueued_after_the_call_is_not_waited_for(framework, latch):
    with framework.device_current():
        stream = framework.stream()
    before = ac.done(with_protocol(stream))
    gate = ac.Device(0).stream()
    latch.hold(gate)
    framework.order(stream, gate.handle)
    after = ac.done(with_protocol(stream))
    before.sync(60)
    assert not after.submit().done()
    latch.release()
    after.sync(60)


def test_an_earlier_point_does_not_wait_for_a_later_one_of_the_same_stream(framework, held, latches):
    """Both are behind one relay."""
    first, second = latches(), latches()
    with framework.device_current():
        stream = framework.stream()
    ops = []
    for latch in (first, second):
        gate = ac.Device(0).stream()
        latch.hold(gate)
        framework.order(stream, gate.handle)
        ops.append(ac.done(with_protocol(stream)))
    first.release()
    ops[0].sync(60)
    assert not ops[1].submit().done()
    second.release()
    ops[1].sync(60)


def test_a_stream_at_a_standstill_holds_up_no_other(framework, held, latch):
    waiting = [ac.done(with_protocol(held)) for _ in range(3)]
    for _ in range(3):
        ac.done(with_protocol(framework.current)).sync(60)
    assert not any(each.submit().done() for each in waiting)


def test_their_stream_may_be_destroyed_at_once(framework):
    with framework.device_current():
        stream = framework.stream()
    op = ac.done(with_protocol(stream))
    framework.destroy(stream)
    op.sync(60)
    ac.Device(0).synchronize().sync(60)


# --- as any operation -----------------------------------------------------------------------------------------------


def test_it_composes(run, framework, held, latch):
    done = ac.done(with_protocol(held))
    both = ac.zip(done.map(lambda _: "mapped"), ac.to_host(ac.ones(3)), done).then(lambda values: values[0])

    async def main() -> Any:
        future = both.submit()
        assert not future.done()
        latch.release()
        return await both

    assert run(main) == "mapped"


def test_many_tasks_wait_for_one(run, framework, held, latch):
    import anyio

    op = ac.done(with_protocol(held))
    came = []

    async def wait() -> None:
        await op
        came.append(1)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(wait)
            with anyio.move_on_after(10):
                await ac.to_host(ac.ones(3))  # the loop goes on meanwhile
            assert not came
            latch.release()

    run(main)
    assert len(came) == 5


def test_it_is_cancelled(run, framework, held):
    import anyio

    op = ac.done(with_protocol(held))

    async def main() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await op
        return scope.cancelled_caught

    assert run(main)


def test_what_it_was_given_is_kept_until_the_operation_is_gone(framework, let_go):
    given = with_protocol(framework.current)
    seen = weakref.ref(given)
    op = ac.done(given)
    del given
    gc.collect()
    assert seen() is not None
    del op
    assert let_go(lambda: seen() is None)


@pytest.mark.emulated_only
def test_it_ends_with_an_error_on_a_fault(in_process):
    ended = in_process(
        """
        import asyncio
        import aiocuda as ac
        device = ac.Device(0)
        stream = device.stream()
        gate = ac.empty_host(1, "int32").sync()
        gate.numpy()[0] = 0
        view = gate.numpy()
        broken = ac.kernel('extern "C" __global__ void broken(unsigned long long gate) '
                           '{ while (*(volatile int*)gate == 0) {} __trap(); }')
        theirs = type("Stream", (), {"__cuda_stream__": lambda self: (0, stream.handle)})()
        async def main():
            broken(gate.address, grid=1, block=1).on(stream).submit()
            op = ac.done(theirs)
            view[0] = 1
            try:
                await op
            except ac.AiocudaError as error:
                print(type(error).__name__, "|", error)
        asyncio.run(main())
        """
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("DeviceLostError | "), ended.stdout
    assert ended.stderr is not None


# --- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "stream", 1.5, object(), True])
def test_what_has_no_work_is_refused(given):
    with pytest.raises(ac.ArgumentTypeError, match="takes a stream, an event or an array"):
        ac.done(given)


def test_operations_and_futures_are_awaited_themselves():
    op = ac.zeros(3)
    for given in (op, op.submit()):
        with pytest.raises(ac.ArgumentTypeError, match=r"await this .* itself"):
            ac.done(given)


def test_host_memory_is_refused():
    import numpy as np

    with pytest.raises(ac.ArgumentTypeError, match=r"done takes memory on a device"):
        ac.done(np.zeros(3))


@pytest.mark.parametrize("make", [ac.done, ac.Stream.from_external])
def test_a_raw_handle_alone_is_refused(make, framework):
    with pytest.raises(ac.ArgumentTypeError, match="needs its device"):
        make(framework.current)
    with pytest.raises(ac.ArgumentTypeError, match="for raw handles"):
        make(with_protocol(framework.current), 0)
    for handle in (-1, 2**64):
        with pytest.raises(ac.ArgumentValueError, match="handle is an address"):
            make(handle, 0)


@pytest.mark.emulated_only  # NVIDIA's driver looks into what it takes for a stream
@pytest.mark.parametrize("make", [ac.done, ac.Stream.from_external])
def test_a_handle_of_nothing_is_refused(make):
    with pytest.raises(ac.DriverError, match="cuStreamGetCtx"):
        make(0x123450, 0)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("make", [ac.done, ac.Stream.from_external])
def test_a_raw_handle_of_another_device_is_refused(make, framework):
    with pytest.raises(ac.ArgumentValueError, match="one of device 0, and not of device 1"):
        make(framework.current, 1)


def test_a_stream_that_is_captured_is_refused_and_its_capture_goes_on(framework):
    with framework.device_current():
        stream = framework.stream()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(driver.cuStreamBeginCapture(stream, mode))
    with pytest.raises(ac.CaptureError, match="is being captured"):
        ac.done(with_protocol(stream))
    graph = checked(driver.cuStreamEndCapture(stream))
    assert checked(driver.cuGraphGetNodes(graph)) == []
    checked(driver.cuGraphDestroy(graph))
    ac.done(with_protocol(stream)).sync(60)


def test_an_event_of_a_capture_is_refused_and_relays_are_as_they_were(framework):
    with framework.device_current():
        stream = framework.stream()
        checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        event = Foreign(cuda_event=recorded(framework, stream))
        with pytest.raises(ac.CaptureError, match="is being captured"):
            ac.done(event)
        result = driver.cuStreamEndCapture(stream)[0]
    assert result != driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED  # the relay is no part of it
    for _ in range(3):
        ac.done(with_protocol(framework.current)).sync(60)
        assert ac.to_host(ac.external(framework.full(N, 3))).sync(60).tolist() == [3] * N


def test_an_event_that_was_never_recorded_and_an_array_without_work_are_done():
    event = Foreign(cuda_event=0)
    assert ac.done(event).sync(60) is event
    x = ac.zeros(N).sync()
    described = {"shape": (N,), "typestr": "<f4", "data": (x.address, False), "version": 3, "stream": None}
    array = Foreign(__cuda_array_interface__=described)
    assert ac.done(array).sync(60) is array


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_of_theirs_takes_our_work(framework, held, latch, kernels):
    for stream in (ac.Stream.from_external(held, 0), ac.Stream.from_external(with_protocol(held))):
        assert stream.handle == held
        future = kernels.increment(ac.zeros(N, "int32"), N, threads=N).on(stream).submit()
        assert not future.done()
    latch.release()
    future.sync(60)
    stream.close()
    checked(driver.cuStreamSynchronize(held))


def use_in_every_way(x: ac.DeviceArray, ours: ac.Stream, future: ac.DeviceFuture, kernels: Any) -> None:
    """Whatever looks at the stream that an array was last written on."""
    other = ac.Device(0).stream()
    future.done()
    assert ac.to_host(x).sync_on(other, 60).tolist() == [1] * N
    kernels.increment(x, N, threads=N).sync(60)
    ac.dup(x).graph().launch().sync(60)
    ac.Device(0).trim_memory()
    ac.Device(0).memory_info()
    ac.Device(0).synchronize().sync(60)
    assert future.sync(60) is x
    assert repr(ours)


def test_streams_of_theirs_are_not_kept_for_good(framework, kernels, let_go):
    """Such as one for each request."""

    class Theirs:
        def __init__(self) -> None:
            with framework.device_current():
                self.handle = framework.stream(lasts=False)

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.handle

        def __del__(self) -> None:
            framework.destroy(self.handle)

    x = ac.zeros(N, "int32").sync()
    before, alive = len(_native.streams_of(0)), []
    for _ in range(100):
        theirs = Theirs()
        alive.append(weakref.ref(theirs))
        kernels.increment(x, N, threads=N).sync_on(theirs, 60)
        assert ac.Stream.from_external(theirs).handle == theirs.handle
    del theirs
    assert let_go(lambda: sum(each() is not None for each in alive) <= 32)
    assert len(_native.streams_of(0)) <= before + 32
    assert ac.to_host(x).sync(60).tolist() == [100] * N


def test_their_stream_may_be_destroyed_when_it_has_passed_our_work(framework, kernels, run):
    x = ac.zeros(N, "int32").sync()
    with framework.device_current():
        stream = framework.stream()
    ours = ac.Stream.from_external(stream, 0)
    future = kernels.increment(x, N, threads=N).on(ours).submit()
    checked(driver.cuStreamSynchronize(stream))
    framework.destroy(stream)
    use_in_every_way(x, ours, future, kernels)
    del future, ours

    async def main() -> None:
        assert await ac.to_host(x) is not None
        await ac.Device(0).synchronize()

    run(main)


def test_their_stream_may_be_destroyed_while_it_has_our_work(framework, held, latch, kernels, run):
    x = ac.zeros(N, "int32").sync()
    ours = ac.Stream.from_external(held, 0)
    future = kernels.increment(x, N, threads=N).on(ours).submit()
    framework.destroy(held)
    assert not future.done()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await future.within(0.01)
        latch.release()
        assert await future is x

    run(main)
    use_in_every_way(x, ours, future, kernels)


def test_all_that_their_stream_holds_is_waited_for_where_it_is_named(framework, held, latch):
    ours = ac.Stream.from_external(held, 0)
    wait = ours.synchronize()
    with pytest.raises(TimeoutError):
        wait.sync(0.01)
    follows = ac.Device(0).stream()
    follows.wait(ours)
    future = ac.zeros(N).on(follows).submit()
    assert not future.done()
    latch.release()
    wait.sync(60)
    future.sync(60)


def test_their_stream_is_waited_for_again(framework, held, latches, kernels):
    """What comes to it later is not taken for what was there."""
    first, second = latches(), latches()
    with framework.device_current():
        stream = framework.stream()
    x = ac.zeros(N, "int32").sync()
    futures = []
    for latch in (first, second):
        gate = ac.Device(0).stream()
        latch.hold(gate)
        framework.order(stream, gate.handle)
        futures.append(kernels.increment(x, N, threads=N).on(ac.Stream.from_external(stream, 0)).submit())
    read = ac.to_host(x).submit()
    first.release()
    futures[0].sync(60)
    assert not futures[1].done()
    assert not read.done()
    second.release()
    assert read.sync(60).tolist() == [2] * N


def test_a_stream_of_ours_is_given_back_as_it_is():
    stream = ac.Device(0).stream()
    assert ac.Stream.from_external(stream) is stream


@pytest.mark.parametrize("given", [None, "stream", 1.5, True, object()])
def test_what_is_no_stream_is_refused(given):
    with pytest.raises(ac.ArgumentTypeError, match="a stream is a Stream, or has __cuda_stream__"):
        ac.Stream.from_external(given)


def test_the_per_thread_stream_is_refused():
    with pytest.raises(ac.ArgumentTypeError, match="per-thread"):
        ac.Stream.from_external(2, 0)
