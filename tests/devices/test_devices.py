"""Devices, streams, events, and where operations go."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import placement


def test_devices_are_numbered_from_zero():
    assert [device.ordinal for device in ac.devices()] == list(range(len(ac.devices())))


def test_a_device_is_its_ordinal(device):
    assert ac.Device() == ac.Device(0) == device
    assert hash(ac.Device(0)) == hash(device)
    assert device != 0
    assert len({ac.Device(0), device}) == 1
    assert pickle.loads(pickle.dumps(device)) == device


def test_a_device_describes_itself(device):
    assert device.name in repr(device)
    assert device.name
    assert device.compute_capability >= (5, 0)
    assert device.multiprocessor_count >= 1
    assert isinstance(device.is_emulated, bool)


@pytest.mark.parametrize("ordinal", [-1, 64, 10**6])
def test_a_device_that_is_not_there_is_an_error_that_says_which_are(ordinal):
    with pytest.raises(ac.ArgumentValueError, match=rf"no device {ordinal}: there (are|is)"):
        ac.Device(ordinal)


@pytest.mark.parametrize("ordinal", [b"0", 0.0, True, None])
def test_what_is_no_ordinal_is_a_type_error(ordinal):
    with pytest.raises(ac.ArgumentTypeError, match="ordinal"):
        ac.Device(ordinal)


def test_device_zero_is_in_force_by_itself():
    assert ac.current_device() == ac.Device(0)


@pytest.mark.needs_devices(2)
def test_use_puts_arrays_on_a_device_and_ends_with_its_block():
    with ac.use(1):
        assert ac.current_device() == ac.Device(1)
        inside = ac.ones(3)
        with ac.use(ac.Device(0)):
            assert ac.ones(3).sync().device == ac.Device(0)
        assert ac.ones(3).sync().device == ac.Device(1)
    assert ac.current_device() == ac.Device(0)
    # `use` counts where the operation was built, not where it is run.
    assert inside.sync().device == ac.Device(1)


@pytest.mark.needs_devices(2)
def test_use_ends_when_an_error_passes():
    with pytest.raises(ZeroDivisionError), ac.use(1):
        raise ZeroDivisionError
    assert ac.current_device() == ac.Device(0)


@pytest.mark.needs_devices(2)
def test_use_is_the_tasks_own(run):
    seen: dict[int, list[int]] = {0: [], 1: []}

    async def work(ordinal: int) -> None:
        with ac.use(ordinal):
            for _ in range(5):
                seen[ordinal].append((await ac.ones(3)).device.ordinal)
                await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work, 0)
            group.start_soon(work, 1)

    run(main)
    assert seen == {0: [0] * 5, 1: [1] * 5}


@pytest.mark.needs_devices(2)
def test_use_is_the_threads_own():
    seen: list[int] = []
    with ac.use(1):
        thread = threading.Thread(target=lambda: seen.append(ac.current_device().ordinal))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize("wrong", [b"0", 1.0, None, True])
def test_use_of_what_is_no_place_is_an_error(wrong):
    with pytest.raises(ac.ArgumentTypeError, match=rf"; {wrong!r} was given"), ac.use(wrong):
        pass


@pytest.mark.parametrize("wrong", [b"0", 1.0, True, np.bool_(True), [0]])
def test_a_device_that_is_no_device_is_an_error_everywhere(wrong):
    for make in (ac.Device, lambda device: ac.ones(2, device=device), lambda device: ac.ones(2).to(device)):
        with pytest.raises(ac.ArgumentTypeError, match=r"a device is .*'cuda:1'; .* was given"):
            make(wrong)
    for ordinal in (-1, len(ac.devices())):
        with pytest.raises(ac.ArgumentValueError, match="device"):
            ac.ones(2, device=ordinal)


@pytest.mark.parametrize(
    ("keyword", "least", "most"), [("spin_us", 0, 1_000_000), ("max_in_flight", 1, placement.MOST_IN_FLIGHT)]
)
def test_what_use_takes_has_bounds(keyword, least, most):
    for number in (least, most):
        with ac.use(**{keyword: number}):
            ac.ones(2).sync()
    for number in (least - 1, most + 1):
        with (
            pytest.raises(ac.ArgumentValueError, match=f"{keyword} is a whole number from {least} to {most}; {number}"),
            ac.use(**{keyword: number}),
        ):
            pass


def test_a_stream_lends_itself_by_the_protocol(device):
    stream = device.stream()
    assert stream.__cuda_stream__() == (0, stream.handle)


@pytest.mark.needs_devices(2)
def test_naming_a_device_does_not_open_it(in_process):
    done = in_process(
        """
        import aiocuda as ac
        from aiocuda._driver import runtime
        ops = [ac.zeros(2, device=1), ac.zeros(2, device="cuda:1"), ac.zeros(2).to(1)]
        print(1 in runtime.open_devices())
        ops[0].sync()
        print(1 in runtime.open_devices())
        """
    )
    assert done.stdout == "False\nTrue\n"


def test_what_is_no_stream_is_an_error_that_says_what_is_one(device):
    with pytest.raises(ac.ArgumentTypeError, match="a stream is a Stream, or has __cuda_stream__; 'x' is neither"):
        device.stream().wait("x")


def test_a_dropped_stream_is_given_back(device):
    kept = device.stream()
    before = set(_native.streams_of(device.ordinal))
    for _ in range(3):
        device.stream().record()
        kept.fork()
    gc.collect()
    assert set(_native.streams_of(device.ordinal)) <= before  # those of other tests may go meanwhile


def test_a_closed_stream_is_waited_for_by_none_and_waits_for_none(device):
    closed, stream = device.stream(), device.stream()
    event = stream.record()
    closed.close()
    before = _native.streams_of(device.ordinal)
    uses = (
        closed.record,
        closed.fork,
        lambda: closed.wait(stream),
        lambda: closed.wait(event),
        lambda: stream.wait(closed),
    )
    for use in uses:
        with pytest.raises(ac.ClosedError, match="was closed before this use of it"):
            use()
    gc.collect()
    assert _native.streams_of(device.ordinal) == before


def test_use_of_a_stream_puts_work_there(kernels, latch, device):
    stream = device.stream()
    latch.hold(device)
    with ac.use(stream):
        x = kernels.increment(ac.zeros(3, np.int32), 3, threads=3)
        np.testing.assert_array_equal(ac.to_host(x).sync(timeout=60), [1, 1, 1])
    assert latch.is_holding


def test_streams_are_independent(latch, device):
    one, two = device.stream(), device.stream()
    latch.hold(one)
    two.synchronize().sync()
    assert latch.is_holding


def test_a_streams_synchronize_waits_for_all_it_holds(kernels, latch, device):
    stream = device.stream()
    x = ac.zeros(3, np.int32).sync()
    latch.hold(stream)
    future = kernels.increment(x, 3, threads=3).on(stream).submit()
    threading.Timer(0, latch.release).start()
    stream.synchronize().sync()
    assert future.done()


def test_synchronize_is_awaited_without_blocking(run, kernels, latch, device):
    latch.hold(device)
    future = kernels.increment(ac.zeros(3, np.int32), 3, threads=3).submit()

    async def release() -> None:
        latch.release()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            await device.synchronize()
            assert future.done()

    run(main)


def test_a_wait_outlives_its_stream(latch, device):
    stream = device.stream()
    latch.hold(device)
    wait = stream.synchronize()
    stream.close()
    del stream
    ac.Device(0).stream().close()
    wait.sync()
    assert latch.is_holding


def test_streams_compare_by_identity_and_say_what_they_are(device):
    stream = device.stream()
    assert stream != device.stream()
    assert stream.device == device
    assert "0 submitted" in repr(stream)
    ac.ones(3).sync_on(stream)
    assert "0 submitted" not in repr(stream)
    stream.close()
    assert stream.is_closed
    assert "closed" in repr(stream)
    stream.close()


def test_a_closed_stream_is_an_error(device):
    stream = device.stream()
    stream.close()
    for use in (
        stream.synchronize,
        stream.record,
        stream.fork,
        lambda: stream.handle,
        lambda: stream.wait(device.default_stream),
        lambda: device.default_stream.wait(stream),
    ):
        with pytest.raises(ac.ClosedError, match="closed"):
            use()


def test_the_default_stream_cannot_be_closed(device):
    device.default_stream.close()
    assert ac.to_host(ac.ones(3)).sync().sum() == 3


def test_streams_are_made_by_devices():
    with pytest.raises(ac.ArgumentTypeError, match=r"Device\.stream"):
        ac.Stream()


def test_priorities_beyond_the_range_are_brought_into_it(device):
    for priority in (-(10**30), -100, -1, 0, np.int8(100)):
        assert ac.to_host(ac.ones(3)).sync_on(device.stream(priority)).sum() == 3


@pytest.mark.parametrize("priority", ["high", 1.5, None])
def test_a_priority_that_is_no_number_is_an_error(device, priority):
    with pytest.raises(ac.ArgumentTypeError, match="a priority is a whole number; "):
        device.stream(priority)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_has_no_second_owner(device, duplicate):
    stream = device.stream()
    with pytest.raises(ac.ArgumentTypeError, match="neither copied nor pickled"):
        duplicate(stream)
    assert ac.to_host(ac.ones(3)).sync_on(stream).sum() == 3


def test_fork_and_join_order_streams(latch, device):
    stream = device.stream()
    latch.hold(stream)
    forked = stream.fork()
    event = forked.record()
    other = device.stream()
    other.join(forked)
    joined = other.record()
    assert not event.done()
    assert not joined.done()
    latch.release()
    joined.sync()
    assert event.done()


def test_an_event_passes_with_what_was_before_it(latches, device):
    stream = device.stream()
    first, second = latches(), latches()
    first.hold(stream)
    event = stream.record()
    second.hold(stream)
    assert not event.done()
    assert "pending" in repr(event)
    first.release()
    event.sync()
    assert event.done()
    assert "passed" in repr(event)
    assert second.is_holding


def test_an_event_is_awaited_without_blocking(run, latch, device):
    stream = device.stream()
    latch.hold(stream)
    event = stream.record()

    async def release() -> None:
        latch.release()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            await event
        await event

    run(main)
    assert event.done()


def test_elapsed_is_the_devices_time_between_events(kernels, device):
    stream = device.stream()
    start = stream.record()
    for _ in range(10):
        kernels.increment(ac.zeros(1000, np.int32), 1000, threads=1000).on(stream).submit()
    end = stream.record()
    end.sync()
    assert start.elapsed(end) >= 0
    assert start.elapsed(start) == 0


def test_elapsed_of_what_has_not_passed_is_an_error(latch, device):
    stream = device.stream()
    start = stream.record()
    latch.hold(stream)
    end = stream.record()
    with pytest.raises(ac.ArgumentValueError, match="not passed"):
        start.elapsed(end)


def test_elapsed_without_timing_is_an_error(device):
    start, end = device.default_stream.record(timing=False), device.default_stream.record()
    end.sync()
    with pytest.raises(ac.ArgumentValueError, match="without timing"):
        start.elapsed(end)


@pytest.mark.needs_devices(2)
def test_elapsed_between_devices_is_an_error():
    events = [ac.Device(i).default_stream.record() for i in (0, 1)]
    with pytest.raises(ac.DeviceMismatchError, match="no common clock"):
        events[0].elapsed(events[1])


def test_a_stream_of_cuda_core_is_a_stream(kernels):
    core = pytest.importorskip("cuda.core")
    core_device = core.Device(0)
    core_device.set_current()
    stream = core_device.create_stream()
    x = kernels.increment(ac.zeros(3, np.int32), 3, threads=3).on(stream)
    np.testing.assert_array_equal(ac.to_host(x).sync_on(stream), [1, 1, 1])
    with ac.use(stream):
        assert ac.current_device() == ac.Device(0)
        assert ac.to_host(ac.ones(3)).sync().sum() == 3


def test_the_threads_current_context_is_left_as_it_was(kernels):
    from cuda.bindings import driver

    seen: list[Any] = []

    def work() -> None:
        device = ac.devices()[-1].ordinal
        (_, context) = driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(device)[1])
        driver.cuCtxSetCurrent(context)
        before = int(driver.cuCtxGetCurrent()[1])
        x = kernels.increment(ac.zeros(3, np.int32, device=0), 3, threads=3)
        asyncio.run(wait(ac.to_host(x)))
        ac.Device(0).memory_info()
        seen.append((before, int(driver.cuCtxGetCurrent()[1])))
        driver.cuDevicePrimaryCtxRelease(driver.cuDeviceGet(device)[1])

    async def wait(op: ac.DeviceOp[Any]) -> Any:
        return await op

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0][0] == seen[0][1] != 0


def test_what_is_alive_at_the_end_of_the_process_goes_quietly(in_process):
    done = in_process(
        """
        import numpy as np, aiocuda as ac
        stream = ac.Device(0).stream()
        event = stream.record()
        array, host = ac.ones(3).sync(), ac.empty_host(3).sync()
        view = host.numpy()
        pending, future = ac.to_host(ac.ones(3)), ac.to_host(ac.ones(1 << 20)).submit()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_streams_leave_no_room_behind(device):
    """Ten thousand streams take few numbers if only a few of them are open at once."""
    device.synchronize().sync()
    numbers = set()
    for _ in range(10_000):
        stream = device.stream()
        numbers.add(stream._number)
        stream.close()
    assert len(numbers) < 100


def test_a_stream_that_took_a_closed_ones_place_is_another(device):
    old = device.stream()
    put = ac.zeros(1).on(old)
    waiting = old.synchronize()
    old.close()
    new = device.stream()
    assert new != old
    with pytest.raises(ac.ClosedError, match="closed"):
        put.sync()
    with pytest.raises(ac.ClosedError, match="closed"):
        old.synchronize()
    waiting.sync()
    assert ac.to_host(ac.ones(1).on(new)).sync()[0] == 1
