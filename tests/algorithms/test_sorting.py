"""Sorts and merges are NumPy's stable ones, whatever the keys, and move values with their keys."""

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


def order_of(keys, descending):
    """The stable order; a descending one has NaN first, and leaves equal keys as they are."""
    keys = keys_of(keys)
    if not descending:
        return np.argsort(keys, kind="stable")
    return len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=steps, repeated=st.booleans(), descending=st.booleans())
def test_keys_are_sorted_as_numpy_sorts_them(dtype, size, seed, step, repeated, descending):
    keys = numbers(size, dtype, seed, few=repeated)
    array, order = on_device(keys, step), order_of(keys, descending)
    same(ac.to_host(algorithms.sort(array, descending=descending)).sync(), keys[order])
    same(ac.to_host(algorithms.argsort(array, descending=descending)).sync(), order)
    same(ac.to_host(array).sync(), keys)


@pytest.mark.parametrize("values_dtype", ["uint8", "float16", "S4", "complex64", "complex128", "float8_e5m2"])
@few
@given(size=sizes, seed=seeds, step=steps, descending=st.booleans())
def test_values_go_where_their_keys_go(values_dtype, size, seed, step, descending):
    keys = numbers(size, "int8", seed)
    values = np.random.default_rng(seed).integers(0, 256, size * dtype_of(values_dtype).itemsize, dtype=np.uint8)
    values = values.view(dtype_of(values_dtype))
    arrays = on_device(keys, step), on_device(values, step)
    sorted_keys, sorted_values = algorithms.sort(*arrays, descending=descending)
    order = order_of(keys, descending)
    same(ac.to_host(sorted_keys).sync(), keys[order])
    assert ac.to_host(sorted_values).sync().tobytes() == values[order].tobytes()


@pytest.mark.parametrize("size", [1000, 1500, 3000, 5000])
def test_the_last_pass_writes_out_however_many_passes_there_are(size):
    keys, places = numbers(size, "int16", size), np.arange(size)
    arrays = ac.to_device(keys).sync(), ac.to_device(places).sync()
    outs = ac.zeros(size, np.int16).sync(), ac.zeros(size, np.int64).sync()
    algorithms.sort(*arrays, out=outs).sync()
    same(ac.to_host(outs[0]).sync(), np.sort(keys))
    same(ac.to_host(outs[1]).sync(), np.argsort(keys, kind="stable"))
    for out, op in (
        (ac.zeros(size, np.int16).sync(), lambda out: algorithms.sort(arrays[0], out=out)),
        (ac.zeros(size, np.int64).sync(), lambda out: algorithms.argsort(arrays[0], out=out)),
    ):
        assert op(out).sync() is out
        same(ac.to_host(out).sync(), np.sort(keys) if out.dtype == np.int16 else np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("size", [2**18, 2**18 + 1, 300_000])
def test_many_keys_are_sorted(size):
    keys = np.random.default_rng(size).integers(0, 1000, size).astype(np.float32)
    array = ac.to_device(keys).sync()
    same(ac.to_host(algorithms.sort(array)).sync(60), np.sort(keys))
    same(ac.to_host(algorithms.argsort(array)).sync(60), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(sizes=st.tuples(sizes, sizes), seed=seeds, step=steps, repeated=st.booleans())
def test_merging_is_sorting_both_with_the_first_one_first(dtype, sizes, seed, step, repeated):
    a, b = (numbers(size, dtype, seed + i, few=repeated) for i, size in enumerate(sizes))
    a, b = a[order_of(a, False)], b[order_of(b, False)]
    both = np.concatenate([a, b])
    order = order_of(both, False)
    left, right = on_device(a, step), on_device(b, step)
    same(ac.to_host(algorithms.merge(left, right)).sync(), both[order])
    places = on_device(np.arange(len(a)), 1), on_device(np.arange(len(a), len(both)), step)
    keys, values = algorithms.merge(left, right, places)
    same(ac.to_host(keys).sync(), both[order])
    same(ac.to_host(values).sync(), order)


def test_arrays_that_do_not_belong_together_are_an_error():
    keys = ac.ones(4).sync()
    for make, error, message in [
        (lambda: algorithms.sort(ac.ones((2, 2)).sync()), ac.ArgumentValueError, r"keys has the shape \(2, 2\)"),
        (lambda: algorithms.sort(keys, ac.ones(3).sync()), ac.ArgumentValueError, "equal length"),
        (lambda: algorithms.sort(ac.ones(3, np.complex64).sync()), ac.ArgumentTypeError, "real numbers"),
        (lambda: algorithms.sort(keys, ac.zeros(4, "S3").sync()), ac.ArgumentTypeError, "1, 2, 4, 8 or 16 bytes"),
        (lambda: algorithms.sort(keys, descending=1), ac.ArgumentTypeError, "True or False"),
        (lambda: algorithms.argsort(keys, descending=None), ac.ArgumentTypeError, "True or False"),
        (lambda: algorithms.merge(keys, ac.ones(3, int).sync()), ac.ArgumentTypeError, "one dtype"),
        (lambda: algorithms.merge(keys, keys, keys), ac.ArgumentTypeError, "tuple of two"),
        (lambda: algorithms.merge(keys, keys, (keys, ac.ones(4, int).sync())), ac.ArgumentTypeError, "one dtype"),
        (lambda: algorithms.merge(keys, keys, (keys, keys[1:])), ac.ArgumentValueError, "equal length"),
    ]:
        with pytest.raises(error, match=message):
            make()
