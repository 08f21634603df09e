"""Arrays like others, and data that may be an array already."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from strided import contents, in_page_locked, numbers, on_device

import aiocuda as ac

LAST = len(ac.devices()) - 1
LIKE = {
    "zeros_like": (ac.zeros_like, np.zeros_like, ()),
    "ones_like": (ac.ones_like, np.ones_like, ()),
    "full_like": (ac.full_like, np.full_like, (7,)),
}
SOURCES = {
    "device": on_device,
    "view": lambda data: on_device(data.T.copy()).T,
    "page-locked": in_page_locked,
    "numpy": lambda data: data,
    "list": lambda data: data.tolist(),
    "operation": ac.to_device,
    "unknown operation": lambda data: ac.to_device(data).then(lambda x: x),
    "host value": lambda data: ac.to_host(ac.to_device(data)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", LIKE)
def test_an_array_like_another_has_its_shape_and_dtype(name, source):
    make, numpys, more = LIKE[name]
    data = numbers(3, 4, dtype="int64")
    op = make(SOURCES[source](data), *more)
    assert op._state == "pending"
    array = op.sync()
    assert isinstance(array, ac.DeviceArray)
    assert array.is_contiguous
    expected = numpys(data, *more)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(contents(array), expected)
    other = make(SOURCES[source](data), *more, dtype="bfloat16", shape=(2,)).sync()
    assert (other.shape, other.dtype) == ((2,), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(contents(other).astype(int), numpys(data, *more)[0, :2])


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_array_like_another(source):
    array = ac.empty_like(SOURCES[source](numbers(3, 4, dtype="int64"))).sync()
    assert (array.shape, array.dtype, array.device) == ((3, 4), np.int64, ac.Device(0))


@pytest.mark.needs_devices(2)
def test_an_array_like_another_is_beside_it():
    there = ac.ones(3, device=1)
    for x in (there.sync(), there, there.then(lambda x: x)):
        assert ac.zeros_like(x).sync().device == ac.Device(1)
        assert ac.zeros_like(x, device="cuda:0").sync().device == ac.Device(0)
        assert ac.asarray(x).sync().device == ac.Device(1)
        assert ac.asarray(x, device=0).sync().device == ac.Device(0)
    with ac.use(1):
        assert ac.zeros_like(np.zeros(2)).sync().device == ac.Device(1)


@pytest.mark.parametrize("bad", [object(), lambda: 0])
def test_what_is_no_array_is_an_error(bad):
    for make in (ac.zeros_like, ac.empty_like, ac.asarray):
        with pytest.raises(
            ac.ArgumentTypeError, match=r"is no array data in host memory: NumPy makes Python objects of it"
        ):
            make(bad)
    with pytest.raises(ac.ArgumentValueError, match="1000 cannot fill an array of dtype int8"):
        ac.full_like(np.zeros(2, np.int8), 1000)


OF_OPERATIONS = {"zeros_like": ac.zeros_like, "empty_like": ac.empty_like, "asarray": ac.asarray}


@pytest.mark.parametrize("make", OF_OPERATIONS.values(), ids=OF_OPERATIONS)
def test_the_dtype_of_what_is_like_an_operation_is_known_before_it_runs(make, kernels):
    whole = ac.zeros(4, np.int32)
    kernels.increment(make(whole), 4, threads=4)
    with pytest.raises(ac.ArgumentTypeError, match="float32"):
        kernels.increment(make(whole, np.float32), 4, threads=4)
    with pytest.raises(ac.ArgumentTypeError, match="float32"):
        kernels.increment(make(ac.zeros(4, np.float32)), 4, threads=4)
    kernels.increment(make(ac.value(ac.ones(4)).then(lambda x: ac.zeros(4, np.int32))), 4, threads=4)
    unknown = ac.value(4).map(lambda n: np.zeros(n, np.int32))
    np.testing.assert_array_equal(contents(kernels.increment(make(unknown), 4, threads=4)).shape, (4,))
    with pytest.raises(ac.ArgumentTypeError, match="float64"):
        kernels.increment(make(unknown, np.float64), 4, threads=4)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("make", OF_OPERATIONS.values(), ids=OF_OPERATIONS)
def test_the_device_of_what_is_like_an_operation_is_known_before_it_runs(make, kernels):
    here, there, host = ac.ones(4, device=0), ac.ones(4, device=1), ac.empty_host(4)
    beside = ac.zeros(4, device=1).sync()
    kernels.add(beside, make(there), ac.empty(4), 4, threads=4)
    kernels.add(beside, make(host), ac.empty(4), 4, threads=4)  # goes where it is needed
    kernels.add(beside, make(here, device=1), ac.empty(4), 4, threads=4)
    for elsewhere in (lambda: make(here), lambda: make(there, device=0), lambda: make(host, device=0)):
        with pytest.raises(
            ac.DeviceMismatchError, match=r"argument 2 \(y\) is on device 0, argument 1 \(x\) on device 1"
        ):
            kernels.add(beside, elsewhere(), ac.empty(4), 4, threads=4)


def test_a_partition_is_unpartitioned_first():
    with on_device(numbers(4)).partition(2) as tiles:
        for make in (ac.zeros_like, ac.empty_like):
            with pytest.raises(
                ac.ArgumentTypeError, match=r"_like takes an array; <Partition .* unpartition\(\) it first"
            ):
                make(tiles)


def test_asarray_passes_shared_arrays_through():
    shared = on_device(numbers(3)).share()
    assert ac.asarray(shared).sync() is shared


def test_asarray_passes_arrays_through():
    array = on_device(numbers(3))
    assert ac.asarray(array).sync() is array
    assert ac.asarray(array, array.dtype).sync() is array
    assert ac.asarray(ac.value(array)).sync() is array
    assert ac.asarray(array.T[1:]).sync().address == array.address + array.itemsize
    array.close()
    with pytest.raises(ac.ClosedError, match=r"asarray: the array of int32\(3,\) was closed at"):
        ac.asarray(array)


@pytest.mark.parametrize(
    "x", [3, 2.5, True, 1j, [1, 2], [[1.0], [2.0]], (1, 2), np.float32(2), numbers(2, 3), range(3)]
)
def test_asarray_brings_data_over_as_numpy_reads_it(x):
    expected = np.asarray(x)
    found = contents(ac.asarray(x))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind != "c":
        assert contents(ac.asarray(x, np.float32)).dtype == np.float32


@pytest.mark.parametrize("source", ["device", "view", "page-locked", "operation", "unknown operation"])
def test_asarray_converts_what_has_another_dtype(source):
    data = numbers(3, 4)
    found = contents(ac.asarray(SOURCES[source](data), np.float64))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, data)


def test_a_compiled_function_makes_arrays_like_its_arguments():
    double = ac.compile(lambda a: ac.stack([ac.ones_like(a), ac.asarray(a)]))
    for seed in (1, 2):
        data = numbers(3) + seed
        np.testing.assert_array_equal(contents(double(on_device(data))), np.stack([np.ones_like(data), data]))
