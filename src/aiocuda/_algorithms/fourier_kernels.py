"""Fourier transforms by kernels: Stockham's passes, and Bluestein's algorithm where a prime factor is large.

Always true: a pass reads one array and writes another, with a thread for each item that is written, and its sums are
made in float64.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from aiocuda._devices.device import Device
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._verbs.conversion import convert
from aiocuda._verbs.create import empty

__all__ = ["scaled", "transform"]

_WIDE: Final = np.dtype(np.complex128)
_MOST_PRIME: Final = 61


def transform(
    asked: str, line: Any, into: Any, length: int, batch: int, kind: np.dtype[Any], factor: float, device: Device
) -> Any:
    """Transform the last axis of what lies in one piece, into what lies in one piece.

    Parameters
    ----------
    asked
        "fft", "ifft", "rfft" or "irfft".
    line, into
        Arrays, or operations that yield them; of `kind`, or real for what is real.
    length, batch
        Of the axis, and how many there are.
    factor
        By which the results are multiplied.
    """
    shape = (batch, length)
    if asked == "rfft":
        whole = _complex(convert(line, kind), empty(shape, kind, device), length, batch, kind, -1, factor, device)
        return _half(whole, into, length, batch, kind)
    if asked == "irfft":
        whole = _kernel("mirror", kind.name)(
            line, empty(shape, kind, device), batch * length, length, threads=batch * length
        )
        whole = _complex(whole, empty(shape, kind, device), length, batch, kind, 1, factor, device)
        return _kernel("real_parts", kind.name)(whole, into, batch * length, threads=batch * length)
    return _complex(line, into, length, batch, kind, -1 if asked == "fft" else 1, factor, device)


def scaled(made: Any, kind: np.dtype[Any], asked: str, lengths: tuple[int, ...], batch: int, factor: float) -> Any:
    """Multiply the results of a transform, in place."""
    *outer, last = lengths
    count = batch * (last // 2 + 1 if asked == "rfft" else last)
    for each in outer:
        count *= each
    count *= 1 if asked == "irfft" else 2
    return _kernel("scale", kind.name)(made, count, factor, threads=count)


def _half(whole: Any, into: Any, length: int, batch: int, kind: np.dtype[Any]) -> Any:
    count = batch * (length // 2 + 1)
    return _kernel("halve", kind.name)(whole, into, count, length, threads=count)


def _complex(
    line: Any, into: Any, length: int, batch: int, kind: np.dtype[Any], sign: int, factor: float, device: Device
) -> Any:
    radices = _radices(length)
    if radices is None:
        return _bluestein(line, into, length, batch, kind, sign, factor, device)
    total = length * batch
    step = _kernel("pass", kind.name)
    current, apart = length, 1
    for i, radix in enumerate(radices):
        is_last = i == len(radices) - 1
        target = into if is_last else empty((batch, length), kind, device)
        by = factor if is_last else 1.0
        line = step(line, target, total, length, current, radix, apart, sign, by, threads=total)
        current //= radix
        apart *= radix
    return line


def _bluestein(
    line: Any, into: Any, length: int, batch: int, kind: np.dtype[Any], sign: int, factor: float, device: Device
) -> Any:
    """Transform by a convolution, whose length is a power of two; in complex128."""
    room = 1 << (2 * length - 2).bit_length()
    total = batch * room
    signal = _kernel("chirp", kind.name)(
        line, empty((batch, room), _WIDE, device), total, length, room, sign, threads=total
    )
    answer = _kernel("chirp_filter", kind.name)(empty((1, room), _WIDE, device), length, room, sign, threads=room)
    signal = _complex(signal, empty((batch, room), _WIDE, device), room, batch, _WIDE, -1, 1.0, device)
    answer = _complex(answer, empty((1, room), _WIDE, device), room, 1, _WIDE, -1, 1.0, device)
    product = _kernel("multiply", kind.name)(signal, answer, total, room, threads=total)
    product = _complex(product, empty((batch, room), _WIDE, device), room, batch, _WIDE, 1, 1 / room, device)
    count = batch * length
    return _kernel("unchirp", kind.name)(product, into, count, length, room, sign, factor, threads=count)


def _radices(length: int) -> list[int] | None:
    """Return the factors that passes take; None, where one is too large."""
    found = []
    for radix in (8, 4, 2):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    divisor = 3
    while divisor <= _MOST_PRIME and length > 1:
        while length % divisor == 0:
            found.append(divisor)
            length //= divisor
        divisor += 2
    return None if length > 1 else found or [1]


_SOURCE: Final = r"""
typedef unsigned long long Count;
struct Number { ITEM real, imaginary; };
struct Wide { double real, imaginary; };

__device__ Count thread() { return (Count)blockIdx.x * blockDim.x + threadIdx.x; }

// The k-th of the n-th roots of one, or its conjugate.
__device__ Wide root(Count k, Count n, int sign) {
    Wide found;
    sincospi(2.0 * (double)(k % n) / (double)n, &found.imaginary, &found.real);
    if (sign < 0) found.imaginary = -found.imaginary;
    return found;
}
__device__ Wide times(Wide a, Wide b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}
__device__ Wide wide(Number x) { return {(double)x.real, (double)x.imaginary}; }
__device__ Number narrow(Wide x, double factor) { return {(ITEM)(x.real * factor), (ITEM)(x.imaginary * factor)}; }

// Stockham's algorithm: transforms of `current` items, `apart` from each other, become `radix` ones of fewer items.
extern "C" __global__ void pass(const void* x, void* y, Count total, Count n, Count current, Count radix, Count apart,
                                int sign, double factor) {
    const Count i = thread();
    if (i >= total) return;
    const Count at = i % n, q = at % apart, k = at / apart % radix, j = at / apart / radix, m = current / radix;
    const Number* line = static_cast<const Number*>(x) + (i - at) + q;
    Wide sum = {0, 0};
    for (Count r = 0; r < radix; ++r) {
        const Count place = j + m * r;
        const Wide term = times(wide(line[apart * place]), root(k * place, current, sign));
        sum.real += term.real;
        sum.imaginary += term.imaginary;
    }
    static_cast<Number*>(y)[i] = narrow(sum, factor);
}

// The whole spectrum of real numbers, of its first half. Imaginary parts of the items that have no twin go to imaginary
// parts of the result, which nobody reads.
extern "C" __global__ void mirror(const void* half, void* whole, Count total, Count n) {
    const Count i = thread();
    if (i >= total) return;
    const Count k = i % n, there = 2 * k <= n ? k : n - k;
    Number x = static_cast<const Number*>(half)[i / n * (n / 2 + 1) + there];
    if (there != k) x.imaginary = -x.imaginary;
    static_cast<Number*>(whole)[i] = x;
}

extern "C" __global__ void halve(const void* whole, void* half, Count total, Count n) {
    const Count i = thread(), items = n / 2 + 1;
    if (i < total) static_cast<Number*>(half)[i] = static_cast<const Number*>(whole)[i / items * n + i % items];
}

extern "C" __global__ void real_parts(const void* x, void* y, Count total) {
    const Count i = thread();
    if (i < total) static_cast<ITEM*>(y)[i] = static_cast<const Number*>(x)[i].real;
}

extern "C" __global__ void scale(void* x, Count total, double factor) {
    const Count i = thread();
    if (i < total) static_cast<ITEM*>(x)[i] = (ITEM)(static_cast<ITEM*>(x)[i] * factor);
}

// Bluestein's algorithm: jk = (j * j + k * k - (k - j) * (k - j)) / 2, so that a transform is a convolution.
__device__ Wide chirp_at(Count j, Count n, int sign) { return root(j * j % (2 * n), 2 * n, sign); }

extern "C" __global__ void chirp(const void* x, void* y, Count total, Count n, Count room, int sign) {
    const Count i = thread();
    if (i >= total) return;
    const Count j = i % room;
    const Number* line = static_cast<const Number*>(x) + i / room * n;
    static_cast<Wide*>(y)[i] = j < n ? times(wide(line[j]), chirp_at(j, n, sign)) : Wide{0, 0};
}

extern "C" __global__ void chirp_filter(void* y, Count n, Count room, int sign) {
    const Count i = thread();
    if (i >= room) return;
    const Count j = i < n ? i : room - i;
    static_cast<Wide*>(y)[i] = j < n ? chirp_at(j, n, -sign) : Wide{0, 0};
}

extern "C" __global__ void multiply(void* x, const void* y, Count total, Count room) {
    const Count i = thread();
    if (i >= total) return;
    Wide* items = static_cast<Wide*>(x);
    items[i] = times(items[i], static_cast<const Wide*>(y)[i % room]);
}

extern "C" __global__ void unchirp(const void* x, void* y, Count total, Count n, Count room, int sign, double factor) {
    const Count i = thread();
    if (i >= total) return;
    const Wide item = static_cast<const Wide*>(x)[i / n * room + i % n];
    static_cast<Number*>(y)[i] = narrow(times(item, chirp_at(i % n, n, sign)), factor);
}
"""

_COUNT: Final = "unsigned long long"
_SIGNATURES: Final = {
    "pass": "const void* x, void* y, N total, N n, N current, N radix, N apart, int sign, double factor",
    "mirror": "const void* half, void* whole, N total, N n",
    "halve": "const void* whole, void* half, N total, N n",
    "real_parts": "const void* x, void* y, N total",
    "scale": "void* x, N total, double factor",
    "chirp": "const void* x, void* y, N total, N n, N room, int sign",
    "chirp_filter": "void* y, N n, N room, int sign",
    "multiply": "void* x, const void* y, N total, N room",
    "unchirp": "const void* x, void* y, N total, N n, N room, int sign, double factor",
}


@functools.cache
def _kernel(name: str, kind: str) -> Kernel:
    return _module(kind).kernel(name, signature=_SIGNATURES[name].replace("N ", f"{_COUNT} "))


@functools.cache
def _module(kind: str) -> Module:
    source = _SOURCE.replace("ITEM", {"complex64": "float", "complex128": "double"}[kind])
    return Module.from_source(source, name="fourier.cu")
