"""Selections have NumPy's items in NumPy's order, and the device knows how many they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, SIZES, dtype_of, keys_of, numbers, on_device, same

import aiocuda as ac
from aiocuda import algorithms

few = settings(max_examples=25)
sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 1000)
steps = st.integers(1, 3)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex128", "S2"])
@few
@given(size=sizes, seed=seeds, steps=st.tuples(steps, steps), share=st.sampled_from([0, 0.01, 0.5, 1]))
def test_a_mask_selects_what_it_selects_in_numpy(dtype, size, seed, steps, share):
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, size * dtype_of(dtype).itemsize, dtype=np.uint8) % 2
    x, mask = x.view(dtype_of(dtype)), random.random(size) < share
    items, count = algorithms.select(on_device(x, steps[0]), on_device(mask, steps[1]))
    same(ac.to_host(count).sync(), np.int64(mask.sum()))
    assert ac.to_host(algorithms.trim(items, count)).sync().tobytes() == x[mask].tobytes()
    assert items.sync().shape == x.shape


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=steps)
def test_a_condition_selects_the_items_for_which_it_holds(dtype, size, seed, step):
    x = numbers(size, dtype, seed)
    items, count = algorithms.select(on_device(x, step), "x > 1 || x != x  // and NaN")
    wide = keys_of(x)
    same(ac.to_host(algorithms.trim(items, count)).sync(), x[(wide > 1) | (wide != wide)])


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=steps)
def test_the_first_of_each_run_of_equal_keys_is_selected(dtype, size, seed, step):
    keys = np.repeat(numbers(size, dtype, seed, few=True), np.random.default_rng(seed).integers(1, 4, size))
    wide = keys_of(keys)
    is_first = np.ones(len(keys), bool)
    is_first[1:] = wide[1:] != wide[:-1]
    array = on_device(keys, step)
    found, count = algorithms.unique(array)
    same(ac.to_host(algorithms.trim(found, count)).sync(), keys[is_first])
    found, places, count = algorithms.unique(array, on_device(np.arange(len(keys)), step))
    same(ac.to_host(algorithms.trim(found, count)).sync(), keys[is_first])
    same(ac.to_host(algorithms.trim(places, count)).sync(), np.flatnonzero(is_first))


def test_a_selection_of_more_tiles_than_a_tile_has_items():
    x = np.arange(2048 * 2048 + 9, dtype=np.int32)
    items, count = algorithms.select(ac.to_device(x), "x % 3 == 1")
    np.testing.assert_array_equal(ac.to_host(algorithms.trim(items, count)).sync(120), x[x % 3 == 1])


def test_a_selection_goes_on_to_kernels_without_a_wait():
    """The count stays on the device: nothing in the program waits, so that a graph can have it all."""
    x = ac.to_device(np.array([3, -1, 4, -1, 5], np.int32)).sync()
    # The kernel reads on behind what was selected, so that must have been written, too.
    out = (ac.zeros(5, np.int32).sync(), ac.zeros((), np.int64).sync())
    items, count = algorithms.select(x, "x > 0", out=out)
    graph = ac.zip(
        algorithms.transform("i + n", i=items, n=algorithms.transform("0", x=items, dtype="int32")), count
    ).graph()
    doubled, count = graph.launch().sync()
    assert ac.to_host(count).sync() == 3
    assert ac.to_host(doubled).sync()[:3].tolist() == [3, 4, 5]
    ac.copy(x, np.array([0, 0, 0, 9, 0], np.int32)).sync()
    doubled, count = graph.launch().sync()
    assert (ac.to_host(count).sync(), ac.to_host(doubled).sync()[0]) == (1, 9)


def test_trimming_waits_as_a_map_does():
    items, count = algorithms.select(ac.ones(3), "x > 0")
    with pytest.raises(ac.CaptureError, match="map"):
        ac.dup(algorithms.trim(items, count)).graph()


def test_what_cannot_select_is_an_error():
    x = ac.ones(4).sync()
    for where, error, message in [
        (ac.ones(4).sync(), ac.ArgumentTypeError, "an array of bool; one of float32"),
        (ac.zeros(3, bool).sync(), ac.ArgumentValueError, "equal length"),
        (None, ac.ArgumentTypeError, "where is an array"),
        (np.zeros(4, bool), ac.ArgumentTypeError, "to_device"),
        ("", ac.ArgumentValueError, "an empty one"),
    ]:
        with pytest.raises(error, match=message):
            algorithms.select(x, where)
    with pytest.raises(ac.ArgumentTypeError, match="real numbers"):
        algorithms.select(ac.ones(4, np.complex64).sync(), "x > 0")
    with pytest.raises(ac.CompilationError, match="the condition of select"):
        algorithms.select(x, "x > nothing").sync()
    with pytest.raises(ac.ArgumentTypeError, match="out is a tuple of 2"):
        algorithms.select(x, "x > 0", out=x)
    for count, error, message in [
        (3, ac.ArgumentTypeError, "count is an array"),
        (x, ac.ArgumentTypeError, "count is an integer"),
        (ac.full((), 5, np.int64).sync(), ac.ArgumentValueError, r"count is 5, and x has the shape \(4,\)"),
        (ac.full((), -1, np.int64).sync(), ac.ArgumentValueError, "count is -1"),
    ]:
        with pytest.raises(error, match=message):
            algorithms.trim(x, count).sync()
