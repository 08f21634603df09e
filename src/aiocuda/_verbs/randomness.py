"""Arrays of random numbers: uniform, normal, and integers.

Always true: an item depends on the seed, the dtype and its place alone, not on the device, the driver, the shape, or
how it is launched. The generator is Philox 4x64-10, NumPy's `numpy.random.Philox`, with the seed as its key.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, cast

import numpy as np

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import DeviceLike
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.given import whole
from aiocuda._verbs.create import Shape, empty, extents_of
from aiocuda.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError

__all__ = ["rand", "randint", "randn"]

Seed = int | DeviceOp[int] | None


def rand(
    shape: Shape, dtype: DTypeLike = np.float32, device: DeviceLike | None = None, *, seed: Seed = None
) -> DeviceOp[DeviceArray]:
    """Make random numbers on the device, evenly distributed from 0 up to but not including 1.

    Parameters
    ----------
    shape
        As for `empty`.
    dtype
        float64, float32, float16 or bfloat16.
    device
        As for `empty`.
    seed
        0 or more and less than 2**64, or an operation that yields it; the same seed gives the same numbers. None takes
        a fresh one from the system's entropy when the operation is built (in a function that is compiled, therefore:
        once for each graph).

    Returns
    -------
    DeviceOp[DeviceArray]
        *Stream*: as for a kernel. *Blocks*: while the kernel is compiled, the first time. *On cancel*: as `empty`.

    Raises
    ------
    ArgumentTypeError, ArgumentRangeError
        The dtype is another, or the seed is no integer, or out of range (of what an operation yields: when it is
        executed).

    Notes
    -----
    In float64 and float32 these are the numbers of NumPy's ``Generator(Philox(key=seed)).random(shape, dtype)``, bit
    for bit. In float16 and bfloat16 they are those of float32, rounded down to multiples of 2**-11 and 2**-8, so that 1
    is not among them.

    Philox 4x64-10 is used, not 4x32-10, for that equality: what a device draws can be had on any machine with NumPy. It
    takes about twice the arithmetic for as many bits. A seed is a number that goes straight to the kernel, so launches
    of a graph, and calls of a compiled function, take another one without being made anew.
    """
    kind = _float(dtype, "rand")
    words = 4 if kind.name == "float64" else 8
    return _draw("rand", shape, kind, device, seed, words, _UNIFORM)


def randn(
    shape: Shape, dtype: DTypeLike = np.float32, device: DeviceLike | None = None, *, seed: Seed = None
) -> DeviceOp[DeviceArray]:
    """Make random numbers on the device, normally distributed with mean 0 and variance 1; otherwise as `rand`.

    Parameters
    ----------
    shape, dtype, device, seed
        As for `rand`.

    Returns
    -------
    DeviceOp[DeviceArray]
        Of the shape that was asked. Otherwise as `rand`.

    Notes
    -----
    Each is the inverse of the normal distribution function at one word of the generator (the one that `rand` uses there
    for float64), and so at most 8.21 from 0: Wichura's algorithm AS 241, in float64 whatever the dtype, in steps that
    round alike everywhere; then rounded to the dtype. Its error is below 4 units in the last place of float64, measured
    against 40 digits. NumPy's ``standard_normal`` makes other numbers of the same words, and throws some of them away.
    """
    return _draw("randn", shape, _float(dtype, "randn"), device, seed, 4, _NORMAL)


def randint(
    low: int,
    high: int | None = None,
    shape: Shape = (),
    dtype: DTypeLike = np.int64,
    device: DeviceLike | None = None,
    *,
    seed: Seed = None,
) -> DeviceOp[DeviceArray]:
    """Make random integers on the device, evenly distributed from `low` up to but not including `high`.

    Parameters
    ----------
    low, high
        The least one, and what is above the greatest one; with one number, from 0 up to it.
    shape
        As for `empty`.
    dtype
        NumPy's integers, of 8 to 64 bits; it must hold all numbers from `low` to `high` - 1.
    device, seed
        As for `rand`.

    Returns
    -------
    DeviceOp[DeviceArray]
        Of the shape that was asked. Otherwise as `rand`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, ArgumentRangeError
        `low` or `high` is no integer, no integer lies between them or the dtype does not hold all that do; as for
        `rand`.

    Notes
    -----
    Each is the upper half of the product of one 64-bit word of the generator and the number of integers n (Lemire's
    method, without throwing words away: item i must come of word i). So they are not all alike in probability, but none
    differs from 1/n by more than 2**-64. If n is more than 2**32, they are those of NumPy's
    ``Generator(Philox(key=seed)).integers``, up to the first word that NumPy throws away, as it does with a probability
    below n / 2**64.
    """
    kind = dtypes.to_dtype(dtype)
    if kind.name not in _INTEGERS:
        raise ArgumentTypeError(
            f"randint makes integers; dtype {kind} was asked for, {', '.join(_INTEGERS)} are possible"
        )
    try:
        first, end = (0, operator.index(low)) if high is None else (operator.index(low), operator.index(high))
    except TypeError:
        raise ArgumentTypeError(f"randint is between two integers; {low!r:.80} and {high!r:.80} were given") from None
    limits = np.iinfo(kind)
    if first >= end or first < limits.min or end > int(limits.max) + 1:
        raise ArgumentValueError(
            f"randint draws integers from {first} up to, and not including, {end}: there must be some, and dtype "
            f"{kind} must hold them (it holds {limits.min} to {limits.max})"
        )
    return _draw("randint", shape, kind, device, seed, 4, _INTEGER, first % 2**64, (end - first) % 2**64)


_FLOATS = ("float64", "float32", "float16", "bfloat16")
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_UNIFORM, _NORMAL, _INTEGER = range(3)


def _float(dtype: DTypeLike, asked: str) -> np.dtype[Any]:
    kind = dtypes.to_dtype(dtype)
    if kind.name not in _FLOATS:
        raise ArgumentTypeError(f"{asked} makes floats; dtype {kind} was asked for, {', '.join(_FLOATS)} are possible")
    return kind


def _seed(seed: Seed, asked: str) -> Seed:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(seed, DeviceOp):
        return seed
    if not 0 <= whole(seed, f"{asked}: seed") < 2**64:
        raise ArgumentRangeError(f"{asked}: the seed is 0 or more and less than 2**64; {seed} was given")
    return seed


def _draw(
    asked: str,
    shape: Shape,
    kind: np.dtype[Any],
    device: DeviceLike | None,
    seed: Seed,
    items_a_thread: int,
    distribution: int,
    low: int = 0,
    number: int = 0,
) -> DeviceOp[DeviceArray]:
    extents = extents_of(shape)
    size = math.prod(extents)
    out = empty(extents, kind, device)
    seed = _seed(seed, asked)
    type_of = _INTEGERS.index(kind.name) % 4 if distribution == _INTEGER else _FLOATS.index(kind.name)
    drawn = _kernel()(out, size, seed, distribution, type_of, low, number, threads=-(-size // items_a_thread))
    return cast("DeviceOp[DeviceArray]", drawn)


# A thread computes the four words of one counter. So it has four items, or eight for floats of 32 bits and less, which
# take half a word each. NumPy counts before it draws: the first counter is 1.
_SOURCE = r"""
#include <aiocuda/number.cuh>
#include <aiocuda/philox.cuh>

using namespace aiocuda::number;

template <class To>
__device__ void put(void* out, unsigned long long i, double x) {
    const Float64::Word word = (unsigned long long)__double_as_longlong(x);
    static_cast<typename To::Word*>(out)[i] = converted(Float64(0), To(0), word);
}

__device__ void put_float(void* out, unsigned long long i, int type, double x) {
    if (type == 0) put<Float64>(out, i, x);
    else if (type == 1) put<Float32>(out, i, x);
    else if (type == 2) put<Float16>(out, i, x);
    else put<Bfloat16>(out, i, x);
}

__device__ void put_integer(void* out, unsigned long long i, int type, unsigned long long x) {
    if (type == 0) static_cast<unsigned char*>(out)[i] = (unsigned char)x;
    else if (type == 1) static_cast<unsigned short*>(out)[i] = (unsigned short)x;
    else if (type == 2) static_cast<unsigned*>(out)[i] = (unsigned)x;
    else static_cast<unsigned long long*>(out)[i] = x;
}

extern "C" __global__ void random_numbers(
    void* out, unsigned long long n, unsigned long long seed, int distribution, int type, unsigned long long low,
    unsigned long long number) {
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const aiocuda::Philox draw(seed, thread + 1);
    if (distribution == 0 && type != 0) {
        const int bits = type == 1 ? 24 : type == 2 ? 11 : 8;
        const double unit = type == 1 ? 0x1p-24 : type == 2 ? 0x1p-11 : 0x1p-8;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const unsigned half = (unsigned)(draw.words[k / 2] >> (k % 2 * 32));
            if (8 * thread + k < n) put_float(out, 8 * thread + k, type, (double)(half >> (32 - bits)) * unit);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const unsigned long long i = 4 * thread + k, word = draw.words[k];
        if (i >= n) return;
        if (distribution == 0) put_float(out, i, 0, (double)(word >> 11) * 0x1p-53);
        else if (distribution == 1) put_float(out, i, type, aiocuda::normal(word));
        else put_integer(out, i, type, low + (number == 0 ? word : __umul64hi(word, number)));
    }
}
"""


@functools.cache
def _kernel() -> Kernel:
    return kernel(_SOURCE, "random_numbers")
