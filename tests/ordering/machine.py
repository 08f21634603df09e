"""The machine of random programs: kernels, streams of all devices, policies, an event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import aiocuda as ac

# Overflow wraps, as NumPy's does.
SOURCE = r"""
#include <aiocuda/tile.cuh>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void increment(int* x, unsigned n) {
    if (INDEX < n) x[INDEX] = (int)(1u + x[INDEX]);
}
extern "C" __global__ void accumulate(int a, const int* x, int* y, unsigned n) {
    if (INDEX < n) y[INDEX] = (int)(3u * y[INDEX] + (unsigned)a * x[INDEX]);
}
extern "C" __global__ void mix(int* x, int* y, unsigned n) {
    if (INDEX < n) { x[INDEX] = (int)(2u * x[INDEX] + y[INDEX]); y[INDEX] = (int)((unsigned)y[INDEX] - 3u * x[INDEX]); }
}
extern "C" __global__ void strided_increment(aiocuda::View<int, 1> x, unsigned n) {
    if (INDEX < n) x(INDEX) = (int)(1u + x(INDEX));
}
extern "C" __global__ void strided_accumulate(int a, aiocuda::View<const int, 1> x, aiocuda::View<int, 1> y,
                                              unsigned n) {
    if (INDEX < n) y(INDEX) = (int)(3u * y(INDEX) + (unsigned)a * x(INDEX));
}
"""


class Machine:
    """The machine of programs: kernels, streams of all devices, policies, a loop."""

    def __init__(self) -> None:
        self.kernels = {name: ac.kernel(SOURCE, name) for name in _KERNELS}
        self.devices = ac.devices()[:2]
        self.streams = {
            device.ordinal: [device.default_stream, device.stream(), device.stream(-1)] for device in self.devices
        }
        for kernel in self.kernels.values():
            for device in self.devices:
                kernel.compile(device)
        self.policies = [
            ac.current_policy(),
            *[ac.Dataflow(n) for n in (1, 2, 3, 4)],
            ac.RoundRobin(1),
            ac.RoundRobin(3),
            ac.SingleStream(),
            ac.LeastLoaded(2),
            Erratic(3),
        ]
        self.runner = asyncio.Runner()

    def stream_of(self, device: int, number: int) -> ac.Stream:
        return self.streams[device][number % 3]

    def policy(self, number: int) -> ac.Policy:
        policy = self.policies[number % len(self.policies)]
        if isinstance(policy, Erratic):
            policy.turn = 0  # the same choices every time
        return policy

    def await_(self, make: Callable[[], Any]) -> Any:
        """Run a coroutine with what is in force here."""

        async def main() -> Any:
            return await make()

        return self.runner.run(main(), context=contextvars.copy_context())

    def close(self) -> None:
        self.runner.close()


_KERNELS = ("increment", "accumulate", "mix", "strided_increment", "strided_accumulate")


class Erratic(ac.SchedulingPolicy):
    """Chooses anything that may be chosen, by a count: also streams that are no candidates."""

    turn = 0

    def choose(self, op, producers, candidates):
        self.turn = (self.turn * 5 + 3) % 64
        possible = [*candidates, *[stream for stream in producers if stream.device == candidates[0].device]]
        return possible[self.turn % len(possible)]
