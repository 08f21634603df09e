"""Arrays are made as NumPy makes them, for every dtype that a device can hold."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aiocuda as ac

DTYPES = [
    *(np.dtype(name) for name in "?bBhHiIqQefdFD"),
    np.dtype("M8[ns]"),
    np.dtype("m8[s]"),
    np.dtype("S5"),
    np.dtype("U3"),
    np.dtype([("x", "<f4"), ("y", "<i8")]),
    np.dtype((np.void, 24)),
    *(np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")),
]
NUMBERS = [dtype for dtype in DTYPES if dtype.kind in "?biufc" or dtype.name.startswith(("bf", "fl"))]
RECORD = np.dtype([("x", "<f4"), ("y", "<i2")])
LONG_RECORD = np.dtype([("x", "<f8"), ("y", "<i8"), ("z", "u1")])
SHAPES = [(), (0,), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 4), (1, 1, 1, 1, 5)]


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_data_of_every_dtype_comes_back_as_it_went(dtype):
    data = np.frombuffer(bytes(range(6 * dtype.itemsize)), dtype).reshape(2, 3)
    if dtype == np.bool_:
        data = np.array([[True, False, True], [False, False, True]])
    array = ac.to_device(data).sync()
    assert (array.dtype, array.shape, array.nbytes) == (dtype, (2, 3), data.nbytes)
    same(ac.to_host(array).sync(), data)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_comes_back_as_it_went(shape):
    data = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    array = ac.to_device(data).sync()
    assert array.shape == shape
    same(ac.to_host(array).sync(), data)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (33, 3)], ids=str)
def test_zeros_and_ones(dtype, shape):
    same(ac.to_host(ac.zeros(shape, dtype)).sync(), np.zeros(shape, dtype))
    same(ac.to_host(ac.ones(shape, dtype)).sync(), np.ones(shape, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-1, np.int8),
        (255, np.uint8),
        (0x1234, np.uint16),
        (-(2**31), np.int32),
        (0x0102030405060708, np.int64),
        (2**64 - 1, np.uint64),
        (0.1, np.float16),
        (-0.0, np.float32),
        (1e300, np.float64),
        (float("inf"), np.float32),
        (float("nan"), np.float64),
        (1 + 2j, np.complex64),
        (-0.0 + 3e-300j, np.complex128),
        (True, np.bool_),
        (3.140625, ml_dtypes.bfloat16),
        (1.5, ml_dtypes.float8_e4m3fn),
        (np.float32(2.5), np.float64),
        (np.array(3), np.int16),
        (np.array((1.5, -7), RECORD), RECORD),
        (np.array((1.5, -7, 9), LONG_RECORD), LONG_RECORD),
        (b"abc", np.dtype("S5")),
        ("añb", np.dtype("U9")),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_full_is_numpys(value, dtype, n):
    same(ac.to_host(ac.full(n, value, dtype)).sync(), np.full(n, value, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (128, np.int8),
        (-129, np.int8),
        (-1, np.uint8),
        (256, np.uint8),
        (2**63, np.int64),
        (2**64, np.uint64),
        (1e39, np.float32),
        (70000.0, np.float16),
        (1j, np.float32),
        (np.complex64(1 + 2j), np.float32),  # of which NumPy only warns
        (np.int64(300), np.int8),  # of these it keeps the low bits
        (np.array(-1), np.uint8),
        (np.uint64(2**63), np.int64),
        (300.5, np.int8),
        (-1.0, np.uint8),
        (np.datetime64("2020"), np.int32),
        ("x", np.int32),
        ([1, 2], np.int32),
        (float("nan"), np.int32),
        (None, np.int32),
    ],
)
def test_full_with_what_the_dtype_cannot_hold_is_an_error_when_it_is_built(value, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in a program
        with pytest.raises(ac.ArgumentValueError, match="cannot fill"):
            ac.full(3, value, dtype)


@pytest.mark.parametrize("value", [np.int8(-5), np.float32(-5.75), np.array(-5), True, np.uint64(7), np.bool_(1)])
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_full_with_numpys_numbers_is_numpys(value, dtype):
    assert ac.to_host(ac.full(3, value, dtype)).sync().tolist() == np.full(3, value, dtype).tolist()


def test_empty_allocates_what_was_asked(used_bytes):
    before = used_bytes()
    array = ac.empty((3, 5), np.float64).sync()
    assert (array.shape, array.nbytes) == ((3, 5), 120)
    assert used_bytes() == before + 120


def test_an_array_without_items_takes_no_memory(used_bytes):
    before = used_bytes()
    array = ac.empty((3, 0)).sync()
    assert (array.nbytes, array.address) == (0, 0)
    assert used_bytes() == before


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "complex64", "bool", "<i4"])
def test_dtypes_are_given_by_name(name):
    assert ac.zeros(1, name).sync().dtype.itemsize in (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (object, "Python objects"),
        (np.dtype([("x", "O")]), "Python objects"),
        (">i4", "byte order"),
        (np.dtype([("x", ">f8")]), "byte order"),
        ("no such", "not a dtype"),
        (3, "not a dtype"),
        ("S0", "no bytes"),
        (np.dtype([]), "no bytes"),
    ],
)
@pytest.mark.parametrize("make", [ac.empty, ac.zeros, ac.empty_host])
def test_dtypes_that_a_device_cannot_hold_are_an_error(make, dtype, message):
    with pytest.raises(ac.ArgumentTypeError, match=message):
        make(3, dtype)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([None]), "dtype object holds Python objects"),
        (np.arange(3, dtype=">i4"), "dtype >i4 is of a foreign byte order"),
        ([[1], [1, 2]], r"list \[\[1\], \[1, 2\]\] is no array data in host memory"),
        (None, "NoneType None is no array data in host memory: NumPy makes Python objects of it"),
    ],
)
def test_data_that_a_device_cannot_hold_is_an_error_when_it_is_built(data, message):
    with pytest.raises(ac.ArgumentTypeError, match=message):
        ac.to_device(data)


MAKERS: list[Any] = [
    ac.empty,
    ac.empty_host,
    ac.zeros,
    ac.ones,
    ac.rand,
    ac.randn,
    *(lambda shape, value=value, dtype=dtype: ac.full(shape, value, dtype) for value, dtype in [
        (3, "int16"), (1 + 2j, "complex128"), (b"abc", "S3"), (np.array((1.5, 2, 3), LONG_RECORD), LONG_RECORD),
    ]),
    lambda shape: ac.randint(9, shape=shape),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [-1, (3, -1), (2**62, 2**62), 2**63, 2**100, (2**40, 2**40), (0, -1)])
def test_shapes_that_cannot_be_are_a_value_error(shape, make):
    with pytest.raises(ac.ArgumentValueError, match=r"a shape has no negative extents; \(.*-1|larger than any memory"):
        make(shape)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [1.5, "3", None, (1, 2.0), (None,), [[1]], np.array([1.0]), np.array([[1]])])
def test_shapes_that_are_no_integers_are_a_type_error(shape, make):
    with pytest.raises(ac.ArgumentTypeError, match="a shape is"):
        make(shape)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [0, (0,), (2, 0, 3), (0, 2**50)])
def test_arrays_without_items_are_made(shape, make):
    array = make(shape).sync()
    assert array.shape == ((shape,) if shape == 0 else shape)
    assert array.nbytes == 0


@pytest.mark.parametrize("make", MAKERS)
def test_numpy_integers_and_whatever_holds_integers_are_shapes(make):
    assert make(np.int16(3)).sync().shape == (3,)
    assert make(np.array(3)).sync().shape == (3,)
    for shape in ([np.uint8(3), 2], np.array([3, 2]), iter((3, 2))):
        assert make(shape).sync().shape == (3, 2)


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_a_pattern_that_no_device_fills_takes_no_memory_before_it_runs():
    op = ac.full(2**45, b"abc", "S3")  # more than any memory
    with pytest.raises(ac.OutOfMemoryError, match=r"has no room for 96\.00 TiB"):
        op.sync()


@pytest.mark.parametrize(
    "data",
    [
        np.arange(24).reshape(4, 6)[:, ::2],
        np.arange(24).reshape(4, 6)[::-1],
        np.asfortranarray(np.arange(24.0).reshape(4, 6)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.broadcast_to(np.int16(5), (3, 4)),
        [[1, 2], [3, 4]],
        [1.5, 2.5],
        (True, False),
        7,
        3.5,
        [],
        range(5),
        memoryview(b"abc"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_to_device_takes_what_numpy_asarray_takes(data):
    array = ac.to_device(data)
    expected = np.ascontiguousarray(data) if np.ndim(data) else np.asarray(data)
    same(ac.to_host(array).sync(), expected)


def test_to_device_with_a_dtype_converts_what_is_no_array_yet():
    same(ac.to_host(ac.to_device([1, 2], dtype=np.float16)).sync(), np.array([1, 2], np.float16))


def test_host_data_is_read_when_the_operation_is_executed():
    data = np.zeros(3)
    op = ac.to_device(data)
    data[:] = 5
    array = op.sync()
    data[:] = 9
    np.testing.assert_array_equal(ac.to_host(array).sync(), [5, 5, 5])


@pytest.mark.parametrize("made", [lambda: ac.zeros(3), lambda: ac.zeros(3).sync(), lambda: ac.empty_host(3).sync()])
def test_to_device_does_not_convert_what_is_an_array(made):
    with pytest.raises(ac.ArgumentTypeError, match="dtype= is for host data"):
        ac.to_device(made(), dtype=np.float64)


def test_to_device_of_a_device_array_is_itself():
    array = ac.ones(3).sync()
    assert ac.to_device(array).sync() is array


@pytest.mark.parametrize("device", [99, -1])
def test_a_device_that_is_not_there_is_an_error(device):
    for make in (lambda: ac.empty(3, device=device), lambda: ac.to_device([1], device)):
        with pytest.raises(ac.ArgumentValueError, match=f"no device {device}"):
            make()


@pytest.mark.parametrize("device", [b"0", 1.0, True])
def test_what_is_no_device_is_an_error(device):
    with pytest.raises(ac.ArgumentTypeError, match="a device is"):
        ac.empty(3, device=device)


@pytest.mark.needs_devices(2)
def test_arrays_are_made_on_the_device_asked_for():
    assert ac.ones(3, device=1).sync().device == ac.Device(1)
    assert ac.to_device([1], ac.Device(1)).sync().device == ac.Device(1)
    assert ac.arange(3, device=1).sync().device == ac.Device(1)
