"""Sorting, and merging what is sorted: stable, of keys alone or of keys with values.

Always true: an item goes where the number of items says that must come before it, which a thread finds by halving. So
equal items keep their order, and no thread waits for one of another block.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from aiocuda._algorithms.arguments import (
    apart,
    arrays,
    delivered,
    delivered_together,
    later,
    lying,
    one_axis,
    outs,
    target,
)
from aiocuda._algorithms.gathering import gather, gather_of_two, movable
from aiocuda._algorithms.numbers import PRELUDE, kind_of, real
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import flag
from aiocuda._verbs.create import empty
from aiocuda._verbs.likeness import empty_like
from aiocuda.errors import ArgumentTypeError

__all__ = ["argsort", "merge", "sort"]

_PLACES: Final = np.dtype(np.int64)


def sort(keys: Any, values: Any = None, *, descending: bool = False, out: Any = None) -> DeviceOp[Any]:
    """Sort keys, and values with them. Equal keys keep their order.

    Parameters
    ----------
    keys
        `DeviceArray` of one axis and any stride, or an operation that yields one: bool, integers, float16, bfloat16,
        float32 or float64. It stays as it is.
    values
        As many items of any dtype of 1, 2, 4, 8 or 16 bytes, which go where their keys go; or None.
    descending
        Whether the greatest key comes first.
    out
        Where the sorted keys go: an array like `keys`, which it may be, or an operation that yields one. With values, a
        tuple of two.

    Returns
    -------
    DeviceOp[DeviceArray]
        The sorted keys; with values, a tuple of keys and values. *Stream*: as for a kernel. *Blocks*: while kernels are
        compiled, the first time. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        Something is no array on a device, or of another dtype.
    ArgumentValueError
        `keys` has not one axis, `values` has another length, or `out` does not fit.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.

    Notes
    -----
    All of these are raised when the operation is built; of what operations yield, when it is executed. NaN is greater
    than all numbers, as for `numpy.sort`: it comes last, and first when `descending`. Zeros of both signs are equal.
    It needs memory for the keys twice; with values, for 16 bytes an item more.
    """
    flag(descending, "sort: descending")
    given = arrays("sort", keys=keys, **({} if values is None else {"values": values}))
    keys, values = given["keys"], given.get("values")
    targets = outs("sort", out, 1 if values is None else 2)

    def known(keys: Any, values: Any, *found: Any) -> DeviceOp[Any]:
        return sort(keys, values, descending=descending, out=_together(found))

    if (waiting := later("sort", known, keys, values, *targets, results=len(targets))) is not None:
        return waiting
    one_axis("sort", keys=keys, values=values)
    real(keys.dtype, "sort")
    to = target("sort", targets[0], keys.shape, keys.dtype, [keys] if values is None else [keys, values])
    if values is None:
        return delivered(_sorted(keys, None, to.into, descending)[0], to)
    movable(values.dtype, "sort")
    apart("sort", targets)
    values_to = target("sort", targets[1], values.shape, values.dtype, [values, keys])
    ordered, places = _sorted(keys, empty(keys.shape, _PLACES, keys.device), to.into, descending)
    moved = values_to.into
    if keys.size:
        moved = gather(lying(values), places, moved, keys.size, values.itemsize)
    return delivered_together([ordered, moved], [to, values_to])


def argsort(keys: Any, *, descending: bool = False, out: Any = None) -> DeviceOp[DeviceArray]:
    """Find the order of keys: the places of the items, as a stable `numpy.argsort` gives them.

    Parameters
    ----------
    keys, descending
        As for `sort`.
    out
        As for `sort`; of int64.

    Returns
    -------
    DeviceOp[DeviceArray]
        int64, as long as `keys`. Otherwise as `sort`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `sort`.
    """
    flag(descending, "argsort: descending")
    keys, out = arrays("argsort", keys=keys)["keys"], outs("argsort", out, 1)[0]
    if (waiting := later("argsort", lambda x, out: argsort(x, descending=descending, out=out), keys, out)) is not None:
        return waiting
    one_axis("argsort", keys=keys)
    real(keys.dtype, "argsort")
    to = target("argsort", out, keys.shape, _PLACES, [keys])
    return delivered(_sorted(keys, to.into, empty_like(keys), descending)[1], to)


def merge(a: Any, b: Any, values: tuple[Any, Any] | None = None, *, out: Any = None) -> DeviceOp[Any]:
    """Merge two sorted arrays of keys to one, and values with them. Of equal keys, those of `a` come first.

    Parameters
    ----------
    a, b
        As `keys` of `sort`, of one dtype, each sorted from the least to the greatest. If they are not, the result has
        some order of some of their items.
    values
        A tuple of two arrays of one dtype, as long as `a` and `b`, which go where their keys go; or None.
    out
        As for `sort`, as long as both.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `sort`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `sort`; or the two differ in dtype.
    """
    if values is not None and not (type(values) in (tuple, list) and len(values) == 2):
        raise ArgumentTypeError(f"merge: values is a tuple of two arrays; {values!r:.80} was given")
    given = arrays("merge", a=a, b=b, **({} if values is None else {"values_a": values[0], "values_b": values[1]}))
    targets = outs("merge", out, 1 if values is None else 2)

    def known(*found: Any) -> DeviceOp[Any]:
        count = len(given)
        return merge(found[0], found[1], found[2:4] if count == 4 else None, out=_together(found[count:]))

    if (waiting := later("merge", known, *given.values(), *targets, results=len(targets))) is not None:
        return waiting
    a, b = given["a"], given["b"]
    one_axis("merge", a=a, values_a=given.get("values_a"))
    one_axis("merge", b=b, values_b=given.get("values_b"))
    if a.dtype != b.dtype:
        raise ArgumentTypeError(f"merge takes two arrays of one dtype; {a.dtype} and {b.dtype} were given")
    real(a.dtype, "merge")
    total = a.size + b.size
    to = target("merge", targets[0], (total,), a.dtype, list(given.values()))
    make = _kernel("merge_two", kind_of(a.dtype), False, values is not None)
    if values is None:
        keys = make(lying(a), lying(b), to.into, a.size, b.size, threads=total) if total else to.into
        return delivered(keys, to)
    values_a, values_b = given["values_a"], given["values_b"]
    if values_a.dtype != values_b.dtype:
        raise ArgumentTypeError(f"merge takes values of one dtype; {values_a.dtype} and {values_b.dtype} were given")
    movable(values_a.dtype, "merge")
    apart("merge", targets)
    moved_to = target("merge", targets[1], (total,), values_a.dtype, list(given.values()))
    keys, moved = to.into, moved_to.into
    if total:
        places = empty((total,), _PLACES, a.device)
        keys, places = make(lying(a), lying(b), keys, places, a.size, b.size, threads=total)
        both = lying(values_a), lying(values_b)
        moved = gather_of_two(*both, a.size, places, moved, total, values_a.itemsize)
    return delivered_together([keys, moved], [to, moved_to])


def _together(found: Any) -> Any:
    given = [x for x in found if x is not None]
    return None if not given else given[0] if len(found) == 1 else tuple(found)


def _sorted(keys: DeviceArray, places: Any, into: Any, descending: bool) -> tuple[Any, Any]:
    """Return the sorted keys in `into`, and their places if `places` is not None.

    Tiles are sorted first. Then runs are merged, two at a time, between two arrays in turn. The number of passes
    decides which of the two comes first, so that the last pass writes `into`.
    """
    n = keys.size
    if n == 0:
        return into, places
    kind, has_places = kind_of(keys.dtype), places is not None
    widths = []
    width = _TILE
    while width < n:
        widths.append(width)
        width *= 2
    spare: tuple[Any, ...] = (into, places)
    if widths:
        device = keys.device
        spare = (empty((n,), keys.dtype, device), empty((n,), _PLACES, device) if has_places else None)
    lanes = [(into, places), spare]
    at = len(widths) % 2
    first = _kernel("sort_tile", kind, descending, has_places)
    tiles = -(-n // _TILE)
    lanes[at] = _launched(first(lying(keys), *_given(lanes[at]), n, grid=tiles, block=_THREADS), has_places)
    step = _kernel("merge_runs", kind, descending, has_places)
    for width in widths:
        made = step(*_given(lanes[at]), *_given(lanes[1 - at]), n, width, threads=n, block=_THREADS)
        at = 1 - at
        lanes[at] = _launched(made, has_places)
    return lanes[at]


def _given(lane: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x for x in lane if x is not None)


def _launched(made: Any, has_places: bool) -> tuple[Any, Any]:
    return tuple(made) if has_places else (made, None)


_THREADS: Final = 256
_TILE: Final = 1024

_SOURCE: Final = r"""
using Key = KEY;
using Word = Key::Word;

// NaN is greater than all numbers.
__device__ __forceinline__ bool is_before(Word a, Word b) {
    const auto x = get<Key>(FIRST), y = get<Key>(SECOND);
    return x < y || (y != y && x == x);
}

// How many of the sorted items come before x; among equal ones, all of them if they `come_first`, else none.
template <class Index>
__device__ __forceinline__ Index rank(const Word* items, Index count, Word x, bool come_first) {
    Index low = 0;
    while (count > 0) {
        const Index half = count / 2;
        const bool is_right = come_first ? !is_before(x, items[low + half]) : is_before(items[low + half], x);
        if (is_right) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

// Where item i goes when the run of its width and the one beside it become one: an item of the left one comes before
// its equals on the right.
template <class Index>
__device__ __forceinline__ Index place_of(const Word* items, Index i, Index n, Index width) {
    const Index run = i / width, begin = run * width;
    const bool is_left = run % 2 == 0;
    Index other = is_left ? begin + width : begin - width, end = other + width;
    if (other > n) other = n;
    if (end > n) end = n;
    const Index before = rank<Index>(items + other, end - other, items[i], !is_left);
    return (is_left ? begin : begin - width) + (i - begin) + before;
}

extern "C" __global__ void sort_tile(const void* keys, void* out, PLACES_PARAMETER unsigned long long n) {
    __shared__ Word items[2][TILE];
    __shared__ unsigned short at[2][TILE];
    const unsigned long long first = (unsigned long long)blockIdx.x * TILE;
    const unsigned count = n - first < TILE ? (unsigned)(n - first) : TILE;
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        items[0][i] = static_cast<const Word*>(keys)[first + i];
        at[0][i] = (unsigned short)i;
    }
    __syncthreads();
    unsigned from = 0;
    for (unsigned width = 1; width < count; width *= 2) {
        for (unsigned i = threadIdx.x; i < count; i += THREADS) {
            const unsigned place = place_of<unsigned>(items[from], i, count, width);
            items[1 - from][place] = items[from][i];
            at[1 - from][place] = at[from][i];
        }
        from = 1 - from;
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < count; i += THREADS) {
        static_cast<Word*>(out)[first + i] = items[from][i];
        WRITE_PLACE(first + i, (long long)(first + at[from][i]));
    }
}

extern "C" __global__ void merge_runs(const void* keys, PLACES_OF_KEYS void* out, PLACES_PARAMETER
                                      unsigned long long n, unsigned long long width) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Word* items = static_cast<const Word*>(keys);
    const unsigned long long place = place_of<unsigned long long>(items, i, n, width);
    static_cast<Word*>(out)[place] = items[i];
    WRITE_PLACE(place, old_places[i]);
}

extern "C" __global__ void merge_two(const void* a, const void* b, void* out, PLACES_PARAMETER
                                     unsigned long long in_a, unsigned long long in_b) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= in_a + in_b) return;
    const Word *left = static_cast<const Word*>(a), *right = static_cast<const Word*>(b);
    const bool is_left = i < in_a;
    const Word x = is_left ? left[i] : right[i - in_a];
    const unsigned long long place = is_left ? i + rank<unsigned long long>(right, in_b, x, false)
                                             : i - in_a + rank<unsigned long long>(left, in_a, x, true);
    static_cast<Word*>(out)[place] = x;
    WRITE_PLACE(place, (long long)i);
}
"""

_COUNT: Final = "unsigned long long"
_SIGNATURES: Final = {
    "sort_tile": ("const void* keys, void* out, ", f"{_COUNT} n"),
    "merge_runs": ("const void* keys, OLD void* out, ", f"{_COUNT} n, {_COUNT} width"),
    "merge_two": ("const void* a, const void* b, void* out, ", f"{_COUNT} in_a, {_COUNT} in_b"),
}


@functools.cache
def _kernel(name: str, kind: str, descending: bool, has_places: bool) -> Kernel:
    before, after = _SIGNATURES[name]
    places, old = ("long long* places, ", "const long long* old_places,") if has_places else ("", "")
    signature = before.replace("OLD", old) + places + after
    return _module(kind, descending, has_places).kernel(name, signature=signature)


@functools.cache
def _module(kind: str, descending: bool, has_places: bool) -> Module:
    defines = {
        "KEY": kind,
        "THREADS": str(_THREADS),
        "TILE": str(_TILE),
        "FIRST": "b" if descending else "a",
        "SECOND": "a" if descending else "b",
        "PLACES_PARAMETER": "long long* places," if has_places else "",
        "PLACES_OF_KEYS": "const long long* old_places," if has_places else "",
        "WRITE_PLACE(i, place)": "places[i] = (place)" if has_places else "",
    }
    source = "".join(f"#define {word} {meaning}\n" for word, meaning in defines.items())
    return Module.from_source(PRELUDE + source + _SOURCE, name="sort.cu")
