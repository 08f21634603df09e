"""Features that users of cudarc know, row by row: copies, slices, modules, launches, streams, events, threads, several
GPUs.

Always true: a test is named after its row, and shows how the row is written here.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

N = 1000
DATA = np.arange(N, dtype=np.float32)
SOURCE = r"""
__constant__ float factors[2];
__device__ int count;
extern "C" __global__ void increment(int* x) { x[threadIdx.x] += 1; }
extern "C" __global__ void weigh(float* y) { y[threadIdx.x] = factors[threadIdx.x]; }
extern "C" __global__ void tick() { atomicAdd(&count, 1); }
extern "C" __global__ void __launch_bounds__(128) narrow(int* x) {
    __shared__ int kept[128];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = kept[threadIdx.x ^ 1];
}
"""


@pytest.fixture
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync()


# --- memory and copies ----------------------------------------------------------------------------------------------


def test_alloc():
    array = ac.empty((3, 5), np.float64).sync()
    assert (array.shape, array.dtype, array.nbytes) == ((3, 5), np.float64, 120)


def test_alloc_zeros(run):
    async def program():
        return await ac.to_host(ac.zeros((3, 5), np.float64))

    np.testing.assert_array_equal(run(program), np.zeros((3, 5)))


def test_memset_zeros():
    array = ac.to_device(DATA).sync()
    ac.fill(array, 0).sync()
    np.testing.assert_array_equal(contents(array), np.zeros(N))


def test_htod_copy(run):
    async def program():
        array = await ac.to_device(DATA)
        assert (array.shape, array.dtype) == ((N,), np.float32)
        return await ac.to_host(array)

    np.testing.assert_array_equal(run(program), DATA)


def test_htod_sync_copy():
    np.testing.assert_array_equal(contents(ac.to_device(DATA).sync()), DATA)


def test_htod_copy_into(run):
    async def program():
        array = await ac.zeros(N)
        assert await ac.copy(array, DATA) is array
        return await ac.to_host(array)

    np.testing.assert_array_equal(run(program), DATA)


def test_htod_sync_copy_into():
    array = ac.zeros(N).sync()
    assert ac.copy(array, DATA).sync() is array
    np.testing.assert_array_equal(contents(array), DATA)


def test_dtoh_copy(run):
    async def program():
        host = await ac.to_host(await ac.to_device(DATA))
        assert isinstance(host, np.ndarray)
        return host

    np.testing.assert_array_equal(run(program), DATA)


def test_dtoh_sync_copy():
    np.testing.assert_array_equal(ac.to_host(ac.to_device(DATA).sync()).sync(), DATA)


def test_dtoh_copy_into(run):
    async def program():
        host = np.zeros(N, np.float32)
        assert await ac.to_host(await ac.to_device(DATA), host) is host
        return host

    np.testing.assert_array_equal(run(program), DATA)


def test_dtoh_sync_copy_into():
    host = np.zeros(N, np.float32)
    assert ac.to_host(ac.to_device(DATA).sync(), host).sync() is host
    np.testing.assert_array_equal(host, DATA)


def test_sync_reclaim(used_bytes):
    before = used_bytes()
    array = ac.to_device(DATA).sync()
    np.testing.assert_array_equal(ac.to_host(array, reclaim=True).sync(), DATA)
    assert array.is_closed
    assert used_bytes() == before


def test_dtod_copy(run):
    async def program():
        source, target = await ac.to_device(DATA), await ac.zeros(N)
        assert await ac.copy(target, source) is target
        return await ac.to_host(target)

    np.testing.assert_array_equal(run(program), DATA)


def test_try_clone(run):
    async def program():
        array = await ac.to_device(DATA)
        clone = await ac.dup(array)
        await ac.copy(array, ac.zeros(N))
        return await ac.to_host(clone)

    np.testing.assert_array_equal(run(program), DATA)


# --- slices ---------------------------------------------------------------------------------------------------------


def test_slice():
    array = ac.to_device(DATA).sync()
    part = array[2:5]
    assert (part.shape, part.address) == ((3,), array.address + 8)
    assert contents(part).tolist() == [2, 3, 4]


def test_try_slice():
    array = ac.to_device(DATA).sync()
    assert array[N - 1 : N + 5].shape == (1,)  # a slice ends with the array, as NumPy's do
    with pytest.raises(IndexError, match=r"index 1000 is out of range for axis 0, which has 1000 items"):
        array[N]


def test_slice_mut(kernels):
    array = ac.zeros(8, np.int32).sync()
    kernels.increment(array[2:5], 3, threads=3).sync()
    assert contents(array).tolist() == [0, 0, 1, 1, 1, 0, 0, 0]


def test_split_at():
    array = ac.to_device(DATA).sync()
    left, right = array.split_at(300)
    np.testing.assert_array_equal(contents(left), DATA[:300])
    np.testing.assert_array_equal(contents(right), DATA[300:])


def test_split_at_mut(device, latch, kernels, run):
    array = ac.zeros(8, np.int32).sync()
    left, right = array.split_at(3)
    streams = device.stream(), device.stream()

    async def program():
        latch.hold(streams[0])
        held = kernels.increment(left, 3, threads=3).on(streams[0]).submit()
        await kernels.increment(right, 5, threads=5).on(streams[1])  # does not wait for the other half
        assert latch.is_holding
        latch.release()
        await held
        return (await ac.to_host(array)).tolist()

    assert run(program) == [1] * 8


def test_transmute():
    array = ac.to_device(np.float32([1, 2])).sync()
    bits = array.view(np.uint32)
    assert (bits.address, bits.shape) == (array.address, (2,))
    assert contents(bits).tolist() == [0x3F800000, 0x40000000]
    assert array.view(np.uint8).shape == (8,)
    with pytest.raises(ac.ArgumentValueError, match=r"view: rows of 4 bytes hold no whole number of items of 8"):
        array[:1].view(np.float64)


# --- modules and launches -------------------------------------------------------------------------------------------


def test_load_ptx(device):
    if device.is_emulated:
        code = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry increment() { ret; }\n"
        with pytest.raises(ac.ArgumentValueError, match=r"pass its source to Module\.from_source"):
            ac.Module.from_ptx(code)
        return
    from cuda.core import Device, Program, ProgramOptions

    Device(0).set_current()
    code = bytes(Program(SOURCE, "c++", options=ProgramOptions(name="rows")).compile("ptx").code)
    # The compiler may be newer than the driver, and what the kernels need is old.
    module = ac.Module.from_ptx(re.sub(rb"\.version \d+\.\d+", b".version 8.0", code))
    increment = module.kernel("increment", signature="int* x")
    assert contents(increment(ac.zeros(3, np.int32), grid=1, block=3)).tolist() == [1, 1, 1]


def test_get_func(module):
    assert module.kernel("increment").name == "increment"
    with pytest.raises(ac.ArgumentValueError, match=r"(?s)no kernel 'missing'.*increment"):
        module.kernel("missing")


def test_launch(module, run):
    increment = module.kernel("increment")

    async def program():
        array = await ac.zeros((2, 4), np.int32)
        assert await increment(array, grid=1, block=(8, 1, 1), shared_memory=0) is array
        return (await ac.to_host(array)).tolist()

    assert run(program) == [[1] * 4] * 2


def test_launch_config_for_num_elems(kernels):
    array = ac.zeros(N + 8, np.int32).sync()
    kernels.increment(array, N, threads=N).sync()
    assert contents(array).tolist() == [1] * N + [0] * 8


def test_launch_on_several_streams(device, latch, kernels, settle, run):
    streams = device.stream(), device.stream()
    arrays = [ac.full(N, value, np.int32).sync() for value in (1, 5)]

    async def program():
        latch.hold(streams[0])
        first, second = (
            kernels.increment(array, N, threads=N).on(stream).submit()
            for array, stream in zip(arrays, streams, strict=True)
        )
        await second
        settle()
        assert not first.done()
        latch.release()
        await first
        return [(await ac.to_host(array))[-1] for array in arrays]

    assert run(program) == [2, 6]


# --- streams --------------------------------------------------------------------------------------------------------


def test_fork(device, latch, settle, run):
    stream = device.stream()

    async def program():
        latch.hold(stream)
        forked = stream.fork()
        event = forked.record()
        settle()
        assert not event.done()
        latch.release()
        await event
        assert forked != stream

    run(program)


def test_join(device, latch, settle, run):
    stream = device.stream()
    forked = stream.fork()

    async def program():
        latch.hold(forked)
        before = stream.record()
        stream.join(forked)
        after = stream.record()
        await before
        settle()
        assert not after.done()
        latch.release()
        await after

    run(program)


def test_stream_priorities(device):
    from cuda.bindings import driver

    ac.zeros(1).sync()
    streams = [device.stream(priority) for priority in (0, -1, -100)]
    found = [driver.cuStreamGetPriority(stream.handle)[1] for stream in streams]
    _, least, greatest = driver.cuCtxGetStreamPriorityRange()
    assert found == [least, -1, greatest]
    for stream in streams:
        assert ac.to_host(ac.ones(3)).sync_on(stream).tolist() == [1, 1, 1]


def test_default_stream(device, latch, kernels, settle, run):
    array = ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(device.default_stream)
        with ac.use(ac.SingleStream()):
            future = kernels.increment(array, 1, threads=1).submit()
        event = device.default_stream.record()
        settle()
        assert not future.done()
        latch.release()
        await event
        assert future.done()

    run(program)


def test_per_thread_stream(device, latch, kernels, settle):
    arrays = [ac.zeros(1, np.int32).sync() for _ in range(2)]
    streams = [device.stream() for _ in range(2)]
    both = threading.Barrier(2)
    latch.hold(streams[0])

    def work(index: int) -> ac.DeviceFuture[Any]:
        with ac.use(streams[index]):  # in this thread alone
            both.wait()
            return kernels.increment(arrays[index], 1, threads=1).submit()

    with ThreadPoolExecutor(2) as threads:
        held, free = threads.map(work, range(2))
    free.sync()
    settle()
    assert not held.done()
    latch.release()
    held.sync()
    assert [int(contents(array)[0]) for array in arrays] == [1, 1]


# --- events ---------------------------------------------------------------------------------------------------------


def test_event_record_query_and_wait(device, latch, settle, run):
    stream, other = device.stream(), device.stream()

    async def program():
        latch.hold(stream)
        event = stream.record(timing=False)
        other.wait(event)
        behind = other.record(timing=False)
        settle()
        assert not event.done()
        assert not behind.done()
        latch.release()
        await behind
        assert event.done()

    run(program)


def test_event_elapsed(device, latch, kernels, run):
    stream, array = device.stream(), ac.zeros(N, np.int32).sync()

    async def program():
        start = stream.record()
        await start
        latch.hold(stream)
        middle = stream.record()
        kernels.increment(array, N, threads=N).on(stream).submit()
        end = stream.record()
        with pytest.raises(ac.ArgumentValueError, match="has not passed yet"):
            start.elapsed(end)
        latch.release()
        await end
        assert start.elapsed(end) >= start.elapsed(middle) > 0
        with pytest.raises(ac.ArgumentValueError, match="timing=True"):
            start.elapsed(stream.record(timing=False))

    run(program)


# --- threads --------------------------------------------------------------------------------------------------------


def test_several_threads(kernels, run):
    array = ac.to_device(np.arange(4, dtype=np.int32)).sync()

    def in_a_thread(index: int) -> list[int]:
        async def program():
            own = await kernels.increment(ac.dup(array), 4, threads=4)
            return (await ac.to_host(kernels.increment(own, index, threads=4))).tolist()

        return run(program)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(in_a_thread, range(5)))
    assert found == [[i + 1 + (i < index) for i in range(4)] for index in range(5)]


# --- functions ------------------------------------------------------------------------------------------------------


def test_function_attributes(module):
    found = module.kernel("narrow").attributes()
    assert found.max_threads_per_block == 128
    assert found.shared_bytes >= 4 * 128
    assert found.registers > 0
    assert found.binary_version >= 75


def test_function_set_attribute(module):
    narrow = module.kernel("narrow")
    narrow.set_attributes(max_dynamic_shared_bytes=64 << 10, preferred_carveout=50)
    assert narrow.attributes().max_dynamic_shared_bytes == 64 << 10
    assert narrow.attributes().preferred_carveout == 50


def test_function_set_cache_config(module):
    narrow = module.kernel("narrow")
    for cache in ("shared", "l1", "equal", "default"):
        narrow.set_attributes(cache=cache)
        found = contents(narrow(ac.to_device(np.arange(128, dtype=np.int32)), grid=1, block=128))
        np.testing.assert_array_equal(found, np.arange(128) ^ 1)
    with pytest.raises(ac.ArgumentValueError, match="'shared', 'l1', 'equal'"):
        narrow.set_attributes(cache="texture")


def test_occupancy_max_active_blocks_per_multiprocessor(module):
    narrow = module.kernel("narrow")
    found = narrow.occupancy(64)
    assert found.block == 64
    assert found.active_blocks >= 1
    assert 0 < found.fraction <= 1
    with pytest.raises(ac.LaunchError, match="takes 1 to 128"):
        narrow.occupancy(256)


def test_occupancy_max_potential_block_size(module, device):
    found = module.kernel("narrow").occupancy()
    assert 1 <= found.block <= 128
    assert found.grid == found.active_blocks * device.multiprocessor_count


def test_occupancy_available_dynamic_shared_memory(module):
    assert module.kernel("narrow").occupancy(128).available_shared_bytes > 0


# --- contexts: limits and caches ------------------------------------------------------------------------------------


def test_context_limits(device):
    before = device.limits()
    assert before.stack_bytes >= 512  # reading one is reading all
    try:
        assert device.set_limits(stack_bytes=before.stack_bytes + 1024).stack_bytes >= before.stack_bytes + 1024
    finally:
        assert device.set_limits(stack_bytes=before.stack_bytes) == before


def test_context_cache_config(device):
    before = device.cache_preference
    try:
        for cache in ("shared", "l1", "equal", "default"):
            device.set_cache_preference(cache)
            assert device.cache_preference == cache
    finally:
        device.set_cache_preference(before)
    with pytest.raises(ac.ArgumentValueError, match="'shared', 'l1', 'equal'"):
        device.set_cache_preference("texture")


# --- variables of modules -------------------------------------------------------------------------------------------


def test_constant_memory(module, run):
    weigh, factors = module.kernel("weigh"), module.constant("factors")
    assert (factors.shape, factors.dtype) == ((2,), np.float32)

    async def program():
        await ac.copy(factors, np.float32([2, 3]))
        return (await ac.to_host(weigh(ac.empty(2), grid=1, block=2))).tolist()

    assert run(program) == [2, 3]


def test_get_global(module):
    count = module.variable("count")
    ac.copy(count, np.int32(5)).sync()
    module.kernel("tick")(grid=1, block=4).sync()
    assert contents(count) == 9


# --- several devices ------------------------------------------------------------------------------------------------


@pytest.mark.needs_devices(2)
def test_multi_gpu_copy(kernels, run):
    async def program():
        here = await ac.to_device(np.arange(8, dtype=np.int32), 0)
        there = await here.to(1)
        assert there.device.ordinal == 1
        await kernels.increment(there, 8, threads=8)
        await ac.copy(here, there)
        return (await ac.to_host(here)).tolist()

    assert run(program) == list(range(1, 9))
