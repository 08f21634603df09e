"""Linear algebra: products of matrices.

Always true: on a GPU it is cuBLAS that multiplies, on the emulated driver a kernel of this library; the checks are the
same, and so is the result, except for the order of the sums.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._driver import blas
from aiocuda._driver.blas import Factor
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import parts
from aiocuda._verbs.conversion import WORDS, number_of
from aiocuda._verbs.copies import copy, dup
from aiocuda._verbs.create import empty, zeros
from aiocuda._verbs.fills import fill
from aiocuda._verbs.foreign import call_with_workspace
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError

__all__ = ["matmul"]


def matmul(a: Any, b: Any, out: Any = None, *, alpha: complex = 1, beta: complex = 0) -> DeviceOp[DeviceArray]:
    """Multiply matrices, as `numpy.matmul` does: ``alpha * (a @ b)``, or that plus ``beta * out``.

    Parameters
    ----------
    a, b
        `DeviceArray` of any strides, or operations that yield them, on one device and of one dtype: float16, bfloat16,
        float32, float64, complex64 or complex128. Of shapes (..., n, k) and (..., k, m), where the axes before the last
        two are broadcast; an array of one axis is a row on the left and a column on the right, and that axis is not
        in the result. A transposed matrix is a view, ``a.T`` or ``a.transpose(0, 2, 1)``, and is not copied.
    out
        Where the result goes: a `DeviceArray` of any strides, or an operation that yields one, of the result's shape
        and dtype and on the same device, which shares no memory with `a` and `b`. None: a new array.
    alpha
        A number by which the product is multiplied; a complex one for complex dtypes alone.
    beta
        A number by which what `out` holds is multiplied before it is added; where it is 0, `out` is not read, so that
        it may hold anything. Another one needs `out`.

    Returns
    -------
    DeviceOp[DeviceArray]
        `out`; else a new array of shape (..., n, m), C-contiguous, of the same dtype. *Stream*: as for a kernel.
        *Blocks*: the first time, while cuBLAS is loaded or the kernel compiled. *On cancel*: what was submitted goes
        on, and `out` is written.

    Raises
    ------
    ArgumentTypeError
        `a` or `b` is no array on a device, or of another dtype, or the two differ: `aiocuda.convert` one of them.
    ArgumentValueError
        The shapes do not fit, or have more than six axes before the last two; `out` has another shape, shares memory
        with a factor, or has several items in one place; or `beta` was given without `out`.
    OwnershipError
        An array was closed, moved or partitioned; or `out` is shared, or is only lent for reading.
    DeviceMismatchError
        They are on two devices: bring one over with ``.to(device)``.
    MissingPackageError
        On a GPU: nvmath-python is not installed (``pip install "aiocuda[nvmath]"``).
    OutOfMemoryError
        When executed: the device has no room for the result, or for cuBLAS's 32 MiB of workspace.

    Notes
    -----
    All of these are raised when the operation is built; of what operations yield, when it is executed. Sums are made in
    float32 for float16, bfloat16, float32 and complex64, else in float64, in an order of the implementation's: results
    are NumPy's up to rounding. Matrices whose rows and columns both do not lie in one piece are copied first.
    In a graph, a launch with other factors in the place of the graph's is a `CaptureError` on a GPU, as cuBLAS's work
    has their addresses: `copy` to the graph's. `compile` does that by itself.
    """
    scales = _scale("alpha", alpha), _scale("beta", beta)
    if out is None and scales[1] != 0:
        raise ArgumentValueError(f"matmul: beta={beta!r} is a factor of what out holds; give out=")
    a, b = as_array(a, "matmul"), as_array(b, "matmul")
    out = None if out is None else as_array(out, "matmul: out")
    given = [a, b] if out is None else [a, b, out]
    if any(isinstance(x, _native.Op) for x in given):
        code = next(x._spec[1] for x in given if isinstance(x, _native.Op))
        where = (x._spec[2] if isinstance(x, _native.Op) else getattr(x, "_device", None) for x in given)
        device = next((ordinal for ordinal in where if ordinal not in {None, _native.HOST}), None)
        return composing.once_known(
            lambda known: matmul(*known, alpha=alpha, beta=beta),
            cast("_native.Op", composing.zip(*given)),
            dtype=code,
            device=device,
            title="a matrix product",
        )
    for x in given:
        if not isinstance(x, DeviceArray):
            raise ArgumentTypeError(
                "matmul takes arrays on a device, or operations that yield them; "
                f"{type(x).__name__} {x!r:.80} was given: to_device() it first"
            )
        _native.check_usable(x, x is out, "matmul")
    if a.dtype != b.dtype or a.dtype.name not in blas.DTYPES:
        raise ArgumentTypeError(
            f"matmul takes two arrays of one dtype, {', '.join(blas.DTYPES)}; {a.dtype} and {b.dtype} were given: "
            "convert() them first"
        )
    if a.dtype.kind != "c" and any(isinstance(scale, complex) for scale in scales):
        raise ArgumentTypeError(f"matmul of {a.dtype} takes real numbers; alpha={alpha!r}, beta={beta!r} were given")
    for x in given:
        if x.device != a.device:
            raise DeviceMismatchError(
                f"matmul takes arrays on one device; they are on {a.device.ordinal} and {x.device.ordinal}: bring one "
                "over with .to(device)"
            )
    batch, shape = _shapes(a.shape, b.shape)
    if out is not None:
        _check_out(out, shape, a, b)
    if not (a._is_aligned(a.itemsize) and b._is_aligned(b.itemsize)):
        return matmul(dup(a), dup(b), out, alpha=alpha, beta=beta)
    if 0 in shape:
        return empty(shape, a.dtype, a.device) if out is None else composing.value(out)
    if a.shape[-1] == 0 and scales[1] == 0:
        return zeros(shape, a.dtype, a.device) if out is None else fill(out, 0)
    left = a.reshape(1, *a.shape) if a.ndim == 1 else a
    right = b.reshape(*b.shape, 1) if b.ndim == 1 else b
    multiply = by_kernel if a.device.is_emulated or a.shape[-1] == 0 else by_cublas
    if out is None:
        return multiply(left, right, empty(shape, a.dtype, a.device), batch, scales)
    matrices = out.reshape(*batch, left.shape[-2], right.shape[-1])
    return _yielding(out, multiply(left, right, matrices, batch, scales))


Scales = tuple[complex, complex]
_PLAIN: Scales = (1, 0)


def _scale(name: str, scale: Any) -> complex:
    """Return a number as Python's own, real where it is real."""
    if isinstance(scale, (bool, int, float)):
        return float(scale)
    if isinstance(scale, (complex, np.number)):
        return complex(scale) if np.iscomplexobj(scale) else float(scale.real)
    raise ArgumentTypeError(f"matmul: {name} is a number; {type(scale).__name__} {scale!r:.80} was given")


def _yielding(out: DeviceArray, op: DeviceOp[Any]) -> DeviceOp[DeviceArray]:
    return composing.once_known(
        lambda _: out,  # type: ignore[arg-type, return-value]  # an array is as good as an operation here
        cast("_native.Op", op),
        dtype=out._dtype,
        device=out._device,
        title="a matrix product",
    )


def _check_out(out: DeviceArray, shape: tuple[int, ...], a: DeviceArray, b: DeviceArray) -> None:
    if out.dtype != a.dtype:
        raise ArgumentTypeError(
            f"matmul: out is of dtype {out.dtype}, and the factors of {a.dtype}; give them one dtype"
        )
    if out.shape != shape:
        raise ArgumentValueError(f"matmul of shapes {a.shape} and {b.shape}: out has {out.shape}; it needs {shape}")
    if any(extent > 1 and step == 0 for extent, step in zip(out.shape, out.strides, strict=True)):
        raise ArgumentValueError(f"matmul: several items of out, of strides {out.strides}, lie in one place")
    if not out._is_aligned(out.itemsize):
        raise ArgumentValueError(
            f"matmul: the items of out do not lie at multiples of their {out.itemsize} bytes, as cuBLAS and kernels "
            "need them; leave out= out, and copy() the result"
        )
    for name, x in (("a", a), ("b", b)):
        if parts.share_bytes(_bytes_of(out), _bytes_of(x)):
            raise ArgumentValueError(f"matmul: out shares memory with {name}; give another out, or dup() {name}")


def _bytes_of(array: DeviceArray) -> parts.Bytes:
    return parts.Bytes(*array._place, array.shape, array.strides, array.itemsize)


def _shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of matrices, and the shape of the result."""
    if not a or not b:
        raise ArgumentValueError(f"matmul takes arrays of one axis or more; shapes {a} and {b} were given")
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        raise ArgumentValueError(
            f"matmul of shapes {a} and {b}: the last axis of the first has {a[-1]} items, and the axis of the second "
            f"that belongs to it has {inner}; they must be as many"
        )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ArgumentValueError(
            f"matmul of shapes {a} and {b}: the axes before the last two must be equal, or 1 in one of them"
        ) from None
    if len(batch) > _RANK - 2:
        raise ArgumentValueError(f"matmul of shapes {a} and {b}: more than {_RANK - 2} axes before the last two")
    return batch, (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


_RANK = 8  # the most that a View has


# --- by cuBLAS


def by_cublas(
    a: DeviceArray, b: DeviceArray, out: Any, batch: tuple[int, ...], scales: Scales = _PLAIN
) -> DeviceOp[Any]:
    """Multiply by cuBLAS, into an array, or into what an operation yields, which is C-contiguous."""
    left, right = (factor_of(x.shape, x.strides, x.itemsize, batch) for x in (a, b))
    if left is None or right is None:
        lying = [dup(x) if factor is None else x for x, factor in ((a, left), (b, right))]
        return composing.zip(*lying).then(lambda both: by_cublas(both[0], both[1], out, batch, scales))
    ordinal, extents, dtype = a.device.ordinal, (a.shape[-2], a.shape[-1], b.shape[-1]), a.dtype.name
    product = _contiguous_product(batch, extents) if isinstance(out, _native.Op) else _product_of(out, batch)
    if product is None:
        begun = dup(out) if scales[1] != 0 else empty(out.shape, out.dtype, out.device)
        return begun.then(lambda lying: by_cublas(a, b, lying, batch, scales)).then(lambda made: copy(out, made))
    blas.open_blas(ordinal)

    def multiply(stream: Stream, a: DeviceArray, b: DeviceArray, out: DeviceArray, space: DeviceArray) -> DeviceArray:
        addresses, sizes, factors = (a.address, b.address, out.address), extents, (left, right, product)
        if product.is_transposed:  # the transposed product is that of the transposed factors in turn
            addresses, sizes = (b.address, a.address, out.address), (extents[2], extents[1], extents[0])
            factors = right.turned(), left.turned(), product.turned()
        workspace = space.address, space.nbytes
        blas.multiply(ordinal, stream.handle, workspace, dtype, addresses, sizes, batch, factors, scales)
        return out

    workspace_bytes = blas.workspace_bytes(ordinal)
    return call_with_workspace(multiply, a, b, out, reads=[a, b], writes=[out], workspace_bytes=workspace_bytes)


def _contiguous_product(batch: tuple[int, ...], extents: tuple[int, int, int]) -> Factor:
    rows, _, columns = extents
    steps = [rows * columns * math.prod(batch[axis + 1 :]) for axis in range(len(batch))]
    return Factor(False, columns, tuple(steps))


def _product_of(out: DeviceArray, batch: tuple[int, ...]) -> Factor | None:
    return factor_of(out.shape, out.strides, out.itemsize, batch)


def factor_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, batch: tuple[int, ...]) -> Factor | None:
    """Return how cuBLAS takes matrices; None where it cannot, as they lie."""
    if any(step % itemsize for extent, step in zip(shape, strides, strict=True) if extent > 1):
        return None
    (rows, columns), (down, across) = shape[-2:], (step // itemsize for step in strides[-2:])
    matrices = [0 if extent == 1 else step // itemsize for extent, step in zip(shape[:-2], strides[:-2], strict=True)]
    between = (0,) * (len(batch) - len(matrices)) + tuple(matrices)
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return Factor(False, down if rows > 1 else columns, between)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return Factor(True, across if columns > 1 else rows, between)
    return None


# --- by a kernel

_SOURCE = r"""
#include <aiocuda/number.cuh>
#include <aiocuda/tile.cuh>

using namespace aiocuda::number;
using Number = NUMBER;
using Matrices = aiocuda::View<const Number::Word, RANK>;
using Product = aiocuda::View<Number::Word, RANK>;

template <class Part>
__device__ auto value_of(typename Part::Word word) { return value(Part(0).read(word)); }
__device__ Float bits_of(float x) { return {__float_as_uint(x)}; }
__device__ Double bits_of(double x) { return {(unsigned long long)__double_as_longlong(x)}; }

struct Scales {
    double alpha, alpha_imaginary, beta, beta_imaginary;
};

template <class Part>
struct Sum {
    decltype(value_of<Part>(0)) sum = 0;
    __device__ void add(typename Part::Word a, typename Part::Word b) { sum += value_of<Part>(a) * value_of<Part>(b); }
    // Times alpha, and with what was there times beta, unless that is 0.
    __device__ typename Part::Word word(const typename Part::Word* old, const Scales& by) const {
        decltype(sum) result = (decltype(sum))by.alpha * sum;
        if (by.beta != 0) result += (decltype(sum))by.beta * value_of<Part>(*old);
        return Part(0).write(bits_of(result));
    }
};
template <class Part>
struct Sum<Complex<Part>> {
    decltype(value_of<Part>(0)) real = 0, imaginary = 0;
    __device__ void add(typename Complex<Part>::Word a, typename Complex<Part>::Word b) {
        const auto ar = value_of<Part>(a.real), ai = value_of<Part>(a.imaginary);
        const auto br = value_of<Part>(b.real), bi = value_of<Part>(b.imaginary);
        real += ar * br - ai * bi;
        imaginary += ar * bi + ai * br;
    }
    __device__ typename Complex<Part>::Word word(const typename Complex<Part>::Word* old, const Scales& by) const {
        using Item = decltype(real);
        const Item ar = (Item)by.alpha, ai = (Item)by.alpha_imaginary, br = (Item)by.beta, bi = (Item)by.beta_imaginary;
        // By a real number each part is multiplied by itself: an infinity in the other one makes no NaN of it.
        Item x = ai == 0 ? ar * real : ar * real - ai * imaginary;
        Item y = ai == 0 ? ar * imaginary : ar * imaginary + ai * real;
        if (br != 0 || bi != 0) {
            const Item u = value_of<Part>(old->real), v = value_of<Part>(old->imaginary);
            x += bi == 0 ? br * u : br * u - bi * v;
            y += bi == 0 ? br * v : br * v + bi * u;
        }
        return {Part(0).write(bits_of(x)), Part(0).write(bits_of(y))};
    }
};

// A thread for each item of the product.
extern "C" __global__ void matmul(Matrices a, Matrices b, Product out, unsigned long long n, double alpha,
                                  double alpha_imaginary, double beta, double beta_imaginary) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long columns = b.extent(RANK - 1), rows = a.extent(RANK - 2);
    const char* left = reinterpret_cast<const char*>(a.data()) + (long long)(i / columns % rows) * a.stride(RANK - 2);
    const char* right = reinterpret_cast<const char*>(b.data()) + (long long)(i % columns) * b.stride(RANK - 1);
    char* into = reinterpret_cast<char*>(out.data()) + (long long)(i / columns % rows) * out.stride(RANK - 2) +
                 (long long)(i % columns) * out.stride(RANK - 1);
    unsigned long long rest = i / columns / rows;
    for (int axis = RANK - 3; axis >= 0; --axis) {
        const unsigned long long extent = a.extent(axis) > b.extent(axis) ? a.extent(axis) : b.extent(axis);
        const long long at = (long long)(rest % extent);
        if (a.extent(axis) > 1) left += at * a.stride(axis);
        if (b.extent(axis) > 1) right += at * b.stride(axis);
        into += at * out.stride(axis);
        rest /= extent;
    }
    Sum<Number> sum;
    for (long long k = 0; k < a.extent(RANK - 1); ++k) {
        sum.add(*reinterpret_cast<const Number::Word*>(left), *reinterpret_cast<const Number::Word*>(right));
        left += a.stride(RANK - 1);
        right += b.stride(RANK - 2);
    }
    Number::Word* item = reinterpret_cast<Number::Word*>(into);
    *item = sum.word(item, {alpha, alpha_imaginary, beta, beta_imaginary});
}
"""


def by_kernel(
    a: DeviceArray, b: DeviceArray, out: Any, batch: tuple[int, ...], scales: Scales = _PLAIN
) -> DeviceOp[Any]:
    """Multiply by a kernel that takes the matrices as they lie, into an array, or into what an operation yields."""
    if isinstance(out, _native.Op):
        _, code, device = out._spec
        make = functools.partial(_by_kernel_into, a, b, batch, scales)
        return composing.once_known(make, out, dtype=code, device=device, title="a matrix product")
    return _by_kernel_into(a, b, batch, scales, out)


def _by_kernel_into(
    a: DeviceArray, b: DeviceArray, batch: tuple[int, ...], scales: Scales, out: DeviceArray
) -> DeviceOp[DeviceArray]:
    number = number_of(a.dtype, "matmul")
    product = out.reshape(*batch, a.shape[-2], b.shape[-1])
    matrices = [x.reshape((1,) * (_RANK - x.ndim) + x.shape) for x in (a, b, product)]
    if number.word in WORDS:
        matrices = [x.view(WORDS[number.word]) for x in matrices]
    size = math.prod(product.shape)
    parts_of_scales = [part for scale in map(complex, scales) for part in (scale.real, scale.imag)]
    return _yielding(out, _kernel(number.kind, number.word)(*matrices, size, *parts_of_scales, threads=size))


@functools.cache
def _kernel(kind: str, word: str) -> Kernel:
    view = f"aiocuda::View<const {word}, {_RANK}>"
    numbers = ", ".join(f"double {name}" for name in ("alpha", "alpha_imaginary", "beta", "beta_imaginary"))
    return kernel(
        _SOURCE.replace("NUMBER", kind).replace("RANK", str(_RANK)),
        "matmul",
        signature=f"{view} a, {view} b, aiocuda::View<{word}, {_RANK}> out, unsigned long long n, {numbers}",
    )
