"""Linear algebra: products of matrices.

Always true: on a GPU it is cuBLAS that multiplies, on the emulated driver a kernel of this library; what is checked,
and what comes out but for the order of the sums, is the same.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np

from aiocuda import _native, composing
from aiocuda._driver import blas
from aiocuda._driver.blas import Factor
from aiocuda.api import empty, zeros
from aiocuda.array import DeviceArray
from aiocuda.conversion import WORDS, number_of
from aiocuda.copies import dup
from aiocuda.device import Stream
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError
from aiocuda.foreign import call
from aiocuda.kernel import kernel
from aiocuda.ops import DeviceOp

__all__ = ["matmul"]


def matmul(a: Any, b: Any) -> DeviceOp[DeviceArray]:
    """Multiply matrices, as `numpy.matmul` does.

    Parameters
    ----------
    a, b
        `DeviceArray` of any strides, or operations that yield them, on one device and of one dtype: float16, bfloat16,
        float32, float64, complex64 or complex128. Of shapes (..., n, k) and (..., k, m), where the axes before the last
        two are broadcast; an array of one axis is a row on the left and a column on the right, and that axis is not
        in the result.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array of shape (..., n, m), C-contiguous, of the same dtype. *Stream*: as for a kernel. *Blocks*: the
        first time, while cuBLAS is loaded or the kernel compiled. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        `a` or `b` is no array on a device, or of another dtype, or the two differ: `aiocuda.convert` one of them.
    ArgumentValueError
        The shapes do not fit, or have more than six axes before the last two.
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
    if isinstance(a, _native.Op) or isinstance(b, _native.Op):
        code, device = next((spec[1], spec[2]) for x in (a, b) if isinstance(x, _native.Op) for spec in (x._spec,))
        both = cast("_native.Op", composing.zip(a, b))
        return composing.once_known(
            lambda given: matmul(*given), both, dtype=code, device=device, title="a matrix product"
        )
    for x in (a, b):
        if not isinstance(x, DeviceArray):
            raise ArgumentTypeError(
                "matmul takes arrays on a device, or operations that yield them; "
                f"{type(x).__name__} {x!r:.80} was given: to_device() it first"
            )
        _native.check_usable(x, False, "matmul")
    if a.dtype != b.dtype or a.dtype.name not in blas.DTYPES:
        raise ArgumentTypeError(
            f"matmul takes two arrays of one dtype, {', '.join(blas.DTYPES)}; {a.dtype} and {b.dtype} were given: "
            "convert() them first"
        )
    if a.device != b.device:
        raise DeviceMismatchError(
            f"matmul takes two arrays on one device; they are on {a.device.ordinal} and {b.device.ordinal}: bring one "
            "over with .to(device)"
        )
    if not (a._is_aligned(a.itemsize) and b._is_aligned(b.itemsize)):
        return matmul(dup(a), dup(b))
    batch, shape = _shapes(a.shape, b.shape)
    if 0 in shape:
        return empty(shape, a.dtype, a.device)
    if a.shape[-1] == 0:
        return zeros(shape, a.dtype, a.device)
    left = a.reshape(1, *a.shape) if a.ndim == 1 else a
    right = b.reshape(*b.shape, 1) if b.ndim == 1 else b
    out = empty(shape, a.dtype, a.device)
    return by_kernel(left, right, out, batch) if a.device.is_emulated else by_cublas(left, right, out, batch)


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


def by_cublas(a: DeviceArray, b: DeviceArray, out: DeviceOp[DeviceArray], batch: tuple[int, ...]) -> DeviceOp[Any]:
    """Multiply by cuBLAS."""
    left, right = (factor_of(x.shape, x.strides, x.itemsize, batch) for x in (a, b))
    if left is None or right is None:
        lying = [dup(x) if factor is None else x for x, factor in ((a, left), (b, right))]
        return composing.zip(*lying).then(lambda both: by_cublas(both[0], both[1], out, batch))
    ordinal, extents, dtype = a.device.ordinal, (a.shape[-2], a.shape[-1], b.shape[-1]), a.dtype.name
    blas.open_blas(ordinal)

    def multiply(stream: Stream, a: DeviceArray, b: DeviceArray, out: DeviceArray, space: DeviceArray) -> DeviceArray:
        addresses = a.address, b.address, out.address
        workspace = space.address, space.nbytes
        blas.multiply(ordinal, stream.handle, workspace, dtype, addresses, extents, batch, left, right)
        return out

    space = empty(blas.workspace_bytes(ordinal), np.uint8, ordinal)
    return call(multiply, a, b, out, space, reads=[a, b], writes=[out, space])


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

template <class Part>
__device__ auto value_of(typename Part::Word word) { return value(Part(0).read(word)); }
__device__ Float bits_of(float x) { return {__float_as_uint(x)}; }
__device__ Double bits_of(double x) { return {(unsigned long long)__double_as_longlong(x)}; }

template <class Part>
struct Sum {
    decltype(value_of<Part>(0)) sum = 0;
    __device__ void add(typename Part::Word a, typename Part::Word b) { sum += value_of<Part>(a) * value_of<Part>(b); }
    __device__ typename Part::Word word() const { return Part(0).write(bits_of(sum)); }
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
    __device__ typename Complex<Part>::Word word() const {
        return {Part(0).write(bits_of(real)), Part(0).write(bits_of(imaginary))};
    }
};

// A thread for each item of the product, which lies in one piece.
extern "C" __global__ void matmul(Matrices a, Matrices b, void* out, unsigned long long n) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long columns = b.extent(RANK - 1), rows = a.extent(RANK - 2);
    const char* left = reinterpret_cast<const char*>(a.data()) + (long long)(i / columns % rows) * a.stride(RANK - 2);
    const char* right = reinterpret_cast<const char*>(b.data()) + (long long)(i % columns) * b.stride(RANK - 1);
    unsigned long long rest = i / columns / rows;
    for (int axis = RANK - 3; axis >= 0; --axis) {
        const unsigned long long extent = a.extent(axis) > b.extent(axis) ? a.extent(axis) : b.extent(axis);
        const long long at = (long long)(rest % extent);
        if (a.extent(axis) > 1) left += at * a.stride(axis);
        if (b.extent(axis) > 1) right += at * b.stride(axis);
        rest /= extent;
    }
    Sum<Number> sum;
    for (long long k = 0; k < a.extent(RANK - 1); ++k) {
        sum.add(*reinterpret_cast<const Number::Word*>(left), *reinterpret_cast<const Number::Word*>(right));
        left += a.stride(RANK - 1);
        right += b.stride(RANK - 2);
    }
    static_cast<Number::Word*>(out)[i] = sum.word();
}
"""


def by_kernel(a: DeviceArray, b: DeviceArray, out: DeviceOp[DeviceArray], batch: tuple[int, ...]) -> DeviceOp[Any]:
    """Multiply by a kernel that takes the matrices as they lie."""
    number = number_of(a.dtype, "matmul")
    matrices = [x.reshape((1,) * (_RANK - x.ndim) + x.shape) for x in (a, b)]
    if number.word in WORDS:
        matrices = [x.view(WORDS[number.word]) for x in matrices]
    size = math.prod(batch) * a.shape[-2] * b.shape[-1]
    return cast("DeviceOp[Any]", _kernel(number.kind, number.word)(*matrices, out, size, threads=size))


@functools.cache
def _kernel(kind: str, word: str) -> _native.Kernel:
    view = f"aiocuda::View<const {word}, {_RANK}>"
    return kernel(
        _SOURCE.replace("NUMBER", kind).replace("RANK", str(_RANK)),
        "matmul",
        signature=f"{view} a, {view} b, void* out, unsigned long long n",
    )
