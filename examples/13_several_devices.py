"""Several devices: copies between them, and one computation shared out over all there are.

To run it: python examples/13_several_devices.py

Without a GPU there is one emulated device; AIOCUDA_EMULATED_DEVICES=4 makes it four.
"""

import asyncio

import numpy as np

import aiocuda as ac

scale = ac.kernel(r"""
extern "C" __global__ void scale(float factor, float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}""")


async def round_trip(data: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Send an array from device to device, and to the host again; say which devices it saw."""
    array, seen = await ac.to_device(data, 0), []
    for device in ac.devices():
        array = await array.to(device)  # one that is there already is given as it is
        seen.append(array.device.ordinal)
    return seen, await ac.to_host(array)


async def scaled(data: np.ndarray, factor: float) -> np.ndarray:
    """Multiply an array: each device takes a part, the first one puts them together."""
    parts = [part.then(lambda x: scale(factor, x, x.size, threads=x.size)) for part in ac.shard(data)]
    # A launch runs where its array is. Nothing has been moved yet: this describes it all, and awaits it.
    return await ac.to_host(ac.gather(parts, 0))


async def main() -> None:
    for device in ac.devices():
        print(device)
    data = np.arange(7, dtype=np.float32)
    seen, back = await round_trip(data)
    print("by way of devices", seen, "came", back)
    print("ten times:", await scaled(data, 10))


if __name__ == "__main__":
    asyncio.run(main())
