"""Matrix products by cuBLAS, through the bindings of nvmath-python; the only importer of that.

Always true: one handle for each device, for the life of the process, used by one thread at a time. A product allocates
nothing and waits for nothing, so that it can be captured: its workspace is given to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from aiocuda import _forks
from aiocuda._driver import runtime
from aiocuda.errors import LaunchError, MissingPackageError

__all__ = ["DTYPES", "Factor", "multiply", "open_blas", "workspace_bytes"]

# dtype: CUDA's type of the items, cuBLAS's type of the sums, NumPy's type of the factors before them.
DTYPES: Final = {
    "float16": ("CUDA_R_16F", "COMPUTE_32F", np.float32),
    "bfloat16": ("CUDA_R_16BF", "COMPUTE_32F", np.float32),
    "float32": ("CUDA_R_32F", "COMPUTE_32F", np.float32),
    "float64": ("CUDA_R_64F", "COMPUTE_64F", np.float64),
    "complex64": ("CUDA_C_32F", "COMPUTE_32F", np.complex64),
    "complex128": ("CUDA_C_64F", "COMPUTE_64F", np.complex128),
}

_lock = _forks.lock()
_handles: dict[int, int] = {}


class Factor(NamedTuple):
    """A matrix, or several of them, as cuBLAS takes it.

    Attributes
    ----------
    is_transposed
        Whether its columns lie in one piece each, and not its rows.
    leading
        The items from a row to the next; from a column to the next where it is transposed.
    batch
        The items from a matrix to the next, along each axis of matrices.
    """

    is_transposed: bool
    leading: int
    batch: tuple[int, ...]

    def turned(self) -> Factor:
        """Return the transposed matrix."""
        return Factor(not self.is_transposed, self.leading, self.batch)


def open_blas(ordinal: int) -> None:
    """Make ready for products on a device. Blocks the first time: cuBLAS is loaded.

    Raises
    ------
    MissingPackageError
        nvmath-python or cuBLAS is not installed.
    """
    with _lock:
        if ordinal in _handles:
            return
        try:
            from nvmath.bindings import cublas
        except ImportError as error:
            raise MissingPackageError(f"matmul on a GPU needs nvmath-python ({error}): {_INSTALL}") from error
        with runtime.context_of(ordinal):
            try:
                _handles[ordinal] = int(cublas.create())
            except RuntimeError as error:  # of the search for the library
                raise MissingPackageError(f"matmul on a GPU needs cuBLAS ({error}): {_INSTALL}") from error


_INSTALL = 'pip install "aiocuda[nvmath]"'


def workspace_bytes(ordinal: int) -> int:
    """Return the size of the workspace that NVIDIA advises for a device (documentation of ``cublasSetWorkspace``)."""
    return (32 if runtime.properties(ordinal).compute_capability >= (9, 0) else 4) << 20


def multiply(
    ordinal: int,
    stream: int,
    workspace: tuple[int, int],
    dtype: str,
    addresses: tuple[int, int, int],
    extents: tuple[int, int, int],
    batch: Sequence[int],
    factors: tuple[Factor, Factor, Factor],
    scales: tuple[complex, complex],
) -> None:
    """Put products of matrices on a stream; `open_blas` came before, and the device's context is the current one.

    Parameters
    ----------
    stream, workspace
        The driver's handle; address and size in bytes of memory that nothing else on the device uses meanwhile.
    dtype
        A key of `DTYPES`.
    addresses
        Of the factors and of the product.
    extents
        Rows of `a`, columns of `a` which are rows of `b`, columns of `b`.
    batch
        How many matrices, along each axis of them.
    factors
        How the two and the product lie; the rows of the product lie in one piece each.
    scales
        What the product is multiplied by, and what is there before; by 0 it is not read.

    Raises
    ------
    LaunchError
        cuBLAS refused.
    """
    from nvmath import CudaDataType
    from nvmath.bindings import cublas

    rows, inner, columns = extents
    item, compute, factor = DTYPES[dtype]
    kind = CudaDataType[item]
    itemsize = np.dtype(factor).itemsize // (2 if dtype.endswith("float16") else 1)
    a, b, product = factors
    alpha, beta = (np.full(1, scale, factor) for scale in scales)
    operation = {False: cublas.Operation.N, True: cublas.Operation.T}
    with _lock:
        try:
            handle = _handles[ordinal]
            cublas.set_stream(handle, stream)  # which takes the workspace away
            cublas.set_workspace(handle, *workspace)
            for offsets, steps, count in _runs(batch, (a.batch, b.batch, product.batch)):
                # cuBLAS counts columns first: what it takes for a matrix is the transposed one, and the product of
                # the transposed factors in turn is the transposed product.
                at = [address + offset * itemsize for address, offset in zip(addresses, offsets, strict=True)]
                cublas.gemm_strided_batched_ex_64(
                    handle,
                    operation[b.is_transposed],
                    operation[a.is_transposed],
                    columns,
                    rows,
                    inner,
                    alpha.ctypes.data,
                    at[1],
                    kind,
                    b.leading,
                    steps[1],
                    at[0],
                    kind,
                    a.leading,
                    steps[0],
                    beta.ctypes.data,
                    at[2],
                    kind,
                    product.leading,
                    steps[2],
                    count,
                    cublas.ComputeType[compute],
                    cublas.GemmAlgo.DEFAULT,
                )
        except cublas.cuBLASError as error:
            raise LaunchError(
                f"cuBLAS refused a product of {rows}x{inner} and {inner}x{columns} {dtype}: {error}"
            ) from error


def _runs(batch: Sequence[int], steps: tuple[tuple[int, ...], ...]) -> Iterator[tuple[list[int], tuple[int, ...], int]]:
    """Yield matrices that lie at equal distances, as many at once as do: offsets, distances, how many."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for extent, step in zip(batch, zip(*steps, strict=True), strict=True):
        if extent == 1:
            continue
        if axes and all(outer == extent * inner for outer, inner in zip(axes[-1][1], step, strict=True)):
            axes[-1] = axes[-1][0] * extent, step
        else:
            axes.append((extent, step))
    count, last = axes.pop() if axes else (1, (0,) * len(steps))
    for index in np.ndindex(*(extent for extent, _ in axes)):
        offsets = [sum(i * step[k] for i, (_, step) in zip(index, axes, strict=True)) for k in range(len(steps))]
        yield offsets, last, count
