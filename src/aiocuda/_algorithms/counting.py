"""Histograms: how many items lie in each bin.

Always true: an item is counted where NumPy counts it, also on an edge.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from aiocuda._algorithms.arguments import arrays, delivered, later, lying, outs, target
from aiocuda._algorithms.numbers import PRELUDE, kind_of, real
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import shown
from aiocuda._verbs.copies import to_device
from aiocuda._verbs.fills import fill
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["histogram"]


def histogram(x: Any, bins: Any, range: tuple[float, float] | None = None, *, out: Any = None) -> DeviceOp[DeviceArray]:  # noqa: A002 - NumPy's name
    """Count the items of an array in bins, as `numpy.histogram` does.

    Parameters
    ----------
    x
        `DeviceArray` of any shape and strides, or an operation that yields one: bool, integers, float16, bfloat16,
        float32 or float64.
    bins
        How many bins of equal width lie in `range`; or their edges, one more than there are bins, each no less than the
        one before: a list, tuple or NumPy array.
    range
        The least and the greatest number of bins of equal width. aiocuda does not look for them in `x`, because the
        host would have to wait for them.
    out
        Where the counts go: an int64 for each bin.

    Returns
    -------
    DeviceOp[DeviceArray]
        An int64 for each bin. A bin has its lower edge in it and its upper one not; the last one has both. Items
        outside of all bins, and NaN, are not counted. *Stream*: as for a kernel. *Blocks*: while the kernel is
        compiled, the first time. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        `x` is no array on a device, or of another dtype; `bins` is neither a number nor a sequence of numbers.
    ArgumentValueError
        `range` is missing, or given beside edges; there is no bin; the host has no memory for so many edges;
        or edges decrease.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.

    Notes
    -----
    All of these are raised when the operation is built; of what operations yield, when it is executed. The edges are
    those of ``numpy.histogram_bin_edges(x, bins, range)``, and items are compared with them in float64.
    """
    x, out = arrays("histogram", x=x)["x"], outs("histogram", out, 1)[0]
    if (waiting := later("histogram", lambda x, out: histogram(x, bins, range, out=out), x, out)) is not None:
        return waiting
    real(x.dtype, "histogram")
    edges = _edges(bins, range, x.dtype)
    to = target("histogram", out, (len(edges) - 1,), np.dtype(np.int64), [x])
    counts: Any = fill(to.into, 0)
    if x.size:
        grid = min(-(-x.size // (_THREADS * _ITEMS_A_THREAD)), _MOST_BLOCKS)
        bounds = to_device(edges, x.device)
        count = _kernel(kind_of(x.dtype))
        counts = count(lying(x), bounds, counts, x.size, len(edges) - 1, grid=grid, block=_THREADS)
    return delivered(counts, to)


def _edges(bins: Any, extent: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the edges of bins, in float64."""
    is_number = isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)
    if not is_number and (isinstance(bins, (str, bytes)) or not isinstance(bins, (list, tuple, np.ndarray))):
        raise ArgumentTypeError(f"histogram: bins is a number of bins, or their edges; {shown(bins)} was given")
    if is_number and extent is None:
        raise ArgumentValueError(
            f"histogram: bins={bins} needs range=(least, greatest); aiocuda does not look for them in the array, "
            "because the host would wait for them"
        )
    if not is_number and extent is not None:
        raise ArgumentValueError("histogram: edges say where the bins are; leave range out")
    like = np.empty(0, {"bfloat16": np.float32, "bool": np.uint8}.get(dtype.name, dtype))
    try:
        edges = np.asarray(np.histogram_bin_edges(like, bins, extent), np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentValueError(f"histogram: bins={shown(bins)}, range={shown(extent)}: {error}") from error
    except MemoryError as error:
        raise ArgumentValueError(f"histogram: bins={shown(bins)} are too many: {error}") from error
    if len(edges) < 2:
        raise ArgumentValueError(f"histogram: bins={shown(bins)} is no bin; give two edges or more")
    return edges


_THREADS: Final = 256
_ITEMS_A_THREAD: Final = 16
_MOST_BLOCKS: Final = 1024

_SOURCE: Final = r"""
using Kind = KIND;

// A block counts in memory of its own where the bins have room there.
extern "C" __global__ void histogram(const void* items, const double* edges, long long* counts, unsigned long long n,
                                     unsigned long long bins) {
    __shared__ unsigned long long mine[MOST];
    const bool has_room = bins <= MOST;
    if (has_room)
        for (unsigned i = threadIdx.x; i < bins; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        const double x = (double)get<Kind>(static_cast<const Kind::Word*>(items)[i]);
        if (!(x >= edges[0] && x <= edges[bins])) continue;
        unsigned long long low = 0, count = bins - 1;  // the last edge that x has reached, of those but the last one
        while (count > 0) {
            const unsigned long long half = count / 2;
            if (edges[low + half + 1] <= x) {
                low += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        atomicAdd((has_room ? mine : reinterpret_cast<unsigned long long*>(counts)) + low, 1ull);
    }
    __syncthreads();
    if (has_room)
        for (unsigned i = threadIdx.x; i < bins; i += blockDim.x)
            if (mine[i] > 0) atomicAdd(reinterpret_cast<unsigned long long*>(counts) + i, mine[i]);
}
"""


@functools.cache
def _kernel(kind: str) -> Kernel:
    source = PRELUDE + _SOURCE.replace("KIND", kind).replace("MOST", "1024")
    signature = (
        "const void* items, const double* edges, long long* counts, unsigned long long n, unsigned long long bins"
    )
    return kernel(source, "histogram", signature=signature)
