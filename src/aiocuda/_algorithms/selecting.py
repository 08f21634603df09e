"""Selections: the items that a mask or a condition names, and the first of each run of equal ones.

Always true: the number of items that were selected is known on the device alone, and nothing here waits for it but
`trim`, which says so.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from aiocuda._algorithms.arguments import (
    Target,
    apart,
    arrays,
    delivered_together,
    keeping,
    later,
    lying,
    one_axis,
    outs,
    target,
)
from aiocuda._algorithms.combining import prefixes
from aiocuda._algorithms.gathering import gather_selected, movable
from aiocuda._algorithms.numbers import PRELUDE, kind_of, real
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given as values_given
from aiocuda._verbs.copies import to_host
from aiocuda._verbs.create import empty, full
from aiocuda._verbs.fills import fill
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["select", "trim", "unique"]

_PLACES: Final = np.dtype(np.int64)


def select(x: Any, where: Any, *, out: Any = None) -> DeviceOp[Any]:
    """Select items of an array, in their order: those that a mask or a condition names.

    Parameters
    ----------
    x
        `DeviceArray` of one axis and any stride, or an operation that yields one, of items of 1, 2, 4, 8 or 16 bytes.
    where
        A `DeviceArray` of bool, as long as `x`, or an operation that yields one; or a condition in CUDA C++ on the item
        ``x``, such as ``"x > 0.5f && x == x"``. A condition takes real numbers, as for `reduce`; it reads float16 and
        bfloat16 as float.
    out
        Where the result goes: a tuple of an array like `x`, which may be `x`, and an int64 of shape ().

    Returns
    -------
    DeviceOp[tuple[DeviceArray, DeviceArray]]
        An array as long as `x`, and how many of its first items are the selected ones: an int64 of shape (). The
        items of `out` behind them keep the values they have; without `out`, their values are unspecified. `trim` makes
        an array of that length of the two. *Stream*: as for a kernel. *Blocks*: while kernels are compiled, the first
        time. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        Something is no array on a device, or of another dtype.
    ArgumentValueError
        `x` has not one axis, `where` has another length, or `out` does not fit.
    CompilationError
        When executed: the condition does not compile.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.

    Notes
    -----
    All but the condition's errors are raised when the operation is built; of what operations yield, when it is
    executed. How many items are selected is known on the device alone, so the result can go to further kernels, and
    into graphs, without a wait.
    """
    condition = values_given.text(where, "select: where") if isinstance(where, str) else None
    given = arrays("select", x=x, **({} if condition is not None else {"where": where}))
    targets = outs("select", out, 2)
    x, mask = given["x"], given.get("where")

    def known(x: Any, mask: Any, *found: Any) -> DeviceOp[Any]:
        return select(x, where if mask is None else mask, out=None if out is None else found)

    if (waiting := later("select", known, x, mask, *targets, results=2)) is not None:
        return waiting
    one_axis("select", x=x, where=mask)
    movable(x.dtype, "select")
    apart("select", targets)
    if mask is None:
        items = real(x.dtype, "select with a condition")
    elif mask.dtype == np.bool_:
        items = mask.dtype
    else:
        raise ArgumentTypeError(f"select: where is an array of bool; one of {mask.dtype} was given")
    tested = x if mask is None else mask
    to = [
        target("select", targets[0], x.shape, x.dtype, [x, tested]),
        target("select", targets[1], (), _PLACES, [x, tested]),
    ]
    return _compacted(lying(tested), items, condition or "x", [x], to[:1], to[1])


def unique(keys: Any, values: Any = None, *, out: Any = None) -> DeviceOp[Any]:
    """Select the first of each run of equal keys, and the values of these. Of sorted keys these are the unique ones.

    Parameters
    ----------
    keys
        As for `sort`. NaN is equal to nothing, so that each of them is kept; zeros of both signs are equal.
    values
        As for `sort`.
    out
        As for `select`; with values, a tuple of three: keys, values, and how many.

    Returns
    -------
    DeviceOp[tuple]
        The keys, the values if there are any, and how many of the first items of each are selected, as for `select`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `sort`.
    """
    given = arrays("unique", keys=keys, **({} if values is None else {"values": values}))
    keys, values = given["keys"], given.get("values")
    count = 2 if values is None else 3
    targets = outs("unique", out, count)

    def known(keys: Any, values: Any, *found: Any) -> DeviceOp[Any]:
        return unique(keys, values, out=None if out is None else found)

    if (waiting := later("unique", known, keys, values, *targets, results=count)) is not None:
        return waiting
    one_axis("unique", keys=keys, values=values)
    real(keys.dtype, "unique")
    apart("unique", targets)
    moved = [keys] if values is None else [keys, values]
    for x in moved:
        movable(x.dtype, "unique")
    to = [target("unique", each, x.shape, x.dtype, moved) for each, x in zip(targets[:-1], moved, strict=True)]
    counted = target("unique", targets[-1], (), _PLACES, moved)
    return _compacted(lying(keys), keys.dtype, None, moved, to, counted)


def trim(x: Any, count: Any) -> DeviceOp[DeviceArray]:
    """Return the first items of an array, as many as a number on the device says. The host waits for that number.

    Parameters
    ----------
    x
        A `DeviceArray` of one axis or more, or an operation that yields one, as the first results of `select` and
        `unique` are.
    count
        An int64 of shape (), or an operation that yields one, as their last result is.

    Returns
    -------
    DeviceOp[DeviceArray]
        A view of `x`. What needs it is submitted when the number has come to the host, as behind a `map`: an await
        waits without blocking the loop, and a graph cannot have it in its middle. *Stream*, *Blocks*,
        *On cancel*: as for `aiocuda.to_host`, which brings the number.

    Raises
    ------
    ArgumentTypeError
        `x` or `count` is no array on a device, or `count` is no single integer.
    ArgumentValueError
        When executed: `x` has no axis, or fewer items than `count` says.
    """
    given = arrays("trim", x=x, count=count)
    return composing.zip(given["x"], to_host(given["count"])).map(_cut)


def _cut(known: Any) -> DeviceArray:
    x, count = known
    if not isinstance(count, np.ndarray) or count.shape != () or count.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"trim: count is an integer in an array of shape (); {values_given.shown(count)} was given"
        )
    if not isinstance(x, DeviceArray):
        raise ArgumentTypeError(f"trim: x is an array on a device; {values_given.shown(x)} was given")
    if x.ndim == 0 or not 0 <= int(count) <= len(x):
        raise ArgumentValueError(f"trim: count is {int(count)}, and x has the shape {x.shape}")
    return x[: int(count)]


def _compacted(
    tested: Any,
    dtype: np.dtype[Any],
    condition: str | None,
    moved: list[DeviceArray],
    to: list[Target],
    counted: Target,
) -> DeviceOp[Any]:
    """Return an operation that yields what is selected of each array, and how many items that is.

    Selected are the items at the places where the condition on the tested item x holds. Without a condition these are
    the first of each run of equal ones. Behind them, an array of the caller's keeps what it has.
    """
    n, device = moved[0].size, moved[0].device
    if n == 0:
        return delivered_together([*(each.into for each in to), fill(counted.into, 0)], [*to, counted])
    to = [keeping(each) for each in to]
    tiles = -(-n // _TILE)
    if tiles == 1:
        before: Any = full((1,), 0, _PLACES, device)
    else:
        totals = _kernel("tile_counts", kind_of(dtype), condition)(
            tested, empty((tiles,), _PLACES, device), n, grid=tiles, block=_THREADS
        )
        into = empty((tiles,), _PLACES, device)
        before = prefixes(totals, tiles, _PLACES, _PLACES, into, "sum", device, (0, 0), exclusive=True)
    places, count = _kernel("places", kind_of(dtype), condition)(
        tested, before, empty((n,), _PLACES, device), counted.into, n, grid=tiles, block=_THREADS
    )
    made = [
        gather_selected(lying(x), places, count, each.into, n, x.itemsize) for x, each in zip(moved, to, strict=True)
    ]
    return delivered_together([*made, count], [*to, counted])


_THREADS: Final = 256
_ITEMS_A_THREAD: Final = 8
_TILE: Final = _THREADS * _ITEMS_A_THREAD

_CONDITION: Final = """
template <class T>
__device__ __forceinline__ bool holds(T x) {
    return (
#line 1 "the condition of select"
        @CONDITION@
    );
}
"""

_SOURCE: Final = r"""
using Kind = KIND;

__device__ bool is_selected(const void* items, unsigned long long i, unsigned long long n) {
    if (i >= n) return false;
    const Kind::Word* words = static_cast<const Kind::Word*>(items);
    return IS_BY_RUNS ? i == 0 || get<Kind>(words[i]) != get<Kind>(words[i - 1]) : holds(get<Kind>(words[i]));
}

// How many the threads of a block have before this one; `total` is what all of them have.
__device__ unsigned counted_before(unsigned mine, unsigned& total) {
    __shared__ unsigned counts[2][THREADS];
    const unsigned t = threadIdx.x;
    unsigned from = 0;
    counts[0][t] = mine;
    __syncthreads();
    for (unsigned apart = 1; apart < THREADS; apart *= 2) {
        counts[1 - from][t] = counts[from][t] + (t < apart ? 0 : counts[from][t - apart]);
        from = 1 - from;
        __syncthreads();
    }
    total = counts[from][THREADS - 1];
    return counts[from][t] - mine;
}

extern "C" __global__ void tile_counts(const void* items, long long* totals, unsigned long long n) {
    const unsigned long long first = (unsigned long long)blockIdx.x * THREADS * ITEMS + threadIdx.x * ITEMS;
    unsigned mine = 0, total;
    for (unsigned k = 0; k < ITEMS; ++k) mine += is_selected(items, first + k, n);
    counted_before(mine, total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

extern "C" __global__ void places(const void* items, const long long* before, long long* places, long long* count,
                                  unsigned long long n) {
    const unsigned long long first = (unsigned long long)blockIdx.x * THREADS * ITEMS + threadIdx.x * ITEMS;
    bool selected[ITEMS];
    unsigned mine = 0, total;
    for (unsigned k = 0; k < ITEMS; ++k) mine += selected[k] = is_selected(items, first + k, n);
    long long at = before[blockIdx.x] + counted_before(mine, total);
    for (unsigned k = 0; k < ITEMS; ++k)
        if (selected[k]) places[at++] = (long long)(first + k);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *count = before[blockIdx.x] + total;
}
"""

_SIGNATURES: Final = {
    "tile_counts": "const void* items, long long* totals, unsigned long long n",
    "places": "const void* items, const long long* before, long long* places, long long* count, unsigned long long n",
}


@functools.lru_cache(maxsize=1024)
def _kernel(name: str, kind: str, condition: str | None) -> Kernel:
    return _module(kind, condition).kernel(name, signature=_SIGNATURES[name])


@functools.lru_cache(maxsize=512)
def _module(kind: str, condition: str | None) -> Module:
    words = {"THREADS": _THREADS, "ITEMS": _ITEMS_A_THREAD, "IS_BY_RUNS": int(condition is None)}
    defines = "".join(f"#define {word} {meaning}\n" for word, meaning in words.items())
    source = PRELUDE + _CONDITION.replace("@CONDITION@", condition or "x") + defines + _SOURCE.replace("KIND", kind)
    return Module.from_source(source, name="select.cu")
