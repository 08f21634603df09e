"""The attributes and `repr` of arrays, closing, and page-locked memory that the device is using."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import aiocuda as ac


def test_an_array_describes_itself_as_numpys_does():
    for shape in [(), (3,), (2, 3, 4), (2, 0, 3)]:
        expected = np.empty(shape, np.int16)
        for array in (ac.empty(shape, np.int16).sync(), ac.empty_host(shape, np.int16).sync()):
            for name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes"):
                assert getattr(array, name) == getattr(expected, name), name
            assert repr(list(shape)) in repr(array)


@pytest.mark.parametrize("kind", [ac.DeviceArray, ac.HostArray, ac.Partition])
def test_arrays_are_made_by_operations_alone(kind):
    for arguments in ((), (3,), ((2, 3), np.int32)):
        with pytest.raises(ac.ArgumentTypeError, match=r"arrays are made by operations, such as .*; partitions by"):
            kind(*arguments)


def test_an_array_tells_its_kind_and_its_story():
    array = ac.empty((4, 2), np.int16).sync()
    assert repr(array) == "<DeviceArray int16[4, 2] on device 0>"
    assert repr(ac.empty_host(3, np.int8).sync()).startswith("<HostArray int8[3]")
    assert repr(ac.empty(3, np.int8, managed=True).sync()) == "<DeviceArray int8[3], managed, on device 0>"
    with array.partition((2, 1)) as tiles:
        assert repr(tiles) == "<Partition int16[4, 2] in tiles of [2, 1] on device 0>"
        assert f"<DeviceArray int16[4, 2] on device 0, partitioned at {__file__}" in repr(array)
    array.close()
    assert f"<DeviceArray int16[4, 2] on device 0, was closed at {__file__}" in repr(array)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (5, 1)], ids=str)
def test_strides_are_numpys(shape):
    assert ac.empty(shape, np.float64).sync().strides == np.empty(shape).strides


def test_len_is_the_first_extent():
    assert len(ac.empty((4, 2)).sync()) == 4
    with pytest.raises(TypeError, match="no length"):
        len(ac.empty(()).sync())


def test_an_array_has_no_truth_value():
    for array in (ac.empty(1).sync(), ac.empty_host(1).sync()):
        with pytest.raises(ac.ArgumentTypeError, match="truth value"):
            bool(array)


def test_a_device_array_is_not_silently_brought_to_the_host():
    with pytest.raises(ac.ArgumentTypeError, match="to_host"):
        np.asarray(ac.ones(3).sync())


def test_close_ends_the_use_and_twice_is_fine(used_bytes):
    before = used_bytes()
    array = ac.ones(1000).sync()
    assert not array.is_closed
    array.close()
    array.close()
    assert array.is_closed
    assert f"was closed at {__file__}" in repr(array)
    assert used_bytes() == before
    with pytest.raises(ac.ClosedError, match="was closed at"):
        array.address  # noqa: B018


def test_a_closed_host_array_gives_no_view():
    array = ac.empty_host(3).sync()
    array.close()
    with pytest.raises(ac.ClosedError, match=r"numpy\(\): .* was closed at"):
        array.numpy()


def test_a_moved_host_array_gives_no_view():
    array = ac.empty_host(3).sync()
    kept = ac.move(array)
    with pytest.raises(ac.OwnershipError, match=r"numpy\(\): .* was moved at"):
        array.numpy()
    assert kept.numpy().shape == (3,)


def test_a_view_outlives_its_closed_array():
    array = ac.empty_host(1000, np.int32).sync()
    view = array.numpy()
    view[:] = 7
    array.close()
    del array
    gc.collect()
    other = ac.empty_host(1000, np.int32).sync()
    other.numpy()[:] = 8
    assert (view == 7).all()


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex128", "bfloat16", "S3"])
@pytest.mark.parametrize("shape", [(), (0,), (4, 5)], ids=str)
def test_numpy_is_a_live_view(dtype, shape):
    array = ac.empty_host(shape, dtype).sync()
    view = array.numpy()
    assert (view.shape, view.dtype) == (array.shape, array.dtype)
    if view.size:
        assert view.ctypes.data == array.address == array.numpy().ctypes.data


def test_a_host_array_is_numpys_array():
    array = ac.empty_host(3, np.int32).sync()
    array.numpy()[:] = [1, 2, 3]
    assert np.asarray(array).sum() == 6
    assert np.asarray(array, np.float64).dtype == np.float64
    copied = np.array(array, copy=True)
    copied[:] = 0
    assert np.asarray(array).sum() == 6


def test_numpy_is_refused_while_the_device_writes(latch):
    host, array = ac.empty_host(4, np.int32).sync(), ac.full(4, 3, np.int32).sync()
    latch.hold()
    copying = ac.copy(host, array).submit()
    with pytest.raises(ac.ArgumentValueError, match="still writing"):
        host.numpy()
    latch.release()
    copying.sync()
    np.testing.assert_array_equal(host.numpy(), [3, 3, 3, 3])


def test_numpy_is_refused_while_the_device_reads(latch):
    host, array = ac.empty_host(4, np.int32).sync(), ac.empty(4, np.int32).sync()
    latch.hold()
    copying = ac.copy(array, host).submit()
    with pytest.raises(ac.ArgumentValueError, match="still reading"):
        host.numpy()
    latch.release()
    copying.sync()
    host.numpy()


def test_page_locked_memory_is_there_at_once(latch):
    latch.hold()
    array = ac.empty_host(4, np.int32).sync(timeout=10)
    array.numpy()[:] = 5
    assert latch.is_holding


def test_host_data_may_change_as_soon_as_it_was_submitted(latch):
    data = np.full(1000, 1, np.int32)
    latch.hold()
    future = ac.to_host(ac.to_device(data)).submit()
    data[:] = 2
    latch.release()
    assert (future.sync() == 1).all()
