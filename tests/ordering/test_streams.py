"""Operations overlap where no hazard forbids it, and are ordered where one does: latches show both."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import aiocuda as ac

CLOSED = r"^stream \d+( of device \d)? was closed before this use of it; use an open stream$"


@pytest.fixture
def streams(device) -> list[ac.Stream]:
    return [device.stream(), device.stream()]


def full(value: int, n: int = 4) -> ac.DeviceArray:
    return ac.full(n, value, np.int32).sync()


def test_reading_waits_for_writing_on_another_stream(kernels, latch, streams, settle):
    x, y = full(1), full(0)
    latch.hold(streams[0])
    kernels.increment(x, 4, threads=4).on(streams[0]).submit()
    reading = kernels.accumulate(1, x, y, 4, threads=4).on(streams[1]).submit()
    settle()
    assert not reading.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(reading.sync()).sync(), [2, 2, 2, 2])


def test_writing_waits_for_reading_on_another_stream(kernels, latch, streams, settle):
    x, y = full(1), full(0)
    latch.hold(streams[0])
    reading = kernels.accumulate(1, x, y, 4, threads=4).on(streams[0]).submit()
    writing = kernels.increment(x, 4, threads=4).on(streams[1]).submit()
    settle()
    assert not writing.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(reading.sync()).sync(), [1, 1, 1, 1])
    np.testing.assert_array_equal(ac.to_host(writing.sync()).sync(), [2, 2, 2, 2])


def test_writing_waits_for_every_reader(kernels, latches, device, settle):
    x = full(1)
    readers = [device.stream() for _ in range(4)]
    held = [latches() for _ in readers]
    sums = []
    for stream, latch in zip(readers, held, strict=True):
        latch.hold(stream)
        sums.append(kernels.accumulate(1, x, full(0), 4, threads=4).on(stream).submit())
    writing = kernels.increment(x, 4, threads=4).on(device.stream()).submit()
    for latch in held:
        settle()
        assert not writing.done()
        latch.release()
    writing.sync()
    for future in sums:
        np.testing.assert_array_equal(ac.to_host(future.sync()).sync(), [1, 1, 1, 1])


def test_readers_of_one_array_do_not_wait_for_one_another(kernels, latch, streams):
    x = full(1)
    outs = [full(0), full(0)]
    latch.hold(streams[0])
    slow = kernels.accumulate(1, x, outs[0], 4, threads=4).on(streams[0]).submit()
    fast = kernels.accumulate(1, x, outs[1], 4, threads=4).on(streams[1])
    fast.sync(timeout=60)
    assert not slow.done()


def test_work_on_other_arrays_does_not_wait(kernels, latch, streams):
    x, y = full(1), full(2)
    latch.hold(streams[0])
    held = kernels.increment(x, 4, threads=4).on(streams[0]).submit()
    kernels.increment(y, 4, threads=4).on(streams[1]).sync(timeout=60)
    assert not held.done()


def test_order_is_kept_through_a_third_stream(kernels, latch, device, settle):
    a, b, c = device.stream(), device.stream(), device.stream()
    x, y, z = full(1), full(0), full(0)
    latch.hold(a)
    kernels.increment(x, 4, threads=4).on(a).submit()
    kernels.accumulate(1, x, y, 4, threads=4).on(b).submit()
    last = kernels.accumulate(1, y, z, 4, threads=4).on(c).submit()
    settle()
    assert not last.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(last.sync()).sync(), [2, 2, 2, 2])


def test_copies_to_page_locked_memory_are_ordered(kernels, latch, streams, settle):
    x, host = full(1), ac.empty_host(4, np.int32).sync()
    latch.hold(streams[0])
    kernels.increment(x, 4, threads=4).on(streams[0]).submit()
    down = ac.copy(host, x).on(streams[1]).submit()
    up = ac.copy(full(0), host).on(streams[0]).submit()
    settle()
    assert not down.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(up.sync()).sync(), [2, 2, 2, 2])


@pytest.mark.needs_devices(2)
def test_a_peer_copy_waits_for_what_writes_its_source(kernels, latch, settle):
    x = ac.full(4, 1, np.int32, device=0).sync()
    latch.hold(0)
    kernels.increment(x, 4, threads=4).submit()
    moved = ac.to_device(x, 1)
    future = moved.submit()
    settle()
    assert not future.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(moved).sync(), [2, 2, 2, 2])


@pytest.mark.needs_devices(2)
def test_writing_waits_for_a_peer_copy_of_the_old_contents(kernels, latch, settle):
    x = ac.full(4, 1, np.int32, device=0).sync()
    latch.hold(1)
    moved = ac.to_device(x, 1)
    moved.submit()
    writing = kernels.increment(x, 4, threads=4).submit()
    settle()
    assert not writing.done()
    latch.release()
    np.testing.assert_array_equal(ac.to_host(moved).sync(), [1, 1, 1, 1])


@pytest.mark.needs_devices(2)
def test_devices_do_not_wait_for_one_another(kernels, latch):
    latch.hold(0)
    op = kernels.increment(ac.full(4, 1, np.int32, device=1), 4, threads=4)
    with ac.use(1):
        np.testing.assert_array_equal(ac.to_host(op).sync(timeout=60), [2, 2, 2, 2])
    assert latch.is_holding


def test_on_puts_only_this_operation_on_the_stream(device, streams):
    default = device.default_stream
    x = ac.zeros(4, np.int32)
    y = ac.dup(x).on(streams[0])
    with ac.use(ac.SingleStream()):
        lines = y.explain().splitlines()
    # x is made on the default stream; y's copy goes to the other, after it.
    assert f"stream {default._number} " in lines[0]
    assert f"stream {streams[0]._number} " in lines[-1]


def test_on_after_submission_is_an_error(streams):
    op = ac.zeros(4)
    op.sync()
    with pytest.raises(ac.ArgumentValueError, match=r"on\(\) came too late: .*; call on\(\) before it is executed"):
        op.on(streams[0])


@pytest.mark.needs_devices(2)
def test_a_stream_of_another_device_is_an_error(kernels):
    x = ac.zeros(4, np.int32, device=0)
    op = kernels.increment(x, 4, threads=4).on(ac.Device(1).stream())
    with pytest.raises(ac.DeviceMismatchError, match="stream of device 0"):
        op.sync()


def test_a_closed_stream_takes_no_operation(device):
    stream = device.stream()
    stream.close()
    with pytest.raises(ac.ClosedError, match=CLOSED):
        ac.zeros(4).on(stream)
    with pytest.raises(ac.ClosedError, match=CLOSED):
        ac.zeros(4).sync_on(stream)
    with pytest.raises(ac.ClosedError, match=CLOSED), ac.use(stream):
        pass


def test_a_stream_closed_before_its_operation_is_submitted_is_an_error(device):
    stream = device.stream()
    op = ac.zeros(4).on(stream)
    stream.close()
    with pytest.raises(ac.ClosedError, match=CLOSED):
        op.sync()


def test_a_stream_closed_with_work_finishes_it(kernels, latch, device):
    stream = device.stream()
    x = full(1)
    latch.hold(stream)
    future = kernels.increment(x, 4, threads=4).on(stream).submit()
    stream.close()
    del stream
    latch.release()
    np.testing.assert_array_equal(ac.to_host(future.sync()).sync(), [2, 2, 2, 2])


def test_work_of_many_threads_on_one_array_is_in_submission_order(kernels, device):
    x = ac.zeros(64, np.int32).sync()
    streams = [device.stream() for _ in range(4)]

    def work(stream: ac.Stream) -> None:
        for _ in range(100):
            kernels.increment(x, 64, threads=64).on(stream).submit()

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(ac.to_host(x).sync(), np.full(64, 400))
