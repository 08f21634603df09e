"""arange is numpy.arange, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def check(*arguments: float, dtype: object) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    with np.errstate(all="ignore"):
        expected = np.arange(*arguments, dtype=kind)
    found = ac.to_host(ac.arange(*arguments, dtype=dtype)).sync()
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "arguments", [(5,), (0,), (-3,), (2, 9), (9, 2), (9, 2, -2), (0, 1, 0.1), (0.0, 3.0), (1, 2, 3)]
)
@pytest.mark.parametrize("dtype", [None, "float32", "int16"])
def test_familiar_ranges(arguments, dtype):
    check(*arguments, dtype=dtype)


@given(st.sampled_from(INTEGERS), st.integers(-100, 100), st.integers(0, 600), st.data())
def test_integer_ranges(dtype, step, length, data):
    limits = np.iinfo(dtype)
    start = data.draw(st.integers(max(limits.min, -(2**52)), min(limits.max, 2**52)))
    if step == 0:
        step = 1
    length = min(length, 1 + (limits.max - start if step > 0 else start - limits.min) // abs(step))
    check(start, start + step * length, step, dtype=dtype)


@given(
    st.sampled_from(FLOATS),
    st.floats(-1000, 1000, width=32),
    st.floats(-10, 10, width=32).filter(lambda step: abs(step) > 1e-3),
    st.integers(0, 600),
)
def test_float_ranges(dtype, start, step, length):
    check(start, start + step * length, step, dtype=dtype)


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ((-0.1, 5000.0, 1000.0), "float16"),
        ((-0.1, 5000.0, 1000.0), "bfloat16"),
        ((0.1, 100, 0.3), "float16"),
        ((0.5, 10, 0.7), "int32"),
        ((2**63 - 2, 2**63 + 3), "uint64"),
        ((2**64 - 5, 2**64 - 1), "uint64"),
        ((-(2**63), -(2**63) + 4), "int64"),
        ((2**62, 2**62 + 3000, 700), "int64"),
        ((1e-40, 1e-38, 1e-40), "float32"),
        ((16777216.0, 16777300.0, 1.0), "float32"),
    ],
)
def test_ranges_where_rounding_shows(arguments, dtype):
    check(*arguments, dtype=dtype)


@pytest.mark.parametrize("arguments", [(0, 5, 0), (float("inf"),), (0, float("nan")), (0, 1, float("inf"))])
def test_ranges_without_an_end_are_an_error(arguments):
    with pytest.raises(ac.ArgumentValueError, match="finite"):
        ac.arange(*arguments)


@pytest.mark.parametrize("dtype", ["complex64", "bool", "M8[s]", "S3"])
def test_dtypes_that_are_no_real_numbers_are_an_error(dtype):
    with pytest.raises(ac.ArgumentTypeError, match="arange makes real numbers"):
        ac.arange(3, dtype=dtype)


@pytest.mark.parametrize(
    ("arguments", "dtype"), [((300, 310), "int8"), ((-3, 3), "uint16"), ((2**64, 2**64 + 2), "uint64")]
)
def test_a_range_that_begins_outside_the_dtype_is_an_error(arguments, dtype):
    with pytest.raises(ac.ArgumentValueError, match=r"cannot hold it: Python int"):
        ac.arange(*arguments, dtype=dtype)
