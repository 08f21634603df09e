"""A device's memory is accounted for: what is in use, what was at most, and which lines of the program hold it."""

from __future__ import annotations

import gc
import inspect
import pickle

import numpy as np
import pytest

import aiocuda as ac

SIZE = 1 << 20
THRESHOLDS = gc.get_threshold()


@pytest.fixture(autouse=True)
def no_arrays_of_tests_before() -> None:
    gc.collect()  # a test that caught an error may have left its frame, and what that holds, in a cycle


def here(offset: int = 0) -> str:
    """The caller's line, as the library writes it."""
    frame = inspect.stack()[1]
    return f"{frame.filename}:{frame.lineno + offset}"


def test_the_largest_arrays_are_named_with_the_lines_that_made_them(device):
    small = [ac.zeros(SIZE, np.uint8).sync() for _ in range(5)]
    places = [here(-1)]
    large = ac.to_device(np.zeros(3 * SIZE, np.uint8)).sync()
    places.append(here(-1))
    info = device.memory_info(largest=2)
    assert info.largest_arrays[0] == ac.MemoryHolder(places[1], 3 * SIZE, 1)
    assert info.largest_arrays[1].size_bytes == SIZE
    assert info.largest_places == (ac.MemoryHolder(places[0], 5 * SIZE, 5), ac.MemoryHolder(places[1], 3 * SIZE, 1))
    del small, large
    left = device.memory_info(largest=100)
    assert not {each.place for each in left.largest_arrays} & set(places)


def test_arrays_that_the_garbage_collector_frees_meanwhile_do_no_harm(device):
    """Accounts are objects, and where Python makes many objects it may collect garbage."""
    for first in range(4):
        gc.collect()
        gc.disable()
        try:
            arrays = [ac.zeros(16, np.uint8).sync() for _ in range(600)]
            place = here(-1)
            for i in range(first % 2, len(arrays), 2):
                cycle = [arrays[i]]
                cycle.append(cycle)
                arrays[i] = None
            del cycle
            gc.set_threshold(gc.get_count()[0] + 250 + first, 1000, 1000)  # in the middle of the accounts
        finally:
            gc.enable()
        found = device.memory_info(largest=100)
        gc.set_threshold(*THRESHOLDS)
        assert [300 <= each.arrays <= 600 for each in found.largest_places if each.place == place] == [True]


def test_all_arrays_together_are_what_is_in_use(device):
    held = [ac.zeros(1000 * (i + 1), np.uint8).sync() for i in range(4)]
    info = device.memory_info(largest=10**6)
    assert sum(each.size_bytes for each in info.largest_arrays) == info.used_bytes
    assert sum(each.size_bytes for each in info.largest_places) == info.used_bytes
    assert sum(each.arrays for each in info.largest_places) == len(info.largest_arrays)
    del held


def test_views_keep_the_memory_of_the_array_that_they_are_views_of(device):
    view = ac.zeros(SIZE, np.uint8).sync()[:10]
    place = here(-1)
    assert ac.MemoryHolder(place, SIZE, 1) in device.memory_info(largest=100).largest_arrays
    del view


def test_what_a_kernel_and_a_copy_made_is_the_operations_line(device, kernels):
    made = kernels.increment(ac.full(SIZE, 1, np.int32), SIZE, threads=SIZE).sync()
    place = here(-1)
    copied = ac.dup(made).sync()
    assert {(place, 4 * SIZE), (here(-1), 4 * SIZE)} <= {
        (each.place, each.size_bytes) for each in device.memory_info(largest=100).largest_arrays
    }
    del copied


def test_memory_of_a_graph_is_the_line_that_made_the_graph(device, kernels):
    op = kernels.increment(ac.full(SIZE, 1, np.int32), SIZE, threads=SIZE)
    graph = op.graph()
    assert (here(-1), 4 * SIZE) in {(h.place, h.size_bytes) for h in device.memory_info(largest=100).largest_places}
    graph.close()


def test_nothing_is_named_unless_asked_for(device):
    held = ac.zeros(SIZE, np.uint8).sync()
    info = device.memory_info()
    assert (info.largest_arrays, info.largest_places) == ((), ())
    for wrong in (-1, 1.5, "all"):
        with pytest.raises(ac.ArgumentValueError, match="largest"):
            device.memory_info(largest=wrong)
    del held


def test_the_most_that_was_in_use_is_remembered_until_it_is_reset(device):
    device.reset_peak_memory()
    before = device.memory_info()
    assert before.peak_bytes == before.used_bytes
    arrays = [ac.zeros(SIZE, np.uint8).sync() for _ in range(3)]
    del arrays
    ac.zeros(SIZE, np.uint8).sync()
    after = device.memory_info()
    assert after.peak_bytes == before.used_bytes + 3 * SIZE
    assert after.used_bytes == before.used_bytes
    device.reset_peak_memory()
    assert device.memory_info().peak_bytes == before.used_bytes


@pytest.mark.needs_devices(2)
def test_each_device_has_an_account_of_its_own(device):
    other = ac.Device(1)
    other.reset_peak_memory()
    before = other.memory_info()
    held = ac.zeros(SIZE, np.uint8).sync()
    after = other.memory_info()
    assert (after.used_bytes, after.peak_bytes) == (before.used_bytes, before.peak_bytes)
    there = ac.zeros(2 * SIZE, np.uint8, other).sync()
    assert other.memory_info().used_bytes == before.used_bytes + 2 * SIZE
    assert (here(-2), 2 * SIZE) == (
        other.memory_info(largest=1).largest_arrays[0].place,
        other.memory_info(largest=1).largest_arrays[0].size_bytes,
    )
    del held, there


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_out_of_memory_says_which_lines_hold_the_most(device):
    held = [ac.zeros(SIZE, np.uint8).sync() for _ in range(3)]
    place = here(-1)
    total = device.memory_info().total_bytes
    with pytest.raises(ac.OutOfMemoryError, match=r"has no room for .* the most is held: 3\.00 MiB") as caught:
        ac.empty(2 * total, np.uint8).sync()
    error = caught.value
    assert (f"3 arrays made at {place}", 3 * SIZE) in error.holders
    assert 1 <= len(error.holders) <= 4
    assert [size for _, size in error.holders] == sorted((size for _, size in error.holders), reverse=True)
    assert f"3.00 MiB ({3 * SIZE} B) by 3 arrays made at {place}" in str(error)
    assert pickle.loads(pickle.dumps(error)).holders == error.holders
    del held


@pytest.mark.driver_refuses("cuMemHostAlloc")
def test_page_locked_memory_that_is_exhausted_says_who_holds_it():
    kept = ac.empty_host(100 * SIZE, np.uint8).sync()
    place = here(-1)
    more_than_addresses = 1 << 50  # of less, a driver locks what there is before it gives up
    with pytest.raises(ac.OutOfMemoryError, match=r"page-locked host memory has no room for 1024\.00 TiB") as caught:
        ac.empty_host(more_than_addresses, np.uint8).sync()
    error = caught.value
    assert (error.device, error.asked_bytes) == ("page-locked host memory", more_than_addresses)
    assert error.total_bytes >= 100 * SIZE
    assert (f"1 array made at {place}", 100 * SIZE) in error.holders
    del kept
