"""Arguments are checked against the kernel's signature: when a launch is built, or before it is submitted."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aiocuda as ac

INTEGERS = {
    "signed char": np.int8,
    "unsigned char": np.uint8,
    "short": np.int16,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
}
NAMES = {kind: f"take_{i}" for i, kind in enumerate(INTEGERS)}
STORES = "".join(
    f'extern "C" __global__ void {NAMES[kind]}({kind} value, {kind}* out) {{ out[0] = value; }}\n' for kind in INTEGERS
)
FLOATS = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void take_half(__half value, __half* out) { out[0] = value; }
extern "C" __global__ void take_bfloat16(__nv_bfloat16 value, __nv_bfloat16* out) { out[0] = value; }
extern "C" __global__ void take_float(float value, float* out) { out[0] = value; }
extern "C" __global__ void take_double(double value, double* out) { out[0] = value; }
extern "C" __global__ void take_bool(bool value, bool* out) { out[0] = value; }
"""


def stored(source: str, name: str, dtype: Any, value: Any) -> Any:
    op = ac.kernel(source, name)(value, ac.empty(1, dtype), grid=1, block=1)
    return ac.to_host(op).sync()[0]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_arrive_at_the_edges_of_their_range(kind):
    limits = np.iinfo(INTEGERS[kind])
    for value in (limits.min, limits.max, 0, 1):
        assert int(stored(STORES, NAMES[kind], INTEGERS[kind], int(value))) == value


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_one_beyond_their_range_are_an_error_that_says_the_range(kind):
    limits = np.iinfo(INTEGERS[kind])
    kernel = ac.kernel(STORES, NAMES[kind])
    for value in (int(limits.min) - 1, int(limits.max) + 1, 2**100, -(2**100)):
        with pytest.raises(ac.ArgumentRangeError, match=f"{value} does not fit .*{limits.max}"):
            kernel(value, ac.empty(1, INTEGERS[kind]), grid=1, block=1)


@pytest.mark.parametrize("kind", INTEGERS)
def test_an_operations_integer_out_of_range_is_found_before_it_is_submitted(kind):
    out = ac.zeros(1, INTEGERS[kind]).sync()
    kernel = ac.kernel(STORES, NAMES[kind])
    beyond = ac.value(int(np.iinfo(INTEGERS[kind]).max) + 1)
    with pytest.raises(ac.ArgumentRangeError, match=r"argument 1 \(value\)"):
        kernel(beyond, out, grid=1, block=1).sync()
    assert ac.to_host(out).sync()[0] == 0


@pytest.mark.parametrize("scalar", [np.int8(-5), np.int64(-5), np.array(-5), True, -5])
def test_numpy_scalars_and_0d_arrays_are_integers(scalar):
    assert int(stored(STORES, NAMES["int"], np.int32, scalar)) == int(scalar)


@pytest.mark.parametrize("wrong", [1.0, np.float32(1), "1", None, b"1", [1], np.array([1, 2]), 1j])
def test_what_is_no_integer_is_a_type_error(wrong):
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 1 \(value\): an int32 is expected"):
        ac.kernel(STORES, NAMES["int"])(wrong, ac.empty(1, np.int32), grid=1, block=1)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 1e-45, 3.4028234663852886e38, float("inf"), 7])
def test_float_arrives_exactly(value):
    found = stored(FLOATS, "take_float", np.float32, value)
    assert np.float32(value).tobytes() == found.tobytes()


def test_nan_arrives_as_nan():
    for name, dtype in [
        ("take_float", np.float32),
        ("take_double", np.float64),
        ("take_half", np.float16),
        ("take_bfloat16", ml_dtypes.bfloat16),
    ]:
        assert np.isnan(stored(FLOATS, name, dtype, float("nan")))


@pytest.mark.parametrize("value", [3.5e38, -1e300, 10**39])
def test_a_number_too_large_for_float_is_an_error(value):
    with pytest.raises(ac.ArgumentRangeError, match="too large for float32"):
        ac.kernel(FLOATS, "take_float")(value, ac.empty(1), grid=1, block=1)


def test_an_integer_too_large_for_double_is_an_error():
    with pytest.raises(ac.ArgumentRangeError, match="too large for float64"):
        ac.kernel(FLOATS, "take_double")(10**400, ac.empty(1, np.float64), grid=1, block=1)


@pytest.mark.parametrize(("name", "dtype"), [("take_half", np.float16), ("take_bfloat16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 1.00048828125, 1.00390625, 1.01171875, 6e-8, 65504.0, -2.0, np.float32(0.1)]
)
def test_small_floats_are_rounded_to_nearest_even(name, dtype, value):
    expected = np.array(value, np.float64).astype(dtype)
    assert stored(FLOATS, name, dtype, value).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("name", "value"), [("take_half", 65520.0), ("take_bfloat16", 3.4e38)])
def test_a_number_too_large_for_a_small_float_is_an_error(name, value):
    dtype = np.float16 if name == "take_half" else ml_dtypes.bfloat16
    with pytest.raises(ac.ArgumentRangeError, match="too large"):
        ac.kernel(FLOATS, name)(value, ac.empty(1, dtype), grid=1, block=1)


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), np.float16(2.5), np.array(2.5)])
def test_numpy_floats_are_floats(number):
    assert stored(FLOATS, "take_double", np.float64, number) == 2.5


@pytest.mark.parametrize("wrong", ["1", None, 1j, [1.0], np.array([1.0, 2.0])])
def test_what_is_no_number_is_a_type_error(wrong):
    with pytest.raises(ac.ArgumentTypeError, match="a float32 is expected"):
        ac.kernel(FLOATS, "take_float")(wrong, ac.empty(1), grid=1, block=1)


@pytest.mark.parametrize("value", [True, False, 1, 0, np.True_, np.False_])
def test_bool_arrives(value):
    assert bool(stored(FLOATS, "take_bool", np.bool_, value)) == bool(value)


@pytest.mark.parametrize("value", [2, -1])
def test_bool_takes_no_other_number(value):
    with pytest.raises(ac.ArgumentRangeError, match=rf"take_bool: argument 1 \(value\): {value} does not fit bool"):
        ac.kernel(FLOATS, "take_bool")(value, ac.empty(1, np.bool_), grid=1, block=1)


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_wrong_number_of_arguments_is_an_error_that_names_them(kernels, count):
    with pytest.raises(ac.ArgumentTypeError, match=rf"4 arguments.*\(a, x, y, n\); {count} were"):
        kernels.scale(*[1] * count, threads=1)


def test_a_wrong_dtype_is_an_error_that_says_both(kernels):
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 2 \(x\).*float32.*float64"):
        kernels.scale(1.0, ac.ones(3, np.float64).sync(), ac.empty(3), 3, threads=3)


def test_a_wrong_dtype_of_an_operation_is_known_when_it_is_built(kernels):
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 2 \(x\).*float32.*float64"):
        kernels.scale(1.0, ac.ones(3, np.float64), ac.empty(3), 3, threads=3)
    integers = kernels.increment(ac.zeros(3, np.int32), 3, threads=3)
    with pytest.raises(ac.ArgumentTypeError, match=r"yields int32"):
        kernels.scale(1.0, integers, ac.empty(3), 3, threads=3)


def test_a_wrong_dtype_known_only_at_submission_stops_the_launch(kernels):
    out = ac.zeros(3).sync()
    late = ac.value(None).then(lambda _: ac.ones(3, np.float64))
    op = kernels.scale(1.0, late, out, 3, threads=3)
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 2 \(x\).*float32.*float64"):
        op.sync()
    np.testing.assert_array_equal(ac.to_host(out).sync(), [0, 0, 0])


@pytest.mark.parametrize("wrong", [np.ones(3, np.float32), [1.0], 3, None, "x"])
def test_host_data_for_an_array_is_an_error_that_says_what_to_do(kernels, wrong):
    with pytest.raises(ac.ArgumentTypeError, match="to_device"):
        kernels.scale(1.0, wrong, ac.empty(3), 3, threads=3)


def test_a_host_array_is_an_error_that_says_what_to_do(kernels):
    host = ac.empty_host(3)
    for wrong in (host, host.sync()):
        with pytest.raises(ac.ArgumentTypeError, match="to_device"):
            kernels.scale(1.0, wrong, ac.empty(3), 3, threads=3)


def test_a_numpy_result_for_an_array_is_an_error(kernels):
    with pytest.raises(ac.ArgumentTypeError, match="to_device"):
        kernels.scale(1.0, ac.to_host(ac.ones(3)), ac.empty(3), 3, threads=3)


def test_an_array_for_a_number_is_an_error(kernels):
    for wrong in (ac.ones(1).sync(), ac.ones(1)):
        with pytest.raises(ac.ArgumentTypeError, match=r"argument 1 \(a\)"):
            kernels.scale(wrong, ac.ones(3), ac.empty(3), 3, threads=3)


def test_a_value_that_is_no_array_stops_the_launch(kernels):
    op = kernels.increment(ac.value(None).then(lambda _: "text"), 1, threads=1)
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 1 \(x\).*yielded str"):
        op.sync()


def test_a_closed_array_is_an_error(kernels):
    array = ac.zeros(3, np.int32).sync()
    built_before = kernels.increment(array, 3, threads=3)
    array.close()
    with pytest.raises(ac.ClosedError, match="closed"):
        kernels.increment(array, 3, threads=3)
    with pytest.raises(ac.ClosedError, match="closed"):
        built_before.sync()


@pytest.mark.needs_devices(2)
def test_arrays_of_two_devices_are_an_error(kernels):
    here, there = ac.ones(3, device=0), ac.empty(3, device=1)
    for x, y in [(here, there), (here.sync(), there.sync()), (here.sync(), ac.empty(3, device=1))]:
        with pytest.raises(
            ac.DeviceMismatchError, match=r"\(x\) is on device 0, .*\(y\), which it writes, on device 1; .*\.to\(1\)"
        ):
            kernels.scale(1.0, x, y, 3, threads=3)


@pytest.mark.needs_devices(2)
def test_arrays_of_two_devices_known_late_stop_the_launch(kernels):
    late = ac.value(None).then(lambda _: ac.ones(3, device=1))
    op = kernels.scale(1.0, late, ac.empty(3, device=0), 3, threads=3)
    with pytest.raises(ac.DeviceMismatchError, match=r"\(x\) is on device 1, .*\(y\), which it writes, on device 0"):
        op.sync()


def test_an_array_of_any_dtype_goes_to_a_void_pointer():
    copy_bytes = ac.kernel(
        'extern "C" __global__ void copy_bytes(const void* from, void* to, unsigned n) {'
        "    unsigned i = threadIdx.x; if (i < n) ((char*)to)[i] = ((const char*)from)[i]; }"
    )
    x = ac.to_device(np.array([1 + 2j], np.complex64))
    op = copy_bytes(x, ac.empty(1, np.complex64), 8, threads=8)
    assert ac.to_host(op).sync()[0] == 1 + 2j


@pytest.mark.needs_devices(2)
def test_a_launch_goes_to_the_device_of_its_arrays(kernels):
    op = kernels.increment(ac.zeros(3, np.int32, device=1), 3, threads=3)
    assert op.sync().device == ac.Device(1)
    np.testing.assert_array_equal(ac.to_host(op).sync(), [1, 1, 1])
