"""convert is numpy.ndarray.astype, bit for bit; and where NumPy leaves a float without an integer, the nearest one."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NARROW_INTEGERS = {
    name: ends
    for name, ends in {
        "int1": (-1, 0),
        "int2": (-2, 1),
        "int4": (-8, 7),
        "uint1": (0, 1),
        "uint2": (0, 3),
        "uint4": (0, 15),
    }.items()
    if hasattr(ml_dtypes, name)  # not in older ones
}
NARROW_FLOATS = [
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
]
SHORT = ["bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", *NARROW_INTEGERS, *NARROW_FLOATS]
LONG = ["int32", "uint32", "int64", "uint64", "float32", "float64", "complex64", "complex128"]
EVERY = [*SHORT, *LONG]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def limits(name: str) -> tuple[int, int] | None:
    if name in NARROW_INTEGERS:
        return NARROW_INTEGERS[name]
    return (int(np.iinfo(name).min), int(np.iinfo(name).max)) if name in INTEGERS else None


def expected(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    kind, ends = dtype_of(name), limits(name)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        real = x.real if x.dtype.kind == "c" else x
        is_float = real.dtype.name.startswith(("float", "bfloat"))
        if ends is None or not is_float:
            try:
                return x.astype(kind)
            except TypeError:  # ml_dtypes has no casts between some of its types
                return x.astype(np.float32).astype(kind)
        wide = np.trunc(real.astype(np.float64))
        below, above = wide < ends[0], wide > ends[1] if ends[1] < 2**53 else wide >= float(ends[1])
        wide = np.where(np.isnan(wide) | below | above, 0, wide)
        found = wide.astype(np.uint64 if name == "uint64" else np.int64).astype(kind)
        found[below], found[above] = ends
        return found


def check(x: np.ndarray[Any, Any], name: str, array: Any = None) -> None:
    found = ac.to_host(ac.convert(ac.to_device(x) if array is None else array, dtype_of(name))).sync()
    wanted = expected(x, name)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.tobytes() != wanted.tobytes():
        at = np.flatnonzero(
            [a.tobytes() != b.tobytes() for a, b in zip(found.ravel(), wanted.ravel(), strict=True)],
        )[:5]
        pytest.fail(f"{x.dtype} to {name}: {x.ravel()[at]} became {found.ravel()[at]}, not {wanted.ravel()[at]}")


def every_item(name: str) -> np.ndarray[Any, Any]:
    kind = dtype_of(name)
    if name == "bool":
        return np.array([False, True])
    return np.arange(256**kind.itemsize, dtype=f"u{kind.itemsize}").view(kind)


@pytest.mark.parametrize("source", SHORT)
def test_every_item_of_16_bits_and_less_becomes_what_numpy_makes_of_it(source):
    items = every_item(source)
    array = ac.to_device(items).sync()
    for target in EVERY:
        check(items, target, array)


def edges() -> np.ndarray[Any, Any]:
    """Numbers at which one of the types rounds, overflows or ends, and their neighbours."""
    found = [np.array([0.0, np.inf, np.nan])]
    for name in ("float16", "bfloat16", *NARROW_FLOATS):
        numbers = every_item(name).astype(np.float64)
        numbers = np.unique(numbers[np.isfinite(numbers)])
        found += [numbers, (numbers[1:] + numbers[:-1]) / 2, numbers[[0, -1]] * 1.0625, numbers[[0, -1]] * 2]
    found.append(np.exp2(np.arange(-1074, 1024)))
    found += [np.array([-1.0, 0.0, 1.0]) + float(end) for name in INTEGERS for end in limits(name) or ()]
    numbers = np.concatenate(found)
    numbers = np.concatenate([numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, -np.inf), numbers * 0.75])
    return np.concatenate([numbers, -numbers])


@pytest.mark.parametrize("source", ["float32", "float64", "complex64", "complex128"])
def test_floats_where_a_type_rounds_or_ends_become_what_numpy_makes_of_them(source):
    with np.errstate(all="ignore"):
        items = edges().astype(source)
    if items.dtype.kind == "c":
        items.imag = np.roll(items.real, 1)
    array = ac.to_device(items).sync()
    for target in EVERY:
        check(items, target, array)


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_nan_keeps_what_numpy_keeps_of_it(source):
    mantissa = {"float32": 23, "float64": 52}[source]
    payloads = [1 << bit for bit in range(mantissa)] + [(1 << mantissa) - 1]
    word = np.uint32 if source == "float32" else np.uint64
    quiet = np.array(payloads, word) | np.array(np.inf, source).view(word)
    items = np.concatenate([quiet, quiet | word(1 << (8 * word().itemsize - 1))]).view(source)
    for target in EVERY:
        check(items, target)


@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
def test_integers_where_a_type_rounds_or_ends_become_what_numpy_makes_of_them(source):
    powers = 1 << np.arange(64, dtype=np.uint64)
    near = np.concatenate([powers + np.uint64(k) for k in range(3)] + [powers - np.uint64(k) for k in range(1, 3)])
    halves = np.concatenate([powers | (powers >> np.uint64(k)) for k in (8, 9, 11, 24, 25, 53, 54)])
    items = np.concatenate([near, halves, halves + np.uint64(1), halves - np.uint64(1)])
    items = np.concatenate([items, ~items]).astype(source)
    array = ac.to_device(items).sync()
    for target in EVERY:
        check(items, target, array)


@given(st.sampled_from(LONG), st.sampled_from(EVERY), st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=80))
def test_items_of_any_bits_become_what_numpy_makes_of_them(source, target, bits):
    kind = dtype_of(source)
    words = np.array(bits, np.uint64)
    items = words.astype(np.uint32).view(kind) if kind.itemsize == 4 else words[: len(words) // 2 * 2].view(kind)
    check(items, target)


@pytest.mark.parametrize("source", ["uint8", "float16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize(
    "part",
    [
        (slice(None, None, 3),),
        (slice(1, None, 2), ..., slice(1, 4, 2)),
        (..., 2),
        (1, slice(None), slice(2, 3)),
        (2, 3, 4),
        (slice(2, 2),),
    ],
    ids=str,
)
def test_strided_arrays_are_converted_as_they_lie(source, part):
    whole = np.arange(7 * 5 * 6).reshape(7, 5, 6).astype(source)
    view = ac.to_device(whole).sync()[part]
    check(whole[part], "float64", view)
    check(whole[part], "int16", view)


def test_strided_arrays_of_more_axes_than_a_view_has():
    whole = np.arange(2**9 * 3, dtype=np.float32).reshape((2,) * 8 + (6,))
    check(whole[..., ::2], "int32", ac.to_device(whole).sync()[..., ::2])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 4), (1,) * 9])
def test_shapes_are_kept(shape):
    check(np.ones(shape, np.float32), "float16")


def test_the_same_dtype_is_a_copy():
    array = ac.to_device(np.arange(6.0)).sync()
    copied = ac.convert(array[::2], "float64").sync()
    ac.copy(array, np.zeros(6)).sync()
    np.testing.assert_array_equal(ac.to_host(copied).sync(), [0, 2, 4])


def test_operations_are_converted_without_running_first(run):
    async def program():
        made = ac.arange(1000, dtype=np.int32)
        op = ac.convert(ac.convert(made, "bfloat16"), np.float64)
        assert made._state == "pending"
        return await ac.to_host(op)

    wanted = np.arange(1000, dtype=np.int32).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(run(program), wanted)


def test_a_conversion_in_a_graph_is_made_again_by_each_launch():
    x = ac.to_device(np.array([[1.5, 2.5], [-3.5, 1e9]], np.float32)).sync()
    graph = ac.convert(x[:, ::1], "int16").graph(x=x)
    first = ac.to_host(graph.launch()).sync()
    np.testing.assert_array_equal(first, [[1, 2], [-3, 32767]])
    other = ac.to_device(np.array([[7, 8], [9, np.nan]], np.float32)).sync()
    np.testing.assert_array_equal(ac.to_host(graph.launch(x=other)).sync(), [[7, 8], [9, 0]])


def test_a_compiled_function_converts():
    narrow = ac.compile(lambda x: ac.convert(x[1:], "float8_e4m3fn"))
    for numbers in ([1, 2, 300], [4, 500, -0.0], [0.1, 0.2, 0.3]):
        data = np.array(numbers, np.float32)
        found = ac.to_host(narrow(ac.to_device(data).sync())).sync()
        assert found.tobytes() == data[1:].astype(ml_dtypes.float8_e4m3fn).tobytes()
    assert narrow.cache_info().graphs == 1


@pytest.mark.needs_devices(2)
def test_the_result_is_beside_the_array():
    array = ac.convert(ac.ones(5, device=1), "int8").sync()
    assert array.device == ac.Device(1)
    assert ac.convert(array, "bool").sync().device == ac.Device(1)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("M8[s]", r"convert is for numbers; dtype datetime64\[s\] is none of bool, int8"),
        ("S3", r"convert is for numbers; dtype \|S3 is none of bool, int8"),
        (object, "dtype object holds Python objects"),
        (">f4", "dtype >f4 is of a foreign byte order"),
        (np.dtype([("a", "i4")]), r"convert is for numbers; dtype \[\('a', '<i4'\)\] is none of bool, int8"),
        ("no such", "'no such' is not a dtype"),
    ],
)
def test_dtypes_that_are_no_numbers_are_an_error_when_it_is_built(dtype, message):
    with pytest.raises(ac.ArgumentTypeError, match=message):
        ac.convert(ac.ones(3), dtype)


def test_arrays_of_what_is_no_numbers_are_an_error():
    array = ac.to_device(np.array([b"a", b"bc"])).sync()
    with pytest.raises(ac.ArgumentTypeError, match="convert is for numbers"):
        ac.convert(array, "float32")
    with pytest.raises(ac.ArgumentTypeError, match="convert is for numbers"):
        ac.convert(ac.to_device(np.array([b"a", b"bc"])), "float32").sync()


@pytest.mark.parametrize("make", [lambda: [1, 2], lambda: np.ones(2), lambda: ac.empty_host(2), lambda: 3])
def test_what_is_not_on_a_device_is_an_error(make):
    with pytest.raises(ac.ArgumentTypeError, match="to_device"):
        ac.convert(make(), "int8")


def test_a_moved_array_is_not_converted():
    array = ac.ones(3).sync()
    ac.move(array)
    with pytest.raises(ac.OwnershipError, match="moved"):
        ac.convert(array, "int8")
