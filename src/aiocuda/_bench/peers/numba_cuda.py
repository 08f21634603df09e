"""numba-cuda: the same kernel in Python, on its own arrays and stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from aiocuda._bench.work import BLOCK, GRID, ITEMS, Work

__all__ = ["connect"]


def _scale(y: Any, x: Any, g: Any, n: Any) -> None:
    i = cuda.grid(1)
    if i < n:
        y[i] = g[i] * x[i]


class _Numba:
    name = "numba-cuda"

    def __init__(self, work: Work) -> None:
        cuda.select_device(work.device.ordinal)
        self._stream = cuda.stream()
        arrays = [cuda.device_array(ITEMS, np.float32) for _ in range(3)]
        self._arguments = (*arrays, np.uint32(ITEMS))
        self._kernel: Any = cuda.jit(_scale)[GRID, BLOCK, self._stream]

    def launch(self) -> None:
        self._kernel(*self._arguments)

    def wait(self) -> None:
        self._stream.synchronize()


def connect(work: Work) -> _Numba:
    """Make it ready."""
    return _Numba(work)
