"""DLPack's exchange in C: the table that classes of arrays have, called as other libraries call it."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.bindings import driver
from exchange_table import Api, Pointer, SetError, table_of
from framework import (
    CUDA,
    CUDA_HOST,
    LEGACY,
    MANAGED,
    READ_ONLY,
    DataType,
    Deleter,
    Device,
    DLTensor,
    Framework,
    Tensor,
    Versioned,
    checked,
)

import aiocuda as ac

N = 64
CPU = 1

api = table_of(ac.DeviceArray)


def lend(x: Any) -> Versioned:
    out = Pointer()
    assert api.from_object(x, ctypes.byref(out)) == 0
    return out.contents


def end(lent: Versioned) -> None:
    lent.deleter(ctypes.addressof(lent))


def work_stream(kind: int = CUDA, ordinal: int = 0) -> int | None:
    out = ctypes.c_void_p(77)
    assert api.current_work_stream(kind, ordinal, ctypes.byref(out)) == 0
    return out.value


def shape_of(lent: Versioned) -> list[int]:
    return [lent.tensor.shape[axis] for axis in range(lent.tensor.ndim)]


def full(value: int) -> ac.DeviceArray:
    return ac.full(N, value, np.int32).sync(60)


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    gc.collect()
    ac.Device(0).synchronize().sync()
    made.close()


def borrow(framework: Framework, x: Any) -> Tensor:
    """Have the framework borrow on the work stream, as the protocol has it."""
    lent = lend(x)
    tensor = Tensor(framework, lent.tensor.data, N)
    tensor.lent = lent
    return tensor


_taken: list[Given] = []  # whose function for the end is called whenever the last of what was taken is gone


class Given:
    """A tensor of somebody else's, and how often it was given back."""

    def __init__(self, address: int, shape: tuple[int, ...], **other: Any) -> None:
        self.ends = 0
        strides = other.get("strides")
        self._extents = (ctypes.c_int64 * len(shape))(*shape)
        self._steps = (ctypes.c_int64 * len(shape))(*(strides or ()))
        self._end = Deleter(self._count)
        self.lent = Versioned(other.get("major", 1), 3, None, self._end, other.get("flags", 0))
        self.lent.tensor = DLTensor(
            address - other.get("offset", 0),
            Device(other.get("kind", CUDA), 0),
            len(shape),
            DataType(*other.get("type", (0, 32, 1))),
            self._extents,
            self._steps if strides else None,
            other.get("offset", 0),
        )

    def _count(self, _: int) -> None:
        self.ends += 1

    def take(self) -> Any:
        _taken.append(self)
        out = ctypes.py_object()
        assert api.to_object(ctypes.byref(self.lent), ctypes.byref(out)) == 0
        taken = out.value
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(taken))  # ctypes has taken one of its own
        return taken


# --- the table ------------------------------------------------------------------------------------------------------


def test_both_classes_of_arrays_have_the_table():
    for kind in (ac.DeviceArray, ac.HostArray):
        table = table_of(kind)
        assert (table.major, table.minor, table.previous) == (1, 3, None)
        assert ctypes.addressof(table) == ctypes.addressof(api)
        assert not table.view_of_object  # it could not be ordered


def test_an_operation_has_none_and_says_what_to_do():
    op = ac.zeros(3)
    assert not hasattr(type(op), "__dlpack_c_exchange_api__")
    with pytest.raises(ac.MissingAttributeError, match="await op"):
        _ = op.__dlpack_c_exchange_api__


# --- what is lent ---------------------------------------------------------------------------------------------------


def test_views_are_lent_as_they_lie():
    x = ac.arange(24, dtype="int32").sync().reshape(4, 6)
    lent = lend(x[1:3, ::2])
    tensor = lent.tensor
    assert (tensor.data, tensor.byte_offset) == (x.address + 24, 0)
    assert (tensor.device.type, tensor.device.id) == (CUDA, 0)
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (0, 32, 1)
    assert (shape_of(lent), [tensor.strides[axis] for axis in range(2)]) == ([2, 3], [6, 2])
    assert (lent.major, lent.minor, lent.flags) == (1, 3, 0)
    end(lent)


def test_dense_arrays_have_strides_too_and_scalars_none():
    x = ac.zeros((4, 6), np.float64).sync()
    dense, scalar, empty = lend(x), lend(x[0, 0]), lend(x[4:])
    assert [dense.tensor.strides[axis] for axis in range(2)] == [6, 1]
    assert (scalar.tensor.ndim, bool(scalar.tensor.shape)) == (0, False)
    assert (empty.tensor.data, shape_of(empty)) == (None, [0, 6])
    for lent in (dense, scalar, empty):
        end(lent)


@pytest.mark.parametrize(
    ("dtype", "code", "bits"), [(ml_dtypes.bfloat16, 4, 16), ("bool", 6, 8), ("complex128", 5, 128)]
)
def test_dtypes(dtype, code, bits):
    x = ac.empty(3, dtype).sync()
    lent = lend(x)
    assert (lent.tensor.dtype.code, lent.tensor.dtype.bits) == (code, bits)
    back = Given(x.address, (3,), type=(code, bits, 1)).take()
    assert back.dtype == x.dtype
    end(lent)


def test_a_shared_array_is_lent_for_reading_and_stays_shared():
    x = full(3)
    other = x.share()
    lent = lend(x)
    assert lent.flags == READ_ONLY
    other.close()
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        x.unwrap()
    end(lent)
    assert lend(x.unwrap()).flags == 0


def test_managed_memory_is_the_devices():
    try:
        x = ac.zeros(N, np.int32, managed=True).sync()
    except ac.AiocudaError as error:
        pytest.skip(str(error))
    lent = lend(x)
    assert (lent.tensor.device.type, lent.tensor.data) == (CUDA, x.address)
    end(lent)


def test_page_locked_memory_is_the_hosts_when_the_device_is_done_with_it(latch, device):
    x, y, stream = ac.empty_host(N, np.int32).sync(), full(3), device.stream()
    latch.hold(stream)
    future = ac.copy(x, y).on(stream).submit()
    with pytest.raises(ac.ExchangeError, match="await that first"):
        lend(x)
    latch.release()
    future.sync(60)
    lent = lend(x)
    assert (lent.tensor.device.type, lent.tensor.data) == (CPU, x.address)
    end(lent)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "moved", "partitioned"])
def test_an_array_that_may_not_be_used_is_not_lent(how):
    x = full(3)
    kept = x.partition(8) if how == "partitioned" else ac.move(x) if how == "moved" else x.close()
    with pytest.raises(ac.OwnershipError, match=how) as caught:
        lend(x)
    assert isinstance(caught.value, ac.ClosedError) == (how == "closed")
    del kept


def test_what_dlpack_cannot_say_is_a_buffer_error():
    with pytest.raises(ac.ExchangeError, match="DLPack has no dtype"):
        lend(ac.empty(3, ml_dtypes.int4).sync())
    with pytest.raises(ac.ExchangeError, match=r"counts strides in items, and \(6, 1\) bytes|no multiples"):
        lend(ac.zeros(30, "uint8").sync().reshape(5, 6)[:, :4].view("float32"))


@pytest.mark.parametrize("name", ["operation", "partition", "number", "class"])
def test_other_objects_are_refused(name):
    x = full(3)
    other = {"operation": ac.zeros(3), "number": 3, "class": ac.DeviceArray, "partition": x.partition(8)}[name]
    out = Pointer()
    with pytest.raises(ac.ArgumentTypeError, match="lends DeviceArray and HostArray, and no"):
        api.from_object(other, ctypes.byref(out))
    assert not out


def test_a_null_pointer_is_refused():
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Pointer))
    from_address = kind.from_address(ctypes.addressof(api) + Api.from_object.offset)
    with pytest.raises(ac.ArgumentTypeError, match="no null pointer"):
        from_address(None, ctypes.byref(Pointer()))


def test_the_default_stream_borrows_nothing_beside_a_capture_of_a_blocking_stream(framework):
    x = full(1)
    with framework.device_current():
        stream = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_DEFAULT))
        checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        with pytest.raises(ac.CaptureError, match="is being captured"):
            lend(x)
        checked(driver.cuGraphDestroy(checked(driver.cuStreamEndCapture(stream))))
        checked(driver.cuStreamDestroy(stream))


def test_a_forked_process_is_refused(in_process):
    ended = in_process(
        """
        import ctypes, os, sys
        import aiocuda as ac
        x = ac.ones(8).sync()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = pointer(ac.DeviceArray.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
        from_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p).from_address(table + 24)
        out = ctypes.c_void_p()
        if os.fork() == 0:
            try:
                from_object(x, ctypes.addressof(out))
            except ac.AiocudaError as error:
                print("fork" in str(error), out.value, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert ended.stdout == "True None\n"


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_work_stream_is_the_default_one_and_the_host_has_none():
    assert [work_stream(kind) for kind in (CUDA, MANAGED, CPU, CUDA_HOST)] == [LEGACY, LEGACY, None, None]
    with pytest.raises(ac.ExchangeError, match="DLPack's kind 7"):
        work_stream(7)


def test_the_work_stream_comes_after_the_work_on_the_array(framework, latch, kernels, device):
    x, stream = full(1), device.stream()
    latch.hold(stream)
    kernels.increment(x, N, threads=N).on(stream).submit()
    with framework.device_current(), framework.using(LEGACY):
        tensor = borrow(framework, x)
        copy = framework.full(N, 0).copy_(tensor)
        assert latch.is_holding  # nobody has waited
        latch.release()
        assert copy.tolist() == [2] * N


def test_who_only_reads_does_not_wait_for_readers(latch, device):
    x, stream = full(1), device.stream()
    x.share()
    latch.hold(stream)
    ac.dup(x).on(stream).submit()
    lent = lend(x)
    assert driver.cuStreamQuery(LEGACY)[0] == driver.CUresult.CUDA_SUCCESS
    assert latch.is_holding
    end(lent)


@pytest.mark.parametrize("is_over", [True, False], ids=["an ended borrow", "a borrow that lives"])
def test_later_uses_come_after_what_the_borrower_enqueued(framework, latch, kernels, device, settle, is_over):
    x, gate, other = full(1), device.stream(), device.stream()
    latch.hold(gate)
    with framework.device_current(), framework.using(LEGACY):
        tensor = borrow(framework, x)
        framework.order(LEGACY, gate.handle)
        tensor.fill_(5)
        if is_over:
            del tensor
    future = kernels.increment(x, N, threads=N).on(other).submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [6] * N


def test_a_function_of_call_borrows_on_its_operations_stream(framework, latch, kernels, device):
    x, stream, seen = full(1), device.stream(), []

    def fill(stream: ac.Stream, array: ac.DeviceArray) -> None:
        seen.append(work_stream())
        tensor = borrow(framework, array)
        with framework.using(seen[-1]):
            tensor.fill_(5)
        assert driver.cuStreamQuery(LEGACY)[0] == driver.CUresult.CUDA_SUCCESS  # it has nothing to wait for
        seen.append(stream.handle)

    latch.hold(stream)
    written = ac.call(fill, kernels.increment(x, N, threads=N), writes=[x]).on(stream).submit()
    assert latch.is_holding
    assert seen == [stream.handle] * 2
    assert work_stream() == LEGACY
    latch.release()
    assert host(kernels.increment(written.sync(60), N, threads=N)) == [6] * N


def test_a_function_of_call_is_captured_with_what_it_borrows(framework, kernels):
    x = full(1)

    def fill(stream: ac.Stream, array: ac.DeviceArray) -> None:
        assert work_stream() == stream.handle
        with framework.using(stream.handle):
            borrow(framework, array).fill_(5)

    graph = ac.call(fill, x, writes=[x]).graph()
    kernels.increment(x, N, threads=N).sync()
    assert host(x) == [2] * N
    graph.launch().sync(60)
    assert host(x) == [5] * N


@pytest.mark.needs_devices(2)
def test_the_work_stream_of_another_device_is_the_default_one():
    x, seen = full(1), []
    ac.call(lambda stream, _: seen.append((work_stream(ordinal=1), work_stream())), x, reads=[x]).sync(60)
    assert seen[0][0] == LEGACY != seen[0][1]


# --- lifetimes ------------------------------------------------------------------------------------------------------


def test_the_memory_outlives_the_array_until_it_is_given_back(used_bytes, let_go):
    gc.collect()
    before = used_bytes()
    x = ac.zeros(1 << 16, np.uint8).sync(60)
    lent = lend(x)
    x.close()
    del x
    assert used_bytes() >= before + (1 << 16)
    thread = threading.Thread(target=end, args=(lent,))  # which calls it without the GIL
    thread.start()
    thread.join()
    assert let_go(lambda: used_bytes() <= before)


# --- tensors that others give ---------------------------------------------------------------------------------------


def test_a_tensor_becomes_an_array_over_its_memory_until_nobody_has_that(let_go):
    x = ac.arange(24, dtype="int32").sync()
    given = Given(x.address + 4, (2, 3), strides=(6, 2), offset=4)
    array = given.take()
    assert type(array) is ac.DeviceArray
    assert (array.address, array.shape, array.strides) == (x.address + 4, (2, 3), (24, 8))
    assert host(array) == [[1, 3, 5], [7, 9, 11]]
    view = array[0]
    del array
    assert given.ends == 0
    del view
    assert let_go(lambda: given.ends == 1)


def test_a_tensor_for_reading_becomes_an_array_for_reading():
    x = full(1)
    array = Given(x.address, (N,), flags=READ_ONLY).take()
    with pytest.raises(ac.OwnershipError, match="lends it for reading"):
        ac.fill(array, 3).sync()


def test_an_array_comes_after_the_work_stream(framework, latch, device, settle):
    memory, gate, other = framework.full(N, 1), device.stream(), device.stream()
    checked(driver.cuStreamSynchronize(framework.current))
    latch.hold(gate)
    with framework.device_current(), framework.using(LEGACY):
        framework.order(LEGACY, gate.handle)
        memory.fill_(5)
    future = ac.to_host(Given(memory.address, (N,)).take()).on(other).submit()
    settle()
    assert not future.done()
    latch.release()
    assert future.sync(60).tolist() == [5] * N


def test_a_function_of_call_returns_a_tensor_that_it_has_written(framework, latch, device, settle):
    memory, stream, other = framework.full(N, 1), device.stream(), device.stream()
    checked(driver.cuStreamSynchronize(framework.current))

    def fill(stream: ac.Stream) -> Any:
        array = Given(memory.address, (N,)).take()
        with framework.using(stream.handle):
            memory.fill_(5)
        return array

    latch.hold(stream)
    op = ac.call(fill).on(stream)
    future = ac.to_host(op).on(other).submit()
    settle()
    assert not future.done()
    latch.release()
    assert future.sync(60).tolist() == [5] * N


@pytest.mark.parametrize(
    ("other", "error", "match"),
    [
        ({"kind": CPU}, ac.ArgumentTypeError, "to_device"),
        ({"type": (0, 4, 1)}, ac.ArgumentTypeError, "no dtype"),
        ({"type": (2, 32, 4)}, ac.ArgumentTypeError, "4 lanes"),
        ({"type": (3, 64, 1)}, ac.ArgumentTypeError, "no dtype"),
        ({"strides": (-1,)}, ac.ArgumentValueError, "strides of"),
        ({"major": 2}, ac.ExchangeError, r"DLPack 2\.3"),
    ],
)
def test_a_tensor_that_is_refused_stays_its_owners(other, error, match):
    x = full(1)
    given = Given(x.address, (N,), **other)
    with pytest.raises(error, match=match):
        given.take()
    gc.collect()
    assert given.ends == 0


# --- memory that others ask for -------------------------------------------------------------------------------------


def allocate(shape: tuple[int, ...], *, kind: int = CUDA, items: tuple[int, int, int] = (0, 32, 1)) -> Any:
    """Ask for memory, without the GIL; return it, or the error that was told."""
    told: list[tuple[str, str]] = []
    out = Pointer()
    like = DLTensor(None, Device(kind, 0), len(shape), DataType(*items), (ctypes.c_int64 * len(shape))(*shape), None, 0)
    set_error = SetError(lambda _, name, message: told.append((name.decode(), message.decode())))
    result = api.allocate(ctypes.byref(like), ctypes.byref(out), None, set_error)
    assert (result == 0, bool(out)) == (not told, not told)
    return told[0] if told else out.contents


def test_memory_is_made_for_others_until_they_give_it_back(framework, used_bytes, let_go):
    gc.collect()
    before = used_bytes()
    lent = allocate((2, N // 2))
    assert (shape_of(lent), lent.tensor.device.type, lent.flags) == ([2, N // 2], CUDA, 0)
    assert used_bytes() > before
    with framework.device_current(), framework.using(LEGACY):
        assert Tensor(framework, lent.tensor.data, N).fill_(5).tolist() == [5] * N
    end(lent)
    assert let_go(lambda: used_bytes() <= before)


def test_memory_of_the_host_is_made_for_others():
    lent = allocate((N,), kind=CPU)
    assert lent.tensor.device.type == CPU
    ctypes.memset(lent.tensor.data, 1, 4 * N)
    end(lent)


def test_what_cannot_be_made_is_told():
    assert allocate((3,), kind=7) == (
        "ExchangeError",
        "memory of a device of DLPack's kind 7 was asked of aiocuda, which has that of CUDA devices, and the host's",
    )
    name, message = allocate((3,), items=(0, 4, 1))
    assert (name, "4 bits" in message) == ("ArgumentTypeError", True)


def test_a_function_of_call_gets_memory_but_not_for_a_graph(framework):
    x, found = full(1), []

    def work(stream: ac.Stream, array: ac.DeviceArray) -> None:
        found.append(allocate((N,)))
        if isinstance(found[-1], Versioned):
            with framework.using(stream.handle):
                Tensor(framework, array.address, N).copy_(Tensor(framework, found[-1].tensor.data, N).fill_(5))
            end(found[-1])

    op: Callable[[], Any] = lambda: ac.call(work, x, writes=[x])  # noqa: E731
    assert host(op()) == [5] * N
    op().graph()
    assert found[1][0] == "CaptureError"
