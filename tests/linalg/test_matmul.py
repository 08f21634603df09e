"""matmul is numpy.matmul up to rounding: by the driver's own way, by the kernel, and by what cuBLAS would be asked."""

from __future__ import annotations

import ctypes
import enum
import importlib.util
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import linalg
from aiocuda._driver import blas
from aiocuda._verbs import matrices

TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float32": 1e-5,
    "float64": 1e-12,
    "complex64": 1e-5,
    "complex128": 1e-12,
}
SHAPES = [
    ((3, 4), (4, 5)),
    ((1, 1), (1, 1)),
    ((1, 7), (7, 1)),
    ((7, 1), (1, 7)),
    ((5,), (5,)),
    ((5,), (5, 3)),
    ((3, 5), (5,)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 2)),
    ((4,), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (5,)),
    ((2, 1, 2, 1, 2, 1, 3, 2), (1, 2, 1, 2, 1, 2, 2, 3)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((0,), (0,)),
    ((0, 3, 4), (4, 5)),
    ((65, 33), (33, 70)),
]


@pytest.fixture
def blas_of_the_driver() -> None:
    if not ac.Device(0).is_emulated and importlib.util.find_spec("nvmath") is None:
        pytest.skip("needs nvmath-python")


multiplies = pytest.mark.usefixtures("blas_of_the_driver")


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def numbers(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    found = random.uniform(-1, 1, shape) + (1j * random.uniform(-1, 1, shape) if name.startswith("c") else 0)
    return found.astype(dtype_of(name))


def check(found: Any, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    product = np.asarray(ac.to_host(found).sync(60))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    expected = np.asarray(np.matmul(a.astype(wide), b.astype(wide)))
    assert (product.dtype, product.shape) == (a.dtype, expected.shape)
    np.testing.assert_allclose(product.astype(wide), expected, rtol=0, atol=TOLERANCE[a.dtype.name] * (1 + a.shape[-1]))


@multiplies
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_of_every_dtype_and_shape(shapes, dtype):
    a, b = (numbers(shape, dtype, seed) for seed, shape in enumerate(shapes))
    check(linalg.matmul(ac.to_device(a), ac.to_device(b)), a, b)


PARTS = [
    (slice(None), slice(None, None, 2), slice(1, None, 3)),
    (slice(1, None, 2), slice(2, 8), slice(3, 9)),
    (..., slice(4, 5), slice(0, 6)),
    (slice(None), slice(0, 6), 3),
    (0, slice(0, 6), slice(0, 6)),
]


@multiplies
@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("other", PARTS, ids=str)
def test_strided_arrays_are_multiplied_as_they_lie(part, other):
    whole = numbers((3, 12, 12), "float64", 1)
    array = ac.to_device(whole).sync()
    a, b = whole[part], whole[other]
    a = a[..., :, : b.shape[-2] if b.ndim > 1 else len(b)]
    if a.shape[-1] != (b.shape[-2] if b.ndim > 1 else len(b)):
        b = b[: a.shape[-1]] if b.ndim == 1 else b[..., : a.shape[-1], :]
    on_device = [array[part][tuple(slice(0, n) for n in a.shape)], array[other][tuple(slice(0, n) for n in b.shape)]]
    check(linalg.matmul(*on_device), a, b)


# --- what cuBLAS is asked, on a stand-in with cuBLAS's documented meaning that multiplies at once, in host memory


class _Operation(enum.IntEnum):
    N = 0
    T = 1


class _CudaDataType(enum.IntEnum):
    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_C_32F = 4
    CUDA_C_64F = 5
    CUDA_R_16F = 2
    CUDA_R_16BF = 14


class _ComputeType(enum.IntEnum):
    COMPUTE_32F = 68
    COMPUTE_64F = 70


class _GemmAlgo(enum.IntEnum):
    DEFAULT = -1


ITEMS = {0: "float32", 1: "float64", 4: "complex64", 5: "complex128", 2: "float16", 14: "bfloat16"}


def memory(address: int, kind: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Memory as an array; strides in items."""
    dtype = dtype_of(ITEMS[kind])
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    data = np.frombuffer((ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(
        data, shape, tuple(stride * dtype.itemsize for stride in strides), writeable=True
    )


class StandIn(types.ModuleType):
    Operation, ComputeType, GemmAlgo = _Operation, _ComputeType, _GemmAlgo
    cuBLASError = ValueError  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cublas")
        self.calls: list[int] = []

    def create(self) -> int:
        return 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.workspace = None
        assert driver.cuStreamSynchronize(stream) == (driver.CUresult.CUDA_SUCCESS,)  # cuBLAS would be behind it

    def set_workspace(self, handle: int, address: int, size: int) -> None:
        assert address
        self.workspace = size

    def gemm_strided_batched_ex_64(
        self, handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a, b, btype, ldb, stride_b, beta, c, ctype,
        ldc, stride_c, count, compute, algo,
    ):  # fmt: skip
        assert self.workspace == 32 << 20
        assert lda >= (m if transa == 0 else k)
        assert ldb >= (k if transb == 0 else n)
        assert ldc >= m
        left = memory(a, atype, (count, m, k), (stride_a, 1, lda) if transa == 0 else (stride_a, lda, 1))
        right = memory(b, btype, (count, k, n), (stride_b, 1, ldb) if transb == 0 else (stride_b, ldb, 1))
        result = memory(c, ctype, (count, m, n), (stride_c, 1, ldc))
        wide = np.complex128 if ITEMS[atype].startswith("c") else np.float64
        factor = np.dtype({"float64": "d", "complex64": "F", "complex128": "D"}.get(ITEMS[atype], "f"))
        by, keep = (np.frombuffer((ctypes.c_char * factor.itemsize).from_address(x), factor)[0] for x in (alpha, beta))
        product = by * np.matmul(left.astype(wide), right.astype(wide))
        result[...] = (product + keep * result.astype(wide) if keep else product).astype(result.dtype)
        self.calls.append(count)


def stand_in_for_cublas(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    package, bindings = types.ModuleType("nvmath"), types.ModuleType("nvmath.bindings")
    package.CudaDataType, package.bindings, bindings.cublas = _CudaDataType, bindings, stand_in  # type: ignore[attr-defined]
    for name, module in (("nvmath", package), ("nvmath.bindings", bindings), ("nvmath.bindings.cublas", stand_in)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(blas, "_handles", {})
    return stand_in


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in_for_cublas(monkeypatch)


def ask(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], views: tuple[Any, Any] | None = None) -> ac.DeviceOp[Any]:
    """Multiply by what would be cuBLAS; both arrays have two axes or more."""
    left, right = views or (ac.to_device(a).sync(), ac.to_device(b).sync())
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = ac.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    return matrices.by_cublas(left, right, out, batch)


@pytest.mark.emulated_only
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shapes", [s for s in SHAPES if min(map(len, s)) > 1 and 0 not in s[0] + s[1]], ids=str)
def test_cublas_is_asked_for_the_product(cublas, shapes, dtype):
    a, b = (numbers(shape, dtype, seed) for seed, shape in enumerate(shapes))
    check(ask(a, b), a, b)


@pytest.mark.emulated_only
def test_matrices_at_equal_distances_are_one_call(cublas):
    for shapes, calls in [
        (((2, 3, 4, 5), (2, 3, 5, 6)), 1),
        (((2, 3, 4, 5), (5, 6)), 1),
        (((2, 3, 4, 5), (3, 5, 6)), 2),
        (((2, 1, 4, 5), (3, 5, 6)), 2),
        (((2, 1, 4, 5), (2, 1, 5, 6)), 1),
    ]:
        cublas.calls.clear()
        a, b = (numbers(shape, "float64", seed) for seed, shape in enumerate(shapes))
        check(ask(a, b), a, b)
        assert len(cublas.calls) == calls


class Transposed:
    """Matrices with their columns in one piece, as other libraries lend them."""

    def __init__(self, array: ac.DeviceArray) -> None:
        (count, rows, columns), (apart, down, across) = array.shape, array.strides
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": (count, columns, rows),
            "strides": (apart, across, down),
            "typestr": array.dtype.str,
            "data": (array.address, False),
            "version": 3,
        }


@pytest.mark.emulated_only
@given(st.data())
def test_cublas_is_asked_for_products_of_matrices_however_they_lie(data):
    with pytest.MonkeyPatch.context() as context:
        stand_in_for_cublas(context)
        whole = numbers((3, 6, 8), "float32", 2)
        array = ac.to_device(whole).sync()
        rows, inner, columns = (data.draw(st.integers(1, 3)) for _ in range(3))

        def matrices(n: int, m: int) -> tuple[Any, Any]:
            steps = [data.draw(st.integers(1, 2)) for _ in range(3)]
            first = data.draw(st.integers(0, 1))
            part = tuple(slice(first, first + n * step, step) for n, step in zip((1, n, m), steps, strict=True))
            if not data.draw(st.booleans()):
                return whole[part], array[part]
            part = part[0], part[2], part[1]
            return whole[part].transpose(0, 2, 1), ac.external(Transposed(array[part]))

        (a, left), (b, right) = matrices(rows, inner), matrices(inner, columns)
        check(ask(a, b, (left, right)), a, b)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (32, 8), (False, 4, ())),
        ((3, 4), (64, 8), (False, 8, ())),
        ((3, 4), (8, 24), (True, 3, ())),
        ((3, 4), (8, 80), (True, 10, ())),
        ((1, 4), (8, 8), (False, 4, ())),
        ((1, 4), (8, 16), (True, 2, ())),
        ((3, 1), (16, 16), (False, 2, ())),
        ((1, 1), (16, 16), (False, 1, ())),
        ((3, 4), (64, 16), None),
        ((3, 4), (16, 8), None),
        ((3, 4), (0, 8), None),
        ((3, 4), (36, 8), None),
        ((5, 3, 4), (96, 32, 8), (False, 4, (12,))),
        ((1, 3, 4), (7, 32, 8), (False, 4, (0,))),
        ((5, 3, 4), (0, 32, 8), (False, 4, (0,))),
    ],
)
def test_how_matrices_lie(shape, strides, expected):
    found = matrices.factor_of(shape, strides, 8, shape[:-2])
    assert found == (None if expected is None else blas.Factor(*expected))


def test_axes_that_are_not_there_are_broadcast():
    factor = matrices.factor_of((2, 3, 4), (96, 32, 8), 8, (5, 2))
    assert factor is not None
    assert factor.batch == (0, 12)


# --- as an operation


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_kernel_multiplies_on_every_driver(dtype):
    a, b = numbers((2, 5, 7), dtype, 1), numbers((7, 3), dtype, 2)
    left, right = ac.to_device(a).sync(), ac.to_device(b).sync()
    check(matrices.by_kernel(left, right, ac.empty((2, 5, 3), a.dtype), (2,)), a, b)


@multiplies
def test_operations_are_multiplied_without_running_first(run):
    async def program():
        line = ac.arange(6, dtype=np.float32)
        product = linalg.matmul(line.then(lambda x: x.reshape(2, 3)), ac.ones((3, 2)))
        assert line._state == "pending"
        return await ac.to_host(linalg.matmul(product, ac.eye(2)))

    np.testing.assert_array_equal(run(program), [[3, 3], [12, 12]])


@multiplies
def test_launches_of_a_graph_multiply_what_its_arrays_hold():
    x, y = ac.ones((4, 4)).sync(), ac.eye(4).sync()
    graph = linalg.matmul(x, linalg.matmul(x, y)).graph()
    np.testing.assert_array_equal(ac.to_host(graph.launch()).sync(), np.full((4, 4), 4))
    ac.copy(y, ac.ones((4, 4))).sync()
    np.testing.assert_array_equal(ac.to_host(graph.launch()).sync(), np.full((4, 4), 16))


@multiplies
def test_a_compiled_function_multiplies():
    product = ac.compile(lambda a, b: linalg.matmul(a[1:], b))
    for seed in range(3):
        a, b = numbers((4, 5), "float64", seed), numbers((5, 2), "float64", seed + 10)
        check(product(ac.to_device(a).sync(), ac.to_device(b).sync()), a[1:], b)
    assert product.cache_info().graphs == 1


@multiplies
@pytest.mark.needs_devices(2)
def test_the_product_is_beside_the_factors():
    a = ac.ones((2, 2), device=1)
    assert linalg.matmul(a, a).sync().device == ac.Device(1)
    with pytest.raises(ac.DeviceMismatchError, match=r"\.to\(device\)"):
        linalg.matmul(ac.ones((2, 2)).sync(), a.sync())


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        ((2, 3), (2, 3), ac.ArgumentValueError, "as many"),
        ((3,), (4,), ac.ArgumentValueError, "as many"),
        ((), (3,), ac.ArgumentValueError, "one axis or more"),
        ((2, 3, 3), (3, 3, 3), ac.ArgumentValueError, "equal, or 1"),
        ((1,) * 7 + (2, 2), (2, 2), ac.ArgumentValueError, "more than 6 axes"),
    ],
)
def test_shapes_that_do_not_fit_are_an_error(a, b, error, message):
    left, right = ac.empty(a).sync(), ac.empty(b).sync()
    with pytest.raises(error, match=message):
        linalg.matmul(left, right)
    with pytest.raises(error, match=message):
        linalg.matmul(ac.empty(a), right).sync()


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("int32", "int32"), ("bool", "bool"), ("S3", "S3")])
def test_dtypes_that_are_not_multiplied_are_an_error(dtypes):
    a, b = (ac.empty((2, 2), dtype).sync() for dtype in dtypes)
    with pytest.raises(ac.ArgumentTypeError, match="one dtype"):
        linalg.matmul(a, b)


@pytest.mark.parametrize("other", [[[1.0]], np.ones((1, 1)), None])
def test_what_is_not_on_a_device_is_an_error(other):
    with pytest.raises(ac.ArgumentTypeError, match="to_device"):
        linalg.matmul(ac.ones((1, 1)).sync(), other)


def test_a_closed_array_is_not_multiplied():
    array = ac.ones((2, 2)).sync()
    array.close()
    with pytest.raises(ac.ClosedError, match=r"matmul: the array of .* was closed at"):
        linalg.matmul(array, array)


def test_where_nvmath_is_not_installed_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    monkeypatch.setattr(blas, "_handles", {})
    x = ac.ones((2, 2)).sync()
    with pytest.raises(ac.MissingPackageError, match=r'pip install "aiocuda\[nvmath\]"'):
        matrices.by_cublas(x, x, ac.empty((2, 2)), ())


# --- into an array, times a number, of transposed views

LAYOUTS = {
    "rows": lambda shape, dtype: (np.zeros(shape, dtype), lambda x: x),
    "columns": lambda shape, dtype: (np.zeros((*shape[:-2], shape[-1], shape[-2]), dtype), lambda x: swapped(x)),
    "every other": lambda shape, dtype: (
        np.zeros((*shape[:-2], 2 * shape[-2], 2 * shape[-1]), dtype),
        lambda x: x[..., ::2, 1::2],
    ),
    "part": lambda shape, dtype: (
        np.zeros((*shape[:-2], shape[-2] + 2, shape[-1] + 3), dtype),
        lambda x: x[..., 1:-1, 2:-1],
    ),
    "apart": lambda shape, dtype: (
        np.zeros((shape[-2], *shape[:-2], shape[-1]), dtype),
        lambda x: x.transpose(*range(1, x.ndim - 1), 0, x.ndim - 1),
    ),
}


def swapped(x: Any) -> Any:
    return x.transpose(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def multiplied_into(layout, shapes, dtype, scales, multiply):
    a, b = (numbers(shape, dtype, seed) for seed, shape in enumerate(shapes))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    expected = np.matmul(a.astype(wide), b.astype(wide))
    host, see = LAYOUTS[layout](expected.shape, a.dtype)
    host[...] = numbers(host.shape, dtype, 5) if scales[1] else np.nan
    whole = ac.to_device(host).sync()
    part = see(whole)
    assert multiply(ac.to_device(a).sync(), ac.to_device(b).sync(), part, scales).sync() is part
    old = see(host).astype(wide)
    see(host)[...] = (scales[0] * expected + (scales[1] * old if scales[1] else 0)).astype(a.dtype)
    found = ac.to_host(whole).sync().astype(wide)
    np.testing.assert_allclose(found, host.astype(wide), rtol=0, atol=3 * TOLERANCE[dtype] * (1 + a.shape[-1]))


@multiplies
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scales", [(1, 0), (0.5, 2), (-1.5, 0)], ids=str)
def test_the_product_goes_into_an_array_of_any_strides(layout, dtype, scales):
    def multiply(a, b, out, scales):
        return linalg.matmul(a, b, out, alpha=scales[0], beta=scales[1])

    multiplied_into(layout, ((2, 3, 4), (4, 5)), dtype, scales, multiply)


@pytest.mark.emulated_only
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scales", [(1, 0), (0.5, 2)], ids=str)
def test_cublas_is_asked_for_the_product_into_an_array(cublas, layout, dtype, scales):
    def multiply(a, b, out, scales):
        return matrices.by_cublas(a, b, out, (2,), scales).then(lambda _: out)

    multiplied_into(layout, ((2, 3, 4), (4, 5)), dtype, scales, multiply)


@multiplies
def test_complex_products_are_multiplied_by_complex_numbers():
    def multiply(a, b, out, scales):
        return linalg.matmul(a, b, out, alpha=scales[0], beta=np.complex64(scales[1]))

    for dtype in ("complex64", "complex128"):
        multiplied_into("rows", ((3, 4), (4, 5)), dtype, (1 - 2j, 0.5j), multiply)


@multiplies
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_transposed_views_are_multiplied_as_they_are(dtype):
    a, b = numbers((4, 3), dtype, 1), numbers((5, 4), dtype, 2)
    left, right = ac.to_device(a).sync(), ac.to_device(b).sync()
    check(linalg.matmul(left.T, right.T), a.T, b.T)
    check(linalg.matmul(ac.to_device(a).T, right.T), a.T, b.T)
    check(linalg.matmul(right, left), b, a)
    many = numbers((2, 4, 3), dtype, 3)
    check(linalg.matmul(ac.to_device(many).transpose(0, 2, 1), right.T), many.transpose(0, 2, 1), b.T)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_transposed_matrix_is_no_copy_for_cublas(transposed):
    x = ac.empty((3, 4)).sync()
    found = matrices.factor_of((x.T if transposed else x).shape, (x.T if transposed else x).strides, 4, ())
    assert found == blas.Factor(transposed, 4, ())


@multiplies
def test_out_may_be_an_operation_and_a_graph_writes_it_again():
    x = ac.ones((2, 2)).sync()
    assert ac.to_host(linalg.matmul(x, x, ac.zeros((2, 2)), beta=3)).sync().tolist() == [[2, 2], [2, 2]]
    out = ac.zeros((2, 2)).sync()
    graph = linalg.matmul(x, x, out, beta=1).graph()
    for times in (1, 2):
        graph.launch().sync()
        np.testing.assert_array_equal(ac.to_host(out).sync(), np.full((2, 2), 2 * times))
    vector = ac.zeros(2).sync()
    assert linalg.matmul(x, ac.ones(2).sync(), vector).sync() is vector
    assert ac.to_host(vector).sync().tolist() == [2, 2]
    scalar = ac.zeros(()).sync()
    linalg.matmul(vector, vector, scalar, alpha=0.5).sync()
    assert ac.to_host(scalar).sync() == 4


@multiplies
def test_sums_of_nothing_scale_what_is_there():
    out = ac.full((2, 3), 4).sync()
    a, b = ac.empty((2, 0)).sync(), ac.empty((0, 3)).sync()
    assert linalg.matmul(a, b, out, beta=0.5).sync() is out
    assert (ac.to_host(out).sync() == 2).all()
    assert linalg.matmul(a, b, out).sync() is out
    assert (ac.to_host(out).sync() == 0).all()


def test_an_out_that_does_not_fit_is_an_error():
    x = ac.ones((4, 4)).sync()
    a, b = x[:2, :2], x[2:, 2:]
    for out, error, message in [
        (ac.zeros((2, 3)).sync(), ac.ArgumentValueError, r"needs \(2, 2\)"),
        (ac.zeros((2, 2), np.float64).sync(), ac.ArgumentTypeError, "dtype"),
        (np.zeros((2, 2), np.float32), ac.ArgumentTypeError, "to_device"),
        (x[1:3, 1:3], ac.ArgumentValueError, "shares memory with a"),
        (x[2:, 1:3], ac.ArgumentValueError, "shares memory with b"),
        (x[2:, 2:].T, ac.ArgumentValueError, "shares memory with b"),
        (ac.zeros((2, 2)).sync().share(), ac.OwnershipError, "shared"),
    ]:
        with pytest.raises(error, match=message):
            linalg.matmul(a, b, out)
    matrices.by_kernel(a, b, x[:2, 2:], ()).sync()  # a neighbour
    assert (ac.to_host(x[:2, 2:]).sync() == 2).all()
    with pytest.raises(ac.ArgumentValueError, match="give out="):
        linalg.matmul(a, b, beta=1)
    for alpha, message in (
        (1j, "matmul of float32 takes real numbers; alpha=1j, beta=0 were given"),
        ("2", "alpha is a number; str '2' was given"),
        (None, "alpha is a number; NoneType None was given"),
        (x, "alpha is a number; DeviceArray .* was given"),
    ):
        with pytest.raises(ac.ArgumentTypeError, match=message):
            linalg.matmul(a, b, alpha=alpha)


def test_an_out_whose_items_lie_askew_is_an_error():
    askew = ac.zeros(17, np.uint8).sync()[1:].view(np.float32).reshape(2, 2)
    with pytest.raises(ac.ArgumentValueError, match="multiples of their 4 bytes"):
        linalg.matmul(ac.ones((2, 2)).sync(), ac.ones((2, 2)).sync(), askew)
