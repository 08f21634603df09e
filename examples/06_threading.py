"""Threads: those that block, and an event loop that never does, use one device and the same arrays.

To run it: python examples/06_threading.py
"""

import asyncio

import numpy as np

import aiocuda as ac

scaled = ac.kernel(r"""
extern "C" __global__ void scaled(float factor, const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}""")


def times(factor: float, x: ac.DeviceOp[ac.DeviceArray], n: int) -> ac.DeviceOp[np.ndarray]:
    """Describe a multiple of an array, brought to the host. Any thread may describe, and any may wait."""
    return ac.to_host(scaled(factor, x, ac.empty(n), n, threads=n))


async def share_a_device(data: np.ndarray, threads: int = 4) -> list[np.ndarray]:
    """Compute multiples of an array: some in threads that block, as many in tasks of this event loop."""
    n = len(data)
    x = ac.to_device(data)  # all of them need it, whoever comes first uploads it, and it is uploaded once

    def blocking(factor: float) -> np.ndarray:
        return times(factor, x, n).sync()  # other threads run meanwhile; none has to be made ready for the device

    in_threads = [asyncio.to_thread(blocking, factor) for factor in range(threads)]
    in_tasks = [times(factor, x, n) for factor in range(threads, 2 * threads)]
    return await asyncio.gather(*in_threads, *in_tasks)


async def main() -> None:
    for factor, multiple in enumerate(await share_a_device(np.arange(5, dtype=np.float32))):
        print(f"{factor} times:", multiple)


if __name__ == "__main__":
    asyncio.run(main())
