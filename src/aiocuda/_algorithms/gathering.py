"""Items brought to where an order or a selection wants them; any dtype of 1, 2, 4, 8 or 16 bytes an item.

Always true: an item is moved as it is, to the bit.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda.errors import ArgumentTypeError

__all__ = ["gather", "gather_of_two", "gather_selected", "movable"]

_WORDS: Final = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "ulonglong2"}
_THREADS: Final = 256


def movable(dtype: np.dtype[Any], asked: str) -> None:
    """Check that kernels can move items of a dtype.

    Raises
    ------
    ArgumentTypeError
        Its items have another number of bytes.
    """
    if dtype.itemsize not in _WORDS:
        raise ArgumentTypeError(
            f"{asked} moves items of 1, 2, 4, 8 or 16 bytes; those of dtype {dtype} have {dtype.itemsize}"
        )


def gather(items: Any, places: Any, into: Any, count: int, itemsize: int) -> Any:
    """Return a launch that writes ``items[places[i]]``, for all i below `count`."""
    return _kernel("gather", _WORDS[itemsize])(items, places, into, count, threads=count, block=_THREADS)


def gather_selected(items: Any, places: Any, selected: Any, into: Any, count: int, itemsize: int) -> Any:
    """Return a launch that writes ``items[places[i]]``, for all i below the number that `selected` holds."""
    make = _kernel("gather_selected", _WORDS[itemsize])
    return make(items, places, selected, into, count, threads=count, block=_THREADS)


def gather_of_two(a: Any, b: Any, first: int, places: Any, into: Any, count: int, itemsize: int) -> Any:
    """Return a launch that gathers from `a`, of `first` items, and from `b` behind it, as if they were one array."""
    make = _kernel("gather_of_two", _WORDS[itemsize])
    return make(a, b, first, places, into, count, threads=count, block=_THREADS)


_SOURCE: Final = r"""
__device__ unsigned long long thread() { return (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void gather(const void* items, const long long* places, void* out, unsigned long long n) {
    const unsigned long long i = thread();
    if (i < n) static_cast<WORD*>(out)[i] = static_cast<const WORD*>(items)[places[i]];
}

extern "C" __global__ void gather_selected(const void* items, const long long* places, const long long* selected,
                                           void* out, unsigned long long n) {
    const unsigned long long i = thread();
    if (i < n && (long long)i < *selected) static_cast<WORD*>(out)[i] = static_cast<const WORD*>(items)[places[i]];
}

extern "C" __global__ void gather_of_two(const void* a, const void* b, long long first, const long long* places,
                                         void* out, unsigned long long n) {
    const unsigned long long i = thread();
    if (i >= n) return;
    const long long at = places[i];
    const WORD* from = at < first ? static_cast<const WORD*>(a) + at : static_cast<const WORD*>(b) + (at - first);
    static_cast<WORD*>(out)[i] = *from;
}
"""


@functools.cache
def _kernel(name: str, word: str) -> Kernel:
    return _module(word).kernel(name)


@functools.cache
def _module(word: str) -> Module:
    return Module.from_source(f"#define WORD {word}\n{_SOURCE}", name="gather.cu")
