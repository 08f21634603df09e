"""Reductions and scans are NumPy's: to the bit where sums are exact, and close to exact sums where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, FLOATS, INTEGERS, SIZES, dtype_of, keys_of, numbers, on_device, same, small

import aiocuda as ac
from aiocuda import algorithms

OPS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}
few = settings(max_examples=25)
sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 1000)
steps = st.integers(1, 3)


def drawn(size, dtype, seed, op):
    if op in {"max", "min"}:
        return numbers(size, dtype, seed)
    if op == "sum" or dtype in INTEGERS or dtype == "bool":
        return small(size, dtype, seed)
    # Products of powers of two, which are exact.
    return np.random.default_rng(seed).choice([1, 1, 1, 1, -1, -1, 2, 0.5], size).astype(dtype_of(dtype))


def combined(x, op, accumulate):
    """What NumPy makes of the numbers; of floats, of the same in float64."""
    wide = keys_of(x)
    with np.errstate(over="ignore"):
        found = np.asarray((np.cumsum if op == "sum" else np.cumprod)(wide)) if op in {"sum", "product"} else None
        if op in {"sum", "product"}:
            found = found if accumulate else (np.sum if op == "sum" else np.prod)(wide)
        else:
            found = OPS[op].accumulate(wide) if accumulate else OPS[op].reduce(wide)
        return np.asarray(found).astype(x.dtype if x.dtype.kind not in "biu" else np.asarray(found).dtype)


def zeros_alike(x):
    """Zeros of one sign: which one a maximum of both has is not said."""
    return np.where(x == 0, np.abs(x), x).astype(x.dtype) if x.dtype.kind not in "biu" else x


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=steps)
def test_a_reduction_is_that_of_numpy(op, dtype, size, seed, step):
    x = zeros_alike(drawn(size, dtype, seed, op))
    array = on_device(x, step)
    if size == 0 and op in {"max", "min"}:
        with pytest.raises(ac.ArgumentValueError, match="give initial="):
            algorithms.reduce(array, op)
        return
    found = ac.to_host(algorithms.reduce(array, op)).sync()
    same(found, combined(x, op, False))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 2, 300, 5000])
@pytest.mark.parametrize("initial", [None, 0.0, -0.0])
def test_a_sum_of_negative_zeros_has_the_sign_that_numpy_gives_it(dtype, size, initial):
    x = np.full(size, -0.0, dtype_of(dtype))
    given = {} if initial is None else {"initial": initial}
    expected = np.sum(x.astype(np.float64), **given).astype(x.dtype)
    same(ac.to_host(algorithms.reduce(ac.to_device(x), **given)).sync(), expected)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=steps)
def test_an_inclusive_scan_is_what_numpy_accumulates(op, dtype, size, seed, step):
    x = zeros_alike(drawn(size, dtype, seed, op))
    found = ac.to_host(algorithms.scan(on_device(x, step), op)).sync()
    same(zeros_alike(found), zeros_alike(combined(x, op, True)))


NEUTRAL = {"sum": 0, "product": 1, "max": -np.inf, "min": np.inf}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "bfloat16", "bool"])
@few
@given(size=st.sampled_from(SIZES[1:]), seed=seeds, initial=st.sampled_from([None, 0, 1]))
def test_an_exclusive_scan_begins_with_the_initial_number_and_ends_before_the_last(op, dtype, size, seed, initial):
    x = zeros_alike(drawn(size, dtype, seed, op))
    found = ac.to_host(algorithms.scan(on_device(x, 1), op, exclusive=True, initial=initial)).sync()
    first = NEUTRAL[op] if initial is None else initial
    if not np.isfinite(first) and x.dtype.kind in "biu":
        limits = np.iinfo(np.uint8 if x.dtype.kind == "b" else x.dtype)
        first = limits.min if op == "max" else limits.max
    if op in {"max", "min"}:
        wide = x if x.dtype.kind in "biu" else keys_of(x)
    else:
        wide = keys_of(x).astype(found.dtype if x.dtype.kind in "biu" else float)
    with np.errstate(over="ignore"):
        begun = np.array([first, *wide[:-1]]).astype(wide.dtype)
        expected = OPS[op].accumulate(begun, dtype=wide.dtype).astype(found.dtype)
    same(zeros_alike(found), zeros_alike(expected))


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_scan_of_more_tiles_than_a_tile_has_items(exclusive):
    x = np.arange(2048 * 2048 + 5, dtype=np.uint32)
    found = ac.to_host(algorithms.scan(ac.to_device(x), exclusive=exclusive, initial=7)).sync(120)
    expected = np.cumsum(x, dtype=np.uint64) + np.uint64(7)
    np.testing.assert_array_equal(found[1:] if exclusive else found, expected[:-1] if exclusive else expected)
    assert found[0] == 7


def test_a_reduction_of_more_tiles_than_there_are_blocks():
    x = np.random.default_rng(3).integers(-100, 100, 1024 * 2048 * 2 + 77)
    array = ac.to_device(x).sync()
    assert ac.to_host(algorithms.reduce(array)).sync(60) == x.sum()
    assert ac.to_host(algorithms.argmax(array)).sync(60) == x.argmax()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@few
@given(size=st.sampled_from([1000, 2048, 50_000]), seed=seeds)
def test_sums_of_floats_are_those_of_numpy_up_to_rounding(dtype, size, seed):
    x = np.random.default_rng(seed).normal(size=size).astype(dtype_of(dtype))
    exact, bound = np.sum(x, dtype=np.float64), np.sum(np.abs(x), dtype=np.float64)
    computed = np.float64 if dtype == "float64" else np.float32
    last = {"float16": 2**-11, "bfloat16": 2**-8}.get(dtype, np.finfo(computed).eps)
    array = ac.to_device(x).sync()
    found = float(ac.to_host(algorithms.reduce(array)).sync())
    assert abs(found - exact) <= 40 * np.finfo(computed).eps * bound + last * abs(exact)
    sums = ac.to_host(algorithms.scan(array)).sync().astype(float)
    assert (
        np.abs(sums - np.cumsum(x, dtype=np.float64)) <= 40 * np.finfo(computed).eps * bound + last * np.abs(sums)
    ).all()


def test_sums_are_the_same_each_time():
    x = ac.rand(100_000, seed=3).sync()
    first = ac.to_host(algorithms.reduce(x)).sync()
    assert all(ac.to_host(algorithms.reduce(x)).sync() == first for _ in range(3))


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=st.sampled_from(SIZES[1:]), seed=seeds, repeated=st.booleans(), step=steps)
def test_the_extremes_are_where_numpy_finds_them(dtype, size, seed, repeated, step):
    x = numbers(size, dtype, seed, few=repeated)
    array = on_device(x, step)
    for found, expected in ((algorithms.argmax, np.argmax), (algorithms.argmin, np.argmin)):
        same(ac.to_host(found(array)).sync(), expected(keys_of(x)))


def test_all_axes_are_reduced_the_last_one_fastest():
    x = np.random.default_rng(1).integers(0, 1000, (7, 11, 13))
    array = ac.to_device(x).sync()
    part = array[1:, ::2, 3:]
    assert ac.to_host(algorithms.reduce(part, "max")).sync() == x[1:, ::2, 3:].max()
    assert ac.to_host(algorithms.argmin(part)).sync() == x[1:, ::2, 3:].argmin()


@pytest.mark.parametrize("dtype", FLOATS)
def test_initial_numbers(dtype):
    x = ac.to_device(np.array([1, 2, 3], dtype_of(dtype))).sync()
    for op, expected in (("sum", 7.5), ("product", 9), ("max", 3), ("min", 1)):
        initial = 1.5
        assert float(ac.to_host(algorithms.reduce(x, op, initial=initial)).sync()) == expected
    nothing = ac.to_device(np.array([], dtype_of(dtype))).sync()
    assert float(ac.to_host(algorithms.reduce(nothing, "max", initial=-2)).sync()) == -2
    for op, neutral in (("sum", 0), ("product", 1)):
        assert float(ac.to_host(algorithms.reduce(nothing, op)).sync()) == neutral


@pytest.mark.parametrize("initial", ["1", 1j, None.__class__, [1], 2**70, 0.5, float("nan")])
def test_an_initial_number_that_the_dtype_does_not_hold_is_an_error(initial):
    with pytest.raises(ac.ArgumentTypeError, match="initial is a number of dtype int64"):
        algorithms.reduce(ac.ones(3, np.int32).sync(), initial=initial)
    with pytest.raises(ac.ArgumentTypeError, match="initial is a number of dtype int64"):
        algorithms.scan(ac.ones(3, np.int32).sync(), initial=initial)


@pytest.mark.parametrize("initial", [1e300, -1e300, 2**1000, 10**400, 1j, np.complex64(1), np.timedelta64(1, "s")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_initial_number_that_floats_do_not_hold_is_an_error(initial, dtype):
    for verb in (algorithms.reduce, algorithms.scan):
        with pytest.raises(ac.ArgumentTypeError, match="initial is a number of dtype float32"):
            verb(ac.ones(3, dtype).sync(), initial=initial)


@pytest.mark.parametrize("initial", [np.inf, -np.inf, np.float16(2), dtype_of("bfloat16").type(3), True])
def test_an_initial_number_is_one_of_python_of_numpy_or_a_bfloat16(initial):
    found = algorithms.reduce(ac.ones(3), initial=initial)
    assert ac.to_host(found).sync() == np.float32(initial) + 3


@pytest.mark.parametrize("op", ["mean", None, [], b"sum"])
def test_an_operator_that_is_not_known_is_an_error(op):
    for algorithm in (algorithms.reduce, algorithms.scan):
        with pytest.raises(ac.ArgumentValueError, match="'sum', 'product', 'max' or 'min'"):
            algorithm(ac.ones(3), op)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_nothing_has_no_extreme(name):
    with pytest.raises(ac.ArgumentValueError, match="of no items is nowhere"):
        getattr(algorithms, name)(ac.empty(0).sync())
