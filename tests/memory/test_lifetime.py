"""Memory lives until its last user has passed on the device, and comes back then; nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiocuda as ac


def test_memory_dropped_while_it_is_read_is_not_used_again_before(kernels, latch, device):
    """Dropped behind a latch, then reused by writers on another stream: the reader must not see them."""
    n, out = 4096, ac.zeros(4096, np.int32).sync()
    reading, writing = device.stream(), device.stream()
    x = ac.full(n, 7, np.int32).sync()
    latch.hold(reading)
    future = kernels.accumulate(1, x, out, n, threads=n).on(reading).submit()
    del x
    gc.collect()
    with ac.use(writing):
        others = [ac.full(n, i, np.int32).submit() for i in range(8)]
    latch.release()
    np.testing.assert_array_equal(ac.to_host(future.sync()).sync(), np.full(n, 7))
    for i, other in enumerate(others):
        assert (ac.to_host(other.sync()).sync() == i).all()


def test_memory_closed_while_it_is_written_is_not_used_again_before(kernels, latch, device):
    n = 4096
    writing = device.stream()
    x = ac.full(n, 7, np.int32).sync()
    latch.hold(writing)
    kernels.increment(x, n, threads=n).on(writing).submit()
    x.close()
    other = ac.full(n, 50, np.int32)
    copied = ac.to_host(other).submit()
    latch.release()
    assert (copied.sync() == 50).all()
    assert (ac.to_host(other).sync() == 50).all()


def test_page_locked_memory_dropped_while_it_is_read_is_not_used_again_before(latch, device):
    n, stream = 4096, device.stream()
    array = ac.empty(n, np.int32).sync()
    host = ac.empty_host(n, np.int32).sync()
    host.numpy()[:] = 7
    address = host.address
    latch.hold(stream)
    future = ac.copy(array, host).on(stream).submit()
    del host
    gc.collect()
    others = [ac.empty_host(n, np.int32).sync() for _ in range(4)]
    assert address not in [other.address for other in others]
    latch.release()
    np.testing.assert_array_equal(ac.to_host(future.sync()).sync(), np.full(n, 7))


def test_page_locked_memory_is_used_again_when_its_users_have_passed():
    array = ac.empty_host(3000).sync()
    address = array.address
    del array
    gc.collect()
    ac.ones(1).sync()
    kept = []
    for _ in range(50):
        kept.append(ac.empty_host(3000).sync())
        if kept[-1].address == address:
            break
    assert kept[-1].address == address


def test_page_locked_memory_that_is_not_kept_goes_back_when_the_devices_are_at_rest(in_process):
    """The driver waits for the devices before it takes such memory back, and launches wait meanwhile: for ever."""
    done = in_process(
        """
        import os
        import numpy as np, aiocuda as ac
        from aiocuda import _native

        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most_kept = min(max(memory_bytes // 16, 256 << 20), 4 << 30)
        hold = ac.kernel('extern "C" __global__ void hold(size_t flag) { while (!*(volatile int*)flag); }')
        flag, x = ac.empty_host(1, np.int32).sync(), ac.zeros(1000).sync()
        flag.numpy()[0] = 0
        large = ac.empty_host(most_kept + (1 << 20), np.uint8).sync()
        held = hold(flag.address, grid=1, block=1).on(ac.Device(0).stream()).submit()
        del large
        assert _native.page_locked_memory()[1] > most_kept
        assert (ac.to_host(ac.fill(x, 7)).sync() == 7).all()
        print("not done" if not held.done() else "done")
        flag.numpy()[0] = 1
        held.sync()
        while _native.page_locked_memory()[1] > most_kept:
            ac.zeros(10).sync()  # when an array goes, the engine looks
        """
    )
    assert done.returncode == 0
    assert done.stdout == "not done\n"


def test_used_bytes_counts_what_is_alive(used_bytes):
    before = used_bytes()
    arrays = [ac.ones(1000).sync() for _ in range(5)]
    assert used_bytes() == before + 5 * 4000
    arrays[2].close()
    assert used_bytes() == before + 4 * 4000
    del arrays
    assert used_bytes() == before


def test_memory_that_still_has_users_counts_as_used(kernels, latch, device, used_bytes):
    before = used_bytes()
    latch.hold(device)
    future = ac.full(1000, 3, np.int32).submit()
    assert sum(each.memory_info().used_bytes for each in ac.devices()) == before + 4000
    latch.release()
    future.sync()
    del future
    assert used_bytes() == before


def test_memory_info_is_consistent(device):
    info = device.memory_info()
    assert 0 < info.free_bytes <= info.total_bytes
    assert info.used_bytes >= 0
    assert info.pool_bytes >= 0
    with pytest.raises(AttributeError, match="cannot assign to field 'free_bytes'"):
        info.free_bytes = 3


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_out_of_memory_says_what_was_asked_and_what_is_there(device, used_bytes):
    before = used_bytes()
    total = device.memory_info().total_bytes
    op = ac.empty(total * 2, np.uint8)
    with pytest.raises(ac.OutOfMemoryError, match=r"device \d has no room for") as caught:
        op.sync()
    error = caught.value
    assert error.asked_bytes == total * 2
    assert 0 <= error.free_bytes <= error.total_bytes == total
    assert error.device == "device 0"
    assert str(total * 2) in str(error)
    assert used_bytes() == before


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_after_out_of_memory_the_process_goes_on(device, kernels):
    total = device.memory_info().total_bytes
    x = ac.full(4, 1, np.int32)
    y = kernels.increment(x, 4, threads=4)
    with pytest.raises(ac.OutOfMemoryError, match=r"device \d has no room for"):
        ac.zip(y, ac.empty(total * 2, np.uint8)).sync()
    with pytest.raises(MemoryError, match=r"device \d has no room for"):
        ac.dup(ac.empty(total * 2, np.uint8)).sync()
    np.testing.assert_array_equal(ac.to_host(y).sync(), [2, 2, 2, 2])


@pytest.mark.emulated_only
def test_memory_that_was_dropped_makes_room_for_more(in_process):
    done = in_process(
        """
        import numpy as np, aiocuda as ac
        total = ac.Device(0).memory_info().total_bytes
        size = total // 4
        for round_ in range(20):
            x = ac.ones(size, np.uint8).sync()
            assert ac.Device(0).memory_info().used_bytes <= 2 * size
        held = []
        try:
            while True:
                held.append(ac.empty(size, np.uint8).sync())
        except ac.OutOfMemoryError as error:
            assert error.free_bytes < size, error
        assert len(held) in (2, 3), len(held)
        held.clear()
        ac.empty(2 * size, np.uint8).sync()
        print("end")
        """,
        AIOCUDA_EMULATED_MEMORY="64M",
        AIOCUDA_EMULATED_DEVICES="1",
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def counts(used_bytes: Any) -> dict[str, int]:
    return {
        "bytes": used_bytes(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "streams": len([i for device in ac.devices() for i in _streams_of(device)]),
    }


def _streams_of(device: ac.Device) -> list[int]:
    from aiocuda import _native

    return _native.streams_of(device.ordinal)


def test_a_thousand_programs_leave_nothing(kernels, used_bytes):
    n = 256

    async def program(i: int) -> None:
        x = ac.to_device(np.full(n, i, np.int32))
        y = kernels.increment(x, n, threads=n)
        z = kernels.accumulate(1, y, ac.zeros(n, np.int32), n, threads=n)
        host = await ac.to_host(z).map(lambda host: host.copy())
        assert (host == i + 1).all()

    async def main(rounds: int) -> None:
        for i in range(rounds):
            await program(i)

    asyncio.run(main(20))
    before = counts(used_bytes)
    asyncio.run(main(1000))
    after = counts(used_bytes)
    assert after.pop("threads") <= before.pop("threads")  # threads of earlier tests may end meanwhile
    assert after.pop("files") <= before.pop("files") + 4  # which open some for a moment
    assert after == before


def test_a_thousand_streams_and_events_leave_nothing(device, kernels, used_bytes):
    x = ac.zeros(4, np.int32).sync()

    def program() -> None:
        stream = device.stream()
        kernels.increment(x, 4, threads=4).on(stream).submit()
        event = stream.record()
        device.stream().wait(event)
        event.sync()

    for _ in range(20):
        program()
    gc.collect()
    before = counts(used_bytes)
    for _ in range(300):
        program()
    ac.zeros(1).sync()
    after = counts(used_bytes)
    assert after["files"] <= before["files"] + 4
    assert after["bytes"] == before["bytes"]
    # On the emulated driver a stream is a thread; a few may still be closing.
    assert after["threads"] <= before["threads"] + 4
    assert after["streams"] <= before["streams"] + 4


def test_arrays_dropped_by_any_thread_while_another_submits(kernels, used_bytes):
    before = used_bytes()
    stop = threading.Event()
    arrays: list[Any] = []

    def drop() -> None:
        while not stop.is_set():
            if arrays:
                arrays.pop()
            gc.collect(0)

    def submit(seed: int) -> None:
        for i in range(200):
            x = ac.full(128, seed + i, np.int32).sync()
            arrays.append(x)
            y = kernels.accumulate(1, x, ac.zeros(128, np.int32), 128, threads=128)
            assert (ac.to_host(y).sync() == seed + i).all()

    droppers = [threading.Thread(target=drop) for _ in range(2)]
    for thread in droppers:
        thread.start()
    try:
        with ThreadPoolExecutor(3) as submitters:
            list(submitters.map(submit, [0, 1000, 2000]))
    finally:
        stop.set()
        for thread in droppers:
            thread.join()
    arrays.clear()
    assert used_bytes() == before


def test_arrays_dropped_by_the_collector_in_the_middle_of_a_submission(kernels, used_bytes):
    before = used_bytes()

    class Cycle:
        pass

    def litter(value: Any) -> Any:
        for _ in range(5):
            cycle = Cycle()
            cycle.itself, cycle.array = cycle, ac.ones(100).sync()
        del cycle
        gc.collect(0)
        return value

    x = ac.zeros(4, np.int32)
    for _ in range(20):
        x = kernels.increment(x, 4, threads=4).then(litter)
    np.testing.assert_array_equal(ac.to_host(x).sync(), [20] * 4)
    del x
    assert used_bytes() == before


@pytest.mark.emulated_only
@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("ac.zeros((6, 8), np.float64)", "ac.fill(x[1:5, 2:7], 0.1)"),
        ("ac.empty_host((6, 8))", "ac.copy(x[1:5, :4], x[1:5, 4:])"),
    ],
    ids=["fill", "copy"],
)
def test_memory_on_an_operations_way_is_freed_behind_its_allocation(in_process, make, change):
    """Also where the operation finds its stream full, and is submitted another time."""
    done = in_process(
        f"""
        import numpy as np
        import aiocuda as ac
        from aiocuda._driver.checking import raise_races
        arrays = [{make}.sync() for _ in range(8)]
        for streams in (1, 2, 3):
            with ac.use(ac.RoundRobin(streams), max_in_flight=1):
                for _ in range(4):
                    ac.zip(*({change} for x in arrays)).sync(60)
        for device in ac.devices():
            device.synchronize().sync()
        raise_races()
        print("end")
        """,
        AIOCUDA_EMULATOR_CHECK="races",
        AIOCUDA_EMULATOR_SHUFFLE="1",
    )
    assert done.stdout == "end\n", done.stderr
