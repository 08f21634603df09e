"""Expressions of items have C++'s meaning, and the same result as NumPy's with the same types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, SIZES, dtype_of, numbers, on_device, same

import aiocuda as ac
from aiocuda import algorithms

few = settings(max_examples=25)
sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(size=sizes, seed=seeds, step=st.integers(1, 3))
def test_items_are_read_and_written_as_they_are(dtype, size, seed, step):
    x = numbers(size, dtype, seed)
    same(ac.to_host(algorithms.transform("x", x=on_device(x, step))).sync(), x)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@few
@given(size=sizes, seed=seeds, a=st.integers(-5, 5))
def test_sums_and_products_round_as_in_numpy(dtype, size, seed, a):
    x, y = (numbers(size, dtype, seed + i) for i in range(2))
    if x.dtype.kind == "i":  # overflow is not for C++
        x, y = x // 16, y // 16
    with np.errstate(all="ignore"):
        expected = x.dtype.type(a) * x + y
    found = algorithms.transform("a * x + y", a=a, x=on_device(x, 1), y=on_device(y, 2))
    same(ac.to_host(found).sync(), expected)


def test_the_dtype_is_that_of_numpy_unless_it_is_given():
    x, y = ac.full(3, 7, np.int32).sync(), ac.full(3, 2, np.float32).sync()
    for given_dtype, expected in ((None, np.float64), ("bool", np.bool_), ("float16", np.float16), (np.int8, np.int8)):
        found = ac.to_host(algorithms.transform("x / y", x=x, y=y, dtype=given_dtype)).sync()
        assert found.dtype == expected
        assert found.tolist() == [np.array(3.5).astype(expected)] * 3
    assert ac.to_host(algorithms.transform("x / 2", x=x)).sync().tolist() == [3] * 3


def test_16_bit_floats_are_computed_in_float_and_rounded_once():
    x = np.array([1.0, 2049.0, 6e4], np.float16)
    found = ac.to_host(algorithms.transform("x * 3 / 3 + 1", x=ac.to_device(x))).sync()
    same(found, (x.astype(np.float32) * 3 / 3 + 1).astype(np.float16))
    numbers = ac.to_device(np.array([1, 3], dtype_of("bfloat16")))
    assert ac.to_host(algorithms.transform("x / 3", x=numbers)).sync().astype(float).tolist() == [0.333984375, 1.0]


def test_shapes_stay_and_views_are_taken_as_they_are():
    x = np.arange(24.0).reshape(2, 3, 4)
    array = ac.to_device(x).sync()
    found = algorithms.transform("x - y", x=array[:, ::2], y=array[:, 1:])
    np.testing.assert_array_equal(ac.to_host(found).sync(), x[:, ::2] - x[:, 1:])
    assert algorithms.transform("x + 1", x=array, out=array).sync() is array
    np.testing.assert_array_equal(ac.to_host(array).sync(), x + 1)


def test_names_that_kernels_use_themselves_are_names_like_others():
    x = ac.full(2, 3, np.int64).sync()
    names = ["get", "put", "value", "parts", "plain", "n", "i", "items0", "number0", "expression", "Kind0"]
    for name in names:
        assert ac.to_host(algorithms.transform(f"{name} * 2", **{name: x})).sync().tolist() == [6, 6]
    found = algorithms.transform("get + n + put - i", get=x, n=x, put=1, i=2)
    assert ac.to_host(found).sync().tolist() == [5, 5]


@pytest.mark.parametrize("name", ["int", "new", "float", "template", "auto", "true", "bool", "xor_eq", "T0", "T12"])
def test_words_that_cannot_name_an_operand_are_an_error_when_the_operation_is_built(name):
    for operands in ({name: ac.ones(2)}, {"x": ac.ones(2), name: 1}):
        with pytest.raises(ac.ArgumentValueError, match=f"'{name}' is a word of C"):
            algorithms.transform(name, **operands)


@pytest.mark.parametrize("name", ["lambda", "None", "is", "T", "T_0", "Int"])
def test_words_of_python_name_operands(name):
    assert ac.to_host(algorithms.transform(f"{name} + 1", **{name: ac.ones(2)})).sync().tolist() == [2, 2]


def test_an_array_named_out_is_no_operand():
    with pytest.raises(ac.ArgumentValueError, match="out= and dtype= are no operands"):
        algorithms.transform("out + 1", out=ac.ones(2))


def test_other_numbers_need_no_other_kernel():
    x = ac.ones(2).sync()
    for a in (0.5, 2, np.float64(3), True):
        assert ac.to_host(algorithms.transform("a * x", a=a, x=x)).sync().tolist() == [float(a)] * 2


@pytest.mark.parametrize(
    ("expression", "operands", "error", "message"),
    [
        ("1", {}, ac.ArgumentValueError, "one array or more"),
        ("a", {"a": 1}, ac.ArgumentValueError, "one array or more"),
        ("", {"x": 0}, ac.ArgumentValueError, "an empty one"),
        (3, {"x": 0}, ac.ArgumentTypeError, "an expression in CUDA C"),
        ("x", {"é": 0}, ac.ArgumentValueError, "a name of C"),
        ("x", {"_x": 0}, ac.ArgumentValueError, "a name of C"),
        ("x", {"x": "y"}, ac.ArgumentTypeError, "x is an array"),
        ("x", {"x": None}, ac.ArgumentTypeError, "x is an array"),
    ],
)
def test_what_is_no_expression_of_arrays_is_an_error(expression, operands, error, message):
    with pytest.raises(error, match=message):
        algorithms.transform(expression, **operands)


def test_arrays_and_numbers_that_do_not_fit_are_an_error():
    x = ac.ones(3, np.int32).sync()
    for operands, error, message in [
        ({"y": ac.ones(4).sync()}, ac.ArgumentValueError, r"one shape; y has \(4,\), and x has \(3,\)"),
        ({"a": 2**40}, ac.ArgumentTypeError, "a=1099511627776 is no number of dtype int32"),
        ({"a": 0.5}, ac.ArgumentTypeError, "a=0.5 is no number of dtype int32"),
        *(
            ({"a": a}, ac.ArgumentTypeError, "no number of dtype int32")
            for a in (np.nan, np.inf, -np.inf, np.float32(9e9))
        ),
        ({"y": ac.ones(3, np.complex64).sync()}, ac.ArgumentTypeError, "real numbers"),
        ({"dtype": np.complex64}, ac.ArgumentTypeError, "real numbers"),
        (
            {"y": ac.ones(3, "bfloat16").sync(), "dtype": None, "z": ac.ones(3, "float16").sync()},
            ac.ArgumentTypeError,
            "give dtype=",
        ),
    ]:
        with pytest.raises(error, match=message):
            algorithms.transform("x", x=x, **operands)


def test_an_expression_that_does_not_compile_says_so():
    with pytest.raises(ac.CompilationError, match="the expression of transform"):
        algorithms.transform("x + nothing", x=ac.ones(2)).sync()
