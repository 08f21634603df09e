"""How kernels of algorithms have the items of a dtype: the class that reads them, and the C++ type that computes.

Always true: 16-bit floats are computed in float32 and rounded when they are stored; all other numbers in their own
type, and sums and products of integers in NumPy's, where they wrap.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from aiocuda._values.dtypes import to_dtype
from aiocuda._verbs.conversion import number_of
from aiocuda.errors import ArgumentTypeError

__all__ = ["NUMBERS", "PRELUDE", "computed_in", "is_number", "kind_of", "number_in", "real", "summed_in"]

NUMBERS: Final = {
    "bool": "unsigned char",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}

PRELUDE: Final = r"""
#include <aiocuda/number.cuh>

using namespace aiocuda::number;

__device__ __forceinline__ float plain(Float x) { return value(x); }
__device__ __forceinline__ double plain(Double x) { return value(x); }
template <class I>
__device__ __forceinline__ I plain(I x) { return x; }
__device__ __forceinline__ Float parts(float x) { return {__float_as_uint(x)}; }
__device__ __forceinline__ Double parts(double x) { return {(unsigned long long)__double_as_longlong(x)}; }
template <class I>
__device__ __forceinline__ I parts(I x) { return x; }

template <class Kind>
__device__ __forceinline__ auto get(typename Kind::Word word) { return plain(Kind(0).read(word)); }
template <class Kind, class V>
__device__ __forceinline__ typename Kind::Word put(V x) { return Kind(0).write(parts(x)); }
"""


def is_number(x: Any) -> bool:
    """Return whether something is a real number of Python's, of NumPy's or a bfloat16."""
    is_other = isinstance(x, (np.complexfloating, np.timedelta64))
    return isinstance(x, (bool, int, float, np.number, np.bool_, ml_dtypes.bfloat16)) and not is_other


def number_in(dtype: np.dtype[Any], x: Any) -> float | None:
    """Return a real number as Python's own, as a dtype holds it: floats are rounded.

    None, if the dtype has no such number: another integer, or a float beyond its greatest.
    """
    if dtype.kind == "f":
        try:
            with np.errstate(over="raise"):
                return float(np.array(x).astype(dtype))
        except (OverflowError, FloatingPointError):
            return None
    if x == np.inf or x == -np.inf or x != x:
        return None
    whole, limits = int(x), np.iinfo(dtype)
    return whole if whole == x and limits.min <= whole <= limits.max else None


def real(dtype: np.dtype[Any], asked: str) -> np.dtype[Any]:
    """Return a dtype of real numbers.

    Raises
    ------
    ArgumentTypeError
        It is another; the message says what was `asked`.
    """
    if dtype.name not in NUMBERS:
        raise ArgumentTypeError(
            f"{asked} takes real numbers; dtype {dtype} was given, {', '.join(NUMBERS)} are possible: convert() it"
        )
    return dtype


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the class of ``aiocuda/number.cuh`` that reads and writes items."""
    return number_of(dtype, "this").kind


def summed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of sums and products, which is NumPy's: integers of 64 bits, floats as they are."""
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which kernels hold what they compute."""
    if dtype.name in {"float16", "bfloat16"}:
        return np.dtype(np.float32)
    return to_dtype(np.uint8) if dtype.name == "bool" else dtype
