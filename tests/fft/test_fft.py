"""Fourier transforms are NumPy's up to rounding: by the driver's way, by kernels, and by what cuFFT would be asked."""

from __future__ import annotations

import ctypes
import enum
import gc
import importlib.util
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import fft
from aiocuda._algorithms import fourier, fourier_kernels
from aiocuda._driver import cufft

# Of the greatest result, in units in the last place of the dtype.
UNITS = 8

# One item, powers of two, small primes and their products, and prime factors for which a convolution is needed.
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 30, 61, 64, 67, 100, 128, 134, 243, 251, 256, 1000, 1009, 1024]
DTYPES = ["complex64", "complex128", "float32", "float64", "float16", "int8", "uint32", "bool"]
ONE_AXIS = ["fft", "ifft", "rfft", "irfft"]
NORMS = [None, "backward", "ortho", "forward"]


@pytest.fixture
def fft_of_the_driver() -> None:
    if not ac.Device(0).is_emulated and importlib.util.find_spec("nvmath") is None:
        pytest.skip("needs nvmath-python")


transforms = pytest.mark.usefixtures("fft_of_the_driver")


@pytest.fixture(params=["the driver's way", "as on a GPU"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fft_of_the_driver: None) -> None:
    """Transform by what the driver has; and on the emulated one, by a stand-in for cuFFT, too."""
    if request.param == "as on a GPU":
        if not ac.Device(0).is_emulated:
            pytest.skip("is the driver's way")
        stand_in_for_cufft(monkeypatch)
        monkeypatch.setattr(fourier, "_is_by_cufft", lambda device: True)


both_ways = pytest.mark.usefixtures("way")


def numbers(shape: Any, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    drawn = random.normal(size=shape)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * random.normal(size=shape)
    return (
        (drawn * (1 if dtype[0] in "fc" else 50)).astype(dtype) if dtype != "uint32" else abs(drawn * 50).astype(dtype)
    )


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def check(found: Any, expected: Any, dtype: str) -> None:
    found = np.asarray(ac.to_host(found).sync(60))
    is_single = dtype in {"complex64", "float32", "float16"}
    kind = "c" if np.iscomplexobj(expected) else "f"
    assert found.dtype == {"c": ("c16", "c8"), "f": ("f8", "f4")}[kind][is_single]
    assert found.shape == expected.shape
    unit = np.finfo(found.dtype).eps * max(abs(expected).max(initial=0), 1e-30)
    assert abs(found - expected).max(initial=0) <= UNITS * unit


@both_ways
@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_one_axis_is_transformed_as_numpy_does_it(name, dtype, data):
    if name == "rfft" and dtype.startswith("complex"):
        dtype = dtype.replace("complex64", "float32").replace("complex128", "float64")
    length = data.draw(st.sampled_from(LENGTHS[1:] if name == "irfft" else LENGTHS))
    shape = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 2)))]
    axis = data.draw(st.integers(0, len(shape)))
    shape.insert(axis, length)
    n = data.draw(st.sampled_from([None, length + 3, max(1, length - 1), 2 * length]))
    arguments = (n, axis - data.draw(st.sampled_from([0, len(shape)])), data.draw(st.sampled_from(NORMS)))
    x = numbers(shape, dtype, data.draw(st.integers(0, 100)))
    step = data.draw(st.integers(1, 2))
    whole = np.zeros([extent * step for extent in shape], x.dtype)
    part = (slice(None, None, step),) * len(shape)
    whole[part] = x
    found = getattr(fft, name)(ac.to_device(whole).sync()[part], *arguments)
    check(found, getattr(np.fft, name)(wide(x), *arguments), dtype)


AXES = [None, (0,), (-1,), (0, 1), (1, 2), (2, 0), (-1, -2), (0, 1, 2), (2, 1, 0), ()]


@both_ways
@pytest.mark.parametrize("name", ["fftn", "ifftn"])
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_several_axes_are_transformed_as_numpy_does_it(name, axes, norm):
    for shape, dtype in (((4, 3, 5), "complex128"), ((2, 67, 6), "complex64"), ((8, 1, 7), "float32")):
        x = numbers(shape, dtype, 3)
        array = ac.to_device(x).sync()
        expected = getattr(np.fft, name)(wide(x), axes=range(3) if axes is None else axes, norm=norm)
        check(getattr(fft, name)(array, axes=axes, norm=norm), expected + 0j, dtype)
        if axes:
            s = [shape[axis] + change for axis, change in zip(axes, (2, -1, 1), strict=False)]
            s = [max(1, n) for n in s]
            expected = getattr(np.fft, name)(wide(x), s, axes, norm)
            check(getattr(fft, name)(array, s, axes, norm), expected, dtype)


@both_ways
def test_more_axes_than_cufft_has_are_transformed():
    x = numbers((3, 2, 4, 2, 5), "complex128", 1)
    check(fft.fftn(ac.to_device(x)), np.fft.fftn(x), "complex128")
    check(fft.ifftn(ac.to_device(x), (2, 3)), np.fft.ifftn(x, (2, 3), (-2, -1)), "complex128")


@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("length", [12, 64, 67])
def test_the_kernels_transform_on_every_driver(name, length):
    read = length // 2 + 1 if name == "irfft" else length
    x = numbers((2, read), "float32" if name == "rfft" else "complex64", 1)
    into = ac.empty((2, length // 2 + 1 if name == "rfft" else length), "float32" if name == "irfft" else "complex64")
    kind = np.dtype(np.complex64)
    factor = 1 / length if name[0] == "i" else 1
    line = ac.to_device(x).sync()
    found = fourier_kernels.transform(name, line, into, length, 2, kind, factor, ac.Device(0))
    expected = np.fft.irfft(wide(x), length) if name == "irfft" else getattr(np.fft, name)(wide(x))
    check(found, expected, "complex64")


@both_ways
def test_transforms_of_nothing_are_nothing():
    assert fft.fft(ac.empty((0, 4))).sync().shape == (0, 4)
    assert fft.rfft(ac.empty((0, 4))).sync().shape == (0, 3)
    assert fft.irfft(ac.empty((0, 3))).sync().shape == (0, 4)
    assert fft.fftn(ac.empty((0, 4)), axes=(1,)).sync().shape == (0, 4)


# --- what cuFFT is asked, on a stand-in with its documented meaning that transforms at once, in host memory


class _Type(enum.IntEnum):
    R2C = 0x2A
    C2R = 0x2C
    C2C = 0x29
    D2Z = 0x6A
    Z2D = 0x6C
    Z2Z = 0x69


class StandIn(types.ModuleType):
    Type = _Type
    cuFFTError = ValueError  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cufft")
        self.plans: dict[int, Any] = {}
        self.destroyed: list[int] = []
        self.has_destroyed = threading.Condition()
        for name in ("exec_c2c", "exec_z2z", "exec_r2c", "exec_d2z", "exec_c2r", "exec_z2d"):
            setattr(self, name, self._named(name))

    def create(self) -> int:
        self.plans[len(self.plans) + 1] = None
        return len(self.plans)

    def destroy(self, plan: int) -> None:
        with self.has_destroyed:
            self.destroyed.append(plan)
            self.has_destroyed.notify()

    def set_auto_allocation(self, plan: int, allocate: int) -> None:
        assert allocate == 0

    def make_plan_many64(self, plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch):  # noqa: A002
        assert rank == len(n) == len(inembed) == len(onembed) <= 3
        assert istride == ostride == 1
        assert (idist, odist) == (np.prod(inembed), np.prod(onembed))
        half = [*n[:-1], n[-1] // 2 + 1]
        assert inembed == (half if type in (_Type.C2R, _Type.Z2D) else n)
        assert onembed == (half if type in (_Type.R2C, _Type.D2Z) else n)
        self.plans[plan] = [_Type(type), n, inembed, onembed, batch, None, None]
        return 1000

    def set_stream(self, plan: int, stream: int) -> None:
        assert driver.cuStreamSynchronize(stream) == (driver.CUresult.CUDA_SUCCESS,)  # cuFFT would be behind it
        self.plans[plan][5] = stream

    def set_work_area(self, plan: int, address: int) -> None:
        assert driver.cuMemsetD8Async(address, 0xFF, 1000, self.plans[plan][5]) == (driver.CUresult.CUDA_SUCCESS,)
        self.plans[plan][6] = address

    def _named(self, name: str) -> Any:
        def execute(plan: int, read: int, written: int, *direction: int) -> None:
            kind, n, inembed, onembed, batch, stream, area = self.plans[plan]
            assert stream is not None
            assert area is not None
            assert name == f"exec_{kind.name.lower()}"
            single = kind in (_Type.C2C, _Type.R2C, _Type.C2R)
            items = {"c": "c8" if single else "c16", "r": "f4" if single else "f8"}
            is_real = (kind in (_Type.R2C, _Type.D2Z), kind in (_Type.C2R, _Type.Z2D))
            x = memory(read, items["cr"[is_real[0]]], (batch, *inembed))
            axes = range(1, len(n) + 1)
            if is_real[0]:
                y = np.fft.rfftn(wide(x), axes=axes)
            elif is_real[1]:
                y = np.fft.irfftn(wide(x), n, axes, norm="forward")
                write(read, np.full_like(x, np.nan), stream)  # which cuFFT may overwrite
            else:
                (way,) = direction
                transform = {-1: np.fft.fftn, 1: np.fft.ifftn}[way]
                y = transform(wide(x), axes=axes, norm=None if way == -1 else "forward")
            write(written, y.reshape(batch, *onembed).astype(items["cr"[is_real[1]]]), stream)

        return execute


def memory(address: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


def write(address: int, items: np.ndarray[Any, Any], stream: int) -> None:
    """Write to a device's memory as the driver knows it: its checks do not see what the host stores there."""
    written = driver.cuMemcpyHtoDAsync(address, items.ctypes.data, items.nbytes, stream)
    assert written == (driver.CUresult.CUDA_SUCCESS,)


def stand_in_for_cufft(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    package, bindings = types.ModuleType("nvmath"), types.ModuleType("nvmath.bindings")
    package.bindings, bindings.cufft = bindings, made  # type: ignore[attr-defined]
    for name, module in (("nvmath", package), ("nvmath.bindings", bindings), ("nvmath.bindings.cufft", made)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cufft, "_plans", type(cufft._plans)())
    return made


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in_for_cufft(monkeypatch)


def ask(name: str, x: np.ndarray[Any, Any], lengths: tuple[int, ...], norm: str) -> Any:
    """Transform by what would be cuFFT, the last axes."""
    line = ac.to_device(x).sync()
    kind = np.dtype(np.complex64 if x.dtype in (np.complex64, np.float32) else np.complex128)
    outer = x.shape[: x.ndim - len(lengths)]
    last = lengths[-1] // 2 + 1 if name == "rfft" else lengths[-1]
    into = ac.empty((*outer, *lengths[:-1], last), fourier._REAL[kind.name] if name == "irfft" else kind)
    factor = fourier._factor(name, norm, int(np.prod(lengths)))
    return fourier.by_cufft(name, line, into, lengths, int(np.prod(outer)), kind, factor, 0)


@pytest.mark.emulated_only
@pytest.mark.parametrize("norm", NORMS[1:])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("length", [1, 6, 7])
def test_cufft_is_asked_for_the_transform(stand_in, length, dtype, norm):
    x = numbers((2, 3, length), dtype, 1)
    for name in ("fft", "ifft"):
        check(ask(name, x, (length,), norm), getattr(np.fft, name)(wide(x), norm=norm), dtype)
    check(ask("rfft", x.real.copy(), (length,), norm), np.fft.rfft(wide(x.real), norm=norm), dtype)
    half = np.fft.rfft(wide(x.real)).astype(dtype)
    check(ask("irfft", half, (length,), norm), np.fft.irfft(wide(half), length, norm=norm), dtype)
    for name in ("fftn", "ifftn"):
        check(ask(name, x, (3, length), norm), getattr(np.fft, name)(wide(x), axes=(1, 2), norm=norm), dtype)


@pytest.mark.emulated_only
def test_a_plan_is_made_once_for_a_shape_and_the_oldest_are_destroyed(stand_in, monkeypatch):
    monkeypatch.setattr(cufft, "MOST_PLANS", 2)
    for length in (4, 5, 4):
        ask("fft", numbers((2, length), "complex64", 1), (length,), "backward").sync()
    assert (len(stand_in.plans), stand_in.destroyed) == (2, [])
    held = ask("fft", numbers((2, 5), "complex64", 1), (5,), "backward")  # a plan that is waited for is not destroyed
    for length in (6, 7):
        ask("fft", numbers((2, length), "complex64", 1), (length,), "backward").sync()
    gc.collect()
    with stand_in.has_destroyed:
        assert stand_in.has_destroyed.wait_for(lambda: stand_in.destroyed == [1], 60)
    held.sync()
    del held
    ac.to_host(ac.ones(3)).sync()  # the next submission lets go of what the device has passed
    gc.collect()
    with stand_in.has_destroyed:
        assert stand_in.has_destroyed.wait_for(lambda: stand_in.destroyed == [1, 2], 60)


@pytest.mark.emulated_only
def test_what_cufft_refuses_is_an_error_that_says_so(stand_in, monkeypatch):
    def refuse(*_: Any) -> None:
        raise ValueError("CUFFT_INVALID_SIZE")

    x = numbers((2, 4), "complex64", 1)
    op = ask("fft", x, (4,), "backward")
    monkeypatch.setattr(stand_in, "exec_c2c", refuse)
    with pytest.raises(ac.LaunchError, match=r"cuFFT refused a transform \(C2C\): CUFFT_INVALID_SIZE"):
        op.sync()
    monkeypatch.setattr(stand_in, "make_plan_many64", refuse)
    with pytest.raises(ac.LaunchError, match=r"no plan for 2 transforms of \(2,\)"):
        ask("fft", x[:, :2].copy(), (2,), "backward")


def test_where_nvmath_is_not_installed_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    monkeypatch.setattr(cufft, "_plans", type(cufft._plans)())
    with pytest.raises(ac.MissingPackageError, match=r'pip install "aiocuda\[nvmath\]"'):
        ask("fft", numbers((2, 4), "complex64", 1), (4,), "backward")


# --- as operations

X = numbers((3, 10), "complex64", 5)
BUILDS = {
    "fft": (fft.fft, np.fft.fft(wide(X))),
    "fft of the first axis": (lambda x, **out: fft.fft(x, axis=0, **out), np.fft.fft(wide(X), axis=0)),
    "ifft": (fft.ifft, np.fft.ifft(wide(X))),
    "irfft": (fft.irfft, np.fft.irfft(wide(X))),
    "fftn": (fft.fftn, np.fft.fftn(wide(X))),
    "fftn of the first axis": (lambda x, **out: fft.fftn(x, axes=[0], **out), np.fft.fftn(wide(X), axes=[0])),
    "ifftn": (fft.ifftn, np.fft.ifftn(wide(X))),
}
every = pytest.mark.parametrize("name", BUILDS)


@both_ways
@every
def test_operations_are_transformed_without_running_first(name, run):
    build, expected = BUILDS[name]

    async def program():
        given = ac.to_device(X)
        op = build(given)
        assert given._state == "pending"
        return await op

    check(run(program), expected, "complex64")


@transforms
@every
def test_launches_of_a_graph_transform_what_its_arrays_hold(name):
    build, expected = BUILDS[name]
    x = ac.zeros(X.shape, X.dtype).sync()
    graph = build(x).graph()
    graph.launch().sync()
    ac.copy(x, X).sync()
    for _ in range(2):
        check(graph.launch().sync(), expected, "complex64")


@transforms
@every
def test_a_compiled_function_transforms(name):
    build, expected = BUILDS[name]
    function = ac.compile(lambda x: build(x))
    function(ac.ones(X.shape, X.dtype).sync()).sync()
    check(function(ac.to_device(X).sync()).sync(), expected, "complex64")
    assert function.cache_info().graphs == 1


@both_ways
@every
def test_results_go_where_out_says(name):
    build, expected = BUILDS[name]
    dtype = np.complex64 if np.iscomplexobj(expected) else np.float32
    x = ac.to_device(X).sync()
    for out in (ac.zeros(expected.shape, dtype).sync(), ac.zeros((*expected.shape, 2), dtype).sync()[..., 1]):
        assert build(x, out=out).sync() is out
        check(out, expected, "complex64")
    check(build(x, out=ac.zeros(expected.shape, dtype)).sync(), expected, "complex64")
    np.testing.assert_array_equal(ac.to_host(x).sync(), X)
    if dtype == np.complex64 and expected.shape == X.shape:
        assert build(x, out=x).sync() is x
        check(x, expected, "complex64")


@both_ways
@pytest.mark.needs_devices(2)
@every
def test_the_result_is_beside_the_array(name):
    build, expected = BUILDS[name]
    found = build(ac.to_device(X, 1)).sync()
    assert found.device == ac.Device(1)
    check(found, expected, "complex64")


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x: fft.fft(x, 0), ac.ArgumentValueError, "one item or more; 0"),
        (lambda x: fft.irfft(x[:, :1]), ac.ArgumentValueError, "one item or more; 0"),
        (lambda x: fft.fft(x, 10**13), ac.ArgumentValueError, r"fft transforms at most 2\*\*36 items"),
        (lambda x: fft.irfft(x, 2**36), ac.ArgumentValueError, "irfft transforms at most"),
        (lambda x: fft.fftn(x, (2**18 + 1, 2**18)), ac.ArgumentValueError, r"at most .*; \(262145, 262144\) are"),
        (lambda x: fft.fft(x, axis=2), ac.ArgumentValueError, "axis 2 is none of an array of 2 axes"),
        (lambda x: fft.fft(x, axis=0.5), ac.ArgumentTypeError, "whole number"),
        (lambda x: fft.fft(x, norm="both"), ac.ArgumentValueError, "'backward', 'ortho' or 'forward'"),
        (fft.rfft, ac.ArgumentTypeError, "real numbers; dtype complex64"),
        (lambda x: fft.fftn(x, axes=(0, -2)), ac.ArgumentValueError, "names an axis twice"),
        (lambda x: fft.fftn(x, (1,), (0, 1)), ac.ArgumentValueError, "must be as many"),
        (lambda x: fft.fftn(x, (1, 2, 3)), ac.ArgumentValueError, "axis"),
        (lambda x: fft.fftn(x, axes=3), ac.ArgumentTypeError, "axes"),
        (lambda x: fft.fft(x.view("S8")), ac.ArgumentTypeError, "transforms numbers"),
        (lambda x: fft.fft(x[0, 0].reshape(())), ac.ArgumentValueError, "axis -1 is none"),
        (lambda x: fft.fft(x, out=x[:2]), ac.ArgumentValueError, "out has the shape"),
        (lambda x: fft.irfft(x, out=x), ac.ArgumentTypeError, "out is of dtype complex64"),
        (lambda x: fft.fft(np.ones(3)), ac.ArgumentTypeError, "to_device"),
        (lambda x: fft.fft(None), ac.ArgumentTypeError, "to_device"),
    ],
)
def test_what_cannot_be_transformed_is_an_error(build, error, message):
    with pytest.raises(error, match=message):
        build(ac.to_device(X).sync())


@pytest.mark.emulated_only
@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("length", [2**36, 2**36 - 1])
def test_the_longest_transform_is_only_too_large_for_the_memory(name, length):
    """Its grids are possible, also those of a convolution."""
    dtype = np.float32 if name == "rfft" else np.complex64
    with pytest.raises(ac.OutOfMemoryError, match="has no room for"):
        getattr(fft, name)(ac.ones(4, dtype).sync(), length).sync()
