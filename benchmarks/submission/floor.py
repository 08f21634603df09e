"""The floors of submission, on the driver and with the arguments that aiocuda uses: floor.cpp, built and called."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiocuda as ac
from aiocuda._driver import runtime

# A launch of three arrays and a number, which reads two arrays and writes one.
SCALE = r"""
extern "C" __global__ void scale(float* y, const float* x, const float* g, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = g[i] * x[i];
}
"""
THREADS, GRID, BLOCK = 1000, 4, 256  # threads=1000 is a grid of 4 blocks of 256


def build_library(source: Path, library: Path, *options: str) -> Path:
    """Compile one C++ file to a shared library."""
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, "-std=c++20", "-O2", "-shared", "-fPIC", *options, source, "-o", library], check=True)
    return library


class Floor:
    """The launch of ``scale`` in a C++ loop, on the arrays that aiocuda launches it on.

    Parameters
    ----------
    directory
        Where the loop is built.
    kernel
        The kernel ``scale``.
    y, x, g
        Its arrays.
    """

    def __init__(self, directory: Path, kernel: Any, y: ac.DeviceArray, x: ac.DeviceArray, g: ac.DeviceArray) -> None:
        self._library = ctypes.CDLL(str(build_library(Path(__file__).with_name("floor.cpp"), directory / "floor.so")))
        y.device.synchronize().sync()
        context = runtime._open[0].context
        self._kernel = (ctypes.c_void_p(context), ctypes.c_void_p(kernel._load(0)), GRID, BLOCK)
        self._values = [*(ctypes.c_uint64(array.address) for array in (y, x, g)), ctypes.c_uint32(THREADS)]
        self._arguments = (ctypes.c_void_p * 4)(*map(ctypes.addressof, self._values))

    def launches(self, stream: ac.Stream, number: int) -> float:
        """Return the seconds for each of some launches on one stream."""
        return self._call("launch_loop", [stream], number)

    def ping_pong(self, first: ac.Stream, second: ac.Stream, number: int) -> float:
        """Return the seconds for each of some launches on two streams in turn, each behind the one before."""
        return self._call("ping_pong_loop", [first, second], number)

    def _call(self, name: str, streams: Sequence[ac.Stream], number: int) -> float:
        loop = getattr(self._library, name)
        loop.restype = ctypes.c_double
        handles = [ctypes.c_void_p(stream.handle) for stream in streams]
        took = float(loop(*self._kernel, *handles, self._arguments, ctypes.c_uint64(number)))
        if took < 0:
            raise RuntimeError(f"{name}: the driver refused a call")
        return took
