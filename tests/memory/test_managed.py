"""Managed memory: device arrays that the host and all devices reach in place, and CUDA's advice about them."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import numpy as np
import pytest
from blocks import made_at
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda._driver import runtime

N = 1000
SIZE = 1 << 20
DEVICES = st.integers(0, 10).map(lambda i: i % len(ac.devices()))


def here(line: int) -> str:
    """The caller's place, so many lines further down."""
    caller = inspect.currentframe()
    assert caller is not None
    assert caller.f_back is not None
    return f"{__file__}:{caller.f_back.f_lineno + line}"


def asked(array: ac.DeviceArray, attribute: str) -> int:
    """The driver's answer about an array's memory, by the name behind ``CU_MEM_RANGE_ATTRIBUTE_``."""
    from cuda.bindings import driver

    which = getattr(driver.CUmem_range_attribute, f"CU_MEM_RANGE_ATTRIBUTE_{attribute}")
    with runtime.context_of(array.device.ordinal):
        value = runtime.call(driver.cuMemRangeGetAttribute, 4, which, array.address, array.nbytes)
    return int.from_bytes(value, "little", signed=True) if isinstance(value, bytes) else int(np.asarray(value).flat[0])


# --- one memory, for the host and the device


def test_kernels_and_the_host_work_on_the_same_memory(run, kernels):
    async def main() -> None:
        x = await ac.full(N, 7, np.int32, managed=True)
        view = x.numpy()
        assert (view == 7).all()
        view[:] = np.arange(N)
        await kernels.increment(x, N, threads=N)
        np.testing.assert_array_equal(view, np.arange(N) + 1)
        y = await kernels.accumulate(1, x, ac.zeros(N, np.int32, managed=True), N, threads=N)
        np.testing.assert_array_equal(y.numpy(), np.arange(N) + 1)
        np.testing.assert_array_equal(np.asarray(y), y.numpy())

    run(main)


@pytest.mark.parametrize("make", [ac.empty, ac.zeros, ac.ones, lambda *a, **k: ac.full(a[0], 3, a[1], **k)])
@pytest.mark.parametrize("dtype", ["int8", "float64", "complex128", np.dtype([("a", "i4"), ("b", "f8")])])
def test_all_that_make_arrays_make_managed_ones(make, dtype):
    managed, ordinary = make((2, 3), dtype, managed=True).sync(), make((2, 3), dtype).sync()
    assert (managed.is_managed, ordinary.is_managed) == (True, False)
    assert (managed.shape, managed.dtype, managed.device) == (ordinary.shape, ordinary.dtype, ordinary.device)
    if make is not ac.empty:
        np.testing.assert_array_equal(managed.numpy(), ac.to_host(ordinary).sync())


def test_arrays_of_nothing_and_rows_with_a_pitch_can_be_managed():
    assert ac.empty((0, 4), managed=True).sync().numpy().shape == (0, 4)
    nothing = ac.zeros(0, managed=True).sync()
    assert nothing.prefetch("host").sync() is nothing
    nothing.advise("read_mostly")
    rows = ac.empty((3, 10), np.float32, managed=True, pitched=True).sync()
    rows.numpy()[:] = np.arange(30).reshape(3, 10)
    assert rows.is_managed
    assert not rows.is_contiguous
    np.testing.assert_array_equal(ac.to_host(rows).sync(), np.arange(30).reshape(3, 10))


def test_views_are_managed_and_live():
    x = ac.zeros((4, 5), np.int32, managed=True).sync()
    x[1:3, ::2].numpy()[:] = 9
    expected = np.zeros((4, 5), np.int32)
    expected[1:3, ::2] = 9
    np.testing.assert_array_equal(x.numpy(), expected)
    assert x.reshape(20).view(np.uint8).is_managed


def test_copies_reach_it_from_everywhere():
    data = np.arange(50_000, dtype=np.int32)
    x = ac.empty(data.shape, data.dtype, managed=True).sync()
    ac.copy(x, data).sync()
    np.testing.assert_array_equal(x.numpy(), data)
    np.testing.assert_array_equal(ac.to_host(x).sync(), data)
    y = ac.dup(x).sync()
    assert not y.is_managed
    ac.copy(x, ac.full(data.shape, 4, np.int32)).sync()
    np.testing.assert_array_equal(ac.to_host(y).sync(), data)
    assert (x.numpy() == 4).all()
    # NumPy's views of it are memory that the device reaches: nobody carries their bytes.
    again = ac.to_device(x.numpy()).sync()
    ac.copy(x.numpy(), y).sync()
    assert (ac.to_host(again).sync() == 4).all()
    np.testing.assert_array_equal(x.numpy(), data)


# --- whose it is


def test_the_host_does_not_touch_what_the_device_still_uses(kernels, latch, device):
    x, y = (ac.zeros(N, np.int32, managed=True).sync() for _ in range(2))
    latch.hold(device)
    future = kernels.accumulate(1, x, y, N, threads=N).submit()
    with pytest.raises(ac.ArgumentValueError, match="reading this DeviceArray"):
        x.numpy()
    with pytest.raises(ac.ArgumentValueError, match="writing this DeviceArray"):
        np.asarray(y)
    latch.release()
    future.sync()
    x.numpy(), y.numpy()


def test_disjoint_parts_are_in_use_apart(kernels, latch, device):
    x = ac.zeros(2 * N, np.int32, managed=True).sync()
    head, tail = x.split_at(N)
    latch.hold(device)
    future = kernels.increment(head, N, threads=N).submit()
    tail.numpy()[:] = 5
    with pytest.raises(ac.ArgumentValueError, match="writing"):
        x.numpy()
    latch.release()
    future.sync()
    np.testing.assert_array_equal(x.numpy(), [1] * N + [5] * N)


def test_what_ends_or_bounds_the_use_of_arrays_does_so_for_numpy():
    x = ac.zeros(N, np.int32, managed=True).sync()
    other = x.share()
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    other.close()
    x.unwrap().numpy()[0] = 1
    partition = x.partition(10)
    with pytest.raises(ac.OwnershipError, match="partitioned"):
        x.numpy()
    partition.unpartition()
    moved = ac.move(x)
    view = moved.numpy()
    for use in (x.numpy, x.prefetch, lambda: x.advise("read_mostly"), lambda: np.asarray(x)):
        with pytest.raises(ac.OwnershipError, match="moved"):
            use()
    moved.close()
    with pytest.raises(ac.ClosedError, match=r"numpy\(\): the array of .* was closed at"):
        moved.numpy()
    assert not moved.is_managed
    assert view[0] == 1  # NumPy keeps the memory


@pytest.mark.parametrize("use", ["numpy", "prefetch", "advise", "unadvise"])
def test_other_arrays_say_that_to_host_copies_them(use):
    arguments = ("read_mostly",) if use.endswith("advise") else ()
    with pytest.raises(ac.ArgumentTypeError, match=r"memory of device 0.*to_host.*managed=True"):
        getattr(ac.zeros(3).sync(), use)(*arguments)
    with pytest.raises(ac.ArgumentTypeError, match="to_host"):
        np.asarray(ac.zeros(3).sync())


def test_where_the_host_must_not_touch_it_during_kernels_it_is_refused(monkeypatch):
    monkeypatch.setattr(runtime, "lacks_managed_access", lambda: 1)
    for make in (ac.empty, ac.zeros, ac.ones):
        with pytest.raises(ac.ArgumentValueError, match="device 1 has no concurrent managed access"):
            make(3, managed=True)


# --- other devices


@pytest.mark.needs_devices(2)
def test_kernels_of_all_devices_take_it_in_order(kernels, run):
    async def main() -> None:
        x = await ac.zeros(N, np.int32, managed=True)
        there = await ac.full(N, 10, np.int32, 1)
        for i in range(10):
            kernels.increment(x, N, threads=N).on(i % 2).submit()
        y = await kernels.accumulate(1, x, there, N, threads=N)  # goes where the other array is
        np.testing.assert_array_equal(await ac.to_host(y), np.full(N, 40))
        assert y.device == ac.Device(1)
        assert (x.numpy() == 10).all()

    run(main)


@pytest.mark.needs_devices(2)
def test_a_kernel_of_one_device_waits_for_that_of_another(kernels, latch, device):
    x = ac.zeros(N, np.int32, managed=True).sync()
    latch.hold(device)
    here_first = kernels.increment(x, N, threads=N).on(0).submit()
    then_there = kernels.increment(x, N, threads=N).on(ac.Device(1).stream()).submit()
    assert not then_there.done()
    latch.release()
    then_there.sync()
    here_first.sync()
    assert (x.numpy() == 2).all()


@pytest.mark.needs_devices(2)
def test_where_it_goes_is_decided_by_other_arrays_then_by_on_then_by_where_it_was_made(kernels):
    made = ac.zeros(N, np.int32, 1, managed=True)
    assert "launch increment on device 1" in kernels.increment(made, N, threads=N).explain()
    x, ordinary = made.sync(), ac.zeros(N, np.int32, 0).sync()
    assert "on device 1" in kernels.increment(x, N, threads=N).explain()
    assert "on device 0" in kernels.increment(x, N, threads=N).on(0).explain()
    assert "on device 0" in kernels.accumulate(1, x, ordinary, N, threads=N).explain()
    assert "on device 0" in kernels.accumulate(1, ordinary, x, N, threads=N).explain()
    assert "on device 0" in kernels.accumulate(1, ordinary, made, N, threads=N).explain()
    assert "on device 0" in ac.call(print, reads=[x], writes=[ordinary]).explain()
    assert "on device 1" in ac.call(print, reads=[x]).explain()
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(1\): the launch of accumulate works on device 0"):
        kernels.accumulate(1, ordinary, x, N, threads=N).on(1)
    with pytest.raises(
        ac.DeviceMismatchError,
        match=r"accumulate: argument 2 \(x\) is on device 0, argument 3 \(y\), which it writes, on device 1",
    ):
        kernels.accumulate(1, ordinary, ac.zeros(N, np.int32, 1).sync(), N, threads=N)


@pytest.mark.needs_devices(2)
def test_another_device_can_be_the_first_to_use_it(kernels):
    x = kernels.accumulate(1, ac.full(N, 5, np.int32, 0, managed=True), ac.full(N, 2, np.int32, 1), N, threads=N).sync()
    assert (ac.to_host(x).sync() == 11).all()


# --- prefetches


def test_a_prefetch_yields_the_array_and_moves_it(run, device):
    async def main() -> None:
        x = await ac.full(SIZE, 3, np.uint8, managed=True)
        assert await x.prefetch("host") is x
        assert asked(x, "LAST_PREFETCH_LOCATION") == -1
        assert await x.prefetch(device) is x
        assert asked(x, "LAST_PREFETCH_LOCATION") == 0
        with ac.use(ac.devices()[-1]):
            await x.prefetch()
        assert asked(x, "LAST_PREFETCH_LOCATION") == len(ac.devices()) - 1
        assert (x.numpy() == 3).all()

    run(main)


def test_a_prefetch_waits_for_the_last_write(kernels, latch, device):
    x = ac.zeros(N, np.int32, managed=True).sync()
    writing = device.stream()
    latch.hold(writing)
    kernels.increment(x, N, threads=N).on(writing).submit()
    prefetched = x.prefetch("host").submit()
    assert not prefetched.done()
    latch.release()
    assert (prefetched.sync().numpy() == 1).all()


def test_a_prefetch_goes_on_beside_readers(kernels, latch, device):
    x, y = (ac.zeros(N, np.int32, managed=True).sync() for _ in range(2))
    reading = device.stream()
    latch.hold(reading)
    read = kernels.accumulate(1, x, y, N, threads=N).on(reading).submit()
    x.prefetch("host").sync(timeout=20)
    assert not read.done()
    latch.release()
    read.sync()


def test_writers_wait_for_a_prefetch(kernels, latch, device):
    x = ac.zeros(N, np.int32, managed=True).sync()
    prefetching = device.stream()
    latch.hold(prefetching)
    x.prefetch("host").on(prefetching).submit()
    with pytest.raises(ac.ArgumentValueError, match="reading"):
        x.numpy()
    written = kernels.increment(x, N, threads=N).on(device.stream()).submit()
    assert not written.done()
    latch.release()
    written.sync()
    assert (x.numpy() == 1).all()


def test_explain_names_the_prefetch_and_the_memory(kernels):
    x = ac.zeros(4, np.int32, managed=True).sync()
    text = x.prefetch("host").explain()
    assert "call prefetch to the host on device 0; reads int32(4,) in managed memory of device 0" in text
    assert "prefetch to device 0" in repr(x.prefetch(0))
    assert "allocate int32(4,) in managed memory of device 0" in ac.zeros(4, np.int32, managed=True).explain()


@pytest.mark.parametrize("place", ["cpu", "cuda:x", 1.5, object(), True])
def test_a_place_is_a_device_or_the_host(place):
    x = ac.zeros(4, managed=True).sync()
    with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="a device"):
        x.prefetch(place)
    with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="a device"):
        x.advise("preferred_location", place)
    with pytest.raises(ac.ArgumentValueError, match="no device 99"):
        x.prefetch(99)


# --- advice


def test_advice_is_the_drivers_and_can_be_taken_back(device):
    x = ac.zeros(SIZE, np.uint8, managed=True).sync()
    x.advise("read_mostly")
    x.advise("preferred_location", "host")
    x.advise("accessed_by", device)
    assert asked(x, "READ_MOSTLY") == 1
    assert asked(x, "PREFERRED_LOCATION") == -1
    assert asked(x, "ACCESSED_BY") == 0
    x.advise("preferred_location", 0)
    assert asked(x, "PREFERRED_LOCATION") == 0
    x.unadvise("read_mostly")
    x.unadvise("preferred_location")
    x.unadvise("accessed_by", device)
    assert asked(x, "READ_MOSTLY") == 0
    assert asked(x, "PREFERRED_LOCATION") == -2
    assert asked(x, "ACCESSED_BY") == -2
    x.unadvise("accessed_by", "host")  # nobody said so: fine


@pytest.mark.parametrize("advice", ["read_mostly", "preferred_location", "accessed_by"])
def test_a_place_is_given_where_advice_is_about_one(advice):
    x = ac.zeros(4, managed=True).sync()
    for tell, needs in ((x.advise, advice != "read_mostly"), (x.unadvise, advice == "accessed_by")):
        with pytest.raises(ac.ArgumentValueError, match="needs a device" if needs else "about no place"):
            tell(advice, None if needs else 0)
        with pytest.raises(ac.ArgumentValueError, match="'read_mostly', 'preferred_location' or 'accessed_by'"):
            tell("mostly_read")


def test_advice_is_undone_before_others_use_the_memory(device):
    x = ac.zeros(SIZE, np.uint8, managed=True).sync()
    address = x.address
    x[: SIZE // 2].advise("read_mostly")
    x.advise("accessed_by", device)
    x.advise("preferred_location", device)
    x.close()
    again = made_at(address, SIZE, managed=True)
    assert asked(again, "READ_MOSTLY") == 0
    assert asked(again[: SIZE // 2], "READ_MOSTLY") == 0
    assert asked(again, "ACCESSED_BY") == -2
    assert asked(again, "PREFERRED_LOCATION") == -2


# --- the memory itself


def test_it_has_an_account_of_its_own(device):
    gc.collect()
    before = device.memory_info()
    x = ac.zeros(SIZE, np.uint8, managed=True).sync()
    place = here(-1)
    info = device.memory_info(largest=10**6)
    assert info.managed_bytes == before.managed_bytes + SIZE
    assert info.used_bytes == before.used_bytes
    assert info.peak_bytes == before.peak_bytes
    assert place not in {each.place for each in info.largest_arrays}
    view = x[:10]
    x.close()
    assert device.memory_info().managed_bytes == before.managed_bytes + SIZE
    view.close()
    assert device.memory_info().managed_bytes == before.managed_bytes


def test_no_memory_limit_bounds_it(device, used_bytes):
    used_bytes()
    with ac.memory_limit(device.memory_info().used_bytes + 100, device=device):
        x = ac.zeros(SIZE, np.uint8, managed=True).sync()
        with pytest.raises(ac.OutOfMemoryError, match=r"no room for 1\.00 MiB .* 100 B free of .*memory_limit\(\)"):
            ac.zeros(SIZE, np.uint8).sync()
    assert x.numpy().sum() == 0


def test_trimming_gives_back_what_is_kept(device):
    from aiocuda import _native

    x, idle = (ac.zeros(SIZE, np.uint8, managed=True).sync() for _ in range(2))
    idle.close()
    device.synchronize().sync()
    _native.collect()
    _, held, kept = _native.managed_memory(0)
    assert kept >= SIZE
    device.trim_memory()
    assert _native.managed_memory(0)[1:] == (held - kept, 0)
    assert (x.numpy() == 0).all()


@pytest.mark.emulated_only  # a GPU that is asked for more managed memory than it has may be lost to all its users
def test_when_there_is_no_more_the_error_says_who_holds_it():
    x = ac.zeros(100 * SIZE, np.uint8, managed=True).sync()
    place = here(-1)
    more_than_addresses = 1 << 50
    with pytest.raises(
        ac.OutOfMemoryError, match=r"managed memory of device \d has no room for 1024\.00 TiB"
    ) as caught:
        ac.empty(more_than_addresses, np.uint8, managed=True).sync()
    error = caught.value
    assert (error.device, error.asked_bytes) == ("managed memory of device 0", more_than_addresses)
    assert error.total_bytes >= 100 * SIZE
    assert (f"1 array made at {place}", 100 * SIZE) in error.holders
    assert x.numpy()[0] == 0


def test_what_is_held_at_exit_is_told(in_process):
    done = in_process(
        "import numpy as np, aiocuda as ac\nkept = ac.zeros(1000, np.uint8, managed=True).sync()", AIOCUDA_DEBUG="1"
    )
    assert done.stderr == (
        "aiocuda: at exit, 1 array is still held in managed memory of device 0, 1000 B:\n"
        "  1000 B by 1 array made at <string>:2\n"
    )


# --- graphs


def test_it_can_be_a_graphs_input_and_what_launches_put_in_its_place(kernels):
    x, y = (ac.full(N, i, np.int32, managed=True).sync() for i in (1, 10))
    ordinary = ac.full(N, 20, np.int32).sync()
    graph = kernels.increment(x, N, threads=N).graph(x=x)
    for each in (x, y, ordinary):
        graph.launch(x=each).sync()
    assert (x.numpy() == 2).all()
    assert (y.numpy() == 11).all()
    assert (ac.to_host(ordinary).sync() == 21).all()
    compiled = ac.compile(lambda a: kernels.increment(a, N, threads=N))
    compiled(x).sync()
    compiled(y).sync()
    assert (x.numpy()[0], y.numpy()[0]) == (3, 12)


def test_a_graph_neither_makes_it_nor_prefetches_it(kernels):
    with pytest.raises(ac.CaptureError, match="managed memory cannot be made inside a graph"):
        kernels.increment(ac.zeros(N, np.int32, managed=True), N, threads=N).graph()
    x = ac.zeros(N, np.int32, managed=True).sync()
    with pytest.raises(ac.CaptureError, match="prefetch cannot be part of a graph"):
        x.prefetch("host").graph()


# --- random programs


@st.composite
def programs(draw: Any) -> list[tuple[Any, ...]]:
    array, number = st.integers(0, 2), st.integers(-5, 5)
    part = st.tuples(st.integers(0, 30), st.integers(31, 64))
    step = st.one_of(
        st.tuples(st.just("increment"), array, part, DEVICES),
        st.tuples(st.just("accumulate"), array, array, number, DEVICES),
        st.tuples(st.just("copy"), array, array),
        st.tuples(st.just("prefetch"), array, st.one_of(st.just("host"), DEVICES)),
        st.tuples(st.just("write"), array, part, number),
        st.tuples(st.just("advise"), array, st.sampled_from(["read_mostly", "accessed_by", "preferred_location"])),
        st.tuples(st.just("replace"), array, number),
    )
    return draw(st.lists(step, min_size=1, max_size=12))


@given(program=programs())
def test_random_programs_equal_numpys(program, run, kernels):
    """Kernels on any device, copies, prefetches, and the host, which waits for those that it must wait for alone."""
    size = 64

    async def main() -> None:
        expected = [np.full(size, i, np.int32) for i in range(3)]
        arrays = [await ac.full(size, i, np.int32, managed=True) for i in range(3)]
        pending: list[tuple[ac.DeviceFuture[Any], set[int]]] = []

        def submit(op: ac.DeviceOp[Any], *touched: int) -> None:
            pending.append((op.submit(), set(touched)))

        async def wait_for(i: int) -> None:
            for future, touched in pending:
                if i in touched:
                    await future

        for kind, i, *rest in program:
            if kind == "increment":
                (begin, end), device = rest
                submit(kernels.increment(arrays[i][begin:end], end - begin, threads=end - begin).on(device), i)
                expected[i][begin:end] += 1
            elif kind == "accumulate":
                j, factor, device = rest
                if i == j:
                    continue
                submit(kernels.accumulate(factor, arrays[i], arrays[j], size, threads=size).on(device), i, j)
                expected[j] = 3 * expected[j] + factor * expected[i]
            elif kind == "copy":
                submit(ac.copy(arrays[i], arrays[rest[0]]), i, rest[0])
                expected[i] = expected[rest[0]].copy()
            elif kind == "prefetch":
                submit(arrays[i].prefetch(rest[0]), i)
            elif kind == "write":
                (begin, end), number = rest
                await wait_for(i)
                arrays[i][begin:end].numpy()[:] = number
                expected[i][begin:end] = number
            elif kind == "advise":
                arrays[i].advise(rest[0], None if rest[0] == "read_mostly" else "host")
            else:  # its memory may be the next one's, once its users have passed
                arrays[i].close()
                arrays[i] = await ac.full(size, rest[0], np.int32, managed=True)
                expected[i] = np.full(size, rest[0], np.int32)
        for i, (array, wanted) in enumerate(zip(arrays, expected, strict=True)):
            await wait_for(i)
            np.testing.assert_array_equal(array.numpy(), wanted)

    run(main)
