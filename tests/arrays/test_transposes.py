"""Transposed views are NumPy's, without a copy, and right in all that takes strided arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strided import PLACES, contents, in_page_locked, numbers, on_device, shapes, views_of

import aiocuda as ac

KERNELS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void twice(aiocuda::View<const int, 2> x, aiocuda::View<int, 2> y) {
    for (long long i = 0; i < x.extent(0); ++i)
        for (long long j = 0; j < x.extent(1); ++j) y(i, j) = 2 * x(i, j);
}
extern "C" __global__ void number(aiocuda::Partition<int, 2> x) {
    auto tile = x.tile();
    for (long long i = 0; i < tile.extent(0); ++i)
        for (long long j = threadIdx.x; j < tile.extent(1); j += blockDim.x)
            tile(i, j) = (int)(blockIdx.y * gridDim.x + blockIdx.x);
}
extern "C" __global__ void by_pointer(const int* x) {}
"""
twice = ac.kernel(KERNELS, "twice")
number = ac.kernel(KERNELS, "number")
by_pointer = ac.kernel(KERNELS, "by_pointer")
DTYPES = ["int8", "int16", "bfloat16", "int32", "float64", "complex128"]


def orders(draw, rank):
    """Axes in some order, counted from either end; or none at all."""
    order = draw(st.permutations(range(rank)))
    return tuple(axis - rank if draw(st.booleans()) else axis for axis in order)


def turned(draw, data, array):
    """The same transposed part of NumPy's array and of ours."""
    data, array = views_of(draw, data, array, 1)
    order = orders(draw, data.ndim)
    return data.transpose(order), array.transpose(order)


@given(st.data(), shapes, st.sampled_from(DTYPES), st.sampled_from(list(PLACES)))
def test_a_transpose_is_numpys(draws, shape, dtype, place):
    data = numbers(*shape, dtype=dtype)
    array = PLACES[place](data)
    expected, view = turned(draws.draw, data, array)
    assert (view.shape, view.dtype, view.nbytes) == (expected.shape, expected.dtype, expected.nbytes)
    assert view.is_contiguous == expected.flags.c_contiguous
    if expected.size:
        stepped = [axis for axis, extent in enumerate(expected.shape) if extent > 1]
        assert all(view.strides[axis] == expected.strides[axis] for axis in stepped)
    np.testing.assert_array_equal(contents(view), expected)
    np.testing.assert_array_equal(contents(view.T), expected.T)
    np.testing.assert_array_equal(contents(ac.to_device(view)), expected)
    twin = ac.dup(view).sync()
    assert twin.is_contiguous
    np.testing.assert_array_equal(contents(twin), expected)
    out = np.zeros(expected.shape, expected.dtype)
    ac.to_host(view, out=out).sync()
    np.testing.assert_array_equal(out, expected)
    if place == "page-locked":
        np.testing.assert_array_equal(view.numpy(), expected)
        assert np.shares_memory(view.numpy(), array.numpy()) or not expected.size


@given(st.data(), shapes, st.sampled_from(DTYPES), st.sampled_from(list(PLACES)), st.sampled_from(list(PLACES)))
def test_copies_and_fills_of_transposes_write_what_numpy_writes(draws, shape, dtype, to, source):
    data, target = numbers(*shape, dtype=dtype), np.zeros(shape, numbers(0, dtype=dtype).dtype)
    origin, destination = PLACES[source](data), PLACES[to](target)
    order = orders(draws.draw, data.ndim)
    picked, view = data.transpose(order), origin.transpose(order)
    other = draws.draw(st.permutations(range(data.ndim)))
    into, part = target.transpose(other), destination.transpose(other)
    assume(into.shape == picked.shape)
    assert ac.copy(part, view).sync() is part
    into[...] = picked
    np.testing.assert_array_equal(contents(destination), target)
    ac.copy(part, np.asarray(picked + np.ones((), data.dtype))).sync()
    into[...] = picked + np.ones((), data.dtype)
    np.testing.assert_array_equal(contents(destination), target)
    cut, half = views_of(draws.draw, into, part, 1)
    ac.fill(half, 1).sync()
    cut[...] = 1
    np.testing.assert_array_equal(contents(destination), target)


@given(st.data(), shapes)
def test_conversions_and_slices_of_transposes_are_numpys(draws, shape):
    data = numbers(*shape)
    expected, view = turned(draws.draw, data, on_device(data))
    np.testing.assert_array_equal(contents(ac.convert(view, np.float32)), expected.astype(np.float32))
    expected, view = views_of(draws.draw, expected, view, 1)
    np.testing.assert_array_equal(contents(view), expected)


@given(st.data(), shapes, shapes)
def test_reshape_of_a_transpose_is_a_view_where_numpys_is_one(draws, shape, asked):
    data = numbers(*shape)
    picked, view = turned(draws.draw, data, on_device(data))
    if np.prod(asked) != picked.size:
        asked = (-1, *draws.draw(st.sampled_from([(), picked.shape[1:], picked.shape[2:]])))
        assume(0 not in asked)
    expected = picked.reshape(asked)
    if picked.size == 0 or np.shares_memory(expected, picked):
        np.testing.assert_array_equal(contents(view.reshape(asked)), expected)
    else:
        with pytest.raises(ac.ArgumentValueError, match=r"dup\(\) it first"):
            view.reshape(asked)


VIEWS = {
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(6, 4),
    "view": lambda x: x.view(np.uint32),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_of_arrays_that_may_be_used(name):
    moved, partitioned, cut = (on_device(numbers(4, 6)) for _ in range(3))
    kept = [ac.move(moved), partitioned.partition((2, 2)), ac.move(cut[:2])]
    for array, story in ((moved, "moved"), (partitioned, "partitioned"), (cut, "moved")):
        with pytest.raises(ac.OwnershipError, match=f"{name}: .*was {story} at {__file__}"):
            VIEWS[name](array)
    for usable in (kept[0], kept[0].share()):
        assert VIEWS[name](usable).size == 24


def test_the_ways_to_say_axes_are_numpys():
    data = numbers(2, 3, 4)
    array = on_device(data)
    for axes in [(), (None,), (0, 1, 2), ((2, 0, 1),), ([1, 0, 2],), (-1, 0, 1), (np.array([2, 1, 0]),)]:
        assert array.transpose(*axes).shape == data.transpose(*axes).shape
        np.testing.assert_array_equal(contents(array.transpose(*axes)), data.transpose(*axes))
    assert array.T.address == array.address
    assert array.reshape(np.array([4, 6])).shape == (4, 6)
    with array.partition(np.array([1, 1, 4])) as tiles:
        assert tiles.tile_shape == (1, 1, 4)
    for rank in (0, 1):
        one = on_device(numbers(*(3,) * rank))
        assert one.T.shape == one.shape
        assert one.T.is_contiguous


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (0, -3), (0, 1, 1), ((0, 0),), (1, -1), (10**30, 0)], ids=str)
def test_wrong_axes_are_an_error(axes):
    with pytest.raises(ac.ArgumentValueError, match="each of its 2 axes once"):
        on_device(numbers(2, 3)).transpose(*axes)


@pytest.mark.parametrize("axes", [("a", 0), (0.5, 1), ("ab",), (0, None)], ids=str)
def test_axes_that_are_no_integers_are_an_error(axes):
    with pytest.raises(ac.ArgumentTypeError, match="integers"):
        on_device(numbers(2, 3)).transpose(*axes)


def test_kernels_take_transposes_as_views_and_not_as_pointers():
    data = numbers(3, 5)
    x, y = on_device(data), ac.zeros((3, 5), np.int32).sync()
    with pytest.raises(ac.ArgumentTypeError, match="View"):
        by_pointer(x.T, grid=1, block=1)
    assert twice(x.T, y.T, grid=1, block=1).sync().shape == (5, 3)
    np.testing.assert_array_equal(contents(y), 2 * data)
    column = on_device(numbers(1, 5)).T  # which lies in one piece all the same
    by_pointer(column, grid=1, block=1).sync()


def test_a_transpose_is_partitioned_as_it_lies():
    x = ac.zeros((4, 6), np.int32).sync()
    with x.T.partition((3, 2)) as tiles:
        number(tiles, block=2).sync()
    expected = np.zeros((4, 6), np.int32)
    for i in range(6):
        for j in range(4):
            expected.T[i, j] = i // 3 * 2 + j // 2
    np.testing.assert_array_equal(contents(x), expected)


def test_hazards_and_claims_are_of_the_bytes_whichever_way_they_are_seen(device):
    x = ac.zeros((8, 6), np.int32).sync()
    left, right = x.T[:3], x.T[3:]

    def waits(one, other):
        op = ac.zip(
            twice(one, one, grid=1, block=1).on(device.stream()),
            twice(other, other, grid=1, block=1).on(device.stream()),
        )
        return [line for line in op.explain().splitlines() if "wait for" in line]

    assert not waits(left, right)
    assert waits(left, x[:, 2:4])
    shared = left.share()
    with pytest.raises(ac.OwnershipError, match="shared"):
        ac.fill(x[:, 1:4], 1)
    ac.fill(x[:, 3:], 1).sync()
    shared.close()
    moved = ac.move(right)
    with pytest.raises(ac.OwnershipError, match="moved"):
        ac.to_host(x.T[5])
    np.testing.assert_array_equal(contents(moved), np.ones((3, 8), np.int32))
    x.close()
    with pytest.raises(ac.ClosedError, match=r"transpose: the array of .* was closed at"):
        x.T  # noqa: B018


def test_a_graph_and_a_compiled_function_take_transposes():
    double = ac.compile(lambda a: ac.convert(a.T, np.int64))
    data = numbers(3, 4)
    for each in (data, data + 1):
        np.testing.assert_array_equal(contents(double(on_device(each))), each.T)
        np.testing.assert_array_equal(contents(double(on_device(each).T)), each)
    x = on_device(data)
    graph = ac.dup(x.T).graph()
    ac.copy(x, data + 5).sync()
    np.testing.assert_array_equal(contents(graph.launch()), (data + 5).T)


def test_page_locked_memory_is_seen_transposed():
    host = in_page_locked(numbers(3, 4))
    host.T.numpy()[0] = -1
    assert (host.numpy()[:, 0] == -1).all()
