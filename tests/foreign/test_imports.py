"""`external` beside a framework that has streams and an allocator: what waits for what, and what lives how long."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver
from framework import LEGACY, Framework, Tensor, checked

import aiocuda as ac

N = 64


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    close(made)


def close(framework: Framework) -> None:
    for _ in range(2):  # aiocuda lets go of tensors when somebody next submits
        gc.collect()
        ac.Device(framework.ordinal).synchronize().sync()
        ac.zeros(1).sync()
    framework.close()


@pytest.fixture
def increment(kernels) -> Callable[[Any], ac.DeviceOp]:
    return lambda x: kernels.increment(x, N, threads=N)


def hold(latch: Any, framework: Framework, stream: int) -> None:
    """Hold a stream of the framework's, from now on."""
    gate = ac.Device(0).stream()
    latch.hold(gate)
    framework.order(stream, gate.handle)


def other_stream(framework: Framework) -> int:
    with framework.device_current():
        return framework.stream()


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


# --- how the owner is asked -----------------------------------------------------------------------------------------


def test_memory_is_asked_for_once(framework):
    tensor = framework.full(N, 3)
    x = ac.external(tensor)
    assert [each for each in tensor.asked if each != "device"] == [tensor.asked[-1]]
    assert tensor.asked[-1] > LEGACY  # a stream of ours, which the owner ordered behind his
    assert host(x) == [3] * N


def test_an_array_interface_is_read_once(framework):
    class Shown:
        reads = 0

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            self.reads += 1
            return {"shape": (N,), "typestr": "<i4", "data": (tensor.address, False), "version": 3, "stream": LEGACY}

    tensor, shown = framework.full(N, 3), Shown()
    framework.order(LEGACY, framework.current)
    assert host(ac.external(shown)) == [3] * N
    assert shown.reads == 1


@pytest.mark.needs_devices(2)
def test_the_owner_is_asked_with_its_device_current():
    framework = Framework(1)
    tensor = framework.full(N, 3)
    with Framework(0).device_current():
        before = checked(driver.cuCtxGetCurrent())
        x = ac.external(tensor)
        assert int(checked(driver.cuCtxGetCurrent())) == int(before)
    assert x.device.ordinal == 1
    assert ac.to_host(x).sync(60).tolist() == [3] * N
    del x, tensor
    close(framework)


def test_a_framework_that_tells_its_stream_is_asked_for_no_order(framework, monkeypatch, latch, increment, settle):
    """As with PyTorch and CuPy: what aiocuda does is behind the stream that is current in this thread."""
    asked = []

    def current_stream(ordinal: int) -> Any:
        asked.append((ordinal, int(checked(driver.cuCtxGetDevice()))))
        return types.SimpleNamespace(cuda_stream=framework.current)

    monkeypatch.setitem(
        sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=current_stream))
    )
    monkeypatch.setattr(Tensor, "__module__", "torch._tensor")
    hold(latch, framework, framework.current)
    tensor = framework.full(N, 3)
    future = increment(ac.external(tensor)).submit()
    settle()
    assert not future.done()
    assert asked == [(0, 0)]
    assert tensor.asked[-1] == -1
    latch.release()
    assert host(future.sync(60)) == [4] * N


# --- who waits for whom ---------------------------------------------------------------------------------------------


def test_the_work_of_one_stream_holds_up_no_array_of_another(framework, latch, increment):
    """A collective on one stream may wait for another process, which waits for what this one does on the other."""
    held, free = framework.full(N, 1), framework.full(N, 2)
    stream = other_stream(framework)
    framework.order(stream, framework.current)
    hold(latch, framework, stream)
    with framework.using(stream):
        held.fill_(3)
        pending = [increment(ac.external(held)).on(ac.Device(0).stream()).submit() for _ in range(3)]
    increment(ac.external(free)).on(ac.Device(0).stream()).sync(60)
    assert not any(each.done() for each in pending)
    latch.release()
    for each in pending:
        each.sync(60)
    assert (host(ac.external(held)), host(ac.external(free))) == ([6] * N, [3] * N)


def test_importing_does_not_wait_for_who_reads(framework, latch, device):
    """Two readers of one weight, which each imports."""
    weight = framework.full(N, 5)
    held = device.stream()
    latch.hold(held)
    first = ac.dup(ac.external(weight)).on(held).submit()
    assert host(ac.external(weight)) == [5] * N
    assert not first.done()


def test_a_writer_waits_for_every_reader_that_imported(framework, latch, increment, settle, device):
    weight = framework.full(N, 5)
    held = device.stream()
    latch.hold(held)
    first = ac.dup(ac.external(weight)).on(held).submit()
    writing = increment(ac.external(weight)).on(device.stream()).submit()
    settle()
    assert not writing.done()
    latch.release()
    assert host(first.sync(60)) == [5] * N
    assert host(writing.sync(60)) == [6] * N


def test_an_earlier_import_is_behind_what_a_later_one_is_behind(framework, latch, increment, settle):
    tensor = framework.full(N, 5)
    earlier = ac.external(tensor)
    stream = other_stream(framework)
    framework.order(stream, framework.current)
    hold(latch, framework, stream)
    with framework.using(stream):
        tensor.fill_(7)
        later = ac.external(tensor)
    future = increment(earlier).on(ac.Device(0).stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    future.sync(60)
    assert host(later) == [8] * N


# --- lifetimes ------------------------------------------------------------------------------------------------------


def test_a_block_is_not_given_out_again_while_aiocuda_works_on_it(framework, latch, device, let_go):
    held = device.stream()
    latch.hold(held)
    tensor = framework.full(N, 5)
    address = tensor.address
    copied = ac.dup(ac.external(tensor)).on(held).submit()
    del tensor
    gc.collect()
    assert framework.full(N, 6).address != address
    latch.release()
    assert host(copied.sync(60)) == [5] * N
    assert let_go(lambda: address in framework._free[framework.current, N])


def test_many_tensors_at_one_address_have_nothing_to_do_with_one_another(framework, increment):
    """The allocator gives out the same bytes each time; neither rights nor values stay behind."""
    neighbour = ac.external(framework.full(N, 1))
    for turn in range(300):
        tensor = framework.full(N, turn)
        tensor.is_read_only = turn % 3 == 0
        x = ac.external(tensor)
        if turn % 3 == 0:
            with pytest.raises(ac.OwnershipError, match="read-only"):
                increment(x)
        else:
            y = ac.move(x) if turn % 3 == 1 else x
            assert host(increment(y)) == [turn + 1] * N
            del y
        del x, tensor
        ac.Device(0).synchronize().sync()
    assert framework.allocations < 10
    assert host(neighbour) == [1] * N


def test_memory_in_several_allocations_is_one(latch, increment, settle, device):
    """As PyTorch's expandable segments are: pieces of 2 MiB, mapped one behind another."""
    if device.is_emulated:
        pytest.skip("the emulated driver maps no memory")
    piece_bytes = 2 << 20
    ac.zeros(1).sync()
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    address = int(checked(driver.cuMemAddressReserve(2 * piece_bytes, 0, 0, 0)))
    pieces = [checked(driver.cuMemCreate(piece_bytes, wanted, 0)) for _ in range(2)]
    for i, piece in enumerate(pieces):
        checked(driver.cuMemMap(address + i * piece_bytes, piece_bytes, 0, piece, 0))
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    checked(driver.cuMemSetAccess(address, 2 * piece_bytes, [access], 1))

    def lent(begin: int, items: int) -> ac.DeviceArray:
        shown = {"shape": (items,), "typestr": "<i4", "data": (begin, False), "version": 3}
        return ac.external(types.SimpleNamespace(__cuda_array_interface__=shown))

    middle, second = lent(address + piece_bytes - 128, N), lent(address + piece_bytes, N)
    ac.fill(lent(address, piece_bytes // 2), 0).sync(60)
    held = device.stream()
    latch.hold(held)
    increment(middle).on(held).submit()
    waiting = increment(second).on(device.stream()).submit()
    settle()
    assert not waiting.done()
    latch.release()
    assert host(waiting.sync(60)) == [2] * (N // 2) + [1] * (N // 2)
    checked(driver.cuMemUnmap(address, 2 * piece_bytes))
    for piece in pieces:
        checked(driver.cuMemRelease(piece))


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_a_graph_of_tensors_takes_others_in_place_of_one_and_keeps_the_rest(framework, kernels):
    """All memory of others is one buffer, and each tensor still has a place of its own in a graph."""
    x, y, z = (ac.external(framework.full(N, value)) for value in (1, 2, 3))
    graph = kernels.accumulate(10, x, y, N, threads=N).graph(x=x)  # y = 3 y + 10 x
    assert host(graph.launch()) == [16] * N
    assert host(graph.launch(x=z)) == [78] * N
    outer = ac.zip(graph.launch(), kernels.increment(z, N, threads=N)).graph(z=z)
    outer.launch().sync(60)
    assert (host(y), host(z)) == ([244] * N, [4] * N)
    other = ac.external(framework.full(N, 7))
    outer.launch(z=other).sync(60)
    assert (host(y), host(z), host(other)) == ([742] * N, [4] * N, [8] * N)
