"""linspace and eye are NumPy's, bit for bit; arange has tests of its own."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

DTYPES = [
    *("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "float32", "float64"),
    *("complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"),
]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def same(op: Any, expected: np.ndarray[Any, Any]) -> None:
    found = ac.to_host(op).sync()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes(), f"{found} is not {expected}"


def check_linspace(*arguments: Any, **keywords: Any) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        expected = np.linspace(*arguments, **keywords)
    same(ac.linspace(*arguments, **keywords), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 1),
        (0, 1, 0),
        (3, 7, 1),
        (0.1, 100.3, 1001),
        (-5, 5, 11),
        (5, -5, 7),
        (2.5, 2.5, 4),
        (0, 5e-324, 7),
        (1e-310, 3e-310, 1000),
        (-1e308, 1e308, 5),
        (0, float("inf"), 3),
        (float("nan"), 1, 3),
        (1, 2**62 + 1, 9),
        (-(2**63), 2**64 - 1, 4),
        (np.float32(0.1), np.float32(7), 100),
        (np.float32(0.1), 7.3, 100),
        (np.float16(0.1), np.float16(7), 10),
        (np.int8(-100), np.int8(100), 17),
        (np.float64(0.1), 3, 10),
        (True, 5, 3),
        (1j, 2 + 3j, 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_of_familiar_arguments(arguments, endpoint):
    check_linspace(*arguments, endpoint=endpoint)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arguments", [(-7.3, 7.9, 101), (0, 7, 8), (-3, 0, 10)])
def test_linspace_of_every_dtype(dtype, arguments):
    first, *rest = arguments
    if dtype.startswith("u"):
        first = abs(first)
    check_linspace(first, *rest, dtype=dtype_of(dtype))


@given(
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
    st.integers(0, 300),
    st.booleans(),
    st.sampled_from([None, "float32", "float16"]),
)
def test_linspace_of_any_floats(start, stop, num, endpoint, dtype):
    check_linspace(start, stop, num, endpoint=endpoint, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arguments", [(4,), (3, 5), (5, 3), (0,), (3, 0), (1, 1)])
def test_eye_of_every_dtype(dtype, arguments):
    same(ac.eye(*arguments, dtype=dtype), np.eye(*arguments, dtype=dtype_of(dtype)))


@given(st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(-12, 12))
def test_eye_of_any_diagonal(rows, columns, k):
    same(ac.eye(rows, columns, k), np.eye(rows, columns, k, dtype=np.float32))


def test_the_types_of_their_own_choice():
    assert ac.linspace(0, 1).sync().dtype == np.float64
    assert ac.eye(2).sync().dtype == np.float32


def test_they_are_operations_like_others(run):
    async def program():
        line = ac.linspace(0, 3, 4, dtype=np.int32)
        matrix = ac.eye(4, k=1, dtype="int32")
        return await ac.zip(ac.to_host(line), ac.to_host(matrix))

    line, matrix = run(program)
    np.testing.assert_array_equal(line, np.arange(4))
    np.testing.assert_array_equal(matrix, np.eye(4, k=1))


def test_a_compiled_function_makes_them():
    @ac.compile
    def made(x: Any, n: int, end: float) -> Any:
        return ac.zip(ac.copy(x, ac.linspace(0, end, n)), ac.arange(n), ac.eye(n, dtype="int8"))

    for _ in range(2):
        line, numbers, matrix = made(ac.empty(3, np.float64), 3, 5.0).sync()
        same(line, np.linspace(0, 5.0, 3))
        same(numbers, np.arange(3))
        same(matrix, np.eye(3, dtype=np.int8))
    assert made.cache_info().graphs == 1


@pytest.mark.needs_devices(2)
def test_they_are_made_where_they_are_asked_for():
    assert ac.linspace(0, 1, 3, device=1).sync().device == ac.Device(1)
    assert ac.linspace(0, 1j, 3, device=1).sync().device == ac.Device(1)
    assert ac.eye(3, device=1).sync().device == ac.Device(1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ac.linspace(0, 1, -1), ac.ArgumentValueError, r"makes 0 items or more; num=-1 was given"),
        (lambda: ac.linspace(0, 1, 2**62), ac.ArgumentValueError, "larger than any memory"),
        (lambda: ac.linspace(0, 1, 2.5), ac.ArgumentTypeError, r"a whole number of items; num=2\.5 was given"),
        (lambda: ac.linspace([0, 1], 1), ac.ArgumentTypeError, r"takes numbers; list \[0, 1\] was given"),
        (lambda: ac.linspace("0", 1), ac.ArgumentTypeError, "takes numbers; str '0' was given"),
        (lambda: ac.linspace(0, 10**400), ac.ArgumentValueError, "no dtype holds both"),
        (lambda: ac.linspace(0, 1, dtype="S3"), ac.ArgumentTypeError, r"linspace is for numbers; dtype \|S3"),
        (lambda: ac.linspace(0, 1, dtype=object), ac.ArgumentTypeError, "dtype object holds Python objects"),
        (lambda: ac.linspace(0, 1, dtype=">f8"), ac.ArgumentTypeError, "dtype >f8 is of a foreign byte order"),
        (lambda: ac.eye(-1), ac.ArgumentValueError, r"no negative extents; \(-1, -1\) was given"),
        (lambda: ac.eye(3, -1), ac.ArgumentValueError, r"no negative extents; \(3, -1\) was given"),
        (lambda: ac.eye(2**31, 2**31), ac.ArgumentValueError, "larger than any memory"),
        (lambda: ac.eye(2**100), ac.ArgumentValueError, "larger than any memory"),
        (lambda: ac.eye(2.0), ac.ArgumentTypeError, r"eye takes integers; N=2\.0, M=None, k=0 were"),
        (lambda: ac.eye(2, k=0.5), ac.ArgumentTypeError, r"eye takes integers; N=2, M=None, k=0\.5 were"),
        (lambda: ac.eye(2, dtype="M8[s]"), ac.ArgumentTypeError, r"eye is for numbers; dtype datetime64\[s\]"),
        (lambda: ac.eye(2, dtype=">i4"), ac.ArgumentTypeError, "dtype >i4 is of a foreign byte order"),
        (lambda: ac.arange("3"), ac.ArgumentTypeError, "arange takes numbers; str '3' was given"),
        (lambda: ac.arange(3j), ac.ArgumentTypeError, "arange makes real numbers; 0, 3j, 1 were given"),
        (lambda: ac.arange([1]), ac.ArgumentTypeError, r"arange takes numbers; list \[1\] was given"),
        (
            lambda: ac.arange(-1e308, 1e308),
            ac.ArgumentValueError,
            r"finite numbers, .*; -1e\+308, 1e\+308, 1 were given",
        ),
        (
            lambda: ac.arange(0, 1e300, 1e-10),
            ac.ArgumentValueError,
            r"finite numbers, .*; 0, 1e\+300, 1e-10 were given",
        ),
        (lambda: ac.arange(2**63), ac.ArgumentValueError, "larger than any memory"),
    ],
)
def test_what_cannot_be_is_an_error_when_it_is_built(make, error, message):
    with pytest.raises(error, match=message):
        make()
