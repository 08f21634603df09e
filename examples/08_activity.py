"""Activity: what will be put on the device, how long that takes there, and what the library did for it.

To run it: python examples/08_activity.py
"""

import asyncio
from dataclasses import dataclass

import numpy as np

import aiocuda as ac

grow = ac.kernel(r"""
extern "C" __global__ void grow(float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 2 + 1;
}""")


@dataclass
class Activity:
    """The observations of a chain of launches."""

    steps: list[str]
    milliseconds: float
    result: np.ndarray


async def watch(n: int, launches: int) -> Activity:
    """Launch a kernel several times on one array, explained before and timed on the device."""
    chain = ac.zeros(n)
    for _ in range(launches):
        chain = grow(chain, n, threads=n)

    steps = chain.explain().splitlines()  # each with its stream, and the line of the program that asked for it

    # The device notes the time when it comes to an event. The kernel is compiled before, so that this is not timed.
    grow.compile()
    stream = ac.current_device().stream()
    before = stream.record()
    with ac.use(stream):
        future = chain.submit()
    after = stream.record()
    await after
    return Activity(steps, before.elapsed(after), await ac.to_host(await future))


async def main() -> None:
    seen = await watch(n=1000, launches=5)
    print(*seen.steps, sep="\n")
    print(f"{seen.milliseconds:.3f} ms on the device; all of x is {seen.result[0]}")
    print(f"{ac.current_device().memory_info().peak_bytes} bytes of it were in use at most")
    print(ac.statistics())  # what the library has counted since the process began


if __name__ == "__main__":
    asyncio.run(main())
