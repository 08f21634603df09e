"""Frameworks that take their memory from aiocuda's memory pools, beside aiocuda's arrays."""

from __future__ import annotations

import functools
import random
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from cuda.bindings import driver
from framework import Tensor, checked
from framework_programs import run_program
from pool_like import CuPy, Torch, assert_one_pool, caller, imported

import aiocuda as ac
from aiocuda._driver import runtime
from aiocuda._interop import cupy_memory, torch_memory
from aiocuda._interop.torch import _PyTorch

SIZE = 1 << 20
N = SIZE // 4

catches_refusals = pytest.mark.skipif(caller() is None, reason="no compiler: exceptions of C++ cannot be caught")


@pytest.fixture
def torch() -> Iterator[Torch]:
    with imported(Torch()) as made:
        torch_memory.share_memory_pool()
        yield made


@pytest.fixture
def allocator(torch: Torch) -> Any:
    return torch.allocator


@pytest.fixture
def cupy() -> Iterator[CuPy]:
    with imported(CuPy()) as made:
        cupy_memory.share_memory_pool()
        yield made


def held() -> int:
    return ac.Device(0).memory_info().frameworks_bytes


def used() -> int:
    return runtime.pool_reserved_used(0)[1]


def host(x: Any) -> Any:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def fill(address: int, value: int, stream: int, items: int = N) -> None:
    checked(driver.cuMemsetD32Async(address, value, items, stream))


# --- one pool, and what it tells ------------------------------------------------------------------------------------


def test_what_frameworks_and_arrays_hold_is_what_the_pool_has_in_use(allocator, device):
    before, in_use = device.memory_info(), used()
    stream = device.stream()
    addresses = [allocator.malloc(SIZE * (i + 1), 0, stream.handle) for i in range(3)]
    arrays = [ac.zeros(SIZE, np.uint8).sync() for _ in range(2)]
    info = device.memory_info()
    assert info.frameworks_bytes - before.frameworks_bytes == 6 * SIZE
    assert info.used_bytes - before.used_bytes == 2 * SIZE
    assert used() - in_use == 8 * SIZE
    for address in addresses:
        allocator.raw_delete(address)
    del arrays
    device.synchronize().sync()
    assert (held(), used()) == (before.frameworks_bytes, in_use)


def test_one_uses_what_the_other_has_let_go_of(allocator, device):
    stream = device.default_stream

    def take_and_free(size_bytes: int) -> None:
        allocator.raw_delete(allocator.malloc(size_bytes, 0, stream.handle))

    assert_one_pool(device, take_and_free, 64 * SIZE)


def test_nothing_is_allocated_for_an_empty_tensor(allocator):
    before = held()
    assert allocator.malloc(0, 0, 1) == 0
    assert held() == before


def test_threads_allocate_and_free_each_others_memory(allocator, device):
    """Without the GIL, on the legacy stream, on streams of aiocuda's, and with no context current."""
    before = held()
    streams = [device.stream() for _ in range(3)]
    handles = [1, *(stream.handle for stream in streams)]
    made: list[int] = []
    failed: list[Exception] = []

    def go(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(300):
                if chance.random() < 0.5:
                    made.append(allocator.malloc(chance.randrange(1, SIZE), 0, chance.choice(handles)))
                elif made:
                    allocator.raw_delete(made.pop())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails with it
            failed.append(error)

    threads = [threading.Thread(target=go, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert (host(ac.full(100, 7, np.int32)) == 7).all()
    for thread in threads:
        thread.join()
    for address in made:
        allocator.raw_delete(address)
    assert not failed
    assert held() == before


# --- order ----------------------------------------------------------------------------------------------------------


def test_memory_that_is_freed_serves_an_array_behind_the_work_on_it(allocator, device, latch):
    """Their stream stands still, with a write of memory that they have freed."""
    theirs, ours = device.stream(), device.stream()
    latch.hold(theirs)
    handle = theirs.handle
    address = allocator.malloc(SIZE, 0, handle)
    fill(address, 1, handle)
    allocator.raw_delete(address)
    x = ac.full(N, 7, np.int32).on(ours)
    x.submit()
    latch.release()
    checked(driver.cuStreamSynchronize(handle))
    assert (host(x) == 7).all()


def test_memory_that_another_stream_uses_is_freed_behind_that_too(allocator, device, latch):
    first, other = device.stream(), device.stream()
    handles = first.handle, other.handle
    for _ in range(2):  # the stream that frees such memory is made, and the memory pool has memory
        address = allocator.malloc(SIZE, 0, handles[0])
        allocator.record_stream(address, handles[1])
        allocator.raw_delete(address)
    device.synchronize().sync()
    address = allocator.malloc(SIZE, 0, handles[0])
    first.synchronize().sync()
    latch.hold(other)
    fill(address, 1, handles[1])
    allocator.record_stream(address, handles[1])
    allocator.raw_delete(address)
    arrays = [ac.full(N, 7, np.int32).on(first).sync(60) for _ in range(8)]  # the free holds up nobody's work
    latch.release()
    checked(driver.cuStreamSynchronize(handles[1]))
    assert all((host(x) == 7).all() for x in arrays)


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_with_two_frameworks_gives_what_it_means(kernels, torch, seed):
    run_program(seed, kernels.increment, steps=60, make=torch.framework)


@pytest.mark.emulated_only
@pytest.mark.parametrize("shuffle", [1, 2])
def test_random_programs_race_nowhere(run_random_programs, shuffle):
    setup = """
from framework_programs import run_program
from pool_like import Torch, imported
from aiocuda._interop import torch_memory
stands_in = imported(Torch())
torch = stands_in.__enter__()
torch_memory.share_memory_pool()
increment = ac.kernel('extern "C" __global__ void increment(int* x, unsigned n) '
                      '{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }')
"""
    assert run_random_programs(setup, "run_program(seed, increment, make=torch.framework)", shuffle) == (0, "", "")


@pytest.mark.parametrize("seed", range(4))
def test_memory_is_nobody_elses_while_it_is_held(torch, device, seed):
    """Random allocations and frees on streams, between those of arrays: each keeps what was written last."""
    chance = random.Random(seed)
    framework = torch.framework()
    streams = [device.stream() for _ in range(3)]
    handles = [stream.handle for stream in streams]
    tensors: list[tuple[Tensor, int]] = []
    arrays: list[tuple[Any, int]] = []
    for step in range(200):
        choice, which = chance.random(), chance.randrange(3)
        if choice < 0.3:
            with framework.using(handles[which]):
                tensors.append((framework.full(chance.choice([10, 1000, 5000]), step), step))
        elif choice < 0.6:
            arrays.append((ac.full(chance.choice([10, 1000, 5000]), step, np.int32).on(streams[which]), step))
            arrays[-1][0].submit()
        elif choice < 0.8 and tensors:
            del tensors[chance.randrange(len(tensors))]
        elif arrays:
            del arrays[chance.randrange(len(arrays))]
    device.synchronize().sync()
    for handle in handles:
        checked(driver.cuStreamSynchronize(handle))
    assert [value for tensor, value in tensors if set(tensor.tolist()) != {value}] == []
    assert [value for x, value in arrays if set(host(x).tolist()) != {value}] == []
    tensors.clear()
    framework.close()


# --- no memory left -------------------------------------------------------------------------------------------------


@pytest.fixture
def bounded(device: ac.Device) -> Iterator[int]:
    """Bound the memory pool, to what is in use there and this much."""
    device.synchronize().sync()
    device.set_memory_pool(max_bytes=64 * SIZE)
    yield 64 * SIZE
    device.set_memory_pool()


@catches_refusals
def test_a_framework_that_gets_no_memory_is_told_so(allocator, device, bounded):
    stream = device.default_stream.handle
    address = allocator.malloc(bounded // 2, 0, stream)
    with pytest.raises(RuntimeError, match=r"^CUDA out of memory\. .*device 0 has no room.*other libraries hold"):
        allocator.malloc(bounded, 0, stream)
    with pytest.raises(ac.OutOfMemoryError, match="by other libraries, from the memory pool"):
        ac.zeros(bounded, np.uint8).sync()
    allocator.raw_delete(address)
    allocator.raw_delete(allocator.malloc(bounded, 0, stream))
    assert (host(ac.full(10, 3, np.int32)) == 3).all()


def test_memory_of_a_pool_that_was_exchanged_is_freed_where_it_is(allocator, device, bounded):
    before = held()
    address = allocator.malloc(SIZE, 0, 1)
    device.set_memory_pool()
    other = allocator.malloc(SIZE, 0, 1)
    assert held() == before + 2 * SIZE
    allocator.raw_delete(address)
    allocator.raw_delete(other)
    assert held() == before


def test_limits_count_what_frameworks_hold(allocator, device):
    info = device.memory_info()
    limit = info.used_bytes + info.frameworks_bytes + 3 * SIZE
    address = allocator.malloc(2 * SIZE, 0, 1)
    with ac.memory_limit(limit), pytest.raises(ac.OutOfMemoryError, match="other libraries") as caught:
        ac.zeros(2 * SIZE, np.uint8).sync()
    assert (caught.value.is_limit, caught.value.free_bytes) == (True, SIZE)
    allocator.raw_delete(address)
    with ac.memory_limit(limit):
        ac.zeros(2 * SIZE, np.uint8).sync()


def test_who_waits_for_memory_is_told_of_what_a_framework_frees(allocator, device, run):
    info = device.memory_info()
    limit = info.used_bytes + info.frameworks_bytes + 3 * SIZE
    address = allocator.malloc(2 * SIZE, 0, 1)

    async def main() -> None:
        async def wait() -> None:
            with ac.memory_limit(limit, wait=True):
                await ac.zeros(2 * SIZE, np.uint8).within(60)

        before = ac.statistics().waits_for_room
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            while ac.statistics().waits_for_room == before:
                await anyio.lowlevel.checkpoint()
            thread = threading.Thread(target=allocator.raw_delete, args=(address,))
            thread.start()
        thread.join()

    run(main)


# --- captures -------------------------------------------------------------------------------------------------------


def captured(stream: int) -> Any:
    checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))


def nodes_of(stream: int) -> int:
    graph = checked(driver.cuStreamEndCapture(stream))
    result, _, count = driver.cuGraphGetNodes(graph, 0)
    assert int(result) == 0
    checked(driver.cuGraphDestroy(graph))
    return int(count)


@catches_refusals
def test_a_stream_that_is_captured_gets_no_memory(torch, allocator, device):
    framework = torch.framework()
    stream = framework.stream()
    before = held()
    captured(stream)
    with pytest.raises(RuntimeError, match="captured into a graph"):
        allocator.malloc(SIZE, 0, stream)
    other = allocator.malloc(SIZE, 0, framework.default_stream)  # others get it, and the capture goes on
    assert nodes_of(stream) == 0
    allocator.raw_delete(other)
    assert held() == before
    framework.close()


def test_what_is_freed_in_a_capture_is_freed_afterwards(torch, allocator):
    framework = torch.framework()
    stream, other = framework.stream(), framework.stream()
    before = held()
    addresses = [allocator.malloc(SIZE, 0, stream), allocator.malloc(SIZE, 0, other)]
    allocator.record_stream(addresses[1], stream)
    captured(stream)
    for address in addresses:
        allocator.raw_delete(address)
    assert held() == before + 2 * SIZE
    assert nodes_of(stream) == 0
    allocator.raw_delete(allocator.malloc(1, 0, other))
    assert held() == before
    framework.close()


def test_an_operation_of_pytorchs_is_no_part_of_a_graph_then(torch):
    with pytest.raises(ac.CaptureError, match="share_memory_pool"):
        _PyTorch._enter_capture(types.SimpleNamespace(_torch=torch.module), 0, [])


# --- CuPy -----------------------------------------------------------------------------------------------------------


class TestCuPy:
    def test_its_memory_comes_from_the_pool_and_goes_back(self, cupy, device):
        before, in_use = held(), used()
        memory = cupy.malloc(SIZE)
        assert (held() - before, used() - in_use) == (SIZE, SIZE)
        del memory
        assert (held(), used()) == (before, in_use)
        assert cupy.malloc(0).ptr == 0

    def test_a_stream_stays_while_memory_is_freed_in_its_order(self, cupy, device):
        class Stream:
            def __init__(self) -> None:
                self.kept = device.stream()
                self.ptr = self.kept.handle

        cupy.stream = Stream()
        seen = weakref.ref(cupy.stream)
        memory = cupy.malloc(SIZE)
        cupy.stream = types.SimpleNamespace(ptr=1)
        assert seen() is not None
        del memory
        assert seen() is None

    def test_refusals_are_errors(self, cupy, device, bounded):
        kept = cupy.malloc(SIZE)
        with pytest.raises(ac.OutOfMemoryError, match="has no room"):
            cupy.malloc(bounded)
        cupy.stream = types.SimpleNamespace(ptr=2)
        with pytest.raises(ac.errors.ExchangeError, match="per-thread"):
            cupy.malloc(SIZE)
        del kept

    def test_a_captured_stream_gets_no_memory(self, cupy, torch):
        framework = torch.framework()
        cupy.stream = types.SimpleNamespace(ptr=framework.stream())
        captured(cupy.stream.ptr)
        with pytest.raises(ac.CaptureError, match="allocating for another library"):
            cupy.malloc(SIZE)
        assert nodes_of(cupy.stream.ptr) == 0
        framework.close()

    def test_arrays_that_nobody_holds_make_room(self, cupy, bounded):
        x = ac.zeros(bounded // 2 + SIZE, np.uint8).sync()
        reader = functools.partial(ac.to_host, x)
        reader().sync()
        del x, reader
        memory = cupy.malloc(bounded // 2 + SIZE)
        del memory
