"""Reductions and scans: all items, or all up to each, made one by a sum, a product, a maximum or a minimum.

Always true: the order of the sums depends on the number of items alone, so a result is the same each time and on every
driver.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import numpy as np

from aiocuda._algorithms.arguments import arrays, delivered, later, lying, one_axis, outs, target
from aiocuda._algorithms.numbers import (
    NUMBERS,
    PRELUDE,
    computed_in,
    is_number,
    kind_of,
    number_in,
    real,
    summed_in,
)
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import flag, one_of
from aiocuda._verbs.create import empty, full
from aiocuda._verbs.fills import fill
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["argmax", "argmin", "prefixes", "reduce", "scan"]


class _Operator(NamedTuple):
    """How two values become one, in CUDA C++, and whether integers get wide, as sums do."""

    function: str
    is_wide: bool


_OPERATORS: Final = {
    "sum": _Operator("added", True),
    "product": _Operator("multiplied", True),
    "max": _Operator("larger", False),
    "min": _Operator("smaller", False),
}


def reduce(x: Any, op: str = "sum", *, initial: Any = None, out: Any = None) -> DeviceOp[DeviceArray]:
    """Reduce all items of an array to one: their sum, product, maximum or minimum.

    Parameters
    ----------
    x
        `DeviceArray` of any shape and strides, or an operation that yields one: bool, integers, float16, bfloat16,
        float32 or float64.
    op
        "sum", "product", "max" or "min".
    initial
        A number that the result begins with, as in NumPy.
    out
        Where the result goes: an array of shape () and of the result's dtype, or an operation that yields one.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of shape () beside `x`, or `out`. Its dtype is NumPy's: that of `x`, but int64 or uint64 for sums and
        products of bool and integers, which wrap. *Stream*: as for a kernel. *Blocks*: while kernels are compiled, the
        first time. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        `x` is no array on a device, or its dtype is another; or `initial` is no number of the result's dtype.
    ArgumentValueError
        There is no such `op`; `x` has no items, and the maximum of nothing was asked without `initial`; or `out` does
        not fit.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.

    Notes
    -----
    All of these are raised when the operation is built; of what operations yield, when it is executed. A NaN makes the
    maximum and the minimum NaN, as in NumPy. Sums of floats are made in pairs of partial sums: they are NumPy's up to
    rounding, and the same on every driver. For float16 and bfloat16 they are made in float32, and rounded once.
    """
    operator = _operator("reduce", op)
    x, out = arrays("reduce", x=x)["x"], outs("reduce", out, 1)[0]
    if (waiting := later("reduce", lambda x, out: reduce(x, op, initial=initial, out=out), x, out)) is not None:
        return waiting
    kind, computed, neutral = _neutral("reduce", x.dtype, op)
    neutral_first = 0.0 if op == "sum" and computed.kind == "f" else neutral  # which makes -0.0 NumPy's 0.0
    first = neutral_first if initial is None else _number("reduce", initial, computed)
    to = target("reduce", out, (), kind, [x])
    if x.size == 0:
        if initial is None and not operator.is_wide:
            raise ArgumentValueError(f"reduce: the {op} of no items is nothing; give initial=")
        return delivered(fill(to.into, first), to)
    items, count, source = lying(x), x.size, kind_of(x.dtype)
    blocks = _blocks(count)
    if blocks > 1:
        make = _kernel("reduce", source, kind_of(computed), NUMBERS[computed.name], op)
        partial = empty((blocks,), computed, x.device)
        items = make(items, partial, count, neutral, neutral, grid=blocks, block=_THREADS)
        count, source = blocks, kind_of(computed)
    make = _kernel("reduce", source, kind_of(kind), NUMBERS[computed.name], op)
    return delivered(make(items, to.into, count, neutral, first, grid=1, block=_THREADS), to)


def argmax(x: Any, *, out: Any = None) -> DeviceOp[DeviceArray]:
    """Find where the greatest item of an array is, as `numpy.argmax` does: the first one, and a NaN before all else.

    Parameters
    ----------
    x
        As for `reduce`, with one item or more.
    out
        As for `reduce`; of int64.

    Returns
    -------
    DeviceOp[DeviceArray]
        An int64 of shape (): the place among all items, the last axis fastest. Otherwise as `reduce`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `reduce`.
    """
    return _extreme("argmax", x, out)


def argmin(x: Any, *, out: Any = None) -> DeviceOp[DeviceArray]:
    """Find where the least item of an array is, as `numpy.argmin` does; otherwise as `argmax`.

    Parameters
    ----------
    x, out
        As for `argmax`.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `argmax`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `argmax`.
    """
    return _extreme("argmin", x, out)


def scan(
    x: Any, op: str = "sum", *, exclusive: bool = False, initial: Any = None, out: Any = None
) -> DeviceOp[DeviceArray]:
    """Make each item the sum, product, maximum or minimum of all items up to it.

    Parameters
    ----------
    x
        As for `reduce`, of one axis.
    op
        As for `reduce`.
    exclusive
        Whether each item is that of the items *before* it. The first one is then `initial`.
    initial
        A number before the first item. None is a neutral one: 0 for sums, 1 for products, the least number of the
        dtype (minus infinity for floats) for maxima, and the greatest for minima.
    out
        As for `reduce`; as long as `x`. It may be `x` itself.

    Returns
    -------
    DeviceOp[DeviceArray]
        As long as `x`. Dtype, and all else, as for `reduce`. An inclusive sum is `numpy.cumsum`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `reduce`; or `x` has not one axis.
    """
    _operator("scan", op)
    flag(exclusive, "scan: exclusive")
    x, out = arrays("scan", x=x)["x"], outs("scan", out, 1)[0]

    def known(x: Any, out: Any) -> DeviceOp[DeviceArray]:
        return scan(x, op, exclusive=exclusive, initial=initial, out=out)

    if (waiting := later("scan", known, x, out)) is not None:
        return waiting
    one_axis("scan", x=x)
    kind, computed, neutral = _neutral("scan", x.dtype, op)
    neutral_first = 0.0 if exclusive and op == "sum" else neutral
    first = neutral_first if initial is None else _number("scan", initial, computed)
    to = target("scan", out, x.shape, kind, [x])
    if x.size == 0:
        return delivered(to.into, to)
    made = prefixes(lying(x), x.size, x.dtype, kind, to.into, op, x.device, (neutral, first), exclusive=exclusive)
    return delivered(made, to)


def prefixes(
    items: Any,
    count: int,
    dtype: np.dtype[Any],
    kind: np.dtype[Any],
    into: Any,
    op: str,
    device: Any,
    numbers: tuple[Any, Any],
    *,
    exclusive: bool,
) -> Any:
    """Return a scan of items in one piece: the totals of tiles are scanned first, then each tile goes on from there.

    Parameters
    ----------
    dtype, kind
        Of the items, and of the result.
    numbers
        The neutral one, and the one to begin with.
    """
    neutral, first = numbers
    computed = computed_in(kind)
    value = NUMBERS[computed.name]
    tiles = -(-count // _TILE)
    if tiles == 1:
        before: Any = full((1,), first, computed, device)
    else:
        add = _kernel("tile_totals", kind_of(dtype), kind_of(kind), value, op)
        totals = add(items, empty((tiles,), computed, device), count, neutral, grid=tiles, block=_THREADS)
        into_before = empty((tiles,), computed, device)
        before = prefixes(totals, tiles, computed, computed, into_before, op, device, numbers, exclusive=True)
    go_on = _kernel("scan_tiles", kind_of(dtype), kind_of(kind), value, op)
    return go_on(items, before, into, count, neutral, int(exclusive), grid=tiles, block=_THREADS)


def _extreme(asked: str, x: Any, out: Any) -> DeviceOp[DeviceArray]:
    x, out = arrays(asked, x=x)["x"], outs(asked, out, 1)[0]
    if (waiting := later(asked, lambda x, out: _extreme(asked, x, out), x, out)) is not None:
        return waiting
    real(x.dtype, asked)
    if x.size == 0:
        raise ArgumentValueError(f"{asked} of no items is nowhere; x has the shape {x.shape}")
    to = target(asked, out, (), np.dtype(np.int64), [x])
    blocks = _blocks(x.size)
    if blocks == 1:
        make = _extreme_kernel(asked, kind_of(x.dtype), NUMBERS[x.dtype.name], False)
        spare = empty((1,), computed_in(x.dtype), x.device)
        _, place = make(lying(x), spare, to.into, x.size, grid=1, block=_THREADS)
        return delivered(place, to)
    computed = computed_in(x.dtype)
    value = NUMBERS[computed.name]
    best, where = (empty((blocks,), dtype, x.device) for dtype in (computed, np.dtype(np.int64)))
    make = _extreme_kernel(asked, kind_of(x.dtype), value, False)
    best, where = make(lying(x), best, where, x.size, grid=blocks, block=_THREADS)
    make = _extreme_kernel(asked, kind_of(computed), value, True)
    spare = empty((1,), computed, x.device)
    _, place = make(best, where, spare, to.into, blocks, grid=1, block=_THREADS)
    return delivered(place, to)


def _operator(asked: str, op: Any) -> _Operator:
    return _OPERATORS[one_of(op, f"{asked}: op", _OPERATORS)]


def _neutral(asked: str, dtype: np.dtype[Any], op: str) -> tuple[np.dtype[Any], np.dtype[Any], Any]:
    """Return the result's dtype, that of the kernels, and the number that changes nothing."""
    real(dtype, asked)
    kind = summed_in(dtype) if _OPERATORS[op].is_wide else dtype
    computed = computed_in(kind)
    if op == "sum":
        return kind, computed, -0.0 if computed.kind == "f" else 0
    if op == "product":
        return kind, computed, 1.0 if computed.kind == "f" else 1
    if computed.kind == "f":
        return kind, computed, -np.inf if op == "max" else np.inf
    limits = np.iinfo(computed)
    return kind, computed, int(limits.min if op == "max" else limits.max)


def _number(asked: str, initial: Any, computed: np.dtype[Any]) -> Any:
    """Return a number as Python's own, rounded as the dtype has it."""
    found = number_in(computed, initial) if is_number(initial) else None
    if found is not None:
        return found
    raise ArgumentTypeError(f"{asked}: initial is a number of dtype {computed}; {initial!r:.80} was given")


_THREADS = 256
_ITEMS_A_THREAD = 8
_TILE = _THREADS * _ITEMS_A_THREAD
_MOST_BLOCKS = 1024


def _blocks(count: int) -> int:
    return min(-(-count // _TILE), _MOST_BLOCKS)


_SOURCE = r"""
using From = FROM;
using To = TO;
using Value = VALUE;

// Integers wrap, whatever their sign.
template <class V>
__device__ V added(V a, V b) { return (V)((unsigned long long)a + (unsigned long long)b); }
__device__ float added(float a, float b) { return a + b; }
__device__ double added(double a, double b) { return a + b; }
template <class V>
__device__ V multiplied(V a, V b) { return (V)((unsigned long long)a * (unsigned long long)b); }
__device__ float multiplied(float a, float b) { return a * b; }
__device__ double multiplied(double a, double b) { return a * b; }
// A NaN is larger and smaller than anything.
template <class V>
__device__ V larger(V a, V b) { return a > b || a != a ? a : b; }
template <class V>
__device__ V smaller(V a, V b) { return a < b || a != a ? a : b; }

__device__ Value item(const void* items, unsigned long long i) {
    return (Value)get<From>(static_cast<const From::Word*>(items)[i]);
}

// A block for each item of `out`; its threads take turns in all items.
extern "C" __global__ void reduce(const void* items, void* out, unsigned long long n, Value neutral, Value first) {
    __shared__ Value values[THREADS];
    const unsigned t = threadIdx.x;
    Value mine = neutral;
    const unsigned long long threads = (unsigned long long)gridDim.x * THREADS;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + t; i < n; i += threads)
        mine = OPERATOR(mine, item(items, i));
    values[t] = mine;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) values[t] = OPERATOR(values[t], values[t + half]);
        __syncthreads();
    }
    if (t == 0) static_cast<To::Word*>(out)[blockIdx.x] = put<To>(OPERATOR(first, values[0]));
}

extern "C" __global__ void tile_totals(const void* items, void* totals, unsigned long long n, Value neutral) {
    __shared__ Value values[THREADS];
    const unsigned t = threadIdx.x;
    Value mine = neutral;
    for (unsigned k = 0; k < ITEMS; ++k) {
        const unsigned long long i = (unsigned long long)blockIdx.x * TILE + k * THREADS + t;
        if (i < n) mine = OPERATOR(mine, item(items, i));
    }
    values[t] = mine;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) values[t] = OPERATOR(values[t], values[t + half]);
        __syncthreads();
    }
    if (t == 0) static_cast<Value*>(totals)[blockIdx.x] = values[0];
}

// Each thread has ITEMS items in line; what comes before them is what comes before the tile, and the threads before.
extern "C" __global__ void scan_tiles(const void* items, const void* before, void* out, unsigned long long n,
                                      Value neutral, int is_exclusive) {
    __shared__ Value totals[2][THREADS];
    const unsigned t = threadIdx.x;
    const unsigned long long first = (unsigned long long)blockIdx.x * TILE + t * ITEMS;
    Value values[ITEMS], total = neutral;
    for (unsigned k = 0; k < ITEMS; ++k) {
        values[k] = first + k < n ? item(items, first + k) : neutral;
        total = OPERATOR(total, values[k]);
    }
    unsigned from = 0;
    totals[0][t] = total;
    __syncthreads();
    for (unsigned apart = 1; apart < THREADS; apart *= 2) {
        totals[1 - from][t] = t < apart ? totals[from][t] : OPERATOR(totals[from][t - apart], totals[from][t]);
        from = 1 - from;
        __syncthreads();
    }
    Value sum = static_cast<const Value*>(before)[blockIdx.x];
    if (t > 0) sum = OPERATOR(sum, totals[from][t - 1]);
    for (unsigned k = 0; k < ITEMS && first + k < n; ++k) {
        const Value next = OPERATOR(sum, values[k]);
        static_cast<To::Word*>(out)[first + k] = put<To>(is_exclusive ? sum : next);
        sum = next;
    }
}
"""

_SIGNATURES = {
    "reduce": "const void* items, void* out, unsigned long long n, VALUE neutral, VALUE first",
    "tile_totals": "const void* items, void* totals, unsigned long long n, VALUE neutral",
    "scan_tiles": "const void* items, const void* before, void* out, unsigned long long n, VALUE neutral, "
    "int is_exclusive",
}

_EXTREME = r"""
using From = FROM;
using Value = VALUE;

// Whether (v, i) comes before (w, j): a place of -1 is none, a NaN comes first, and of equal ones the first.
__device__ bool is_before(Value v, long long i, Value w, long long j) {
    if (i < 0 || j < 0) return j < 0 && i >= 0;
    if ((v != v) != (w != w)) return v != v;
    return v == w || v != v ? i < j : v BEATS w;
}

extern "C" __global__ void extreme(const void* items, PLACES void* best, void* where, unsigned long long n) {
    __shared__ Value values[THREADS];
    __shared__ long long at[THREADS];
    const unsigned t = threadIdx.x;
    values[t] = 0;
    at[t] = -1;
    const unsigned long long threads = (unsigned long long)gridDim.x * THREADS;
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + t; i < n; i += threads) {
        const Value x = (Value)get<From>(static_cast<const From::Word*>(items)[i]);
        const long long place = PLACE;
        if (is_before(x, place, values[t], at[t])) {
            values[t] = x;
            at[t] = place;
        }
    }
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (t < half && is_before(values[t + half], at[t + half], values[t], at[t])) {
            values[t] = values[t + half];
            at[t] = at[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        static_cast<Value*>(best)[blockIdx.x] = values[0];
        static_cast<long long*>(where)[blockIdx.x] = at[0];
    }
}
"""


def _filled(source: str, **words: str) -> str:
    sizes = {"THREADS": str(_THREADS), "TILE": str(_TILE), "ITEMS": str(_ITEMS_A_THREAD)}
    defines = "".join(f"#define {name} {word}\n" for name, word in (sizes | words).items())
    return PRELUDE + defines + source


@functools.cache
def _kernel(name: str, source: str, result: str, value: str, op: str) -> Kernel:
    return _module(source, result, value, op).kernel(name, signature=_SIGNATURES[name].replace("VALUE", value))


@functools.cache
def _module(source: str, result: str, value: str, op: str) -> Module:
    text = _filled(_SOURCE, FROM=source, TO=result, VALUE=value, OPERATOR=_OPERATORS[op].function)
    return Module.from_source(text, name=f"{op}.cu")


@functools.cache
def _extreme_kernel(asked: str, source: str, value: str, has_places: bool) -> Kernel:
    text = _filled(
        _EXTREME,
        FROM=source,
        VALUE=value,
        BEATS=">" if asked == "argmax" else "<",
        PLACES="const void* places," if has_places else "",
        PLACE="static_cast<const long long*>(places)[i]" if has_places else "(long long)i",
    )
    places = "const void* places, " if has_places else ""
    signature = f"const void* items, {places}void* best, void* where, unsigned long long n"
    return kernel(text, "extreme", signature=signature)
