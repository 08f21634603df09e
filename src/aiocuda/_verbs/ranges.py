"""Arrays whose items follow from where they stand: ranges of numbers, and the identity matrix.

Always true: the device computes them, as NumPy computes them, in the same order of roundings.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from typing import Any, cast

import numpy as np

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import DeviceLike
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._verbs.conversion import KINDS, number_of
from aiocuda._verbs.copies import to_device
from aiocuda._verbs.create import empty, zeros
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["arange", "eye", "linspace"]


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
) -> DeviceOp[DeviceArray]:
    """Make evenly spaced values on the device; the values and the length are NumPy's.

    Parameters
    ----------
    start, stop, step
        As for `numpy.arange`: with one number, from 0 up to it.
    dtype
        None takes NumPy's choice: int64 for integers, float64 else.
    device
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        One axis; otherwise as `empty`.

    Raises
    ------
    ArgumentTypeError
        The dtype is not a real number's, or something else than a real number was given.
    ArgumentValueError
        The step is 0 or the range has no end.
    """
    first, last, step = _plain("arange", 0 if stop is None else start, start if stop is None else stop, step)
    if any(isinstance(x, complex) for x in (first, last, step)):
        raise ArgumentTypeError(f"arange makes real numbers; {first}, {last}, {step} were given")
    if not all(math.isfinite(x) for x in (first, last, step)) or step == 0 or not math.isfinite((last - first) / step):
        raise ArgumentValueError(
            f"arange needs finite numbers, as many as can be counted, and a step other than 0; {first}, {last}, {step} "
            "were given"
        )
    kind = dtypes.to_dtype(np.arange(first, first, step).dtype if dtype is None else dtype)
    if kind.name not in _ARANGE_TYPES:
        raise ArgumentTypeError(
            f"arange makes real numbers; dtype {kind} was asked for, {', '.join(_ARANGE_TYPES)} are possible"
        )
    n = max(0, math.ceil((last - first) / step))
    # NumPy fixes the first two items and continues with their difference: in the items' own type, and for
    # the 16-bit floats in float32.
    head = np.zeros(2, kind)
    try:
        if n > 0:
            head[0] = first
        if n > 1:
            head[1] = first + step
    except OverflowError as error:
        raise ArgumentValueError(f"arange({first}, {last}, {step}): dtype {kind} cannot hold it: {error}") from error
    narrow = head.astype(np.float32) if kind.name in {"float16", "bfloat16"} else head
    with np.errstate(over="ignore"):  # unsigned differences wrap, and unwrap when they are added
        delta = narrow[1] - narrow[0]
    return cast(
        "DeviceOp[DeviceArray]",
        _arange_kernel(kind.name)(empty(n, kind, device), head[0].item(), head[1].item(), delta.item(), n, threads=n),
    )


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
) -> DeviceOp[DeviceArray]:
    """Make so many numbers at equal distances on the device; they are NumPy's, bit for bit.

    Parameters
    ----------
    start, stop
        Numbers: the first one, and the last one or, without `endpoint`, what would come after it.
    num
        How many, 0 or more.
    endpoint
        Whether `stop` is the last one.
    dtype
        Of any number, as for `convert`; integers are rounded down, as NumPy does. None takes NumPy's choice: float64
        for Python's numbers.
    device
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        One axis of `num` items; otherwise as `empty`. Computed in float64, with a rounding after each of NumPy's
        steps, and then converted. NumPy computes some of them when the operation is built, and they are uploaded: those
        in another type (complex numbers, scalars of float16 and float32), and those that are not finite.

    Raises
    ------
    ArgumentTypeError
        `start` or `stop` is no number, `num` no integer, or the dtype is not a number's.
    ArgumentValueError
        `num` is negative, or no memory is that large; or no dtype of NumPy's holds `start` and `stop`.
    """
    start, stop = _plain("linspace", start, stop)
    try:
        count = operator.index(num)
    except TypeError:
        raise ArgumentTypeError(f"linspace makes a whole number of items; num={num!r:.80} was given") from None
    if count < 0:
        raise ArgumentValueError(f"linspace makes 0 items or more; num={count} was given")
    try:
        with np.errstate(all="ignore"):
            inferred = np.linspace(start, stop, 1).dtype
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentValueError(f"linspace({start!r:.80}, {stop!r:.80}): no dtype holds both: {error}") from error
    kind = dtypes.to_dtype(inferred if dtype is None else dtype)
    target = number_of(kind, "linspace")
    out = empty(count, kind, device)
    if inferred != np.float64:
        return _linspace_of_numpy(start, stop, count, endpoint, kind, device)
    first, last = float(start), float(stop)
    intervals = max(count - 1 if endpoint else count, 1)
    delta = last - first
    if not math.isfinite(delta):  # the bits of NaN are not the same on all processors
        return _linspace_of_numpy(start, stop, count, endpoint, kind, device)
    return cast(
        "DeviceOp[DeviceArray]",
        _linspace_kernel()(
            out,
            count,
            first,
            last,
            delta,
            delta / intervals,
            intervals,
            bool(endpoint) and count > 1,
            np.issubdtype(kind, np.integer),
            KINDS.index(target.kind),
            target.format,
            threads=count,
        ),
    )


def eye(
    N: int,  # noqa: N803
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: DTypeLike = np.float32,
    device: DeviceLike | None = None,
) -> DeviceOp[DeviceArray]:
    """Make a matrix on the device with ones on a diagonal and zeros elsewhere.

    Parameters
    ----------
    N
        The number of rows.
    M
        The number of columns; None for as many.
    k
        Which diagonal: 0 is the main one, positive ones lie above it, negative ones below. One outside of the matrix
        leaves it zero.
    dtype
        Of any number, as for `convert`.
    device
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        Of shape (N, M); otherwise as `empty`.

    Raises
    ------
    ArgumentTypeError
        `N`, `M` or `k` is no integer, or the dtype is not a number's.
    ArgumentValueError
        The shape is negative or larger than any memory.
    """
    kind = dtypes.to_dtype(dtype)
    number_of(kind, "eye")
    try:
        rows, diagonal = operator.index(N), operator.index(k)
        columns = rows if M is None else operator.index(M)
    except TypeError:
        raise ArgumentTypeError(f"eye takes integers; N={N!r:.80}, M={M!r:.80}, k={k!r:.80} were given") from None
    matrix = zeros((rows, columns), kind, device)
    count = min(rows + min(diagonal, 0), columns - max(diagonal, 0))
    if count <= 0:
        return matrix
    first = max(diagonal, 0) + max(-diagonal, 0) * columns
    one = np.ones((), kind).tobytes()
    low, high = int.from_bytes(one[:8], "little"), int.from_bytes(one[8:], "little")
    return cast(
        "DeviceOp[DeviceArray]",
        _diagonal_kernel()(matrix, first, columns + 1, count, kind.itemsize, low, high, threads=count),
    )


def _plain(asked: str, *given: Any) -> tuple[Any, ...]:
    """Return numbers as Python's or NumPy's own: a function that is compiled has looked at them then."""
    plain: list[Any] = []
    for x in given:
        kind = next((kind for kind in (int, float, complex) if isinstance(x, kind)), None)
        if kind is None and not isinstance(x, np.number):
            raise ArgumentTypeError(f"{asked} takes numbers; {type(x).__name__} {x!r:.80} was given")
        plain.append(x if isinstance(x, np.generic) or kind is None else kind(x))
    return tuple(plain)


def _linspace_of_numpy(
    start: Any, stop: Any, count: int, endpoint: bool, kind: np.dtype[Any], device: DeviceLike | None
) -> DeviceOp[DeviceArray]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        return to_device(np.linspace(start, stop, count, endpoint, dtype=kind), device)


_ARANGE_TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
}
_ARANGE_HEADERS = {"float16": "#include <cuda_fp16.h>\n", "bfloat16": "#include <cuda_bf16.h>\n"}
# The type of the first item and the difference, and the item as an expression. Floats are multiplied and
# added with a rounding each, as NumPy does: a fused multiply-add would differ in the last bit. Integers are
# computed without a sign, where overflow wraps.
_ARANGE_FLOATS = {
    "float16": ("float", "__float2half(__fadd_rn(__half2float(first), __fmul_rn((float)i, delta)))"),
    "bfloat16": ("float", "__float2bfloat16(__fadd_rn(__bfloat162float(first), __fmul_rn((float)i, delta)))"),
    "float32": ("float", "__fadd_rn(first, __fmul_rn((float)i, delta))"),
    "float64": ("double", "__dadd_rn(first, __dmul_rn((double)i, delta))"),
}


@functools.cache
def _arange_kernel(name: str) -> Kernel:
    kind = _ARANGE_TYPES[name]
    wrapping = f"({kind})((unsigned long long)first + i * (unsigned long long)delta)"
    difference, item = _ARANGE_FLOATS.get(name, (kind, wrapping))
    return kernel(
        _ARANGE_HEADERS.get(name, "")
        + f'extern "C" __global__ void arange({kind}* out, {kind} first, {kind} second, {difference} delta, '
        "unsigned long long n) {\n"
        "    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if (i < n) out[i] = i == 0 ? first : i == 1 ? second : {item};\n"
        "}"
    )


_LINSPACE = r"""
#include <aiocuda/number.cuh>

using namespace aiocuda::number;

template <class To>
__device__ void store(void* out, unsigned long long i, double x, int format) {
    const Float64::Word word = (unsigned long long)__double_as_longlong(x);
    static_cast<typename To::Word*>(out)[i] = converted(Float64(0), To(format), word);
}

// A rounding after each step, as NumPy does: a fused multiply-add would differ in the last bit.
extern "C" __global__ void linspace(
    void* out, unsigned long long n, double start, double stop, double delta, double step, double intervals,
    bool ends_at_stop, bool is_floored, int to, int format) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    // The step of numbers that lie very close to one another is 0, and their distance is not.
    const double way = step == 0 ? __dmul_rn(__ddiv_rn((double)i, intervals), delta) : __dmul_rn((double)i, step);
    double x = ends_at_stop && i == n - 1 ? stop : __dadd_rn(way, start);
    if (is_floored) x = floor(x);
    switch (to) {
CASES
    }
}
"""
_DIAGONAL = r"""
extern "C" __global__ void diagonal(
    void* out, unsigned long long first, unsigned long long step, unsigned long long n, unsigned item_bytes,
    unsigned long long low, unsigned long long high) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    char* item = static_cast<char*>(out) + (first + i * step) * item_bytes;
    for (unsigned byte = 0; byte < item_bytes; ++byte)
        item[byte] = (char)((byte < 8 ? low >> (8 * byte) : high >> (8 * (byte - 8))) & 255);
}
"""


@functools.cache
def _linspace_kernel() -> Kernel:
    cases = "\n".join(
        f"        case {index}: return store<{kind}>(out, i, x, format);" for index, kind in enumerate(KINDS)
    )
    return kernel(_LINSPACE.replace("CASES", cases), "linspace")


@functools.cache
def _diagonal_kernel() -> Kernel:
    return kernel(_DIAGONAL, "diagonal")
