"""Copies between arrays and memory that is not page-locked: every layout, both ways, in order, and never in the way."""

from __future__ import annotations

import array
import asyncio
import threading
import weakref
from typing import Any

import anyio
import ml_dtypes
import numpy as np
import pytest

import aiocuda as ac

# Some lie in one chunk, some in several, of whole and of broken pieces; 64 KiB and less are read at submission.
SIZES = [1, 1000, 16 << 10, (16 << 10) + 1, 100_003, 1_000_003, 5 << 20]
LARGE = 600_001  # items of 4 bytes: some ten chunks


def numbers(size: int = LARGE, dtype: Any = np.int32) -> np.ndarray:
    return (np.arange(size) % 30_011).astype(dtype)  # none of -1


def device_array(data: np.ndarray) -> ac.DeviceArray:
    return ac.to_device(data).sync(60)


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync(60)


LAYOUTS = {
    "C": lambda a: np.ascontiguousarray(a),
    "Fortran": lambda a: np.asfortranarray(a),
    "columns": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "rows": lambda a: np.repeat(a, 3, axis=0)[::3],
    "backwards": lambda a: np.ascontiguousarray(a[::-1, ..., ::-1])[::-1, ..., ::-1],
    "transposed": lambda a: np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "repeated": lambda a: np.broadcast_to(a[:1, :, :1], a.shape),
}


@pytest.mark.parametrize("size", SIZES)
def test_there_and_back_is_the_same_whatever_the_size(size):
    data = numbers(size)
    there, back = device_array(data), np.zeros_like(data)
    assert ac.to_host(there, back).sync(60) is back
    np.testing.assert_array_equal(back, data)
    np.testing.assert_array_equal(contents(there), data)


@pytest.mark.parametrize("shape", [(3, 5, 7), (90, 101, 37), (40, 3, 5000)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_device_takes_every_layout(layout, shape):
    data = LAYOUTS[layout](numbers(int(np.prod(shape)), np.int16).reshape(shape))
    np.testing.assert_array_equal(contents(device_array(data)), data)


@pytest.mark.parametrize("shape", [(3, 5, 7), (90, 101, 37), (40, 3, 5000)])
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in {"read-only", "repeated"}])
def test_to_host_writes_every_layout_and_nothing_beside_it(layout, shape):
    data = numbers(int(np.prod(shape)), np.int16).reshape(shape)
    out = LAYOUTS[layout](np.full(shape, -1, np.int16))
    whole = out
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    before = int(np.sum(whole == -1))
    ac.to_host(device_array(data), out).sync(60)
    np.testing.assert_array_equal(out, data)
    assert int(np.sum(whole == -1)) == before - data.size


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_items_of_every_size(dtype):
    data = numbers(dtype=np.uint8).astype(dtype)[::-1]
    out = np.zeros(LARGE, dtype)
    np.testing.assert_array_equal(
        ac.to_host(device_array(data), out).sync(60).view(np.uint8), data.copy().view(np.uint8)
    )


class Tensor:
    """An object that has DLPack and nothing else."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()


@pytest.mark.parametrize("size", [5, 200_000])
@pytest.mark.parametrize(
    "lend",
    [
        bytes,
        bytearray,
        lambda b: memoryview(bytes(b)),
        lambda b: array.array("B", bytes(b)),
        lambda b: Tensor(np.array(b)),
    ],
)
def test_data_of_other_kinds(lend, size):
    data = np.arange(size, dtype=np.uint8)
    np.testing.assert_array_equal(contents(ac.to_device(lend(data))), data)


def test_bytes_are_items_of_a_dtype_that_is_given():
    np.testing.assert_array_equal(contents(ac.to_device(np.arange(3.0).tobytes(), dtype=np.float64)), [0, 1, 2])
    with pytest.raises(ac.ArgumentValueError, match="7 bytes are no whole number of items of float64"):
        ac.to_device(bytes(7), dtype=np.float64)


@pytest.mark.parametrize("n", [10, LARGE])
def test_copy_between_numpy_and_page_locked_memory(n):
    data, out = numbers(n), np.zeros(n, np.int32)
    host = ac.empty_host(n, np.int32).sync(60)
    ac.copy(host, data).sync(60)
    np.testing.assert_array_equal(host.numpy(), data)
    assert ac.copy(out, host).sync(60) is out
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("n", [10, LARGE])
def test_to_host_writes_a_host_array(n):
    out = ac.empty_host(n, np.int32).sync(60)
    assert ac.to_host(device_array(numbers(n)), out).sync(60) is out
    np.testing.assert_array_equal(out.numpy(), numbers(n))


def test_numpy_arrays_over_page_locked_memory_are_copied_without_a_detour():
    data = numbers().reshape(7, -1) if LARGE % 7 == 0 else numbers(LARGE // 7 * 7).reshape(7, -1)
    host = contents(device_array(data))
    part = host[2:6, ::3]
    np.testing.assert_array_equal(contents(ac.to_device(part)), data[2:6, ::3])
    target = ac.empty_host(data.shape, np.int32).sync(60).numpy()
    target[...] = 0
    ac.to_host(device_array(part), target[2:6, ::3]).sync(60)
    np.testing.assert_array_equal(target[2:6, ::3], data[2:6, ::3])
    assert not target[:2].any()


@pytest.mark.parametrize("n", [30, LARGE])
def test_strided_arrays_on_the_device(n):
    data = numbers(n * 2).reshape(n, 2)
    there, out = device_array(data), np.zeros(n, np.int32)
    np.testing.assert_array_equal(ac.to_host(there[:, 1], out).sync(60), data[:, 1])
    ac.copy(there[:, 0], out).sync(60)
    np.testing.assert_array_equal(contents(there), np.repeat(data[:, 1:], 2, axis=1))
    np.testing.assert_array_equal(ac.to_host(ac.value(0).then(lambda _: there[:, 1]), out).sync(60), data[:, 1])


def test_a_kernel_behind_the_copy_sees_all_of_it(kernels):
    data = numbers()
    np.testing.assert_array_equal(contents(kernels.increment(ac.to_device(data), LARGE, threads=LARGE)), data + 1)


def test_a_copy_behind_a_kernel_brings_what_it_wrote(kernels):
    out = np.zeros(LARGE, np.int32)
    ac.to_host(kernels.increment(ac.to_device(numbers()), LARGE, threads=LARGE), out).sync(60)
    np.testing.assert_array_equal(out, numbers() + 1)


def test_the_order_of_operations_is_the_order_in_numpys_memory(kernels, latch):
    """A later operation, on any stream, reads what an earlier one wrote there. It may also write what an earlier one
    reads.
    """
    memory = np.zeros(LARGE, np.int32)
    latch.hold()
    first = ac.full(LARGE, 7, np.int32)
    writing = ac.to_host(first, memory).submit()
    reading = ac.to_device(memory).submit()
    overwriting = ac.to_host(ac.full(LARGE, 8, np.int32), memory).submit()
    again = ac.to_device(memory[::2]).submit()
    latch.release()
    for future in (writing, overwriting):
        assert future.sync(60) is memory
    assert (contents(reading.sync(60)) == 7).all()
    assert (contents(again.sync(60)) == 8).all()
    assert (memory == 8).all()


def test_memory_that_is_still_to_be_read_is_not_written(device, latch, settle):
    """More of it than a ring has room for, on a stream that is held; the writer is on another."""
    memory = np.full(20_000_000, 1, np.int32)
    reader, writer = device.stream(), device.stream()
    latch.hold(reader)
    with ac.use(reader):
        reading = ac.to_device(memory).submit()
    with ac.use(writer):
        writing = ac.to_host(ac.full(memory.shape, 2, np.int32), memory).submit()
    settle()
    assert not writing.done()
    assert (memory == 1).all()
    latch.release()
    writing.sync(60)
    assert (contents(reading.sync(60)) == 1).all()
    assert (memory == 2).all()


def test_small_data_written_by_a_copy_under_way_is_read_behind_it(latch):
    memory = np.zeros(4, np.int32)
    latch.hold()
    writing = ac.to_host(ac.full(4, 7, np.int32), memory).submit()
    reading = ac.to_device(memory).submit()
    latch.release()
    writing.sync(60)
    assert (contents(reading.sync(60)) == 7).all()


@pytest.mark.parametrize("n", [4, LARGE])
def test_the_loop_runs_while_copies_wait(run, latch, n):
    data, out = numbers(n), np.zeros(n, np.int32)
    there = device_array(np.zeros(n, np.int32))

    async def main() -> None:
        latch.hold()
        done = []

        async def copy_both_ways() -> None:
            await ac.to_host(ac.copy(there, data), out)
            done.append(True)

        async with anyio.create_task_group() as group:
            group.start_soon(copy_both_ways)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert not done
            latch.release()

    run(main)
    np.testing.assert_array_equal(out, data)


def test_cancelled_in_flight_the_copy_goes_on(run, latch):
    data = numbers()
    there = device_array(np.zeros_like(data))
    op = ac.copy(there, data)
    latch.hold()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(_await, op)
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        latch.release()

    run(main)
    np.testing.assert_array_equal(contents(there), data)


async def _await(op: Any) -> Any:
    return await op


def test_the_source_is_kept_until_it_has_been_read(latch):
    latch.hold()
    arrays = [ac.to_device(np.full(LARGE, i, np.int32)).submit() for i in range(6)]
    junk = [np.full(LARGE, -1, np.int32) for _ in range(6)]  # where the sources were, if they are gone
    latch.release()
    for i, future in enumerate(arrays):
        assert (contents(future.sync(60)) == i).all()
    assert len(junk) == 6


class Data(np.ndarray):
    """An array to which a weak reference can be made."""


def test_memory_is_let_go_of_when_its_copy_is_complete():
    out = np.zeros(LARGE, np.int32).view(Data)
    kept = weakref.ref(out)
    ac.to_host(device_array(numbers()), out).sync(60)
    del out
    assert kept() is None


def test_many_more_bytes_than_a_ring_has(run):
    """Copies of all streams at once, in both directions, over and over."""
    data = [np.full(3_000_000, i, np.int32) for i in range(12)]
    out = [np.zeros(3_000_000, np.int32) for _ in data]

    async def there_and_back(source: np.ndarray, target: np.ndarray) -> None:
        await ac.to_host(ac.dup(ac.to_device(source)), target)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for source, target in zip(data, out, strict=True):
                group.start_soon(there_and_back, source, target)

    run(main)
    for i, target in enumerate(out):
        assert (target == i).all()


def test_more_copies_than_the_drivers_queues_hold_do_not_block_the_loop(latch):
    """Held by a latch, nothing of this can pass; the submitting task must get through all the same."""
    data = np.zeros(2_000_000, np.int32)

    async def main() -> list[ac.DeviceArray]:
        latch.hold()
        tasks = [asyncio.ensure_future(_await(ac.to_device(data))) for _ in range(30)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert latch.is_holding
        latch.release()
        return list(await asyncio.gather(*tasks))

    assert len(asyncio.run(main())) == 30


def test_a_thread_that_submits_more_than_that_waits_without_the_gil(latch, settle):
    data = np.zeros(2_000_000, np.int32)
    futures: list[ac.DeviceFuture[ac.DeviceArray]] = []
    latch.hold()
    thread = threading.Thread(target=lambda: futures.extend(ac.to_device(data).submit() for _ in range(30)))
    thread.start()
    settle()
    assert latch.is_holding
    assert len(futures) < 30
    latch.release()
    thread.join(60)
    assert all(future.sync(60).size == data.size for future in futures)
    assert len(futures) == 30


@pytest.mark.needs_devices(2)
def test_one_device_does_not_wait_for_another(latch):
    latch.hold(0)
    waiting = ac.to_device(numbers(), 0).submit()
    np.testing.assert_array_equal(contents(ac.to_device(numbers(), 1)), numbers())
    assert not waiting.done()
    latch.release()
    waiting.sync(60)


@pytest.mark.emulated_only  # a GPU's driver has queues that streams share, and may hold one up behind another
def test_a_stream_that_waits_does_not_hold_up_the_others(device, latches):
    """Each has a ring of its own."""
    latch = latches()
    held, free = device.stream(), device.stream()
    latch.hold(held)
    with ac.use(held):
        waiting = ac.to_device(np.zeros(20_000_000, np.int32)).submit()
    there = ac.to_device(numbers()).sync_on(free, 60)
    assert latch.is_holding
    latch.release()
    waiting.sync(60)
    np.testing.assert_array_equal(contents(there), numbers())


def test_branches_with_copies_both_ways_in_one_walk():
    data = [np.full(LARGE, i, np.int32) for i in range(6)]
    out = [np.zeros(LARGE, np.int32) for _ in data]
    ac.zip(*(ac.to_host(ac.dup(ac.to_device(x)), y) for x, y in zip(data, out, strict=True))).sync(60)
    for i, target in enumerate(out):
        assert (target == i).all()


def test_copies_through_numpys_memory_in_one_walk():
    memory = np.zeros(LARGE, np.int32)
    with ac.use(ac.RoundRobin(4)):
        written = ac.to_host(ac.full(LARGE, 5, np.int32), memory)
        _, array = ac.zip(written, ac.to_device(memory)).sync(60)
        assert (contents(array) == 5).all()


def test_the_memory_and_the_threads_are_bounded_and_visible():
    for _ in range(3):
        contents(ac.to_device(np.zeros(80_000_000, np.uint8)))
    found = ac.statistics()
    assert 0 < found.staging_bytes <= 256 * len(ac.devices()) << 20
    assert 1 <= found.staging_threads <= 8
