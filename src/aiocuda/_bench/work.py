"""The launch that everything is measured with, and its floor.

Always true: the C++ loops launch the function that aiocuda launches, on arrays that aiocuda made, with the shape
and arguments that it gives. All launches have passed when a sample is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Device
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp
from aiocuda._verbs.create import zeros

__all__ = ["BLOCK", "GRID", "ITEMS", "LANES", "SCALE", "Work"]

# Three arrays and a number: it reads two arrays and writes one.
SCALE = r"""
extern "C" __global__ void scale(float* y, const float* x, const float* g, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = g[i] * x[i];
}
"""
_SPIN = r"""
__device__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
extern "C" __global__ void spin(float* x, unsigned ns) {
    const unsigned long long start = now_ns();
    while (now_ns() - start < ns) {}
    x[0] += 1;
}
"""
ITEMS, GRID, BLOCK = 1000, 4, 256  # threads=1000 is a grid of 4 blocks of 256
LANES = 4  # streams, where several are used


class Work:
    """Device 0, the kernels, their arrays and streams, and the floor of a launch."""

    def __init__(self) -> None:
        self.device = Device(0)
        self.scale = kernel(SCALE)
        self.scale.compile(self.device)
        self.x, self.g = (zeros(ITEMS).sync() for _ in range(2))
        self.outputs = [zeros(ITEMS).sync() for _ in range(LANES)]
        self.streams = [self.device.stream() for _ in range(LANES)]
        arguments = [array.address.to_bytes(8, "little") for array in (self.outputs[0], self.x, self.g)]
        ordinal = self.device.ordinal
        self.floor = _native.Floor(
            ordinal, self.scale._load(ordinal), GRID, BLOCK, [*arguments, np.uint32(ITEMS).tobytes()]
        )
        self.handles = [stream.handle for stream in self.streams]

    @cached_property
    def spin(self) -> Kernel:
        """A kernel that takes a given time."""
        spin = kernel(_SPIN, "spin")
        spin.compile(self.device)
        return spin

    def launch(self, lane: int = 0) -> DeviceOp[DeviceArray]:
        """Build a launch; those of different lanes touch different arrays."""
        op: DeviceOp[DeviceArray] = self.scale(self.outputs[lane], self.x, self.g, ITEMS, threads=ITEMS)
        return op

    def chain(self, number: int) -> DeviceOp[DeviceArray]:
        """Build launches of which each overwrites what the one before it wrote."""
        op = self.launch()
        for _ in range(number - 1):
            op = self.scale(op, self.x, self.g, ITEMS, threads=ITEMS)
        return op

    def settle(self) -> None:
        """Wait until the device has nothing to do."""
        self.device.synchronize().sync()

    def timed(self, run: Callable[[], object]) -> float:
        """Return the seconds that something takes; what it leaves behind on the device is waited for afterwards."""
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        self.settle()
        return took

    def floor_of_waits(self, number: int) -> dict[str, Callable[[], Sequence[float]]]:
        """Return what launches and waits in C++, in all ways that spin."""
        stream = self.handles[0]
        floors = {
            "C++: launch, spin on the stream": lambda: self.floor.waits(stream, "stream", number),
            "C++: launch, spin on a flag it writes": lambda: self.floor.waits(stream, "flag", number),
            "C++: launch, spin on a host function's": lambda: self.floor.waits(stream, "host function", number),
        }
        return dict(floors)
