"""Copies between devices, peer devices and page-locked memory, in every pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

DATA = np.arange(1000, dtype=np.int32).reshape(10, 100)


def host_array(data: np.ndarray) -> ac.HostArray:
    array = ac.empty_host(data.shape, data.dtype).sync()
    array.numpy()[...] = data
    return array


PLACES: dict[str, Callable[[np.ndarray], Any]] = {
    "device 0": lambda data: ac.to_device(data, 0).sync(),
    "device 1": lambda data: ac.to_device(data, 1).sync(),
    "page-locked": host_array,
}
PAIRS = [
    pytest.param(to, source, marks=pytest.mark.needs_devices(2 if "1" in to + source else 1))
    for to, source in itertools.product(["device 0", "device 1", "page-locked"], repeat=2)
]


def contents(array: Any) -> np.ndarray:
    return ac.to_host(array).sync()


@pytest.mark.parametrize(("to", "source"), PAIRS)
def test_copy_yields_the_destination_with_the_sources_contents(to, source):
    destination = PLACES[to](np.zeros_like(DATA))
    assert ac.copy(destination, PLACES[source](DATA)).sync() is destination
    np.testing.assert_array_equal(contents(destination), DATA)


@pytest.mark.parametrize(("to", "source"), PAIRS)
def test_copy_of_operations(to, source):
    destination, origin = PLACES[to](np.zeros_like(DATA)), PLACES[source](DATA)
    op = ac.copy(ac.value(0).then(lambda _: destination), ac.value(0).then(lambda _: origin))
    np.testing.assert_array_equal(contents(op), DATA)


@pytest.mark.parametrize(
    "place", [pytest.param("device 1", marks=pytest.mark.needs_devices(2)), "device 0", "page-locked"]
)
def test_to_device_from_every_place(place):
    array = ac.to_device(PLACES[place](DATA), 0).sync()
    assert array.device == ac.Device(0)
    np.testing.assert_array_equal(contents(array), DATA)


@pytest.mark.parametrize(
    "place", [pytest.param("device 1", marks=pytest.mark.needs_devices(2)), "device 0", "page-locked"]
)
def test_dup_is_a_new_array_beside_it(place):
    array = PLACES[place](DATA)
    twin = ac.dup(array).sync()
    assert type(twin) is type(array)
    assert twin.address != array.address
    assert getattr(twin, "device", None) == getattr(array, "device", None)
    np.testing.assert_array_equal(contents(twin), DATA)


def test_dup_of_an_operation_whose_result_is_not_known_yet():
    twin = ac.dup(ac.value(None).then(lambda _: ac.to_device(DATA)))
    np.testing.assert_array_equal(contents(twin), DATA)


@pytest.mark.needs_devices(2)
def test_to_device_of_an_operation_whose_result_is_not_known_yet():
    op = ac.to_device(ac.value(None).then(lambda _: ac.to_device(DATA, 1)), 0)
    assert op.sync().device == ac.Device(0)
    np.testing.assert_array_equal(contents(op), DATA)


def test_to_device_of_a_mapped_numpy_array():
    op = ac.to_device(ac.to_host(ac.to_device(DATA)).map(lambda host: host + 1))
    np.testing.assert_array_equal(contents(op), DATA + 1)


def test_copy_takes_host_data_as_its_source():
    destination = ac.empty(DATA.shape, DATA.dtype)
    np.testing.assert_array_equal(contents(ac.copy(destination, DATA)), DATA)
    fortran = np.asfortranarray(DATA)
    np.testing.assert_array_equal(contents(ac.copy(ac.empty(DATA.shape, DATA.dtype), fortran)), DATA)


def test_copies_without_items():
    nothing = np.empty((0, 3), np.float32)
    assert contents(ac.copy(ac.empty((0, 3)), ac.to_device(nothing))).shape == (0, 3)
    assert contents(ac.dup(ac.to_device(nothing))).shape == (0, 3)


@pytest.mark.parametrize("key", [slice(None), (slice(None), slice(3, None, 2))], ids=["whole", "strided"])
@pytest.mark.parametrize(("to", "source"), PAIRS)
def test_a_copy_keeps_nobody_waiting_for_what_comes_before_it(latch, used_bytes, to, source, key):
    """Not its submitter either, who may be the one to let the stream go on."""
    used = used_bytes()
    destination, array = PLACES[to](np.zeros_like(DATA)), PLACES[source](DATA)
    expected = np.zeros_like(DATA)
    expected[key] = DATA[key]
    for device in ac.devices():
        latch.hold(device.ordinal)
    future = ac.copy(destination[key], array[key]).submit()
    assert not future.done()
    latch.release()
    future.sync()
    np.testing.assert_array_equal(contents(destination), expected)
    del destination, array, future
    assert used_bytes() == used


def test_copying_an_array_to_itself_changes_nothing():
    array = PLACES["device 0"](DATA)
    np.testing.assert_array_equal(contents(ac.copy(array, array)), DATA)


def test_arrays_of_different_shapes_are_an_error_at_once():
    with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
        ac.copy(ac.empty(3).sync(), ac.empty(4).sync())


def test_arrays_of_different_dtypes_are_an_error_at_once():
    with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
        ac.copy(ac.empty(3).sync(), ac.empty(3, np.int32).sync())


@pytest.mark.parametrize("source", [lambda: ac.empty(4), lambda: ac.empty(3, np.int32), lambda: np.ones(4)])
def test_operations_that_do_not_match_are_an_error_before_the_copy(source):
    destination = ac.zeros(3).sync()
    with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
        ac.copy(destination, source()).sync()
    np.testing.assert_array_equal(contents(destination), [0, 0, 0])


def test_what_is_no_array_is_an_error():
    with pytest.raises(ac.ArgumentTypeError, match="copy writes to"):
        ac.copy([1.0], ac.ones(1))
    with pytest.raises(ac.ArgumentTypeError, match="dup takes"):
        ac.dup(np.ones(3))
    with pytest.raises(ac.ArgumentTypeError, match="to_host takes"):
        ac.to_host(np.ones(3))
    with pytest.raises(ac.ArgumentTypeError, match="copy: the destination is not an array but 3"):
        ac.copy(ac.value(3), ac.ones(3)).sync()
    with pytest.raises(ac.ArgumentTypeError, match="an array is expected; the operation yielded 'text'"):
        ac.to_host(ac.value("text")).sync()


def test_closed_arrays_are_an_error():
    array = ac.ones(3).sync()
    array.close()
    for use, named in (
        (ac.to_host, "to_host: "),
        (ac.dup, "dup: "),
        (lambda closed: ac.copy(ac.empty(3), closed), "copy: the source: "),
        (lambda closed: ac.copy(closed, ac.ones(3)), "copy: the destination: "),
    ):
        with pytest.raises(ac.ClosedError, match=f"^{named}.* was closed"):  # when it is built
            use(array)


def test_to_host_gives_memory_that_nobody_else_writes():
    array = ac.full(3, 1, np.int32).sync()
    first = ac.to_host(array).sync()
    ac.copy(array, np.full(3, 2, np.int32)).sync()
    second = ac.to_host(array).sync()
    first[0] = 9
    np.testing.assert_array_equal(second, [2, 2, 2])
    np.testing.assert_array_equal(first, [9, 1, 1])


def test_to_host_result_outlives_every_operation(kernels):
    kept = [ac.to_host(ac.full(500, i, np.int32)).sync() for i in range(50)]
    for i, host in enumerate(kept):
        assert (host == i).all()
