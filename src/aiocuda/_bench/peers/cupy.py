"""CuPy: a `RawKernel` of the same source."""

from __future__ import annotations

import cupy
import numpy as np

from aiocuda._bench.work import BLOCK, GRID, ITEMS, SCALE, Work

__all__ = ["connect"]


class _CuPy:
    name = "CuPy"

    def __init__(self, work: Work) -> None:
        cupy.cuda.Device(work.device.ordinal).use()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._stream.use()  # CuPy's own, of this thread
        self._kernel = cupy.RawKernel(SCALE, "scale")
        arrays = [cupy.zeros(ITEMS, cupy.float32) for _ in range(3)]
        self._arguments = (*arrays, np.uint32(ITEMS))

    def launch(self) -> None:
        self._kernel((GRID,), (BLOCK,), self._arguments)

    def wait(self) -> None:
        self._stream.synchronize()


def connect(work: Work) -> _CuPy:
    """Make it ready."""
    return _CuPy(work)
