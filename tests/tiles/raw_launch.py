"""Kernels launched by the driver's own call, with Views and Partitions packed here, byte by byte.

Always true: none of aiocuda's native code stands in between, so what is seen here is the header's doing.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from typing import Self

import numpy as np

import aiocuda as ac
from aiocuda._driver import runtime
from aiocuda._driver.compiler import Source, compile_sources
from aiocuda._driver.loaded import LoadedKernel, LoadedModule

ac.devices()  # chooses the driver, before anything of cuda.* is imported

from cuda.bindings import driver  # noqa: E402


class OnDevice:
    """A copy of a NumPy array in device memory; views of the array stand for the same part of the copy."""

    def __init__(self, host: np.ndarray) -> None:
        assert host.flags.c_contiguous
        self.host = host
        with runtime.context_of(0):
            self.address = int(runtime.call(driver.cuMemAlloc, max(host.nbytes, 1)))
            if host.nbytes:
                runtime.call(driver.cuMemcpyHtoD, self.address, host.ctypes.data, host.nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with runtime.context_of(0):
            runtime.call(driver.cuMemFree, self.address)

    def view(self, part: np.ndarray | None = None) -> bytes:
        part = self.host if part is None else part
        rank = part.ndim
        address = self.address + part.ctypes.data - self.host.ctypes.data
        return struct.pack(f"<Q{rank}q{rank}q", address, *part.shape, *part.strides)

    def partition(self, tile_shape: Sequence[int], part: np.ndarray | None = None) -> bytes:
        return self.view(part) + struct.pack(f"<{len(tile_shape)}q", *tile_shape)

    def back(self) -> np.ndarray:
        result = np.empty_like(self.host)
        with runtime.context_of(0):
            if result.nbytes:
                runtime.call(driver.cuMemcpyDtoH, result.ctypes.data, self.address, result.nbytes)
        return result


@functools.cache
def compiled(source: str, name: str, options: tuple[str, ...] = ()) -> LoadedKernel:
    expressions = (name,) if "<" in name else ()
    return LoadedModule(compile_sources([Source("k.cu", source, expressions)], options, 0), 0).kernel(name)


def launch(
    source: str,
    name: str,
    *parameters: bytes,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (1, 1, 1),
    options: tuple[str, ...] = (),
) -> None:
    """Compile, launch and wait; a fault raises DriverError."""
    launch_compiled(compiled(source, name, options), *parameters, grid=grid, block=block)


def launch_compiled(
    kernel: LoadedKernel,
    *parameters: bytes,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (1, 1, 1),
) -> None:
    kept = [ctypes.create_string_buffer(packed, len(packed)) for packed in parameters]
    addresses = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(each) for each in kept))
    with runtime.context_of(0):
        function = driver.CUfunction(kernel.function)
        runtime.call(driver.cuLaunchKernel, function, *grid, *block, 0, 0, ctypes.addressof(addresses), 0)
        runtime.call(driver.cuCtxSynchronize)


def grid_of(shape: Sequence[int], tile_shape: Sequence[int]) -> tuple[int, int, int]:
    """Give the grid with one block a tile: x along the last axis, y the one before, z all others."""
    counts = [1, 1] + [-(-extent // tile) for extent, tile in zip(shape, tile_shape, strict=True)]
    return counts[-1], counts[-2], math.prod(counts[:-2])
