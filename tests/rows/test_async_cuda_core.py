"""Features that users of async-cuda-core know, row by row: streams, buffers of the device and of the host, devices.

Always true: a test is named after its row, and shows how the row is written here.
"""

from __future__ import annotations

import anyio.to_thread
import numpy as np
import pytest

import aiocuda as ac

N = 1000
WIDTH, HEIGHT, CHANNELS = 50, 20, 3
DATA = np.arange(N, dtype=np.float32)
IMAGE = np.arange(HEIGHT * WIDTH * CHANNELS, dtype=np.uint16).reshape(HEIGHT, WIDTH, CHANNELS)


def new_image() -> ac.DeviceOp[ac.DeviceArray]:
    """Make a buffer whose rows begin at the pitch, each with its pixels in one piece."""
    return ac.empty((HEIGHT, WIDTH, CHANNELS), np.uint16, pitched=True)


# --- streams --------------------------------------------------------------------------------------------------------


def test_stream_create(device, run):
    stream, other = device.stream(), device.stream()
    assert stream.device == device
    assert stream.handle != other.handle

    async def program():
        return await ac.to_host(ac.full(3, 5.0).on(stream)).on(stream)

    assert run(program).tolist() == [5, 5, 5]


def test_stream_synchronize(device, latch, kernels, waits_for, run):
    stream, x = device.stream(), ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(stream)
        future = kernels.increment(x, 1, threads=1).on(stream).submit()
        assert not future.done()
        return await waits_for(stream.synchronize(), latch, future.done)

    assert run(program)


class NullStream:
    """CUDA's null stream, as other libraries give theirs: that of the device whose context is current."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


def test_null_stream(device, run):
    default = device.default_stream  # what aiocuda itself puts things on
    assert default.handle != 0
    handles: list[int] = []

    async def program():
        x = await ac.zeros(3)
        for stream in (default, NullStream()):
            await ac.call(lambda given: handles.append(given.handle), writes=[x]).on(stream)
            await ac.copy(x, ac.full(3, 2.0)).on(stream)
            assert (await ac.to_host(x).on(stream)).tolist() == [2, 2, 2]

    run(program)
    assert handles == [default.handle, 0]


# --- buffers of a device --------------------------------------------------------------------------------------------


def test_device_buffer_new(device, run):
    async def program():
        buffer = await ac.empty(N)
        assert (buffer.size, buffer.nbytes, buffer.dtype, buffer.device) == (N, 4 * N, np.float32, device)

    run(program)


@pytest.mark.parametrize("slice_", [[1, 2, 3], memoryview(np.int64([1, 2, 3])), np.arange(9)[1:4]])
def test_device_buffer_from_slice(slice_, run):
    async def program():
        buffer = await ac.to_device(slice_)
        assert (buffer.shape, buffer.dtype) == ((3,), np.int64)
        return (await ac.to_host(buffer)).tolist()

    assert run(program) == [1, 2, 3]


def test_device_buffer_from_array(run):
    async def program():
        buffer = await ac.to_device(IMAGE.transpose(2, 0, 1))
        assert buffer.shape == (CHANNELS, HEIGHT, WIDTH)
        return await ac.to_host(buffer)

    np.testing.assert_array_equal(run(program), IMAGE.transpose(2, 0, 1))


def test_device_buffer_copy_from(run):
    async def program():
        host, buffer = await ac.empty_host(N), await ac.zeros(N)
        host.numpy()[:] = DATA
        assert await ac.copy(buffer, host) is buffer
        return await ac.to_host(buffer)

    np.testing.assert_array_equal(run(program), DATA)


def test_device_buffer_copy_to(run):
    async def program():
        buffer, host, other = await ac.to_device(DATA), await ac.empty_host(N), await ac.zeros(N)
        assert await ac.copy(host, buffer) is host
        assert await ac.copy(other, buffer) is other
        return host.numpy(), await ac.to_host(other)

    for found in run(program):
        np.testing.assert_array_equal(found, DATA)


def test_device_buffer_fill(run):
    async def program():
        buffer = await ac.to_device(DATA)
        assert await ac.fill(buffer[2:5], -1) is not buffer
        part = (await ac.to_host(buffer))[:6].tolist()
        assert await ac.fill(buffer, 7.5) is buffer
        return part, await ac.to_host(buffer), await ac.to_host(ac.full(N, 7.5))

    part, whole, made = run(program)
    assert part == [0, 1, -1, -1, -1, 5]
    for found in (whole, made):
        np.testing.assert_array_equal(found, np.full(N, 7.5))


# --- buffers of the host --------------------------------------------------------------------------------------------


def test_host_buffer_new(run):
    async def program():
        buffer = await ac.empty_host((2, N), np.int32)
        assert (buffer.shape, buffer.dtype, buffer.numpy().flags.writeable) == ((2, N), np.int32, True)
        assert buffer.numpy().ctypes.data == buffer.address

    run(program)


def test_host_buffer_from_slice(run):
    async def program():
        buffer = await ac.empty_host(3)
        buffer.numpy()[:] = [1, 2, 3]
        return (await ac.to_host(ac.to_device(buffer))).tolist()

    assert run(program) == [1, 2, 3]


def test_host_buffer_from_array(run):
    async def program():
        buffer = await ac.empty_host(IMAGE.shape, IMAGE.dtype)
        assert await ac.copy(buffer, IMAGE) is buffer
        return buffer.numpy()

    np.testing.assert_array_equal(run(program), IMAGE)


def test_host_buffer_copy_from(run):
    async def program():
        buffer = await ac.empty_host(N)
        await ac.copy(buffer, await ac.to_device(DATA))
        return buffer.numpy()

    np.testing.assert_array_equal(run(program), DATA)


def test_host_buffer_copy_to(run):
    async def program():
        buffer, target, array = await ac.empty_host(N), await ac.zeros(N), np.zeros(N, np.float32)
        buffer.numpy()[:] = DATA
        await ac.copy(target, buffer)
        assert await ac.copy(array, buffer) is array
        return await ac.to_host(target), array

    for found in run(program):
        np.testing.assert_array_equal(found, DATA)


def test_host_buffer_fill(run):
    async def program():
        buffer = await ac.empty_host(N)
        await ac.fill(buffer, 3)  # behind what uses it on the device; on the host, it is NumPy's
        assert buffer.numpy().tolist() == [3] * N
        return await ac.to_host(ac.to_device(buffer))

    np.testing.assert_array_equal(run(program), np.full(N, 3))


# --- 2-D buffers ----------------------------------------------------------------------------------------------------


def test_2d_buffer_new(run):
    async def program():
        buffer = await new_image()
        assert buffer.shape == (HEIGHT, WIDTH, CHANNELS)
        assert buffer.strides == (512, 2 * CHANNELS, 2)
        grey = await ac.empty((HEIGHT, WIDTH), np.uint16, pitched=True)
        assert grey.strides == (512, 2)

    run(program)


def test_2d_buffer_from_slice(run):
    async def program():
        return await ac.to_host(ac.copy(new_image(), IMAGE))

    np.testing.assert_array_equal(run(program), IMAGE)


def test_2d_buffer_copy_from(run):
    async def program():
        host, buffer = await ac.empty_host(IMAGE.shape, IMAGE.dtype), await new_image()
        host.numpy()[:] = IMAGE
        await ac.copy(buffer, host)
        return await ac.to_host(buffer)

    np.testing.assert_array_equal(run(program), IMAGE)


def test_2d_buffer_copy_to(run):
    async def program():
        buffer, host = await ac.copy(new_image(), IMAGE), await ac.empty_host(IMAGE.shape, IMAGE.dtype)
        await ac.copy(host, buffer)
        return host.numpy(), await ac.to_host(ac.copy(new_image(), buffer))

    for found in run(program):
        np.testing.assert_array_equal(found, IMAGE)


def test_2d_buffer_fill(run):
    async def program():
        buffer = await ac.copy(new_image(), IMAGE)
        await ac.fill(buffer, 9)
        return await ac.to_host(buffer)

    np.testing.assert_array_equal(run(program), np.full(IMAGE.shape, 9))


# --- devices --------------------------------------------------------------------------------------------------------


def test_device_count():
    assert len(ac.devices()) >= 1
    with pytest.raises(ac.ArgumentValueError, match="no device"):
        ac.Device(len(ac.devices()))


def test_device_get():
    assert ac.current_device() == ac.Device(0)


@pytest.mark.needs_devices(2)
def test_device_set(run):
    async def program():
        with ac.use(1):
            assert ac.current_device().ordinal == 1
            inside = await ac.zeros(3)
        return inside.device.ordinal, (await ac.zeros(3)).device.ordinal

    assert run(program) == (1, 0)


def test_device_synchronize(device, latch, kernels, waits_for, run):
    stream, x = device.stream(), ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(stream)
        future = kernels.increment(x, 1, threads=1).on(stream).submit()
        assert not future.done()
        return await waits_for(device.synchronize(), latch, future.done)

    assert run(program)


def test_memory_info(device):
    held = ac.empty(1 << 20, np.uint8).sync()
    info = device.memory_info()
    assert 0 < info.free_bytes <= info.total_bytes
    assert held.nbytes <= info.used_bytes <= info.peak_bytes <= info.total_bytes


def test_null_stream_where_no_context_is_current(device, run):
    """It is that of the device in force."""

    async def program():
        def in_a_thread() -> list[float]:
            with ac.use(device), ac.use(NullStream()):
                return list(ac.to_host(ac.ones(3)).sync())

        return await anyio.to_thread.run_sync(in_a_thread)

    assert run(program) == [1, 1, 1]


def test_the_per_thread_stream_is_refused(device):
    class PerThread:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 2

    with pytest.raises(ac.ArgumentTypeError, match=r"handle 2 is CUDA's per-thread.*Device\.stream\(\)"):
        ac.ones(3).on(PerThread())


@pytest.mark.needs_devices(2)
def test_null_stream_of_each_device(kernels):
    from cuda.bindings import driver

    for ordinal in (0, 1, 0):
        x = ac.zeros(3, np.int32, device=ordinal).sync()
        (_, before), context = driver.cuCtxGetCurrent(), driver.cuDevicePrimaryCtxRetain(ordinal)[1]
        driver.cuCtxSetCurrent(context)
        try:
            with ac.use(NullStream()):
                assert list(ac.to_host(kernels.increment(x, 3, threads=3)).sync()) == [1, 1, 1]
        finally:
            driver.cuCtxSetCurrent(before)
            driver.cuDevicePrimaryCtxRelease(ordinal)
