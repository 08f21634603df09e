"""Configuration: reading and changing the limits of a kernel, a device and a part of the program.

To run it: python examples/12_context_config.py
"""

import asyncio
from dataclasses import dataclass

import numpy as np

import aiocuda as ac

MEBIBYTE = 1 << 20

# A block turns the array around in as much shared memory as the array has bytes.
reverse = ac.kernel(r"""
extern "C" __global__ void reverse(const float* x, float* y, unsigned n) {
    extern __shared__ float kept[];
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) y[i] = kept[n - 1 - i];
}""")


@dataclass
class Configured:
    """The settings before and under the changes, and the result of a launch under them."""

    before: ac.KernelAttributes
    now: ac.KernelAttributes
    fit: ac.Occupancy
    stack_before: int
    stack_now: int
    result: np.ndarray


async def configure(x: np.ndarray) -> Configured:
    """Change what can be changed, launch the kernel, and put everything back."""
    device, before = ac.current_device(), reverse.attributes()

    # Of a kernel: the most shared memory of its launches, and how a multiprocessor's memory is best divided between
    # that and the cache (a hint; `cache="shared"` is a simpler form of it).
    reverse.set_attributes(max_dynamic_shared_bytes=x.nbytes, preferred_carveout=100)
    now, fit = reverse.attributes(), reverse.occupancy(256, shared_memory=x.nbytes)

    # Of a device: the stack of each thread, among other limits. The driver rounds what is asked, and tells it.
    stack_before = device.limits().stack_bytes or 1024
    stack_now = device.set_limits(stack_bytes=2 * stack_before).stack_bytes or 0

    # Also of a device: how much unused memory its memory pool keeps for later. At first it keeps everything.
    device.set_memory_pool(release_threshold=64 * MEBIBYTE)

    # Of a part of the program: how much all arrays may hold. An operation that would need more fails, or waits for its
    # turn.
    with ac.memory_limit(device.memory_info().used_bytes + MEBIBYTE):
        y = reverse(ac.to_device(x), ac.empty(len(x)), len(x), grid=1, block=256, shared_memory=x.nbytes)
        result = await ac.to_host(y)

    device.set_memory_pool(release_threshold=None)
    device.set_limits(stack_bytes=stack_before)
    reverse.set_attributes(
        max_dynamic_shared_bytes=before.max_dynamic_shared_bytes, preferred_carveout=before.preferred_carveout
    )
    return Configured(before, now, fit, stack_before, stack_now, result)


async def main() -> None:
    found = await configure(np.arange(14_000, dtype=np.float32))
    before, now = found.before, found.now
    print(
        f"shared memory of a launch: up to {before.max_dynamic_shared_bytes} bytes, {now.max_dynamic_shared_bytes} now"
    )
    print(f"preferred share of shared memory: {now.preferred_carveout} %; {found.fit.grid} blocks run at once")
    print(f"stack of a thread: {found.stack_before} bytes, {found.stack_now} for a while")
    print("turned around:", found.result)


if __name__ == "__main__":
    asyncio.run(main())
