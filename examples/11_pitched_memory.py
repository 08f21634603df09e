"""Pitched memory: rows that begin at addresses that suit the device, and copies of a part of an image.

To run it: python examples/11_pitched_memory.py
"""

import asyncio

import numpy as np

import aiocuda as ac

# A View knows the strides of its array: rows may be padded, columns skipped, and the kernel need not care.
brighten = ac.kernel(r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void brighten(aiocuda::View<float, 2> image, float by) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y < image.extent(0) && x < image.extent(1)) image(y, x) += by;
}""")


async def brighten_part(image: np.ndarray, rows: slice, columns: slice) -> tuple[ac.DeviceArray, dict[str, np.ndarray]]:
    """Brighten part of an image on the device; return the image there, and what the host got of it."""
    pitched = await ac.empty(image.shape, pitched=True)
    await ac.copy(pitched, image)  # one copy of rows: neither side has to be in one piece

    part = pitched[rows, columns]  # a view: no copy, the same pitch
    height, width = part.shape
    await brighten(part, 100, threads=(width, height))

    whole, part_alone = await ac.zip(ac.to_host(pitched), ac.to_host(part))
    return pitched, {"image": whole, "part": part_alone}


async def main() -> None:
    image = np.add.outer(10 * np.arange(6), np.arange(8)).astype(np.float32)
    pitched, found = await brighten_part(image, slice(1, 4), slice(2, 6))
    height, width = pitched.shape
    print(f"{height} rows of {width * pitched.itemsize} bytes, {pitched.strides[0]} bytes from one to the next")
    for name, pixels in found.items():
        print(f"{name}:\n{pixels}")


if __name__ == "__main__":
    asyncio.run(main())
