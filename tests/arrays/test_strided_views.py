"""Strided views: operations read, copy, write and show the items that NumPy picks; disjoint views do not wait."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strided import PLACES, contents, in_page_locked, numbers, on_device, shapes, views_of

import aiocuda as ac

DTYPES = ["int8", "int16", "bfloat16", "int32", "float64", "complex128"]  # items of 1 to 16 bytes
VIEWS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void fill(int value, aiocuda::View<int, 2> x) {
    for (long long i = 0; i < x.extent(0); ++i)
        for (long long j = 0; j < x.extent(1); ++j) x(i, j) = value;
}
extern "C" __global__ void twice(aiocuda::View<const int, 1> x, aiocuda::View<int, 1> y) {
    for (long long i = 0; i < x.extent(0); ++i) y(i) = 2 * x(i);
}
extern "C" __global__ void by_pointer(const int* x) {}
"""
fill = ac.kernel(VIEWS, "fill")
twice = ac.kernel(VIEWS, "twice")
by_pointer = ac.kernel(VIEWS, "by_pointer")


def same_strides(array, data):
    """NumPy's, except for axes along which nothing is stepped."""
    stepped = [axis for axis, extent in enumerate(data.shape) if extent > 1]
    return data.size == 0 or all(array.strides[axis] == data.strides[axis] for axis in stepped)


@given(st.data(), shapes, st.sampled_from(DTYPES), st.sampled_from(list(PLACES)))
def test_a_view_is_what_numpy_picks(draws, shape, dtype, place):
    data = numbers(*shape, dtype=dtype)
    picked, view = views_of(draws.draw, data, PLACES[place](data))
    assert (view.shape, view.dtype, view.nbytes) == (picked.shape, picked.dtype, picked.nbytes)
    assert same_strides(view, picked)
    assert view.is_contiguous == picked.flags.c_contiguous
    assert str(list(picked.shape)) in repr(view)
    if picked.ndim:
        assert len(view) == len(picked)
    np.testing.assert_array_equal(contents(view), picked)
    twin = ac.dup(view).sync()
    assert type(twin) is type(view)
    assert twin.is_contiguous
    np.testing.assert_array_equal(contents(twin), picked)
    np.testing.assert_array_equal(contents(ac.to_device(view)), picked)
    if place == "page-locked":
        shown = view.numpy()
        assert (shown.shape, shown.dtype) == (picked.shape, picked.dtype)
        assert same_strides(view, shown)
        np.testing.assert_array_equal(shown, picked)


@given(st.data(), shapes, st.sampled_from(DTYPES), st.sampled_from(list(PLACES)), st.sampled_from(list(PLACES)))
def test_copies_between_views_write_what_numpy_writes(draws, shape, dtype, to, source):
    """From a view of one array to a view of as many items of another."""
    data = numbers(*shape, dtype=dtype)
    origin = PLACES[source](data)
    picked, view = views_of(draws.draw, data, origin)
    # Around the destination lies what must not change.
    frame = tuple(extent + draws.draw(st.integers(0, 3)) for extent in (d * 2 for d in picked.shape))
    key = tuple(
        slice(draws.draw(st.integers(0, each - 2 * extent)), None, draws.draw(st.sampled_from([1, 2])))
        for each, extent in zip(frame, picked.shape, strict=True)
    )
    key = tuple(
        slice(k.start, k.start + k.step * extent if extent else k.start, k.step)
        for k, extent in zip(key, picked.shape, strict=True)
    )
    expected = np.zeros(frame, data.dtype)
    destination = PLACES[to](expected)
    part = destination[key]
    assert ac.copy(part, view).sync() is part
    expected[key] = picked
    np.testing.assert_array_equal(contents(destination), expected)
    np.testing.assert_array_equal(contents(origin), data)


@given(st.data(), shapes)
def test_parts_of_one_array_are_copied_unless_they_overlap(draws, shape):
    data = numbers(*shape)
    array = on_device(data)
    picked, view = views_of(draws.draw, data, array)
    other, other_view = views_of(draws.draw, data, array)
    assume(picked.shape == other.shape)
    if not np.shares_memory(picked, other):
        ac.copy(view, other_view).sync()
        picked[...] = other.copy()
    elif (view.address, view.strides) != (other_view.address, other_view.strides) and picked.size > 1:
        with pytest.raises(ac.ArgumentValueError, match="overlap"):
            ac.copy(view, other_view).sync()
    np.testing.assert_array_equal(contents(array), data)


def test_neighbouring_columns_of_many_rows_are_copied_to_one_another():
    data = numbers(200, 6)
    array = on_device(data)
    ac.copy(array[:, :3], array[:, 3:]).sync()
    data[:, :3] = data[:, 3:]
    np.testing.assert_array_equal(contents(array), data)


@given(st.data(), shapes, shapes)
def test_reshape_is_a_view_where_numpys_is_one(draws, shape, asked):
    data = numbers(*shape)
    picked, view = views_of(draws.draw, data, on_device(data))
    if math.prod(asked) != picked.size:
        asked = draws.draw(st.permutations([*picked.shape, 1]))
        if draws.draw(st.booleans()) and len(asked) > 1:
            asked = [asked[0] * asked[1], *asked[2:]]
    expected = picked.reshape(asked)
    if picked.size == 0 or np.shares_memory(expected, picked):
        seen = view.reshape(*asked)
        assert seen.shape == expected.shape
        assert same_strides(seen, expected)
        np.testing.assert_array_equal(contents(seen), expected)
    else:
        with pytest.raises(ac.ArgumentValueError, match=r"dup\(\) it first"):
            view.reshape(*asked)
        np.testing.assert_array_equal(contents(ac.dup(view).sync().reshape(*asked)), expected)


@given(st.data(), shapes, st.sampled_from(["int8", "int16", "float32", "int64", "complex128"]))
def test_a_view_of_another_dtype_is_numpys(draws, shape, dtype):
    data = numbers(*shape)
    picked, view = views_of(draws.draw, data, on_device(data))
    try:
        expected = picked.view(dtype)
    except ValueError:
        with pytest.raises(ac.ArgumentValueError, match=r"view: .* (items of|hold no whole number of items of) \d+"):
            view.view(dtype)
        return
    seen = view.view(dtype)
    assert seen.shape == expected.shape
    assert same_strides(seen, expected)
    assert contents(seen).tobytes() == expected.tobytes()


def test_a_strided_last_axis_has_no_view_of_another_item_size():
    array = on_device(numbers(4, 6))
    with pytest.raises(ac.ArgumentValueError, match=r"8 bytes apart.* dup\(\)"):
        array[:, ::2].view(np.int16)
    assert array[:, ::2].view(np.float32).strides == (24, 8)


def test_split_at_of_a_strided_view_and_of_none():
    data = numbers(6, 4)
    head, tail = on_device(data)[::2, 1:].split_at(np.int64(2))
    np.testing.assert_array_equal(contents(head), data[::2, 1:][:2])
    np.testing.assert_array_equal(contents(tail), data[::2, 1:][2:])
    with pytest.raises(IndexError, match="without axes"):
        on_device(numbers())[...].split_at(0)


def test_numpys_view_of_a_strided_view_is_of_the_same_memory():
    host = in_page_locked(numbers(4, 6))
    host[1:3, ::2].numpy()[:] = -1
    expected = numbers(4, 6)
    expected[1:3, ::2] = -1
    np.testing.assert_array_equal(host.numpy(), expected)
    assert host[:, 1].numpy().ctypes.data == host.address + 4


def test_numpys_view_keeps_the_memory_when_all_handles_are_gone():
    host = in_page_locked(numbers(50, 60))
    shown = host[:, ::2].numpy()
    host.close()
    del host
    gc.collect()
    in_page_locked(np.zeros((50, 60), np.int32))
    np.testing.assert_array_equal(shown, numbers(50, 60)[:, ::2])


def test_a_strided_view_keeps_the_memory(used_bytes):
    before = used_bytes()
    view = on_device(numbers(8, 8))[:, ::3]
    assert used_bytes() > before
    np.testing.assert_array_equal(contents(view), numbers(8, 8)[:, ::3])
    del view
    assert used_bytes() == before


def test_only_the_columns_in_use_are_refused(latch, device):
    host = in_page_locked(numbers(4, 6))
    target = ac.empty((4, 3), np.int32).sync()
    latch.hold()
    ac.copy(target, host[:, :3]).submit()
    with pytest.raises(ac.ArgumentValueError, match="still reading"):
        host[:, 2:4].numpy()
    host[:, 3:].numpy()[:] = 0
    latch.release()
    device.synchronize().sync()
    np.testing.assert_array_equal(contents(target), numbers(4, 6)[:, :3])


# The waits between views.


def waits(op):
    return [line for line in op.explain().splitlines() if "wait for" in line]


def two_fills(one, other, device):
    """Kernels that write two views, on streams that know nothing of one another."""
    return ac.zip(
        fill(1, one, grid=1, block=1).on(device.stream()), fill(2, other, grid=1, block=1).on(device.stream())
    )


DISJOINT = [
    (np.s_[:, :3], np.s_[:, 3:]),
    (np.s_[::2], np.s_[1::2]),
    (np.s_[:, ::2], np.s_[:, 1::2]),
    (np.s_[:4, :3], np.s_[4:, 2:]),
    (np.s_[::2, :1], np.s_[::2, 1:2]),
]


@pytest.mark.parametrize(("one", "other"), DISJOINT, ids=str)
def test_disjoint_strided_views_do_not_wait_for_one_another(one, other, device):
    array = ac.zeros((8, 6), np.int32).sync()
    op = two_fills(array[one], array[other], device)
    assert not waits(op)
    op.sync()
    expected = np.zeros((8, 6), np.int32)
    expected[one], expected[other] = 1, 2
    np.testing.assert_array_equal(contents(array), expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.s_[:, :3], np.s_[:, 2:]),
        (np.s_[::2], np.s_[::3]),
        (np.s_[:, :3], np.s_[2:4, :]),
        (np.s_[:, :], np.s_[7:, 5:]),
    ],
    ids=str,
)
def test_overlapping_strided_views_wait(one, other, device):
    array = ac.zeros((8, 6), np.int32).sync()
    op = two_fills(array[one], array[other], device)
    assert len(waits(op)) == 1
    op.sync()
    expected = np.zeros((8, 6), np.int32)
    expected[one] = 1
    expected[other] = 2
    np.testing.assert_array_equal(contents(array), expected)


def test_a_copy_to_columns_does_not_wait_for_a_kernel_on_the_others(device):
    array = ac.zeros((8, 6), np.int32).sync()
    source = ac.ones((8, 3), np.int32).sync()
    op = ac.zip(
        fill(1, array[:, :3], grid=1, block=1).on(device.stream()),
        ac.copy(array[:, 3:], source).on(device.stream()),
    )
    assert not waits(op)


def test_views_of_more_than_32_pieces_are_taken_with_what_lies_between(device):
    """More waiting than is needed, and never less."""
    few, many = ac.zeros((32, 4), np.int32).sync(), ac.zeros((33, 4), np.int32).sync()
    assert not waits(two_fills(few[:, :2], few[:, 2:], device))
    assert len(waits(two_fills(many[:, :2], many[:, 2:], device))) == 1


@given(st.data())
def test_programs_on_strided_views_mean_what_they_say(draws):
    """Kernels and copies on random views and streams, against NumPy in submission order."""
    device = ac.current_device()
    streams = [device.default_stream, *STREAMS.setdefault(device, [device.stream(), device.stream()])]
    data = numbers(6, 8)
    array = on_device(data)
    for value in range(draws.draw(st.integers(1, 12))):
        rows, columns = (
            slice(draws.draw(st.integers(0, extent - 1)), None, draws.draw(st.sampled_from([1, 1, 2, 3])))
            for extent in data.shape
        )
        stream = draws.draw(st.sampled_from(streams))
        if draws.draw(st.booleans()):
            fill(value, array[rows, columns], grid=1, block=1).on(stream).submit()
            data[rows, columns] = value
        else:
            row = draws.draw(st.integers(0, 5))
            twice(array[row, columns], array[row, columns], grid=1, block=1).on(stream).submit()
            data[row, columns] *= 2
    np.testing.assert_array_equal(contents(array), data)


STREAMS: dict[ac.Device, list[ac.Stream]] = {}


# What kernels take.


def test_a_view_parameter_takes_strided_arrays():
    data = numbers(6, 8)
    array = on_device(data)
    out = twice(array[1::2, 3], array[:3, 0], grid=1, block=1).sync()
    np.testing.assert_array_equal(contents(out), 2 * data[1::2, 3])
    data[:3, 0] = 2 * data[1::2, 3]
    np.testing.assert_array_equal(contents(array), data)


def test_a_pointer_takes_no_strided_array():
    array = on_device(numbers(6, 8))
    by_pointer(array[2:4], grid=1, block=1).sync()
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 1 \(x\).*strided.*aiocuda::View.*dup\(\)"):
        by_pointer(array[:, 1:], grid=1, block=1)
    with pytest.raises(ac.ArgumentTypeError, match="strided"):
        by_pointer(ac.value(array).then(lambda whole: whole[:, 1:]), grid=1, block=1).sync()


@pytest.mark.parametrize("wrong", [np.s_[:], np.s_[0, 0]])
def test_a_view_parameter_takes_arrays_of_its_rank(wrong):
    array = on_device(numbers(6, 8))
    with pytest.raises(ac.ArgumentTypeError, match=r"with 1 axes is expected.*change the number of axes"):
        twice(array[wrong], array[0], grid=1, block=1)


def test_a_view_parameter_takes_its_dtype_and_no_partition():
    array = on_device(numbers(6, 8))
    with pytest.raises(ac.ArgumentTypeError, match="of int32 with 1 axes is expected, float32"):
        twice(ac.ones(3).sync(), array[0], grid=1, block=1)
    partition = array[0].partition(2)
    with pytest.raises(ac.ArgumentTypeError, match="aiocuda::Partition"):
        twice(array[1], partition, grid=1, block=1)
