"""Conversion of arrays between dtypes, on the device.

Always true: the bits are those that ``numpy.ndarray.astype`` gives, on every driver; what NumPy leaves undefined is
defined here. One kernel for each dtype that is read converts to all of them, so there are few to compile.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.composing import once_known
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._verbs.copies import dup
from aiocuda._verbs.create import empty
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError

__all__ = ["KINDS", "WORDS", "convert", "number_of"]


def convert(x: Any, dtype: DTypeLike) -> DeviceOp[DeviceArray]:
    """Convert an array on a device to another dtype, in a new array beside it.

    Parameters
    ----------
    x
        A `DeviceArray` of any strides, or an operation that yields one.
    dtype
        Of the result: bool, an integer, a float or complex, of NumPy's or ml_dtypes'. The same as that of `x` gives
        a copy.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array of the same shape, C-contiguous. *Stream*: as for a kernel. *Blocks*: while a kernel is compiled,
        the first time for the dtype of `x`. *On cancel*: what was submitted goes on, and its memory is freed behind it.

    Raises
    ------
    ArgumentTypeError
        `x` is no array on a device, or one of the dtypes is not a number's (of what an operation yields: when it is
        executed).
    OutOfMemoryError
        When executed: the device has no room.

    Notes
    -----
    Bit for bit what ``x.astype(dtype)`` gives in NumPy on x86-64 and in ml_dtypes: rounded to nearest, ties to even;
    integers wrap; of complex numbers the real part is taken; anything but 0 is True. ml_dtypes convert float64 and
    integers to their types by way of float32, rounding twice, and so does this. Floats that the integer type cannot
    hold, which NumPy leaves undefined, become the integer nearest to them, and NaN becomes 0.
    """
    kind = dtypes.to_dtype(dtype)
    target = number_of(kind, "convert")
    x = as_array(x, "convert")
    if isinstance(x, _native.Op):
        yields, _, where = x._spec
        if yields == "host_array":
            raise ArgumentTypeError("convert works on a device; the operation yields a HostArray: to_device() it first")
        return once_known(
            functools.partial(convert, dtype=kind),
            x,
            dtype=dtypes.code_of(kind),
            device=where,
            title=f"a conversion to {kind.name}",
        )
    if not isinstance(x, DeviceArray):
        raise ArgumentTypeError(
            "convert takes an array on a device, or an operation that yields one; "
            f"{type(x).__name__} {x!r:.80} was given: to_device() it first"
        )
    _native.check_usable(x, False, "convert")
    source = number_of(x.dtype, "convert")
    if x.dtype == kind:
        return cast("DeviceOp[DeviceArray]", dup(x))
    if not x._is_aligned(x.itemsize) or (x.ndim > _RANK and not x.is_contiguous):
        return convert(dup(x), kind)
    converted = empty(x.shape, kind, x.device)
    if x.size == 0:
        return converted
    shape = (x.size,) if x.is_contiguous else x.shape
    items = x.reshape((1,) * (_RANK - len(shape)) + shape)
    return cast(
        "DeviceOp[DeviceArray]",
        _kernel(source.kind)(
            items if source.word == "cuDoubleComplex" else items.view(WORDS[source.word]),
            converted,
            x.size,
            source.format,
            KINDS.index(target.kind),
            target.format,
            threads=-(-x.size // _ITEMS_A_THREAD),
        ),
    )


class Number(NamedTuple):
    """How aiocuda/number.cuh has a dtype: its class there, the format it is told, and the C++ type of an item."""

    kind: str
    format: int
    word: str


_NUMBERS = {
    "bool": Number("Bool", 0, "unsigned char"),
    "int8": Number("Integer<signed char, int>", 0, "unsigned char"),
    "uint8": Number("Integer<unsigned char, int>", 0, "unsigned char"),
    "int16": Number("Integer<short, int>", 0, "unsigned short"),
    "uint16": Number("Integer<unsigned short, int>", 0, "unsigned short"),
    "int32": Number("Integer<int, int>", 0, "unsigned int"),
    "uint32": Number("Integer<unsigned, unsigned>", 0, "unsigned int"),
    "int64": Number("Integer<long long, long long>", 0, "unsigned long long"),
    "uint64": Number("Integer<unsigned long long, unsigned long long>", 0, "unsigned long long"),
    "float16": Number("Float16", 0, "unsigned short"),
    "bfloat16": Number("Bfloat16", 0, "unsigned short"),
    "float32": Number("Float32", 0, "unsigned int"),
    "float64": Number("Float64", 0, "unsigned long long"),
    "complex64": Number("Complex<Float32>", 0, "unsigned long long"),
    "complex128": Number("Complex<Float64>", 0, "cuDoubleComplex"),
    **{
        name: Number("NarrowInteger", bits, "unsigned char")
        for name, bits in {"int1": -1, "int2": -2, "int4": -4, "uint1": 1, "uint2": 2, "uint4": 4}.items()
    },
    **{
        name: Number("NarrowFloat", index, "unsigned char")
        for index, name in enumerate(
            (
                *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"),
                *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
                "float8_e8m0fnu",
            )
        )
    },
}
KINDS = tuple(dict.fromkeys(number.kind for number in _NUMBERS.values()))
WORDS = {
    "unsigned char": np.uint8,
    "unsigned short": np.uint16,
    "unsigned int": np.uint32,
    "unsigned long long": np.uint64,
}
_RANK = 8  # the most that a View has
_ITEMS_A_THREAD = 4

_SOURCE = r"""
#include <aiocuda/number.cuh>
#include <aiocuda/tile.cuh>

using namespace aiocuda::number;
using From = FROM;
using Items = aiocuda::View<const From::Word, RANK>;

// Where item i is, the last axis fastest. Division takes longer than all the rest: one for each axis that is one.
__device__ __noinline__ const From::Word* item_of(const Items& items, unsigned long long i) {
    const char* at = reinterpret_cast<const char*>(items.data());
    for (int axis = RANK - 1; axis > 0; --axis) {
        const unsigned long long extent = items.extent(axis);
        if (extent == 1) continue;
        const unsigned long long rest = i < extent ? 0 : i / extent;
        at += (long long)(i - rest * extent) * items.stride(axis);
        i = rest;
    }
    return reinterpret_cast<const From::Word*>(at + (long long)i * items.stride(0));
}

template <class To>
__device__ __forceinline__ void put(const From::Word (&words)[ITEMS_A_THREAD], void* out, unsigned long long first,
                                    unsigned long long n, int from_format, int to_format) {
    const From from(from_format);
    const To to(to_format);
#pragma unroll
    for (int k = 0; k < ITEMS_A_THREAD; ++k) {
        const unsigned long long i = first + (unsigned long long)k * blockDim.x;
        if (i < n) static_cast<typename To::Word*>(out)[i] = converted(from, to, words[k]);
    }
}

// The array's extents and strides stay among the parameters: a copy of them would cost each thread more than its items.
extern "C" __global__ void
convert(const __grid_constant__ Items items, void* out, unsigned long long n, int from_format, int to, int to_format) {
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x * ITEMS_A_THREAD + threadIdx.x;
    const bool in_line = items.extent(RANK - 1) == (long long)n;  // all other axes have one item
    From::Word words[ITEMS_A_THREAD] = {};
#pragma unroll
    for (int k = 0; k < ITEMS_A_THREAD; ++k) {
        const unsigned long long i = first + (unsigned long long)k * blockDim.x;
        const char* line = reinterpret_cast<const char*>(items.data()) + (long long)i * items.stride(RANK - 1);
        if (i < n) words[k] = *(in_line ? reinterpret_cast<const From::Word*>(line) : item_of(items, i));
    }
    switch (to) {
CASES
    }
}
"""


@functools.cache
def _kernel(kind: str) -> Kernel:
    """Return the kernel that converts from a kind of numbers to any other."""
    word = next(number.word for number in _NUMBERS.values() if number.kind == kind)
    cases = "\n".join(
        f"        case {index}: return put<{to}>(words, out, first, n, from_format, to_format);"
        for index, to in enumerate(KINDS)
    )
    source = _SOURCE.replace("FROM", kind).replace("RANK", str(_RANK)).replace("CASES", cases)
    return kernel(
        source.replace("ITEMS_A_THREAD", str(_ITEMS_A_THREAD)),
        "convert",
        signature=f"aiocuda::View<const {word}, {_RANK}> items, void* out, unsigned long long n, int from_format, "
        "int to, int to_format",
    )


def number_of(dtype: np.dtype[Any], asked: str) -> Number:
    """Return how kernels have a dtype.

    Raises
    ------
    ArgumentTypeError
        It is not a number's; the message says what was `asked`.
    """
    number = _NUMBERS.get(dtype.name)
    if number is None:
        raise ArgumentTypeError(f"{asked} is for numbers; dtype {dtype} is none of {', '.join(_NUMBERS)}")
    return number
