"""Launching a kernel: CUDA C++ whose signature is read from its source, and checked at each launch.

To run it: python examples/03_launch_kernel.py
"""

import asyncio

import numpy as np

import aiocuda as ac

# A kernel reads through pointers to const and writes through others. So the library knows what must wait for what.
sine = ac.kernel(r"""
extern "C" __global__ void sine(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(x[i]);
}""")


async def sines(x: np.ndarray) -> np.ndarray:
    """Compute the sine of each number of a float32 array, on the device."""
    n = len(x)
    # One thread for each item; the library chooses the blocks. The launch yields the array that it writes.
    y = sine(ac.to_device(x), ac.empty(n), n, threads=n)
    return await ac.to_host(y)  # the copies and the launch are submitted here


async def main() -> None:
    print(sine)
    x = np.array([1, 2, 3], np.float32)
    print("found   ", await sines(x))
    print("expected", np.sin(x))
    doubles, y = await ac.zeros(3, np.float64), await ac.empty(3)
    try:
        sine(doubles, y, 3, threads=3)  # no device sees this
    except ac.ArgumentTypeError as error:
        print("refused:", error)


if __name__ == "__main__":
    asyncio.run(main())
