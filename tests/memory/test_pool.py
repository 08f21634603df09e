"""How much memory a device's memory pool holds, what it keeps that nobody uses, and when it gives that back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._driver import runtime

SIZE = 256 << 20  # more than the piece in which a driver gives memory back


@pytest.fixture(autouse=True)
def kept_as_at_first(device) -> Iterator[None]:
    yield
    device.set_memory_pool()


def used_and_dropped(device: ac.Device) -> None:
    ac.zeros(SIZE, np.uint8).sync()
    device.synchronize().sync()


def test_memory_that_is_not_used_stays_until_it_is_trimmed(device):
    device.trim_memory()
    before = device.memory_info()
    used_and_dropped(device)
    kept = device.memory_info()
    assert kept.pool_bytes >= SIZE
    assert kept.used_bytes == before.used_bytes
    given_back = device.trim_memory()
    after = device.memory_info()
    assert given_back == kept.pool_bytes - after.pool_bytes >= SIZE // 2
    assert device.trim_memory() == 0


def test_trimming_keeps_what_is_asked_for_and_what_is_in_use(device):
    used_and_dropped(device)
    kept = device.memory_info().pool_bytes
    assert kept >= SIZE
    assert device.trim_memory(kept) == 0
    assert device.trim_memory(2**80) == 0
    held = ac.full(SIZE, 7, np.uint8).sync()
    device.trim_memory()
    assert device.memory_info().pool_bytes >= SIZE
    assert (ac.to_host(held[:100]).sync() == 7).all()
    del held


def test_memory_whose_last_user_has_not_passed_is_not_given_back(device, latch):
    stream = device.stream()
    x = ac.zeros(SIZE, np.uint8).sync_on(stream)
    device.trim_memory()  # managed memory of tests before: to free it waits for the device, which the latch holds
    latch.hold(stream)
    user = ac.copy(x, np.ones(SIZE, np.uint8)).on(stream).submit()
    del x, user
    device.trim_memory()
    assert device.memory_info().pool_bytes >= SIZE
    latch.release()
    stream.synchronize().sync()


def test_with_a_threshold_memory_goes_back_when_the_driver_is_waited_for(device):
    device.trim_memory()
    device.set_memory_pool(release_threshold=0)
    used_and_dropped(device)
    wait_through_the_driver(device)
    assert device.memory_info().pool_bytes < SIZE
    device.set_memory_pool(release_threshold=2 * SIZE)
    used_and_dropped(device)
    wait_through_the_driver(device)
    assert device.memory_info().pool_bytes >= SIZE


def wait_through_the_driver(device: ac.Device) -> None:
    from cuda.bindings import driver

    (result,) = driver.cuStreamSynchronize(driver.CUstream(device.default_stream.handle))
    assert int(result) == 0


@pytest.mark.parametrize("wrong", [-1, 1.5, "1G", True])
def test_sizes_are_whole_numbers_of_bytes(device, wrong):
    with pytest.raises(ac.ArgumentValueError, match="release_threshold is a whole number, 0 or more"):
        device.set_memory_pool(release_threshold=wrong)
    with pytest.raises(ac.ArgumentValueError, match="keep_bytes is a whole number, 0 or more"):
        device.trim_memory(wrong)
    with pytest.raises(ac.ArgumentValueError, match="max_bytes is a whole number, 1 or more"):
        device.set_memory_pool(max_bytes=wrong)


def test_settings_are_read_and_what_is_not_given_is_as_at_first(device):
    assert device.memory_pool == ac.MemoryPool(release_threshold=None, max_bytes=None)
    both = device.set_memory_pool(release_threshold=SIZE, max_bytes=3 * SIZE)
    assert both == device.memory_pool == ac.MemoryPool(SIZE, 3 * SIZE)
    assert device.set_memory_pool(max_bytes=2**80) == ac.MemoryPool(None, None)  # more than there is is no bound
    assert device.set_memory_pool(max_bytes=SIZE) == ac.MemoryPool(None, SIZE)
    assert device.set_memory_pool() == ac.MemoryPool(None, None)


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_a_pool_holds_no_more_than_it_may(device):
    before = ac.full(SIZE, 5, np.uint8).sync()  # of the pool that there was: it counts no more
    device.set_memory_pool(max_bytes=2 * SIZE)
    assert device.memory_info().free_bytes <= 2 * SIZE
    held = ac.full(SIZE, 6, np.uint8).sync()
    with pytest.raises(ac.OutOfMemoryError, match=r"memory pool of device \d+, as set_memory_pool") as raised:
        ac.zeros(2 * SIZE, np.uint8).sync()
    assert raised.value.total_bytes == 2 * SIZE
    assert raised.value.free_bytes <= SIZE
    assert raised.value.asked_bytes == 2 * SIZE
    assert (ac.to_host(before[-100:]).sync() == 5).all()
    assert (ac.to_host(held[-100:]).sync() == 6).all()
    del held
    again = ac.full(SIZE, 7, np.uint8).sync()  # what was freed is there again
    assert (ac.to_host(again[-100:]).sync() == 7).all()


def test_memory_of_a_former_pool_goes_back_when_it_is_freed(device):
    device.trim_memory()
    used = device.memory_info().used_bytes
    array = ac.full(SIZE, 5, np.uint8).sync()
    later = ac.copy(array, ac.dup(array)).submit()
    device.set_memory_pool(max_bytes=8 * SIZE)
    later.sync()
    beside = ac.dup(array).sync()
    assert (ac.to_host(beside[-100:]).sync() == 5).all()
    del array, later, beside
    device.synchronize().sync()
    assert device.memory_info().used_bytes == used
    device.set_memory_pool()
    assert (ac.to_host(ac.ones(100)).sync() == 1).all()


def test_a_former_pool_is_there_until_it_holds_nothing(device, monkeypatch):
    from cuda.bindings import driver

    destroyed, destroy = [], driver.cuMemPoolDestroy

    def noted(pool):
        destroyed.append(int(pool))
        return destroy(pool)

    monkeypatch.setattr(driver, "cuMemPoolDestroy", noted)
    device.set_memory_pool(max_bytes=8 * SIZE)
    device.trim_memory()
    array = ac.full(SIZE, 5, np.uint8).sync()
    opened = runtime._open[device.ordinal]
    pool = opened.pool
    device.set_memory_pool()
    device.memory_info()
    assert pool in opened.former
    assert int(pool) not in destroyed
    del array
    device.synchronize().sync()
    device.memory_info()
    assert pool not in opened.former
    assert int(pool) in destroyed


@pytest.mark.needs_devices(2)
def test_with_a_bound_arrays_are_copied_between_devices(device):
    device.set_memory_pool(max_bytes=4 * SIZE)
    there = ac.arange(1000, device=0).to(1)
    np.testing.assert_array_equal(ac.to_host(there.then(lambda x: x.to(0))).sync(), np.arange(1000))
