"""Streams: work on different streams overlaps, and the library orders work that touches the same memory.

To run it: python examples/04_streams.py
"""

import asyncio

import numpy as np

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void square(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
extern "C" __global__ void root(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrtf(x[i]);
}
extern "C" __global__ void add(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}"""
square, root, add = (ac.kernel(SOURCE, name) for name in ("square", "root", "add"))


def describe(data: np.ndarray, side: ac.Stream | None = None) -> ac.DeviceOp[np.ndarray]:
    """Describe the square of each number plus its root; the root is taken on a stream of its own, if one is given."""
    x, n = ac.to_device(data), len(data)
    squares = square(x, ac.empty(n), n, threads=n)
    roots = root(x, ac.empty(n), n, threads=n)
    if side is not None:
        roots = roots.on(side)
    # Both branches only read x: they wait for its upload, and not for each other. The sum touches what both wrote, and
    # waits for both. The device does all this waiting, and there is no event to forget.
    return ac.to_host(add(squares, roots, n, threads=n))


async def main() -> None:
    data = np.array([1, 4, 9], np.float32)
    for side in (None, ac.current_device().stream()):
        both = describe(data, side)
        print("streams as the library chooses them:" if side is None else f"the roots on {side}:")
        print(both.explain())  # what awaiting it will do, step by step; nothing has run
        print(await both, "\n")


if __name__ == "__main__":
    asyncio.run(main())
