"""Histograms count each item where NumPy counts it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, SIZES, numbers, on_device, same

import aiocuda as ac
from aiocuda import algorithms

few = settings(max_examples=25)
sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 1000)
bounds = st.floats(-300, 300, width=16)


def expected(x, bins, extent=None):
    """What NumPy counts; bfloat16 counts as the float32 that it is."""
    x = x.astype({"bool": np.uint8, "bfloat16": np.float32}.get(x.dtype.name, x.dtype))
    x = x if x.dtype.kind in "iu" else x[np.isfinite(x)]
    return np.histogram(x, bins, extent)[0].astype(np.int64)


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(
    size=sizes,
    seed=seeds,
    bins=st.sampled_from([1, 2, 7, 10, 1024, 1025, 3000]),
    extent=st.sampled_from([(0, 1), (-3, 3), (-100.5, 77), (2, 2), (-(2.0**63), 2.0**64)]),
    few_values=st.booleans(),
)
def test_bins_of_equal_width_are_those_of_numpy(dtype, size, seed, bins, extent, few_values):
    x = numbers(size, dtype, seed, few=few_values)
    if dtype == "float16" and extent[1] > 6e4:
        extent = (-6e4, 6e4)
    if dtype == "float16" and bins > 100:  # more bins than numbers between
        bins = 100
    same(ac.to_host(algorithms.histogram(on_device(x, 2), bins, extent)).sync(), expected(x, bins, extent))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "float64", "bfloat16"])
@few
@given(size=sizes, seed=seeds, edges=st.lists(bounds, min_size=2, max_size=20).map(sorted))
def test_edges_are_compared_as_numpy_compares_them(dtype, size, seed, edges):
    x = numbers(size, dtype, seed)
    same(ac.to_host(algorithms.histogram(on_device(x, 1), edges)).sync(), expected(x, np.array(edges)))


def test_all_axes_are_counted():
    x = np.random.default_rng(1).random((30, 40))
    found = algorithms.histogram(ac.to_device(x), 16, (0, 1))
    np.testing.assert_array_equal(ac.to_host(found).sync(), np.histogram(x, 16, (0, 1))[0])


def test_counts_begin_with_nothing_also_in_out():
    out = ac.full(2, 7, np.int64).sync()
    assert algorithms.histogram(ac.to_device(np.array([1.0, 3.0, 3.0])), [0, 2, 4], out=out).sync() is out
    assert ac.to_host(out).sync().tolist() == [1, 2]
    assert algorithms.histogram(ac.empty(0), [0, 2, 4], out=out).sync() is out
    assert ac.to_host(out).sync().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((10,), ac.ArgumentValueError, "needs range="),
        (([0, 1], (0, 1)), ac.ArgumentValueError, "leave range out"),
        ((0, (0, 1)), ac.ArgumentValueError, "must be positive"),
        ((3, (1, 0)), ac.ArgumentValueError, "max must be larger"),
        ((3, (0, float("nan"))), ac.ArgumentValueError, "finite"),
        (([1, 0],), ac.ArgumentValueError, "increase"),
        (([1],), ac.ArgumentValueError, "two edges"),
        ((10**15, (0, 1)), ac.ArgumentValueError, "bins=1000000000000000 are too many"),
        (("auto",), ac.ArgumentTypeError, "a number of bins, or their edges"),
        ((True, (0, 1)), ac.ArgumentTypeError, "a number of bins, or their edges"),
    ],
)
def test_bins_that_are_none_are_an_error(arguments, error, message):
    with pytest.raises(error, match=message):
        algorithms.histogram(ac.ones(3).sync(), *arguments)
