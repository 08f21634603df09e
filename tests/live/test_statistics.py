"""Statistics: who holds memory, how long loops were held up, what was woken and staged."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._engine import held_up

AMOUNT = 1 << 20


def memory_of(device, *, largest=0):
    return next(each for each in ac.statistics(largest=largest).memory if each.device == device)


def here():
    frame = inspect.currentframe()
    return f"{__file__}:{frame.f_back.f_lineno}"


def test_there_is_an_entry_for_each_open_device_and_for_page_locked_memory():
    assert [each.device for each in ac.statistics().memory] == [*range(len(ac.devices())), None]


def test_arrays_of_a_device_and_what_is_kept_of_them():
    ac.Device(0).synchronize().sync()
    before = memory_of(0)
    x = ac.zeros(AMOUNT, np.uint8).sync()
    during = memory_of(0)
    assert during.arrays_bytes - before.arrays_bytes == AMOUNT
    assert during.peak_bytes >= during.arrays_bytes
    x.close()
    ac.Device(0).synchronize().sync()
    ac.zeros(1).sync()  # frees what is due
    after = memory_of(0)
    assert after.arrays_bytes < during.arrays_bytes
    assert after.kept_bytes >= during.kept_bytes


def test_lines_are_named_where_that_is_asked_for():
    x, place = ac.zeros(64 * AMOUNT, np.uint8).sync(), here()
    y, managed_place = ac.zeros(65 * AMOUNT, np.uint8, managed=True).sync(), here()
    locked, locked_place = ac.empty_host(63 * AMOUNT, np.uint8).sync(), here()
    assert memory_of(0).largest_places == ()
    first, second = memory_of(0, largest=2).largest_places
    assert (first.place, first.size_bytes, first.arrays) == (managed_place, 65 * AMOUNT, 1)
    assert (second.place, second.size_bytes, second.arrays) == (place, 64 * AMOUNT, 1)
    # The rings of copies that ran in this process before may be larger.
    locked_places = {each.place: each.size_bytes for each in memory_of(None, largest=100).largest_places}
    assert locked_places[locked_place] == 63 * AMOUNT
    assert memory_of(0).managed_bytes >= y.nbytes
    assert memory_of(None).arrays_bytes >= locked.nbytes
    del x


def test_the_number_of_lines_is_checked():
    with pytest.raises(ac.errors.ArgumentValueError, match="largest is a whole number, 0 or more; -1 was given"):
        ac.statistics(largest=-1)


def test_submissions_count(kernels):
    x = ac.zeros(4, np.int32).sync()
    before = ac.statistics().submitted
    kernels.increment(x, 4, threads=4).sync()
    assert ac.statistics().submitted == before + 1


def test_bytes_of_numpy_count_in_both_directions():
    data = np.arange(AMOUNT, dtype=np.float64)
    x = ac.to_device(data).sync()
    before = ac.statistics().staged_bytes
    ac.copy(x, data).sync()
    assert ac.statistics().staged_bytes == before + data.nbytes
    ac.to_host(x, out=np.empty(AMOUNT)).sync()
    assert ac.statistics().staged_bytes == before + 2 * data.nbytes


def test_a_loop_that_is_woken_counts(run, kernels, latch, device):
    stream = device.stream()
    latch.hold(stream)

    async def main():
        threading.Timer(0.01, latch.release).start()
        with ac.use(stream, spin_us=0):
            await kernels.increment(ac.zeros(4, np.int32), 4, threads=4)

    before = ac.statistics().wakes
    run(main)
    assert ac.statistics().wakes > before


LONG_S = 0.06  # a stall is longer than 0.05


@pytest.fixture
def stalls():
    """Return how many stalls there were since the test began."""
    before = ac.statistics().stalls
    return lambda: ac.statistics().stalls - before


def test_a_function_of_map_holds_its_loop_up(run, stalls):
    held = threading.Event()

    async def main():
        await ac.value(1).map(lambda _: held.wait(LONG_S))

    run(main)
    assert stalls() == 1
    assert ac.statistics().longest_stall_ns >= LONG_S * 1e9


@pytest.mark.parametrize("blocks", [False, True])
def test_a_wait_holds_its_loop_up_only_if_it_blocks(run, kernels, latch, device, stalls, blocks):
    stream = device.stream()
    latch.hold(stream)

    async def main():
        with ac.use(stream):
            op = kernels.increment(ac.zeros(4, np.int32), 4, threads=4)
            threading.Timer(LONG_S, latch.release).start()  # it is to end the wait
            if blocks:
                op.sync()
            else:
                await op

    run(main)
    assert stalls() == blocks
    assert not blocks or ac.statistics().longest_stall_ns >= LONG_S * 1e9


def test_a_thread_without_a_loop_holds_none_up(kernels, latch, device, stalls):
    stream = device.stream()
    latch.hold(stream)
    threading.Timer(LONG_S, latch.release).start()
    kernels.increment(ac.zeros(4, np.int32), 4, threads=4).sync_on(stream)
    assert stalls() == 0


def test_what_blocks_a_loop_in_python_holds_it_up(run, stalls):
    """Opening a device, compiling: what `AIOCUDA_DEBUG` tells of."""

    async def main():
        with held_up.Watched("waiting"):
            threading.Event().wait(LONG_S)

    run(main)
    assert stalls() == 1
