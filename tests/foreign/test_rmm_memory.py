"""RMM that takes its memory from aiocuda's memory pools: a strict stand-in, and RMM itself where it is installed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from framework import checked
from pool_like import RMM, assert_one_pool

import aiocuda as ac
from aiocuda._driver import runtime
from aiocuda._interop import rmm_memory

SIZE = 1 << 20
N = SIZE // 4


@pytest.fixture(params=["stand-in", "installed"])
def rmm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "installed":
        ac.select_driver()
        found = pytest.importorskip("rmm.mr")
        package = sys.modules["rmm"]
        before = found.get_per_device_resource(0)
        stream = pytest.importorskip("rmm.pylibrmm.stream").Stream
    else:
        stand_in = RMM()
        for name, module in stand_in.modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        package, found, before, stream = stand_in.module, stand_in.module.mr, None, stand_in.stream_class
        monkeypatch.setattr(rmm_memory, "_resources", {})
    rmm_memory.share_memory_pool(0)
    yield types.SimpleNamespace(package=package, mr=found, Stream=stream, resource=found.get_per_device_resource(0))
    if before is not None:
        found.set_per_device_resource(0, before)


def held(device: int = 0) -> int:
    return ac.Device(device).memory_info().frameworks_bytes


def used() -> int:
    return runtime.pool_reserved_used(0)[1]


def of_handle(handle: int) -> Any:
    return types.SimpleNamespace(__cuda_stream__=lambda: (0, handle))


def fill(address: int, value: int, stream: int, items: int = N) -> None:
    checked(driver.cuMemsetD32Async(address, value, items, stream))


def test_its_memory_comes_from_the_pool_and_goes_back(rmm, device):
    before, in_use = held(), used()
    stream = rmm.Stream(device.stream())
    addresses = [rmm.resource.allocate(SIZE * (i + 1), stream) for i in range(3)]
    assert (held() - before, used() - in_use) == (6 * SIZE, 6 * SIZE)
    for i, address in enumerate(addresses):
        rmm.resource.deallocate(address, SIZE * (i + 1), stream)
    device.synchronize().sync()
    assert (held(), used()) == (before, in_use)


def test_nothing_is_allocated_for_no_bytes(rmm, device):
    before = held()
    stream = rmm.Stream(device.stream())
    address = rmm.resource.allocate(0, stream)
    assert held() == before
    rmm.resource.deallocate(address, 0, stream)
    assert held() == before


def test_memory_is_free_behind_the_stream_that_it_is_freed_on(rmm, device, latch):
    """That stream stands still, with a write of the memory; the one that it was allocated on goes on."""
    first, last = device.stream(), device.stream()
    address = rmm.resource.allocate(SIZE, rmm.Stream(first))
    first.synchronize().sync()
    latch.hold(last)
    fill(address, 1, last.handle)
    rmm.resource.deallocate(address, SIZE, rmm.Stream(last))
    arrays = [ac.full(N, 7, np.int32).on(stream).sync(60) for stream in (first, device.stream())]
    latch.release()
    checked(driver.cuStreamSynchronize(last.handle))
    assert all((ac.to_host(x).sync(60) == 7).all() for x in arrays)


def test_the_stream_that_it_was_allocated_on_may_be_gone(rmm, device):
    before = held()
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    own = checked(driver.cuStreamCreate(flags))
    address = rmm.resource.allocate(SIZE, rmm.Stream(of_handle(int(own))))
    checked(driver.cuStreamSynchronize(own))
    checked(driver.cuStreamDestroy(own))
    rmm.resource.deallocate(address, SIZE, rmm.Stream(device.stream()))
    device.synchronize().sync()
    assert held() == before


def test_one_uses_what_the_other_has_let_go_of(rmm, device):
    stream = rmm.Stream(device.default_stream)

    def take_and_free(size_bytes: int) -> None:
        rmm.resource.deallocate(rmm.resource.allocate(size_bytes, stream), size_bytes, stream)

    assert_one_pool(device, take_and_free, 64 * SIZE)


def test_limits_count_what_it_holds(rmm, device):
    info, stream = device.memory_info(), rmm.Stream(device.stream())
    address = rmm.resource.allocate(2 * SIZE, stream)
    limit = info.used_bytes + info.frameworks_bytes + 3 * SIZE
    with ac.memory_limit(limit), pytest.raises(ac.OutOfMemoryError, match="other libraries"):
        ac.zeros(2 * SIZE, np.uint8).sync()
    rmm.resource.deallocate(address, 2 * SIZE, stream)
    with ac.memory_limit(limit):
        ac.zeros(2 * SIZE, np.uint8).sync()


def test_refusals_are_errors_and_nothing_is_lost(rmm, device):
    before = held()
    stream = device.stream()
    with pytest.raises(MemoryError, match="has no room"):
        rmm.resource.allocate(device.memory_info().total_bytes + 1, rmm.Stream(stream))
    with pytest.raises(RuntimeError, match="per-thread default stream"):
        rmm.resource.allocate(SIZE, rmm.Stream(of_handle(2)))
    handle = stream.handle
    checked(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    with pytest.raises(RuntimeError, match="captured"):
        rmm.resource.allocate(SIZE, rmm.Stream(stream))
    graph = checked(driver.cuStreamEndCapture(handle))
    result, _, nodes = driver.cuGraphGetNodes(graph, 0)
    assert (int(result), int(nodes)) == (0, 0)
    checked(driver.cuGraphDestroy(graph))
    assert held() == before


def test_a_device_keeps_its_resource(rmm):
    rmm.mr.set_per_device_resource(0, rmm.mr.CallbackMemoryResource(lambda *_: 0, lambda *_: None))
    rmm_memory.share_memory_pool()
    assert rmm.mr.get_per_device_resource(0) is rmm.resource


@pytest.mark.needs_devices(2)
def test_each_device_that_is_named_has_one(rmm):
    rmm_memory.share_memory_pool(0, 1)
    stream, before = rmm.Stream(ac.Device(1).stream()), (held(0), held(1))
    resource = rmm.mr.get_per_device_resource(1)
    address = resource.allocate(SIZE, stream)
    assert (held(0), held(1)) == (before[0], before[1] + SIZE)
    resource.deallocate(address, SIZE, stream)
    assert (held(0), held(1)) == before


def test_an_rmm_that_is_too_old_is_refused(monkeypatch):
    stand_in = RMM()
    for name, module in stand_in.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(stand_in.modules["rmm.pylibrmm.stream"], "Stream", object)
    monkeypatch.setattr(stand_in.module, "__version__", "24.02.00")
    with pytest.raises(ac.errors.ExchangeError, match=r"RMM 24\.02\.00 do not tell their handles"):
        rmm_memory.share_memory_pool()
    assert stand_in.resources == {}


def test_what_is_no_device_is_refused_and_no_rmm_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "rmm", None)
    with pytest.raises(ac.errors.MissingPackageError, match=r"share_memory_pool\(\) needs RMM, which is not installed"):
        rmm_memory.share_memory_pool()
    for name, module in RMM().modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ac.ArgumentTypeError, match="device"):
        rmm_memory.share_memory_pool([])  # type: ignore[arg-type]


def test_a_buffer_is_an_argument_and_may_outlive_the_interpreter(in_process: Callable[..., Any]):
    pytest.importorskip("rmm")
    done = in_process(
        """
        import aiocuda as ac
        import cuda.core
        from aiocuda.interop.rmm import share_memory_pool
        device = ac.Device(0)
        share_memory_pool()
        import rmm
        increment = ac.kernel('extern "C" __global__ void increment(signed char* x, unsigned n) '
                              '{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }')
        stream = rmm.pylibrmm.stream.Stream(device.stream())
        buffer = rmm.DeviceBuffer(size=1000, stream=stream)
        print(device.memory_info().frameworks_bytes)
        x = ac.external(cuda.core.Buffer.from_handle(buffer.ptr, 1000, owner=buffer))
        ac.fill(x, 4).sync(60)
        print(set(ac.to_host(increment(x, 1000, threads=1000)).sync(60).tolist()))
        """
    )
    assert done.stdout == "1000\n{5}\n", done
    assert done.returncode == 0, done
