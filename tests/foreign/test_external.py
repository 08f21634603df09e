"""`external`: memory that other libraries own, ordered like aiocuda's own, and kept for as long as it is used."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac

N = 64


def checked(result: tuple[Any, ...]) -> Any:
    assert result[0] == driver.CUresult.CUDA_SUCCESS
    return result[1] if len(result) > 1 else None


class Allocation:
    """Memory of the driver's own. Freeing it waits for the device, so that comes after all latches are released."""

    def __init__(self, items: int) -> None:
        ac.zeros(1).sync()  # the device's context is current
        self.items = items
        self.address = int(checked(driver.cuMemAlloc(items * 4)))
        checked(driver.cuMemsetD32(self.address, 0, items))
        checked(driver.cuCtxSynchronize())  # the call does not wait for the fill, nor do other streams

    def close(self) -> None:
        checked(driver.cuMemFree(self.address))


class Lender:
    """A part of an allocation, as a library with the CUDA array interface shows it."""

    def __init__(
        self,
        memory: Any,
        shape: tuple[int, ...] = (N,),
        *,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        is_read_only: bool = False,
        stream: int | None = None,
        typestr: str = "<i4",
    ) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "data": (0 if memory is None else memory.address + offset * 4, is_read_only),
            "version": 3,
            "stream": stream,
        }


@pytest.fixture
def memory() -> Iterator[Allocation]:
    made = Allocation(4 * N)
    yield made
    made.close()


@pytest.fixture
def raw_stream() -> Iterator[Any]:
    """Give a stream that aiocuda does not know of."""
    ac.zeros(1).sync()
    stream = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    yield stream
    checked(driver.cuStreamSynchronize(stream))
    checked(driver.cuStreamDestroy(stream))


@pytest.fixture
def increment(kernels) -> Callable[..., ac.DeviceOp]:
    def make(x: Any, n: int | None = None) -> ac.DeviceOp:
        n = x.size if n is None else n
        return kernels.increment(x, n, threads=n)

    return make


def on_host(memory: Allocation, items: int = N, offset: int = 0) -> list[int]:
    """Return what is in memory now, without aiocuda."""
    found = np.zeros(items, np.int32)
    checked(driver.cuMemcpyDtoH(found.ctypes.data, memory.address + offset * 4, items * 4))
    return found.tolist()


def test_it_is_the_same_memory(memory, increment):
    x = ac.external(Lender(memory, (8, 8)))
    assert (x.shape, x.dtype, x.device.ordinal, x.address) == ((8, 8), np.int32, 0, memory.address)
    assert x.is_contiguous
    increment(increment(x), N).sync(60)
    assert on_host(memory) == [2] * N
    assert on_host(memory, N, N) == [0] * N
    np.testing.assert_array_equal(ac.to_host(x).sync(60), np.full((8, 8), 2))


def test_an_array_of_aiocudas_own_is_given_back_as_it_is():
    x = ac.zeros(N, np.int32).sync()
    assert ac.external(x) is x


def test_strided_memory_is_a_strided_array(memory):
    whole = ac.external(Lender(memory, (N,)))
    ac.copy(whole, np.arange(N, dtype=np.int32)).sync(60)
    x = ac.external(Lender(memory, (4, 8), strides=(64, 8)))
    assert (x.strides, x.is_contiguous) == ((64, 8), False)
    expected = np.arange(N).reshape(4, 16)[:, ::2]
    np.testing.assert_array_equal(ac.to_host(x).sync(60), expected)
    ac.copy(x, ac.zeros((4, 8), np.int32)).sync(60)
    assert on_host(memory)[:6] == [0, 1, 0, 3, 0, 5]


def test_strides_of_contiguous_memory_are_none_to_speak_of(memory):
    x = ac.external(Lender(memory, (4, 1, 8), strides=(32, 99 * 4, 4)))
    assert x.is_contiguous
    assert x.reshape(32).shape == (32,)


def test_memory_of_no_items():
    x = ac.external(Lender(None, (0, 3)))
    assert (x.shape, x.size, x.nbytes) == ((0, 3), 0, 0)
    assert ac.to_host(x).sync(60).shape == (0, 3)
    assert ac.dup(x).sync(60).shape == (0, 3)


@pytest.mark.parametrize("strides", [None, (400, 4), (4, 400)])
@pytest.mark.parametrize("is_null", [True, False])
def test_an_empty_part_of_memory(memory, strides, is_null):
    """Whatever its strides, it reaches nowhere."""
    x = ac.external(Lender(None if is_null else memory, (0, 3), offset=N - 1, strides=strides))
    assert (x.shape, x.size) == ((0, 3), 0)
    assert ac.to_host(x).sync(60).shape == (0, 3)


def test_memory_beyond_its_allocation_is_refused(memory):
    with pytest.raises(ac.ArgumentValueError, match=r"reaches beyond the \d+ bytes of its allocation"):
        ac.external(Lender(memory, (1 << 28,)))


def test_an_array_without_axes(memory):
    x = ac.external(Lender(memory, ()))
    assert ac.to_host(x).sync(60) == 0


@pytest.mark.parametrize(
    ("typestr", "dtype"), [("<f8", "float64"), ("<f2", "float16"), ("|u1", "uint8"), ("|b1", "bool")]
)
def test_dtypes(memory, typestr, dtype):
    assert ac.external(Lender(memory, (4,), typestr=typestr)).dtype == dtype


# --- ordering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [True, False])
def test_it_is_ordered_behind_the_stream_that_its_owner_names(
    memory, raw_stream, latch, increment, settle, device, writes
):
    """Their fill is held on their stream; whatever aiocuda does with the memory comes after it."""
    gate = device.stream()
    latch.hold(gate)
    event = checked(driver.cuEventCreate(0))
    checked(driver.cuEventRecord(event, gate.handle))
    checked(driver.cuStreamWaitEvent(raw_stream, event, 0))
    checked(driver.cuMemsetD32Async(memory.address, 5, N, raw_stream))
    x = ac.external(Lender(memory, stream=int(raw_stream)))
    future = (increment(x) if writes else ac.dup(x)).on(device.stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    assert ac.to_host(future.sync(60)).sync(60).tolist() == [6 if writes else 5] * N
    assert on_host(memory) == [6 if writes else 5] * N
    checked(driver.cuEventDestroy(event))


def test_it_waits_for_nobody_where_its_owner_names_no_stream(memory, latch, increment, device):
    latch.hold(device.stream())
    increment(ac.external(Lender(memory))).on(device.stream()).sync(60)
    assert latch.is_holding


def test_two_that_overlap_are_ordered_and_two_that_do_not_are_not(memory, latch, increment, settle, device):
    left = ac.external(Lender(memory, (N,)))
    middle = ac.external(Lender(memory, (N,), offset=N // 2))
    right = ac.external(Lender(memory, (N,), offset=N + N // 2))
    held = device.stream()
    latch.hold(held)
    increment(left).on(held).submit()
    increment(right).on(device.stream()).sync(60)
    waiting = increment(middle).on(device.stream()).submit()
    settle()
    assert not waiting.done()
    latch.release()
    waiting.sync(60)
    assert on_host(memory, N) == [1] * (N // 2) + [2] * (N // 2)


def test_an_array_taken_again_is_ordered_behind_the_first(memory, latch, increment, settle, device):
    held = device.stream()
    latch.hold(held)
    increment(ac.external(Lender(memory))).on(held).submit()
    gc.collect()
    again = increment(ac.external(Lender(memory))).on(device.stream()).submit()
    settle()
    assert not again.done()
    latch.release()
    again.sync(60)
    assert on_host(memory) == [2] * N


def test_columns_of_one_allocation_are_disjoint(memory, latch, device):
    odd = ac.external(Lender(memory, (N // 2,), strides=(8,), offset=1))
    even = ac.external(Lender(memory, (N // 2,), strides=(8,)))
    ones = ac.ones(N // 2, np.int32).sync()
    held = device.stream()
    latch.hold(held)
    future = ac.copy(even, ones).on(held).submit()
    ac.copy(odd, ones).on(device.stream()).sync(60)
    assert not future.done()


def test_a_part_of_aiocudas_own_memory_is_ordered_with_it(latch, increment, settle, device):
    """An array goes out to another library, and comes back as that one's."""
    x = ac.zeros(N, np.int32).sync()
    held = device.stream()
    latch.hold(held)
    increment(x).on(held).submit()
    back = ac.external(Lender(x, (N // 2,), offset=N // 2))
    future = increment(back).on(device.stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    future.sync(60)
    assert ac.to_host(x).sync(60).tolist() == [1] * (N // 2) + [2] * (N // 2)


# --- lifetime -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [True, False])
def test_the_owner_is_kept_until_the_device_has_passed_the_work(memory, latch, increment, device, let_go, writes):
    owner = Lender(memory)
    seen = weakref.ref(owner)
    held = device.stream()
    latch.hold(held)
    use = increment if writes else ac.dup
    use(ac.external(owner)).on(held).submit()
    del owner
    gc.collect()
    assert seen() is not None
    latch.close()
    assert let_go(lambda: seen() is None)
    assert on_host(memory) == [int(writes)] * N


def test_the_owner_is_kept_by_views_and_let_go_when_nobody_uses_it(memory, let_go):
    owner = Lender(memory)
    seen = weakref.ref(owner)
    view = ac.external(owner)[3:5]
    del owner
    gc.collect()
    assert seen() is not None
    assert ac.to_host(view).sync(60).tolist() == [0, 0]
    del view
    assert let_go(lambda: seen() is None)


def test_closing_it_ends_its_use_and_lets_the_owner_go(memory, increment, let_go):
    owner = Lender(memory)
    seen = weakref.ref(owner)
    x = ac.external(owner)
    x.close()
    del owner
    assert let_go(lambda: seen() is None)
    with pytest.raises(ac.ClosedError, match=r"increment: argument 1 \(x\): the array of .* was closed at"):
        increment(x)


@pytest.mark.parametrize("end", ["move", "unpartition"])
def test_a_handle_whose_use_has_ended_keeps_no_owner(memory, let_go, end):
    owner = Lender(memory)
    seen = weakref.ref(owner)
    x = ac.external(owner)
    ended = x if end == "move" else x.partition(N)
    y = ac.move(x) if end == "move" else ended.unpartition()
    del owner, x
    gc.collect()
    assert seen() is not None
    del y
    assert let_go(lambda: seen() is None)
    assert ended.is_closed


def share(x: ac.DeviceArray) -> ac.DeviceArray:
    return x.share()


@pytest.mark.parametrize("right", [ac.move, share, None], ids=["moved", "shared", "read-only"])
def test_rights_end_with_the_loan_that_they_were_taken_in(memory, increment, right):
    """As with a caching allocator, which gives the bytes of a tensor that is gone to the next one."""
    neighbour = ac.external(Lender(memory, offset=N))  # of the same allocation, all the time
    x = ac.external(Lender(memory, is_read_only=right is None))
    y = x if right is None else right(x)
    view = x[:0] if right is None else y[3:5]
    other = ac.external(Lender(memory))
    del x, y
    with pytest.raises(ac.OwnershipError, match=r"read-only|was moved|was shared"):
        increment(other)
    del view, other
    again = ac.external(Lender(memory))
    assert ac.to_host(increment(again)).sync(60).tolist() == [1] * N
    assert ac.to_host(neighbour).sync(60).tolist() == [0] * N


def test_rights_do_not_go_over_to_the_next_loan_while_the_device_works(memory, increment, latch, device):
    x = ac.external(Lender(memory))
    y = ac.move(x)
    held = device.stream()
    latch.hold(held)
    increment(y).on(held).submit()
    del x, y
    future = increment(ac.external(Lender(memory))).submit()
    assert not future.done()
    latch.release()
    assert ac.to_host(future.sync(60)).sync(60).tolist() == [2] * N


def test_external_memory_is_none_of_the_devices_used_bytes(memory, used_bytes):
    before = used_bytes()
    x = ac.external(Lender(memory))
    assert used_bytes() == before
    del x
    assert used_bytes() == before


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_what_is_lent_for_reading_is_not_written(memory, increment, kernels):
    x = ac.external(Lender(memory, is_read_only=True))
    for write in (
        lambda: increment(x).sync(60),
        lambda: increment(x[3:5]).sync(60),
        lambda: ac.copy(x, np.zeros(N, np.int32)).sync(60),
        lambda: ac.call(lambda stream: None, writes=[x]).sync(60),
        lambda: x.partition(8),
    ):
        with pytest.raises(ac.OwnershipError, match="read-only"):
            write()
    x = ac.move(x)  # who gets it may not write it either
    with pytest.raises(ac.OwnershipError, match="read-only"):
        increment(x)
    assert ac.to_host(x).sync(60).tolist() == [0] * N
    assert ac.to_host(increment(ac.dup(x).sync(60))).sync(60).tolist() == [1] * N
    kernels.look(x, grid=1, block=1).sync(60)


def test_host_memory_is_refused_and_says_what_to_do():
    with pytest.raises(ac.ArgumentTypeError, match=r"host memory.*to_device\(\)"):
        ac.external(np.zeros(3))


@pytest.mark.parametrize("what", [None, 3, "text", [1, 2], object()])
def test_what_has_no_protocol_is_refused(what):
    with pytest.raises(ac.ArgumentTypeError, match="__dlpack__ or __cuda_array_interface__"):
        ac.external(what)


def test_a_dtype_that_kernels_cannot_have_is_refused(memory):
    with pytest.raises(ac.ArgumentTypeError, match="Python objects"):
        ac.external(Lender(memory, (4,), typestr="|O"))


def test_negative_strides_are_refused(memory):
    with pytest.raises(ac.ArgumentValueError, match="strides of"):
        ac.external(Lender(memory, (4,), strides=(-4,), offset=8))
