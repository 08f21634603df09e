"""The compiler's figures for a kernel, how many of its blocks a device runs at once, and a launch that is made to fit.

To run it: python examples/10_function_attributes.py
"""

import asyncio

import numpy as np

import aiocuda as ac

# A thread takes many items, so any grid will do: the device's own size is the best one.
sine = ac.kernel(r"""
extern "C" __global__ void sine(const float* x, float* y, unsigned n) {
    unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = sinf(x[i]);
}""")


async def sines(x: np.ndarray) -> tuple[ac.KernelAttributes, ac.Occupancy, np.ndarray]:
    """Compute sines with as many blocks as the device runs at once, of the size that suits it best."""
    attributes = sine.attributes()  # compiled for the device in force, if it was not
    best = sine.occupancy()  # sine.occupancy(128) tells the same of blocks of 128 threads
    y = sine(ac.to_device(x), ac.empty(len(x)), len(x), grid=best.grid, block=best.block)
    return attributes, best, await ac.to_host(y)


async def main() -> None:
    attributes, best, y = await sines(np.linspace(0, np.pi, 100_000, dtype=np.float32))
    print(f"{ac.current_device().name}, {ac.current_device().multiprocessor_count} multiprocessors")
    print(
        f"compiled for {attributes.binary_version / 10:.1f}: {attributes.registers} registers a thread, "
        f"{attributes.shared_bytes} bytes of shared memory, {attributes.local_bytes} of local memory"
    )
    print(
        f"blocks of up to {attributes.max_threads_per_block} threads; {best.block} are best: "
        f"{best.active_blocks} blocks on each multiprocessor fill {best.fraction:.0%} of it, {best.grid} the device"
    )
    print("largest sine:", y.max())


if __name__ == "__main__":
    asyncio.run(main())
