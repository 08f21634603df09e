"""`shard`, `gather` and `replicate`: data over several devices, and back, by NumPy's own splitting."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac


def ordinals(n: int) -> list[int]:
    """Return as many devices as asked for; where there are too few, some more than once."""
    return [i % len(ac.devices()) for i in range(n)]


def host(x) -> np.ndarray:
    return ac.to_host(x).sync(60)


@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    parts=st.integers(1, 4),
    axis=st.integers(-3, 2),
    source=st.sampled_from(["numpy", "array", "operation", "host array"]),
)
def test_shard_divides_as_numpy_and_gather_puts_together(shape, parts, axis, source):
    axis = axis % len(shape) - len(shape) * (axis < 0)
    data = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    x = {
        "numpy": lambda: data,
        "array": lambda: ac.to_device(data).sync(60),
        "operation": lambda: ac.to_device(data),
        "host array": lambda: ac.copy(ac.empty_host(shape, np.int32), data).sync(60),
    }[source]()
    found = ac.shard(x, ordinals(parts), axis)
    assert len(found) == parts
    for part, expected in zip(found, np.array_split(data, parts, axis), strict=True):
        np.testing.assert_array_equal(host(part), expected)
    np.testing.assert_array_equal(host(ac.gather(found, axis=axis)), data)


@pytest.mark.needs_devices(2)
def test_parts_are_on_their_devices_and_the_whole_is_where_it_is_asked_for():
    data = np.arange(12).reshape(3, 4)
    parts = [part.sync(60) for part in ac.shard(data, [1, 0], axis=1)]
    assert [part.device.ordinal for part in parts] == [1, 0]
    assert [part.shape for part in parts] == [(3, 2), (3, 2)]
    assert ac.gather(parts, device=1, axis=-1).sync(60).device == ac.Device(1)
    with ac.use(1):
        whole = ac.gather(parts, axis=1)
    assert whole.sync(60).device == ac.Device(1)
    np.testing.assert_array_equal(host(whole), data)


def test_all_devices_are_taken_where_none_is_named():
    devices = ac.devices()
    parts = ac.shard(np.zeros(len(devices)))
    copies = ac.replicate(np.zeros(3))
    for made in (parts, copies):
        assert [part.sync(60).device for part in made] == devices


def test_the_first_parts_get_one_more():
    assert [part.sync(60).shape for part in ac.shard(np.zeros(7), ordinals(3))] == [(3,), (2,), (2,)]
    assert [part.sync(60).shape for part in ac.shard(np.zeros(1), ordinals(3))] == [(1,), (0,), (0,)]


def test_a_part_of_an_array_on_its_device_is_a_view_of_it(kernels):
    x = ac.zeros(8, np.int32, device=0).sync(60)
    (whole,) = ac.shard(x, [0])
    left, right = ac.shard(x, [0, 0])
    kernels.increment(left, 4, threads=4).sync(60)
    assert host(x).tolist() == [1] * 4 + [0] * 4
    assert whole.sync(60).address == x.address
    assert right.sync(60).address == x.address + 16
    (same,) = ac.replicate(x, [0])
    assert same.sync(60) is x


@pytest.mark.needs_devices(2)
def test_a_part_on_another_device_is_a_copy(kernels):
    x = ac.zeros(8, np.int32, device=0).sync(60)
    _, right = ac.shard(x, [0, 1])
    kernels.increment(right, 4, threads=4).sync(60)
    assert host(right).tolist() == [1] * 4
    assert host(x).tolist() == [0] * 8


@given(parts=st.integers(1, 3), source=st.sampled_from(["numpy", "array", "operation", "host array"]))
def test_replicas_have_the_same_data(parts, source):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = {
        "numpy": lambda: data,
        "array": lambda: ac.to_device(data).sync(60),
        "operation": lambda: ac.to_device(data),
        "host array": lambda: ac.copy(ac.empty_host((2, 3)), data).sync(60),
    }[source]()
    copies = ac.replicate(x, ordinals(parts))
    assert len(copies) == parts
    for each in copies:
        np.testing.assert_array_equal(host(each), data)


def test_replicas_of_host_data_are_arrays_of_their_own(kernels):
    first, second = ac.replicate(np.zeros(4, np.int32), [0, 0])
    kernels.increment(first, 4, threads=4).sync(60)
    assert host(first).tolist() == [1] * 4
    assert host(second).tolist() == [0] * 4


def test_host_data_is_read_when_the_parts_are_executed():
    data = np.zeros(4, np.int32)
    parts, copies = ac.shard(data, [0, 0]), ac.replicate(data, [0, 0])
    data[:] = 5
    for each in (*parts, *copies):
        assert set(host(each).tolist()) == {5}


@pytest.mark.needs_devices(2)
def test_data_parallel_work_is_a_map_over_the_parts(kernels):
    data = np.arange(100, dtype=np.int32)
    done = [kernels.increment(part, 50, threads=50) for part in ac.shard(data, [0, 1])]
    np.testing.assert_array_equal(host(ac.gather(done)), data + 1)


@pytest.mark.needs_devices(2)
def test_work_on_one_device_does_not_wait_for_a_part_on_another(kernels, latch):
    parts = ac.shard(np.zeros(8, np.int32), [0, 1])
    for part in parts:
        part.sync(60)
    latch.hold(0)
    slow = kernels.increment(parts[0], 4, threads=4).submit()
    with ac.use(1):
        kernels.increment(parts[1], 4, threads=4).sync(60)
    assert not slow.done()


def test_gathering_waits_for_who_writes_the_parts(kernels, latch, settle):
    parts = [ac.zeros(4, np.int32).sync(60) for _ in range(2)]
    latch.hold(0)
    for part in parts:
        kernels.increment(part, 4, threads=4).submit()
    whole = ac.gather(parts)
    future = whole.submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(whole).tolist() == [1] * 8


def test_parts_may_be_strided_and_of_page_locked_memory():
    x = ac.to_device(np.arange(8, dtype=np.int32)).sync(60)
    y = ac.copy(ac.empty_host(2, np.int32), np.array([10, 11], np.int32)).sync(60)
    assert host(ac.gather([x[::4], y, ac.dup(x[1:3])])).tolist() == [0, 4, 10, 11, 1, 2]


def test_memory_comes_back(used_bytes):
    gc.collect()
    before = used_bytes()
    data = np.zeros(1000)
    for _ in range(3):
        assert host(ac.gather(ac.shard(data, ordinals(2)))).shape == (1000,)
        [each.sync(60) for each in ac.replicate(data, ordinals(2))]
    assert used_bytes() == before


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_no_device_is_an_error():
    for function in (ac.shard, ac.replicate):
        with pytest.raises(ac.ArgumentValueError, match="one device or more"):
            function(np.zeros(3), [])
        with pytest.raises(ac.ArgumentValueError, match="no device 99"):
            function(np.zeros(3), [99])
        with pytest.raises(ac.ArgumentTypeError, match="ordinal"):
            function(np.zeros(3), [b"0"])


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_is_not_there_is_an_error(axis):
    data = np.zeros((2, 2))
    with pytest.raises(ac.ArgumentValueError, match=f"no axis {axis}"):
        ac.shard(data, [0], axis)
    with pytest.raises(ac.ArgumentValueError, match=f"no axis {axis}"):
        ac.shard(ac.to_device(data), [0], axis)[0].sync(60)
    with pytest.raises(ac.ArgumentValueError, match=f"no axis {axis}"):
        ac.gather([ac.to_device(data).sync(60)], axis=axis)


def test_an_array_without_axes_cannot_be_divided():
    with pytest.raises(ac.ArgumentValueError, match="no axis 0"):
        ac.shard(np.float32(3), [0])


def test_what_is_no_array_cannot_be_divided_or_put_together():
    with pytest.raises(ac.ArgumentTypeError, match=r"object .* is no array data in host memory"):
        ac.shard(object(), [0])
    with pytest.raises(ac.ArgumentTypeError, match="shard divides an array"):
        ac.shard(ac.value(3), [0])[0].sync(60)
    with pytest.raises(ac.ArgumentTypeError, match="gather takes arrays"):
        ac.gather([ac.zeros(3), ac.value(3)]).sync(60)
    with pytest.raises(ac.ArgumentTypeError, match="gather takes arrays"):
        ac.gather([np.zeros(3)]).sync(60)


def test_no_parts_are_an_error():
    with pytest.raises(ac.ArgumentValueError, match="none were given"):
        ac.gather([])


@pytest.mark.parametrize(
    "other", [np.zeros((2, 4)), np.zeros((2, 3), np.int32), np.zeros(3), np.zeros((1, 2, 3))], ids=str
)
def test_parts_that_do_not_fit_are_an_error_that_shows_both(other):
    parts = [ac.to_device(np.zeros((2, 3))), ac.to_device(other)]
    with pytest.raises(ac.ArgumentValueError, match="does not fit"):
        ac.gather(parts).sync(60)
    with pytest.raises(ac.ArgumentValueError, match="does not fit"):
        ac.gather([part.sync(60) for part in parts])
