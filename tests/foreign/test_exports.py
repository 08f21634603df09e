"""Arrays that other libraries borrow: what is ordered after what, how long memory lives, and what is refused."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.bindings import driver
from framework import CUDA, CUDA_HOST, LEGACY, MANAGED, PER_THREAD, Framework, Managed, Tensor, Versioned, checked

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
def increment(kernels) -> Callable[[Any], ac.DeviceOp]:
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def held(framework, latch) -> int:
    """Give a stream of the framework's that is at a standstill until the latch is released."""
    gate = ac.Device(0).stream()
    latch.hold(gate)
    with framework.device_current():
        stream = framework.stream()
    framework.order(stream, gate.handle)
    return stream


def full(value: int) -> ac.DeviceArray:
    return ac.full(N, value, np.int32).sync()


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


# --- what is lent ---------------------------------------------------------------------------------------------------


def test_it_is_the_same_memory(framework):
    x = full(3)
    tensor = framework.from_dlpack(x)
    assert (tensor.address, tensor.items, tensor.is_read_only) == (x.address, N, False)
    assert isinstance(tensor.lent, Versioned)
    assert tensor.tolist() == [3] * N


def test_views_are_lent_as_they_lie(framework):
    x = ac.arange(24, dtype="int32").sync().reshape(4, 6)
    described = framework.from_dlpack(x[1:3, ::2]).lent.tensor
    assert described.data == x.address + 6 * 4
    assert [described.shape[axis] for axis in range(2)] == [2, 3]
    assert [described.strides[axis] for axis in range(2)] == [6, 2]
    scalar = framework.from_dlpack(x[0, 0]).lent.tensor
    assert scalar.ndim == 0
    assert not scalar.shape
    assert not scalar.strides


def test_an_array_without_items_is_lent(framework):
    tensor = framework.from_dlpack(ac.zeros((0, 3)).sync())
    assert (tensor.address, tensor.items) == (0, 0)


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [
        ("int8", 0, 8),
        ("uint64", 1, 64),
        ("float16", 2, 16),
        ("float64", 2, 64),
        ("complex64", 5, 64),
        ("bool", 6, 8),
        (ml_dtypes.bfloat16, 4, 16),
        (ml_dtypes.float8_e4m3fn, 10, 8),
        (ml_dtypes.float8_e5m2, 12, 8),
    ],
)
def test_dtypes(framework, dtype, code, bits):
    found = framework.from_dlpack(ac.empty(3, dtype).sync()).lent.tensor.dtype
    assert (found.code, found.bits, found.lanes) == (code, bits, 1)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, [("a", "i4"), ("b", "f4")], "S4"])
def test_a_dtype_that_dlpack_does_not_have_is_refused(dtype):
    x = ac.empty(3, np.dtype(dtype)).sync()
    with pytest.raises(ac.ExchangeError, match=r"DLPack has no dtype .*view"):
        x.__dlpack__(max_version=(1, 0))


def test_strides_that_are_no_whole_items_are_refused():
    x = ac.zeros(30, "uint8").sync().reshape(5, 6)[:, :4].view("float32")
    with pytest.raises(ac.ExchangeError, match="counts strides in items"):
        x.__dlpack__(max_version=(1, 0))


def test_the_strided_view_of_cuda_core_takes_it_and_gives_it_back(framework):
    from cuda.core.utils import StridedMemoryView

    x = ac.arange(12, dtype="float32").sync().reshape(3, 4)
    for view in (
        StridedMemoryView.from_dlpack(x, framework.current),
        StridedMemoryView.from_cuda_array_interface(x, framework.current),
    ):
        assert (view.ptr, view.shape, view.device_id, view.readonly) == (x.address, (3, 4), 0, False)
        assert np.dtype(view.dtype) == np.float32
    back = ac.external(StridedMemoryView.from_dlpack(x[1:], framework.current).exporting_obj)
    assert back.address == x[1:].address


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 2), (1, 3), (2, 7)])
def test_each_version_gets_what_it_knows(framework, version):
    tensor = framework.from_dlpack(full(3), max_version=version)
    if version in (None, (0, 8)):
        assert isinstance(tensor.lent, Managed)
    else:
        assert (tensor.lent.major, tensor.lent.minor) == min(version, (1, 3))
    assert tensor.tolist() == [3] * N


# --- rights ---------------------------------------------------------------------------------------------------------


def test_a_shared_array_is_lent_for_reading_and_stays_shared(framework, increment):
    x = full(3)
    other = x.share()
    tensor = framework.from_dlpack(x)
    assert tensor.is_read_only
    other.close()
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        x.unwrap()
    assert tensor.tolist() == [3] * N
    del tensor
    assert host(increment(x.unwrap())) == [4] * N


def test_who_does_not_know_of_reading_gets_no_shared_array():
    x = full(3)
    x.share()
    for version in (None, (0, 8)):
        with pytest.raises(ac.ExchangeError, match="shared or read-only") as caught:
            x.__dlpack__(max_version=version)
        assert isinstance(caught.value, BufferError)
        assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("end", ["closed", "moved", "partitioned"])
def test_an_array_that_may_not_be_used_is_not_lent(end):
    x = full(3)
    kept = x.partition(8) if end == "partitioned" else ac.move(x) if end == "moved" else x.close()
    for lend in (lambda: x.__dlpack__(max_version=(1, 0)), lambda: x.__cuda_array_interface__):
        with pytest.raises(ac.OwnershipError, match=end):
            lend()
    del kept


def test_memory_that_others_lend_for_reading_is_lent_on_for_reading(framework):
    tensor = framework.full(N, 3)
    tensor.is_read_only = True
    again = framework.from_dlpack(ac.external(tensor))
    assert (again.address, again.is_read_only) == (tensor.address, True)


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_borrower_comes_after_the_work_on_the_array(framework, latch, increment, device):
    x = full(1)
    stream = device.stream()
    latch.hold(stream)
    increment(x).on(stream).submit()
    tensor = framework.from_dlpack(x)
    copy = framework.full(N, 0).copy_(tensor)
    latch.release()
    assert copy.tolist() == [2] * N


def test_a_borrower_who_may_write_comes_after_the_readers(framework, latch, device):
    x = full(1)
    stream = device.stream()
    latch.hold(stream)
    reading = ac.dup(x).on(stream).submit()
    tensor = framework.from_dlpack(x).fill_(5)
    latch.release()
    assert host(reading.sync(60)) == [1] * N
    assert tensor.tolist() == [5] * N


def test_a_borrower_who_only_reads_does_not_wait_for_readers(framework, latch, device):
    x = full(1)
    x.share()
    stream = device.stream()
    latch.hold(stream)
    ac.dup(x).on(stream).submit()
    assert framework.from_dlpack(x).tolist() == [1] * N
    assert latch.is_holding


@pytest.mark.parametrize("writes", [True, False])
def test_while_a_borrow_lives_each_use_comes_after_what_the_borrower_enqueued(
    framework, held, latch, increment, settle, writes
):
    x = full(1)
    with framework.using(held):
        tensor = framework.from_dlpack(x)
        tensor.fill_(5).fill_(7)
        future = (increment(x) if writes else ac.dup(x)).on(ac.Device(0).stream()).submit()
        settle()
        assert not future.done()
        latch.release()
        assert host(future.sync(60)) == [8 if writes else 7] * N
        tensor.fill_(3)
        assert host(x) == [3] * N


def test_parts_that_nobody_has_borrowed_do_not_wait(framework, held, latch, kernels):
    x = ac.zeros(2 * N, np.int32).sync()
    with framework.using(held):
        framework.from_dlpack(x[:N]).fill_(5)
        borrowed = framework.from_dlpack(x[:N])
    kernels.increment(x[N:], N, threads=N).on(ac.Device(0).stream()).sync(60)
    assert latch.is_holding
    del borrowed


def test_readers_do_not_wait_for_a_borrower_who_only_reads(framework, held, latch, increment, settle):
    x = full(1)
    other = x.share()
    with framework.using(held):
        tensor = framework.from_dlpack(x)
        copy = framework.full(N, 0).copy_(tensor)
    assert host(x) == [1] * N
    del tensor
    other.close()
    future = increment(x.unwrap()).on(ac.Device(0).stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [2] * N
    assert copy.tolist() == [1] * N


def test_after_a_borrow_the_next_use_still_comes_after_the_borrower(framework, held, latch, increment, settle):
    x = full(1)
    with framework.using(held):
        framework.from_dlpack(x).fill_(5)  # and gives it back at once
    future = increment(x).on(ac.Device(0).stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [6] * N


def test_the_end_of_a_borrow_for_reading_leaves_other_readers_in_order(framework, latch, kernels, device):
    """However many slices of the array are in use."""
    items = 4 * 1100
    x = ac.zeros(items, np.int32).sync()
    shared = x.share()
    for begin in range(0, items, 4):
        kernels.look(shared[begin : begin + 4], grid=1, block=1).submit()
    reader = device.stream()
    latch.hold(reader)
    found = ac.dup(shared[4:8]).on(reader).submit()
    framework.from_dlpack(shared)  # and gives it back at once
    shared.close()
    ac.fill(x.unwrap(), 7).on(device.stream()).submit()
    latch.release()
    assert host(found.sync(60)) == [0] * 4
    assert host(x)[4:8] == [7] * 4


def test_who_asks_for_no_order_gets_none(framework, held, latch, increment):
    x = full(1)
    with framework.using(held):
        tensor = framework.from_dlpack(x, stream=-1)
    increment(x).on(ac.Device(0).stream()).sync(60)
    assert latch.is_holding
    del tensor


@pytest.mark.parametrize("is_over", [True, False], ids=["an ended borrow", "a borrow that lives"])
def test_a_second_borrower_comes_after_what_the_first_enqueued(framework, held, latch, is_over):
    x = full(1)
    with framework.using(held):
        first = framework.from_dlpack(x).fill_(5)
    if is_over:
        del first
    second = framework.from_dlpack(x)
    copy = framework.full(N, 0).copy_(second)
    second.fill_(9)
    latch.release()
    assert copy.tolist() == [5] * N
    assert host(x) == [9] * N


def test_borrowers_who_only_read_do_not_wait_for_each_other(framework, held, latch):
    x = full(1)
    x.share()
    with framework.using(held):
        first = framework.from_dlpack(x)
        framework.full(N, 0).copy_(first)
    assert framework.from_dlpack(x).tolist() == [1] * N
    assert latch.is_holding


@pytest.mark.parametrize("is_over", [True, False], ids=["an ended borrow", "a borrow that lives"])
def test_the_interface_names_a_stream_behind_borrowers(framework, held, latch, is_over):
    x = full(1)
    with framework.using(held):
        borrowed = framework.from_dlpack(x).fill_(5)
    if is_over:
        del borrowed
    shown = x.__cuda_array_interface__
    framework.order(framework.current, shown["stream"])
    copy = framework.full(N, 0).copy_(Tensor(framework, shown["data"][0], N))
    latch.release()
    assert copy.tolist() == [5] * N
    ac.Device(0).synchronize().sync()
    assert x.__cuda_array_interface__["stream"] is None  # a borrow without work is nothing to wait for


@pytest.mark.parametrize("is_over", [True, False], ids=["an ended borrow", "a borrow that lives"])
def test_done_of_an_array_is_behind_its_borrowers(framework, held, latch, settle, is_over):
    x = full(1)
    with framework.using(held):
        borrowed = framework.from_dlpack(x).fill_(5)
    if is_over:
        del borrowed
    future = ac.done(x).submit()
    settle()
    assert not future.done()
    latch.release()
    assert future.sync(60) is x


@pytest.mark.parametrize("stream", [None, LEGACY])
def test_the_legacy_default_stream_is_ordered(framework, latch, increment, device, stream):
    x = full(1)
    gate = device.stream()
    latch.hold(gate)
    increment(x).on(gate).submit()
    tensor = framework.from_dlpack(x, stream=stream)
    with framework.device_current(), framework.using(LEGACY):
        copy = framework.full(N, 0).copy_(tensor)
        latch.release()
        assert copy.tolist() == [2] * N


def test_a_graph_that_uses_a_borrowed_array_comes_after_the_borrower(framework, held, latch, increment, settle):
    x = full(1)
    graph = increment(x).graph()
    with framework.using(held):
        tensor = framework.from_dlpack(x).fill_(5)
    future = graph.launch().on(ac.Device(0).stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    future.sync(60)
    assert host(x) == [6] * N
    del tensor


def test_there_and_back_again(framework, latch, increment, settle, device):
    """An array that comes back as the borrower's is the same memory, with the same hazards."""
    x = full(1)
    tensor = framework.from_dlpack(x)
    stream = device.stream()
    latch.hold(stream)
    increment(x).on(stream).submit()
    back = ac.external(tensor)
    future = increment(back).on(device.stream()).submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [3] * N


def test_a_function_of_call_borrows_on_its_own_stream(framework, increment):
    x = full(1)

    def fill(stream: ac.Stream, array: ac.DeviceArray) -> None:
        assert array.__cuda_array_interface__["stream"] is None
        with framework.using(stream.handle):
            framework.from_dlpack(array).fill_(5)

    assert host(increment(ac.call(fill, increment(x), writes=[x]))) == [6] * N
    graph = ac.call(fill, x, writes=[x]).graph()
    increment(x).sync()
    graph.launch().sync(60)
    assert host(x) == [5] * N


# --- lifetimes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_the_memory_is_there_until_the_borrower_is_done(framework, used_bytes, let_go, end):
    gc.collect()
    before = used_bytes()
    x = full(3)
    tensor = framework.from_dlpack(x)
    if end == "closed":
        x.close()
    del x
    others = [full(9) for _ in range(8)]
    assert tensor.tolist() == [3] * N
    del others
    assert used_bytes() > before
    del tensor
    assert let_go(lambda: used_bytes() == before)


def test_memory_is_not_used_again_before_what_the_borrower_enqueued_has_passed(framework, held, latch):
    x = full(3)
    target = framework.full(N, 0)
    framework.order(held, framework.current)
    with framework.using(held):
        target.copy_(framework.from_dlpack(x))
    del x
    gc.collect()
    others = [full(9) for _ in range(8)]
    latch.release()
    with framework.using(held):
        assert target.tolist() == [3] * N
    del others


def test_a_borrower_may_destroy_its_stream_when_its_work_has_passed(framework, used_bytes, let_go, increment):
    """In the scope of a function the stream often goes before the array does: nobody asks about it afterwards."""
    gc.collect()
    before = used_bytes()
    x = full(1)
    with framework.device_current():
        stream = framework.stream(lasts=False)
    with framework.using(stream):
        tensor = framework.from_dlpack(x).fill_(5)
        assert tensor.tolist() == [5] * N
    checked(driver.cuStreamDestroy(stream))
    with framework.device_current():
        others = [framework.stream(lasts=False) for _ in range(4)]  # one may have its handle
    del tensor
    for value in (6, 7):
        assert host(increment(x)) == [value] * N
    del x
    assert let_go(lambda: used_bytes() == before)
    for other in others:
        checked(driver.cuStreamDestroy(other))


def test_a_borrower_on_a_stream_that_nobody_keeps_is_behind_and_before_us_while_it_has_the_array(
    framework, latch, increment
):
    x, gate = full(1), ac.Device(0).stream()
    with framework.device_current():
        stream = framework.stream(lasts=False)
    with framework.using(stream):
        tensor = framework.from_dlpack(x)
    latch.hold(gate)
    framework.order(stream, gate.handle)
    with framework.using(stream):
        tensor.fill_(5)
    future = increment(x).submit()
    assert not future.done()
    latch.release()
    future.sync(60)
    with framework.using(stream):
        assert tensor.tolist() == [6] * N
    del tensor
    checked(driver.cuStreamDestroy(stream))


def test_a_borrow_on_a_stream_that_aiocuda_was_given_is_waited_for_when_it_has_ended(framework, latch, increment):
    class Theirs:
        def __init__(self) -> None:
            with framework.device_current():
                self.handle = framework.stream(lasts=False)

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.handle

        def __del__(self) -> None:
            checked(driver.cuStreamDestroy(self.handle))

    x, gate, theirs = full(1), ac.Device(0).stream(), Theirs()
    ac.Stream.from_external(theirs)
    latch.hold(gate)
    framework.order(theirs.handle, gate.handle)
    with framework.using(theirs.handle):
        tensor = framework.from_dlpack(x).fill_(5)
    del tensor, theirs
    future = increment(x).submit()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [6] * N


@pytest.mark.parametrize("lives", [True, False], ids=["a borrow that lives", "an ended borrow"])
def test_a_stream_of_ours_that_a_borrower_works_on_is_not_destroyed(
    framework, used_bytes, let_go, increment, device, lives
):
    gc.collect()
    before = used_bytes()
    x, stream = full(1), device.stream()
    index = stream._index
    with framework.using(stream.handle):
        tensor = framework.from_dlpack(x).fill_(5)
    if not lives:
        del tensor
    del stream
    for value in (6, 7):
        if lives:
            assert index in _native.streams_of(device.ordinal)
        assert host(increment(x)) == [value] * N
    if lives:
        for _ in range(3):
            device.synchronize().sync(60)
            ac.zeros(1).sync(60)
        assert index in _native.streams_of(device.ordinal)
        del tensor
    assert let_go(lambda: index not in _native.streams_of(device.ordinal))
    del x
    assert let_go(lambda: used_bytes() == before)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_streams_of_frameworks_that_last_are_waited_for_when_a_borrow_has_ended(
    framework, latch, increment, monkeypatch, name
):
    with framework.device_current():
        stream = framework.stream(lasts=False)
    library: Any = types.ModuleType(name)
    if name == "torch":
        library.cuda = types.SimpleNamespace(current_stream=lambda _: types.SimpleNamespace(cuda_stream=stream))
    monkeypatch.setitem(sys.modules, name, library)
    theirs: dict[str, Any] = {"__name__": "jax._src.dlpack" if name == "jax" else "somebody"}
    exec("def ask(x, stream): return x.__dlpack__(stream=stream, max_version=(1, 0))", theirs)
    x, gate = full(1), ac.Device(0).stream()
    capsule = theirs["ask"](x, stream)
    latch.hold(gate)
    framework.order(stream, gate.handle)
    del capsule
    future = increment(x).submit()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [2] * N
    checked(driver.cuStreamDestroy(stream))


class TheirStream:
    """A stream as CuPy and Warp have them: it is destroyed with its object."""

    def __init__(self, framework: Framework) -> None:
        with framework.device_current():
            self.ptr = self.cuda_stream = framework.stream(lasts=False)

    def __del__(self) -> None:
        checked(driver.cuStreamDestroy(self.ptr))


@pytest.mark.parametrize("name", ["cupy", "warp"])
@pytest.mark.parametrize("lives", [True, False], ids=["a borrow that lives", "an ended borrow"])
def test_a_stream_that_its_object_destroys_is_kept_for_the_borrow(
    framework, increment, let_go, monkeypatch, name, lives
):
    current = [TheirStream(framework)]
    gone = weakref.ref(current[0])
    library: Any = types.ModuleType(name)
    library.cuda = types.SimpleNamespace(get_current_stream=lambda ordinal: current[0])
    library.get_stream = lambda device: current[0]
    monkeypatch.setitem(sys.modules, name, library)
    for real in ("warp._src.context", "warp.context"):  # an imported Warp that has not begun has no streams
        monkeypatch.delitem(sys.modules, real, raising=False)
    x = full(1)
    with framework.using(current[0].ptr):
        tensor = framework.from_dlpack(x).fill_(5)
    current[0] = TheirStream(framework)  # nobody else has the one before
    if not lives:
        del tensor
    assert gone() is not None
    for value in (6, 7):
        assert host(increment(x)) == [value] * N
    if lives:
        assert gone() is not None
        del tensor
    assert let_go(lambda: gone() is None)


def test_a_framework_that_is_not_at_work_disturbs_no_borrower(framework, monkeypatch):
    def ail(_: Any) -> Any:
        raise RuntimeError("no CUDA here")

    cupy: Any = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(get_current_stream=ail)
    warp: Any = types.ModuleType("warp")
    asked: list[Any] = []
    warp.get_stream = asked.append
    context: Any = types.ModuleType("warp._src.context")
    context.runtime = None  # imported alone
    for each in (cupy, warp, context):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    assert framework.from_dlpack(full(3)).tolist() == [3] * N
    assert asked == []


def test_a_capsule_that_nobody_takes_ends_the_borrow(used_bytes, let_go):
    before = used_bytes()
    x = full(3)
    capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
    del x
    assert used_bytes() > before
    del capsules
    assert let_go(lambda: used_bytes() == before)


def test_a_capsule_is_taken_once(framework):
    capsule = full(3).__dlpack__(stream=framework.current)
    tensor = Tensor.taken(framework, capsule)
    with pytest.raises(KeyError, match="used_dltensor"):
        Tensor.taken(framework, capsule)
    del capsule
    assert tensor.tolist() == [3] * N


def test_a_borrow_is_given_back_on_any_thread_and_during_a_capture(framework, used_bytes, let_go):
    before = used_bytes()
    x = full(3)
    tensors = [framework.from_dlpack(x) for _ in range(4)]
    del x
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    with framework.device_current():
        stream = framework.stream()
    checked(driver.cuStreamBeginCapture(stream, mode))
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    status = checked(driver.cuStreamIsCapturing(stream))
    assert status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    checked(driver.cuGraphDestroy(checked(driver.cuStreamEndCapture(stream))))
    assert let_go(lambda: used_bytes() == before)


def test_a_borrow_may_outlive_the_interpreter(in_process):
    ended = in_process(
        """
        import ctypes
        import aiocuda as ac
        x = ac.ones(8).sync()
        capsule = x.__dlpack__(max_version=(1, 0))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))  # it is never freed
        kept = {}
        kept["x"], kept["self"], kept["capsule"] = x, kept, x.__dlpack__()
        print("done")
        """
    )
    assert ended.stdout == "done\n"


# --- page-locked and managed memory ---------------------------------------------------------------------------------


def test_numpy_borrows_page_locked_memory(framework):
    x = ac.empty_host((3, 4), np.int32).sync()
    view = np.from_dlpack(x)
    view[:] = 7
    assert x.__dlpack_device__() == (CUDA_HOST, 0)
    assert x.numpy().tolist() == [[7] * 4] * 3
    x.close()
    assert view.sum() == 84


def test_numpy_may_only_read_what_is_shared():
    x = ac.empty_host(3, np.int32).sync()
    x.share()
    view = np.from_dlpack(x)
    assert not view.flags.writeable


@pytest.mark.parametrize("writes", [True, False])
def test_page_locked_memory_is_lent_when_the_device_is_done_with_it(latch, device, writes):
    x, y = ac.empty_host(N, np.int32).sync(), full(3)
    stream = device.stream()
    latch.hold(stream)
    future = (ac.copy(x, y) if writes else ac.copy(y, x)).on(stream).submit()
    with pytest.raises(ac.ExchangeError, match="await that first"):
        np.from_dlpack(x)
    latch.release()
    future.sync(60)
    assert np.from_dlpack(x).shape == (N,)


@pytest.mark.parametrize("is_over", [True, False], ids=["an ended borrow", "a borrow that lives"])
def test_the_host_gets_page_locked_memory_when_borrowers_are_done_with_it(framework, held, latch, is_over):
    x = ac.empty_host(N, np.int32).sync()
    x.numpy()[:] = 1
    with framework.using(held):
        borrowed = framework.from_dlpack(x).fill_(5)
    if is_over:
        del borrowed
    with pytest.raises(ac.ArgumentValueError, match=r"still writing .*aiocuda\.done"):
        x.numpy()
    with pytest.raises(ac.ExchangeError, match=r"another library.* await that first, or aiocuda\.done"):
        np.from_dlpack(x)
    latch.release()
    ac.done(x).sync(60)
    assert np.from_dlpack(x).tolist() == x.numpy().tolist() == [5] * N


def test_the_host_may_not_write_what_a_borrower_still_reads(framework, held, latch):
    x = ac.empty_host(N, np.int32).sync()
    x.numpy()[:] = 1
    other = x.share()
    with framework.using(held):
        copy = framework.full(N, 0).copy_(framework.from_dlpack(x))
    other.close()
    with pytest.raises(ac.ArgumentValueError, match="still reading"):
        x.unwrap().numpy()
    latch.release()
    with framework.using(held):
        assert copy.tolist() == [1] * N


def test_the_host_gets_memory_at_once_whose_borrower_has_nothing_to_do(framework):
    x = ac.empty_host(N, np.int32).sync()
    tensor = framework.from_dlpack(x)
    for value in range(50):
        tensor.fill_(value)
        checked(driver.cuStreamSynchronize(framework.current))
        assert x.numpy()[0] == value


def test_page_locked_memory_is_host_memory_where_that_is_asked(framework):
    x = ac.empty_host(N, np.int32).sync()
    asked = framework.from_dlpack(x, stream=None, dl_device=(1, 0)).lent.tensor.device
    assert (asked.type, asked.id) == (1, 0)


def test_managed_memory_is_the_devices_where_that_is_asked(framework, latch, increment, device):
    try:
        x = ac.zeros(N, np.int32, managed=True).sync()
    except ac.AiocudaError as error:
        pytest.skip(str(error))
    assert x.__dlpack_device__() == (MANAGED, 0)
    stream = device.stream()
    latch.hold(stream)
    increment(x).on(stream).submit()
    with pytest.raises(ac.ExchangeError, match="await that first"):
        x.__dlpack__(max_version=(1, 0))
    tensor = framework.from_dlpack(x, dl_device=(CUDA, 0))
    assert tensor.lent.tensor.device.type == CUDA
    latch.release()
    assert tensor.tolist() == [1] * N


# --- the array interface --------------------------------------------------------------------------------------------


def test_the_interface_names_a_stream_behind_the_work_if_there_is_some(framework, latch, increment, device):
    x = full(1)
    assert x.__cuda_array_interface__["stream"] is None
    stream = device.stream()
    latch.hold(stream)
    increment(x).on(stream).submit()
    shown = x.__cuda_array_interface__
    assert shown["stream"] > PER_THREAD
    framework.order(framework.current, shown["stream"])
    latch.release()
    assert framework.full(N, 0).copy_(Tensor(framework, shown["data"][0], N)).tolist() == [2] * N


def test_the_interface_describes_views_and_shared_arrays():
    x = ac.zeros((4, 6), np.float32).sync()
    assert x.__cuda_array_interface__["strides"] is None
    assert x.__cuda_array_interface__["typestr"] == "<f4"
    part = x[1:3, ::2].__cuda_array_interface__
    assert (part["shape"], part["strides"], part["data"]) == ((2, 3), (24, 8), (x.address + 24, False))
    x.share()
    assert x.__cuda_array_interface__["data"] == (x.address, True)
    for empty in (ac.zeros(0).sync(), ac.zeros(8).sync()[4:4], ac.zeros((4, 6)).sync()[:, 6:]):
        assert empty.__cuda_array_interface__["data"] == (0, False)


def test_the_interface_has_no_dtypes_of_ml_dtypes_and_who_looks_for_it_finds_none():
    x = ac.zeros(3, ml_dtypes.bfloat16).sync()
    with pytest.raises(ac.MissingAttributeError, match="use DLPack"):
        _ = x.__cuda_array_interface__
    assert not hasattr(x, "__cuda_array_interface__")
    assert hasattr(x, "__dlpack__")


# --- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"stream": 0}, "either of CUDA's default streams"),
        ({"stream": PER_THREAD}, "per-thread"),
        ({"stream": -2}, "it is a handle"),
        ({"stream": 2**64}, "it is a handle"),
        ({"stream": "s"}, "it is a handle"),
        ({"stream": True}, "it is a handle"),
        ({"copy": True}, "dup"),
        ({"copy": "yes"}, "dup"),
        ({"dl_device": (1, 0)}, "bring it over"),
        ({"dl_device": (CUDA, 1)}, "bring it over"),
        ({"dl_device": "cuda"}, "bring it over"),
        ({"max_version": 1}, "pair of numbers"),
        ({"max_version": ("1", "0")}, "pair of numbers"),
        ({"max_version": (1,)}, "pair of numbers"),
    ],
)
def test_what_cannot_be_lent_is_a_buffer_error_and_no_type_error(asked, match):
    with pytest.raises(BufferError, match=match) as caught:
        full(3).__dlpack__(**{"max_version": (1, 0), **asked})
    assert type(caught.value) is ac.ExchangeError


@pytest.mark.needs_devices(2)
def test_a_stream_of_another_device_borrows_nothing(framework):
    x = ac.zeros(3, device=1).sync()
    with pytest.raises(ac.ExchangeError, match="is one of device 0, and the array is on device 1"):
        x.__dlpack__(stream=framework.current)


def test_a_captured_stream_borrows_nothing_and_the_capture_goes_on(framework):
    with framework.device_current():
        stream = framework.stream()
    checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    with pytest.raises(ac.CaptureError, match="is being captured"):
        full(3).__dlpack__(stream=stream, max_version=(1, 0))
    checked(driver.cuGraphDestroy(checked(driver.cuStreamEndCapture(stream))))


@pytest.fixture
def captured_beside_the_default_stream(framework) -> Iterator[int]:
    """Give a blocking stream that is captured: work for the legacy default stream would end the capture."""
    with framework.device_current():
        stream = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_DEFAULT))
        checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        yield stream
        checked(driver.cuGraphDestroy(checked(driver.cuStreamEndCapture(stream))))  # it was not ended before
        checked(driver.cuStreamDestroy(stream))


def test_the_default_stream_borrows_nothing_beside_a_capture_of_a_blocking_stream(
    framework, increment, latch, captured_beside_the_default_stream
):
    x = full(1)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    increment(x).on(stream).submit()
    with pytest.raises(ac.CaptureError, match="is being captured"):
        x.__dlpack__(stream=LEGACY)
    with pytest.raises(ac.CaptureError, match="is being captured"):
        ac.done(LEGACY, device=0)
    latch.release()


def test_a_borrow_of_the_default_stream_that_has_ended_leaves_captures_of_blocking_streams_alone(framework, request):
    x = full(1)
    capsule = x.__dlpack__(stream=LEGACY)
    request.getfixturevalue("captured_beside_the_default_stream")
    del capsule
    ac.zeros(1).sync()
    with pytest.raises(ac.CaptureError, match="is being captured"):
        ac.fill(x, 2).sync()


def test_an_operation_says_what_to_do():
    op = ac.zeros(3)
    for name in ("__dlpack__", "__dlpack_device__", "__cuda_array_interface__"):
        assert not hasattr(op, name)
        with pytest.raises(ac.MissingAttributeError, match=r"await op"):
            getattr(op, name)


def test_to_host_of_another_library_is_no_way_around():
    with pytest.raises((BufferError, RuntimeError, ValueError)):
        np.from_dlpack(full(3))
