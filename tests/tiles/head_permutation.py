"""The head-permutation kernels: out[b, permutation[h]] = x[b, h], of shape (b, h, m, d), one block a (b, h).

With raw pointers a store whose index has `m` and `h2` swapped compiles, stays inside the array and races: blocks of
different heads write the same items. Through a partition that store cannot be written: the nearest to it leaves the
block's own tile, and is caught.
"""

from __future__ import annotations

import numpy as np

# More heads than rows: then the swapped index is always inside the array.
SHAPE = (2, 6, 4, 8)
PERMUTATION = (3, 0, 5, 1, 4, 2)
TILE_SHAPE = (1, 1, 4, 8)  # of the partition of `out`: one (b, h2)
BLOCK = (8, 4, 1)
RAW_GRID = (6, 2, 1)  # h, b
PARTITION_GRID = (1, 1, 12)  # b and h2, folded

_RAW = r"""
extern "C" __global__ void {name}(const float* x, float* out, const int* permutation, int heads, int rows, int width) {{
    const int b = blockIdx.y, h = blockIdx.x, m = threadIdx.y, d = threadIdx.x;
    const int h2 = permutation[h];
    if (m < rows && d < width) out[{store}] = x[((b * heads + h) * rows + m) * width + d];
}}
"""
RAW_NAME = "permute_heads"
RAW = _RAW.format(name=RAW_NAME, store="((b * heads + h2) * rows + m) * width + d")
RACING_NAME = "permute_heads_racing"
RACING = _RAW.format(name=RACING_NAME, store="((b * heads + m) * rows + h2) * width + d")

_PARTITION = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void {name}(aiocuda::View<const float, 4> x, aiocuda::Partition<float, 4> out,
                                  aiocuda::View<const int, 1> inverse) {{
    const auto tile = out.tile();
    const int m = threadIdx.y, d = threadIdx.x;
    const long long b = tile.index(0), h2 = tile.index(1);
    if (tile.contains(0, 0, m, d)) tile({store}) = x(b, inverse(h2), m, d);
}}
"""
PARTITION_NAME = "permute_heads_partition"
PARTITION = _PARTITION.format(name=PARTITION_NAME, store="0, 0, m, d")
PARTITION_SWAPPED_NAME = "permute_heads_partition_swapped"
PARTITION_SWAPPED = _PARTITION.format(name=PARTITION_SWAPPED_NAME, store="0, m, h2, d")


def reference(x: np.ndarray, permutation: tuple[int, ...] = PERMUTATION) -> np.ndarray:
    """Return what the kernels are to compute."""
    out = np.empty_like(x)
    out[:, list(permutation)] = x
    return out


def inverse(permutation: tuple[int, ...] = PERMUTATION) -> np.ndarray:
    """Return the source head of each head written, which the partition kernels read."""
    return np.argsort(np.array(permutation)).astype(np.int32)


def writers(shape: tuple[int, ...] = SHAPE, permutation: tuple[int, ...] = PERMUTATION) -> np.ndarray:
    """Count, for each item of `out`, the blocks that write it in the racing kernel."""
    batches, heads, rows, width = shape
    count = np.zeros(shape, np.int64)
    for b in range(batches):
        for h2 in permutation:
            for m in range(rows):
                first = ((b * heads + m) * rows + h2) * width
                count.reshape(-1)[first : first + width] += 1
    return count
