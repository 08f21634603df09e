"""concatenate and stack are NumPy's, of arrays wherever they are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strided import contents, in_page_locked, numbers, on_device

import aiocuda as ac

SOURCES = {
    "device": on_device,
    "view": lambda data: on_device(data.T.copy()).T,
    "page-locked": in_page_locked,
    "numpy": lambda data: data,
    "list": lambda data: data.tolist() if data.size else data,
    "operation": ac.to_device,
    "unknown": lambda data: ac.to_device(data).then(lambda x: x),
}


@st.composite
def joined(draw):
    rank = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    axis = draw(st.integers(-rank, rank - 1))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        shape[axis] = draw(st.integers(0, 3))
        parts.append(numbers(*shape, dtype="int64"))
    return parts, axis, [draw(st.sampled_from(list(SOURCES))) for _ in parts]


@given(joined(), st.booleans())
def test_concatenate_is_numpys(given, flat):
    parts, axis, sources = given
    axis = None if flat else axis
    expected = np.concatenate(parts, axis)
    found = ac.concatenate([SOURCES[source](part) for source, part in zip(sources, parts, strict=True)], axis).sync()
    assert (found.shape, found.dtype, found.is_contiguous) == (expected.shape, expected.dtype, True)
    np.testing.assert_array_equal(contents(found), expected)


@given(st.data())
def test_stack_is_numpys(draws):
    shape = draws.draw(st.lists(st.integers(0, 3), max_size=3))
    axis = draws.draw(st.integers(-len(shape) - 1, len(shape)))
    sources = draws.draw(st.lists(st.sampled_from(list(SOURCES)), min_size=1, max_size=4))
    parts = [numbers(*shape, dtype="int64") + i for i in range(len(sources))]
    expected = np.stack(parts, axis)
    found = ac.stack([SOURCES[source](part) for source, part in zip(sources, parts, strict=True)], axis).sync()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(contents(found), expected)


@pytest.mark.parametrize(
    "dtypes", [("int32", "float32"), ("int8", "uint8", "int16"), ("float16", "float64"), ("bool", "int32")], ids=str
)
def test_dtypes_are_promoted_as_numpy_promotes_them(dtypes):
    parts = [numbers(2, 3, dtype=dtype) for dtype in dtypes]
    for ours, numpys in ((ac.concatenate, np.concatenate), (ac.stack, np.stack)):
        expected = numpys(parts)
        for source in ("device", "page-locked", "numpy", "unknown"):
            found = contents(ours([SOURCES[source](part) for part in parts]))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert contents(ac.concatenate(parts, dtype="bfloat16")).dtype == ml_dtypes.bfloat16


def test_dtypes_without_a_common_one_say_what_to_do():
    with pytest.raises(ac.ArgumentTypeError, match="dtype="):
        ac.stack([numbers(2, dtype="float8_e4m3fn"), numbers(2, dtype="float8_e5m2")])


@pytest.mark.parametrize(
    ("join", "shapes", "axis", "message"),
    [
        ("concatenate", [], 0, "none were given"),
        ("stack", [], 0, "none were given"),
        ("concatenate", [(2, 3), (2, 4)], 0, "do not fit"),
        ("concatenate", [(2, 3), (2,)], 0, "do not fit"),
        ("concatenate", [(2, 3)], 2, "no axis 2"),
        ("concatenate", [(2, 3)], -3, "no axis -3"),
        ("concatenate", [()], 0, "no axis 0"),
        ("stack", [(2,), (3,)], 0, "differ"),
        ("stack", [(2,)], 2, "none is 2"),
    ],
)
def test_what_does_not_fit_is_an_error(join, shapes, axis, message):
    make = getattr(ac, join)
    with pytest.raises(ac.ArgumentValueError, match=message):
        make([on_device(numbers(*shape)) for shape in shapes], axis)
    if shapes:
        with pytest.raises(ac.ArgumentValueError, match=message):
            make([ac.to_device(numbers(*shape)).then(lambda x: x) for shape in shapes], axis).sync()


def test_what_is_no_array_is_an_error():
    array = on_device(numbers(4))
    for bad in (array, ac.ones(3), 3, None):
        with pytest.raises(ac.ArgumentTypeError, match="sequence of arrays"):
            ac.concatenate(bad)
    for join in (ac.stack, ac.concatenate):
        with pytest.raises(ac.ArgumentTypeError, match="object"):
            join([array, object()])
        with pytest.raises(ac.ArgumentTypeError, match=r"takes arrays, and operations that yield them, not 'x'"):
            join([ac.value("x")]).sync()
        with pytest.raises(ac.ArgumentTypeError, match=r"an axis is an integer; 0\.5 was given"):
            join([array], 0.5)
        with array.partition(2) as tiles, pytest.raises(ac.ArgumentTypeError, match=r"takes arrays, .* not <Partition"):
            join([tiles])
    with pytest.raises(ac.ArgumentTypeError, match="an axis is an integer; None was given"):
        ac.stack([array], None)
    with pytest.raises(ac.ArgumentValueError, match=r"shapes \(2, 3\) and \(2,\) do not fit"):
        ac.concatenate([numbers(2, 3), numbers(2)], axis=1)


@pytest.mark.parametrize("join", [ac.stack, ac.concatenate])
def test_arrays_that_may_not_be_read_are_an_error_and_shared_ones_are_not(join):
    first, second = on_device(numbers(4)), on_device(numbers(4))
    shared = second.share()
    np.testing.assert_array_equal(contents(join([first, shared])).reshape(2, 4), [numbers(4)] * 2)
    first.close()
    with pytest.raises(ac.ClosedError, match=rf"{join.__name__}: .* was closed at"):
        join([first, shared])


def test_operations_on_the_host_and_on_a_device_are_put_together_on_the_device():
    host = ac.copy(ac.empty_host(2, np.int32), ac.full(2, 7, np.int32))
    np.testing.assert_array_equal(contents(ac.concatenate([host, ac.full(1, 8, np.int32)])), [7, 7, 8])


@pytest.mark.needs_devices(2)
def test_arrays_of_several_devices_are_an_error():
    here, there = ac.ones(2, device=0), ac.ones(2, device=1)
    for arrays in ([here, there], [here.sync(), there.sync()]):
        with pytest.raises(ac.DeviceMismatchError, match=r"\.to\(0\)"):
            ac.stack(arrays)
    with pytest.raises(ac.DeviceMismatchError, match=r"\.to\(0\)"):  # it is known where its result will be
        ac.concatenate([ac.concatenate([there, there]), here])
    with pytest.raises(ac.DeviceMismatchError, match=r"\.to\(0\)"):
        ac.stack([here.then(lambda x: x), there.then(lambda x: x)]).sync()
    assert ac.stack([there, np.ones(2, np.float32)]).sync().device == ac.Device(1)


def test_a_compiled_function_and_a_graph_put_arrays_together():
    both = ac.compile(lambda a, b: ac.concatenate([a, b[::2]], axis=0))
    for seed in (0, 5):
        a, b = numbers(3) + seed, numbers(6) + seed
        np.testing.assert_array_equal(contents(both(on_device(a), on_device(b))), np.concatenate([a, b[::2]]))
    x = on_device(numbers(3))
    graph = ac.stack([x, x]).graph()
    ac.fill(x, 4).sync()
    np.testing.assert_array_equal(contents(graph.launch()), np.full((2, 3), 4))
